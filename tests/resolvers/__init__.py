"""gtm behind real programs: clients that ask it, and resolvers in front of it."""
