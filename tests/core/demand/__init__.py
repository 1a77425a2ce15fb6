"""Tests of demand."""
