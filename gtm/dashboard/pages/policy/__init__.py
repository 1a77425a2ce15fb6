"""Pages of the policy: what is in force, drafts, revisions."""
