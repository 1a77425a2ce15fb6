"""What happened, by time: demand, health, plans, and who changed what."""
