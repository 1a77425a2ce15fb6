"""Tests of what a change would do."""
