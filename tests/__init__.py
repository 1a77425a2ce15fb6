"""Tests that share values import them from one another as `tests.<area>`."""
