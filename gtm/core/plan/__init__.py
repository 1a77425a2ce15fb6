"""The spillover plan: which share of each ranking class which region serves."""
