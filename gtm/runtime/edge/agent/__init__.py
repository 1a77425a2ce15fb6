"""An edge's agent: follows control, probes, keeps the last good policy, owns the sockets and the workers."""
