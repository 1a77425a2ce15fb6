"""Commands that run servers, and what they need."""
