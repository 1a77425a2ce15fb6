"""From a packet to its reply: the fast way, static answers, and the full way."""
