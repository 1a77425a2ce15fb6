"""The processes of an edge: its agent, and the workers that answer."""
