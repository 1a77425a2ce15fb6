"""The least a UDP server in Python can do: each packet back, marked as a response so that dnsperf counts it."""

from __future__ import annotations

import socket
import sys

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    packet, client = server.recvfrom(4096)
    server.sendto(packet[:2] + b"\x84" + packet[3:], client)
