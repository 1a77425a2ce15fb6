"""What an edge answers: decisions, remembered and rendered."""
