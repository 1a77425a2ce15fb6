"""Tests of the DNS answerer."""
