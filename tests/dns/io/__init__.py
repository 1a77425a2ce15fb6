"""Tests of sockets and limits."""
