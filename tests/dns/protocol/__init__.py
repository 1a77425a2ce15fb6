"""Tests of headers, EDNS and cookies."""
