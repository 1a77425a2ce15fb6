"""Query files for dnsperf: whole messages, each after its length in two bytes (`-B`), the same for the same seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate

import dns.name

DO = 0x8000
_PAYLOAD = 1232


def query(name: str, net: int, *, dnssec_ok: bool = False) -> bytes:
    """A question for a name's A records with the client subnet of a /24 network (RFC 7871 §6)."""
    option = struct.pack("!HHHBB", 8, 7, 1, 24, 0) + net.to_bytes(3)
    opt = struct.pack("!BHHIH", 0, 41, _PAYLOAD, DO if dnssec_ok else 0, len(option)) + option
    header = struct.pack("!6H", 0, 0x0100, 1, 0, 0, 1)
    return header + dns.name.from_text(name).to_wire() + struct.pack("!HH", 1, 1) + opt


def each(name: str, nets: Iterable[int], *, dnssec_ok: bool = False) -> list[bytes]:
    """One query from every network."""
    return [query(name, net, dnssec_ok=dnssec_ok) for net in nets]


def by_zipf(names: Sequence[str], nets: Sequence[int], count: int, generator: random.Random) -> list[bytes]:
    """So many queries, names and networks both by Zipf's law with exponent 1."""
    chosen_names = generator.choices(names, cum_weights=_zipf(len(names)), k=count)
    chosen_nets = generator.choices(nets, cum_weights=_zipf(len(nets)), k=count)
    parts = {name: query(name, 0)[:-3] for name in names}
    return [parts[name] + net.to_bytes(3) for name, net in zip(chosen_names, chosen_nets, strict=True)]


def _zipf(count: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, count + 1)))


def malformed(good: Sequence[bytes], count: int, generator: random.Random) -> list[bytes]:
    """Packets that no server can take for one of these queries: cut short, counts changed, names broken, noise."""
    made = []
    for number in range(count):
        packet = bytearray(generator.choice(good))
        kind = number % 5
        if kind == 0:
            del packet[generator.randrange(1, len(packet)) :]
        elif kind == 1:
            packet[4:12] = generator.randbytes(8)
        elif kind == 2:
            packet[12] = generator.randrange(64, 256)  # a label of an undefined type, or a pointer
        elif kind == 3:
            packet[-11:] = generator.randbytes(11)
        else:
            packet[2:] = generator.randbytes(len(packet) - 2)
        made.append(bytes(packet))
    return made


def file_of(queries: Iterable[bytes]) -> bytes:
    """The queries as dnsperf reads them."""
    return b"".join(len(query).to_bytes(2) + query for query in queries)
