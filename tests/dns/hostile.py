"""Packets that nobody should send, and a server in a process of its own to send them to."""

from __future__ import annotations

import logging
import random
import struct
import sys
import threading

import dns.edns
import dns.message

from gtm.dns.answer.answerer import Answerer
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import ServerOptions
from gtm.telemetry import Counts

from .serving import BoundServer
from .world import locate, query, router

OPTIONS = ServerOptions(b"fra-1", b"gtm", 10.0, ServerCookies(bytes(16)))
QUESTION = b"\4chat\4demo\4test\0\0\1\0\1"


def header(flags: int = 0, **counts: int) -> bytes:
    """A header with the section counts given."""
    return struct.pack("!6H", 0x1234, flags, *(counts.get(name, 0) for name in ("qd", "an", "ns", "ar")))


def record(owner: bytes, rdtype: int, data: bytes, length: int | None = None) -> bytes:
    """A record, whose length may lie."""
    return owner + struct.pack("!HHIH", rdtype, 1, 0, len(data) if length is None else length) + data


def opt(options: bytes = b"", length: int | None = None) -> bytes:
    """An OPT record, whose length may lie."""
    return b"\0" + struct.pack("!HHIH", 41, 1232, 0, len(options) if length is None else length) + options


def name(*labels: int) -> bytes:
    """A name of labels so long."""
    return b"".join(bytes((size,)) + b"x" * size for size in labels) + b"\0"


END = b"\0\1\0\1"
CRAFTED = {
    "a pointer to itself": header(qd=1) + b"\xc0\x0c" + END,
    "a pointer to the header": header(qd=1) + b"\xc0\x00" + END,
    "a pointer past the end": header(qd=1) + b"\xff\xff" + END,
    "a pointer that is cut": header(qd=1) + b"\xc0",
    "two pointers to each other": header(qd=1, an=2)
    + QUESTION
    + record(b"\xc0\x2e", 1, bytes(4))
    + record(b"\xc0\x20", 1, bytes(4)),
    "a record whose owner points ahead": header(qd=1, ar=1) + QUESTION + record(b"\xc0\xff", 1, bytes(4)),
    "a record whose owner points at itself": header(qd=1, ar=1) + QUESTION + record(b"\xc0\x20", 1, bytes(4)),
    "data that points at itself": header(qd=1, ar=1) + QUESTION + record(b"\0", 5, b"\xc0\x2b"),
    "a chain of pointers": header(qd=1, an=60)
    + QUESTION
    + record(b"\xc0\x0c", 5, b"\xc0\x0c")
    + b"".join(record(struct.pack("!H", 0xC000 + 32 + 14 * at), 5, b"\xc0\x0c") for at in range(59)),
    "an OPT whose owner is a pointer": header(qd=1, ar=1) + QUESTION + b"\xc0\x1f" + opt()[1:],
    "an option cut short": header(qd=1, ar=1) + QUESTION + opt(b"\0\x0a\0\x08abc"),
    "an option's header cut short": header(qd=1, ar=1) + QUESTION + opt(b"\0\x0a\0"),
    "an OPT longer than the packet": header(qd=1, ar=1) + QUESTION + opt(b"", 65535),
    "an OPT shorter than its options": header(qd=1, ar=1) + QUESTION + opt(bytes(8), 4),
    "many options": header(qd=1, ar=1) + QUESTION + opt(b"\xff\xfe\0\0" * 16_000),
    "one long option": header(qd=1, ar=1) + QUESTION + opt(b"\xff\xfe\xfa\0" + bytes(64_000)),
    "many client subnets": header(qd=1, ar=1) + QUESTION + opt(b"\0\x08\0\7\0\1\x18\0\x0a\1\2" * 60),
    "many cookies": header(qd=1, ar=1) + QUESTION + opt((b"\0\x0a\0\x08" + bytes(8)) * 64),
    "thousands of OPTs": header(qd=1, ar=5000) + QUESTION + opt() * 5000,
    "two OPTs": header(qd=1, ar=2) + QUESTION + opt() * 2,
    "OPTs in every section": header(qd=1, an=1, ns=1, ar=1) + QUESTION + opt() * 3,
    "all counts at their most": header(qd=65535, an=65535, ns=65535, ar=65535) + QUESTION,
    "more questions than there are": header(qd=2) + QUESTION,
    "many questions": header(qd=3000) + QUESTION * 3000,
    "fewer records than there are": header(qd=1) + QUESTION + opt(),
    "records without a question": header(an=1) + record(b"\0", 1, bytes(4)),
    "a name of 255 octets": header(qd=1) + name(63, 63, 63, 61) + END,
    "a name of 256 octets": header(qd=1) + name(63, 63, 63, 62) + END,
    "a name of 300 octets": header(qd=1) + name(63, 63, 63, 63, 40) + END,
    "127 labels": header(qd=1) + name(*(1,) * 127) + END,
    "128 labels": header(qd=1) + name(*(1,) * 128) + END,
    "a label of 63 octets": header(qd=1) + name(63) + END,
    "a label of 64 octets": header(qd=1) + b"\x40" + b"x" * 64 + b"\0" + END,
    "a label type of old": header(qd=1) + b"\x41\x08xx\0" + END,
    "zero bytes in labels": header(qd=1) + b"\4\0\0\0\0\4demo\4test\0" + END,
    "a compressed name of 256 octets": header(qd=1, an=1)
    + name(63, 63, 63, 61)
    + END
    + record(b"\1y\xc0\x0c", 1, bytes(4)),
    "the root": header(qd=1) + b"\0" + END,
    "nothing but a header": header(),
    "a question without a type": header(qd=1) + QUESTION[:-4],
    "a header and zeros": header(qd=1) + bytes(500),
    "an UPDATE": header(0x2800, qd=1, an=1, ns=3, ar=9) + QUESTION,
    "a TSIG in the wrong place": header(qd=1, an=1) + QUESTION + record(b"\0", 250, bytes(30)),
    "a TSIG of nothing": header(qd=1, ar=1) + QUESTION + record(b"\0", 250, b""),
    "a SIG(0)": header(qd=1, ar=1) + QUESTION + record(b"\0", 24, bytes(40)),
    "64 kB of nothing": header(qd=1) + bytes(65_523),
    "64 kB of ones": b"\x12\x34\0" + b"\xff" * 65_532,
    "a large record": header(qd=1, ar=1) + QUESTION + record(b"\0", 16, b"\xff" + b"t" * 255 + bytes(60_000)),
    "SVCB of many keys": header(qd=1, ar=1)
    + QUESTION
    + record(b"\0", 65, b"\0\1\0" + b"".join(struct.pack("!HH", at, 0) for at in range(7, 9000))),
}
"""What is wrong with a packet → the packet."""


def seeds() -> list[bytes]:
    """Good queries of every kind."""
    names = [
        "chat.demo.test",
        "nope.demo.test",
        "demo.test",
        "big.demo.test",
        "example.com",
        "alias.demo.test",
    ]
    packets = [
        query(host, rdtype) for host in names for rdtype in ("A", "AAAA", "TXT", "SOA", "ANY", "HTTPS")
    ]
    packets += [query(host, subnet="10.1.2.0/24") for host in names]
    packets += [query(host, subnet="2001:db8:1::/48", want_dnssec=True) for host in names]
    options = [
        dns.edns.CookieOption(bytes(8), b""),
        dns.edns.CookieOption(bytes(8), bytes(16)),
        dns.edns.NSIDOption(b""),
        dns.edns.GenericOption(dns.edns.OptionType.make(11), b""),
        dns.edns.GenericOption(dns.edns.OptionType.make(12), bytes(9)),
    ]
    for option in options:
        packets.append(dns.message.make_query("chat.demo.test", "A", use_edns=0, options=[option]).to_wire())
    packets.append(dns.message.make_query("version.bind", "TXT", "CH", use_edns=0).to_wire())
    return packets


def noise(draw: random.Random, seeds: list[bytes]) -> bytes:
    """One datagram: random bytes after a query's header, or a good query with bytes changed, cut, put in or doubled."""
    if draw.random() < 0.5:
        body = draw.randbytes(draw.choice((0, 4, 20, 60, 500)))
        return (
            struct.pack(
                "!6H", draw.getrandbits(16), draw.choice((0, 0x100, 0x2800)), 1, 0, 0, draw.randrange(3)
            )
            + body
        )
    packet = bytearray(draw.choice(seeds))
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(packet) + 1)
        match draw.randrange(5):
            case 0 | 1:
                packet[at : at + 1] = draw.randbytes(1)
            case 2:
                del packet[at:]
            case 3:
                packet[at:at] = draw.randbytes(draw.randrange(1, 9))
            case _:
                packet += packet[at:]
    return bytes(packet)


def main() -> None:
    """Serve the world until standard input ends; print the port first, and last how many internal errors there were.

    With the argument `limited`, clients of this machine are limited too.
    """
    counts = Counts()
    answerer = Answerer(router(), locate, counts, options=OPTIONS)
    limits = RateLimits(exempt=()) if "limited" in sys.argv else RateLimits()
    limiter = Limiter(limits, OPTIONS.cookies, counts)

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        return answerer.answer(packet, client, tcp=tcp, draw=0.5) if tcp else answerer.udp(packet, client)

    def turn() -> None:
        while not ended.wait(1.0):
            limiter.turn()

    said: list[logging.LogRecord] = []
    logging.getLogger("gtm.dns.io.guard").addFilter(lambda record: not said.append(record))
    ended = threading.Event()
    server = BoundServer([("127.0.0.1", 0)], respond, counts=counts, limiter=limiter)
    sys.stdout.write(f"{server.addresses[0][1]}\n")
    sys.stdout.flush()
    for work in (server.serve, turn):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()
    ended.set()
    server.stop()
    sys.stdout.write(f"{len(said)}\n")


if __name__ == "__main__":
    main()
