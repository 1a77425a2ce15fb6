"""Tests of what makes a policy a Snapshot."""
