"""Processes: how the rooms are put together into control, edge agent, workers, and all of them at once."""
