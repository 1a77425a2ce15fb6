"""Commands that ask a running system."""
