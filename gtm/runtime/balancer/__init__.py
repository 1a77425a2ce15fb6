"""The process of a regional balancer."""
