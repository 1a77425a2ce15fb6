"""Fuzzing with coverage (`make fuzz`), and its corpus, which an ordinary test replays."""
