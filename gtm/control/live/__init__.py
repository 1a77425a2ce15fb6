"""What every control process does: follow the database, and tell the edges that follow it."""
