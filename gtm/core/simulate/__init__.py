"""What policies would make of given traffic, and what differs between two of them."""
