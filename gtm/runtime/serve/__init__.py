"""Control and edge under one supervisor: `gtm serve`."""
