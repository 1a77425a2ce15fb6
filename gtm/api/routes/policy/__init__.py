"""Paths that read, check and change the policy: whole, by resource, and what it says of residency."""
