"""What flows from control to edges and from an edge's agent to its workers: one wire format, one code path."""
