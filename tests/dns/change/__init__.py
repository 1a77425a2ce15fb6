"""What a change of policy lets be answered, and what it may."""
