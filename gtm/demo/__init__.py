"""A small world to try gtm on: seven regions and a refusal page on loopback addresses, and their policy."""
