"""DNSSEC without bytes: keys as values, and when they roll over."""
