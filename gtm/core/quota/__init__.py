"""Quotas of spillover: leased by control to edges, shared out to workers, spent by token."""
