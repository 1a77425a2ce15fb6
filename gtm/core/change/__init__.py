"""What a change of policy would do: what it moves, what it opens, and what stands in its way."""
