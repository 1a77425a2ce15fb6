"""What is asked of an edge: heads, parameters and bodies read, and who asks."""
