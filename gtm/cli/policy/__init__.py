"""Commands that read, write and try policies."""
