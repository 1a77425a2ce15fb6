"""Operations that no server knows, with every flag set (ISC's EDNS compliance tester, RFC 8906 §8.1.4)."""

from __future__ import annotations

import socket

from tests.drills.arena import Arena, attack, held

_PATIENCE = 5.0
_ALL_FLAGS = 0x07B0
"""AA, TC, RD, RA, AD and CD."""


@attack("B6", "unknown opcodes with every flag set")
def unknown_opcodes(arena: Arena) -> str:
    """Each reply is NOTIMP with QR and the opcode, and no other flag, over UDP and TCP."""
    port = arena.shared.dns_port
    opcodes = range(1, 16)
    for opcode in opcodes:
        packet = opcode.to_bytes(2) + (opcode << 11 | _ALL_FLAGS).to_bytes(2) + bytes(8)
        for reply in (_udp(port, packet), _tcp(port, packet)):
            wanted = packet[:2] + (0x8000 | opcode << 11 | 4).to_bytes(2)
            held(reply[:4] == wanted, f"opcode {opcode}: header {reply[:4].hex()}, not {wanted.hex()}")
    return f"NOTIMP with QR alone for {len(opcodes)} opcodes, over UDP and TCP"


def _udp(port: int, packet: bytes) -> bytes:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(_PATIENCE)
        client.connect(("127.0.0.1", port))
        client.send(packet)
        return client.recv(4096)


def _tcp(port: int, packet: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as client:
        client.sendall(len(packet).to_bytes(2) + packet)
        return client.makefile("rb").read(14)[2:]
