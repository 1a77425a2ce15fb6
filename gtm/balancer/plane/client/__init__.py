"""Clients' connections: requests read as they come, answered one after the other, and how they end."""
