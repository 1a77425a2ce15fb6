"""Tests of DNSSEC keys."""
