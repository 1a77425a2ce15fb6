"""Connections to backends: kept for the next request, and what comes on them."""
