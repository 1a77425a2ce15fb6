"""What regions can take: load reports, what they say of service times, and the supply that follows."""
