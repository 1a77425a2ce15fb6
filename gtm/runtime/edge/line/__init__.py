"""Between an agent and its workers: who they are, what they are told, the line that they speak over."""
