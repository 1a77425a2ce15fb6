"""Sockets of a name server: UDP, TCP, and what keeps both from being abused."""
