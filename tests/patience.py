"""How long tests wait for what has to happen."""

PATIENCE = 60.0
"""Seconds after which waiting for something is a failure. Never a bound on speed: a busy machine stands still for ten at times."""
