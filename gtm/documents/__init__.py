"""A policy as people write it: its fields, YAML, folders, differences, expectations, and files of other systems."""
