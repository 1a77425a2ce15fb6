"""What the one active control process does: hear the edges, judge, plan, lease and record."""
