"""Tests of latency."""
