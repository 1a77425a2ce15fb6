"""Tests of what zones hold."""
