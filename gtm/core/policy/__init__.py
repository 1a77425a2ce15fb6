"""From a policy as it was written to a Snapshot that can be decided from."""
