"""The control process, and what prepares its database."""
