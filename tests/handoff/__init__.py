"""Tests of signed handoffs on the wire."""
