"""Balancers of one region on several machines: what they tell each other, by UDP."""
