"""Bytes of DNS messages: names, headers, EDNS options, cookies, client subnets."""
