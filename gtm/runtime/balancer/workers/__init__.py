"""A balancer of several processes: the one that follows control, and workers that carry requests."""
