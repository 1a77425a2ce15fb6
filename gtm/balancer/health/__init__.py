"""What backends are asked: health, models, a completion, metrics."""
