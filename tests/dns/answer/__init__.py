"""Tests of answers."""
