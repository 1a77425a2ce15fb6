"""What the one active control process writes down of what happened, and for how long it stays."""
