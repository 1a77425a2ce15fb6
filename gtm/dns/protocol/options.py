"""What a server says of itself and to its client: EDNS options beside the client subnet, and names of class CHAOS.

Each option comes back only to who sent it. Padding is for encrypted transport alone (RFC 7830 §6), and what is unknown is
ignored (RFC 6891 §6.1.2), so neither has a place here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import SIZES, CookieVerdict, ServerCookies

_SERVER_NAMES = (b"\x02id\x06server\x00", b"\x08hostname\x04bind\x00")
_VERSION_NAMES = (b"\x07version\x06server\x00", b"\x07version\x04bind\x00")
_QUESTION_NAME = b"\xc0\x0c"  # a pointer to it (RFC 1035 §4.1.4)
_MAX_TEXT = 255  # RFC 1035 §3.3


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server offers; by default nothing.

    Raises:
        ValueError: `nsid` or `version` is longer than 255 bytes.
    """

    nsid: bytes = b""
    """This server's name, for who asks for it (RFC 5001, RFC 4892); empty: it has none."""
    version: bytes = b""
    """The software's name and version, for who asks over CHAOS; empty: it is not told."""
    idle: float | None = None
    """Seconds that a TCP connection may be idle (RFC 7828); None: it is not told."""
    cookies: ServerCookies | None = None

    def __post_init__(self) -> None:
        if max(len(self.nsid), len(self.version)) > _MAX_TEXT:
            raise ValueError(f"a server's name and version have at most {_MAX_TEXT} bytes")


NO_OPTIONS = ServerOptions()


def reply_options(
    asked: Iterable[tuple[int, bytes]], source: str, server: ServerOptions, *, tcp: bool
) -> tuple[CookieVerdict | None, bytes]:
    """The verdict on a query's cookie (None without one) and the options of the reply, in wire form.

    Args:
        asked: the query's options.
        source: the client's address as text.
        server: what this server offers.
        tcp: the query came over TCP.

    Raises:
        MalformedError: a cookie of a wrong length (RFC 7873 §5.2.2).
    """
    verdict = None
    parts: dict[int, bytes] = {}
    for code, data in asked:
        if code == wire.OPTION_COOKIE and len(data) not in SIZES:
            raise wire.MalformedError("a cookie of a wrong length")
        if code in parts:
            continue  # the first counts (RFC 7873 §5.2)
        if code == wire.OPTION_NSID and server.nsid:
            parts[code] = wire.option(code, server.nsid)
        elif code == wire.OPTION_COOKIE and server.cookies is not None:
            verdict, parts[code] = server.cookies.answer(data, source)
        elif code == wire.OPTION_KEEPALIVE and server.idle is not None and tcp:
            # Over UDP it is ignored (RFC 7828 §3.2.2). A client has no timeout to state; one that does is told ours.
            parts[code] = wire.option(code, round(server.idle * 10).to_bytes(2))
    return verdict, b"".join(parts[code] for code in sorted(parts))


def chaos_text(name: bytes, rdtype: int, server: ServerOptions) -> bytes:
    """What a name of class CHAOS says of this server (RFC 4892 §3); empty: that is not told, or no such name.

    Args:
        name: in lower-case wire form.
        rdtype: asked for.
        server: what this server offers.
    """
    if rdtype not in (wire.TXT, wire.ANY):
        return b""
    if name in _SERVER_NAMES:
        return server.nsid
    return server.version if name in _VERSION_NAMES else b""


def chaos_reply(packet: bytes, question_end: int, text: bytes, opt: bytes) -> bytes:
    """The reply to a question of class CHAOS: one TXT record, which nobody keeps.

    Args:
        packet: the query.
        question_end: where its question ends.
        text: at most 255 bytes.
        opt: the OPT record of the reply; empty: none.
    """
    query_id, flags, *_ = wire.HEADER.unpack_from(packet)
    flags = wire.reply_flags(flags, authoritative=True)
    header = wire.HEADER.pack(query_id, flags, 1, 1, 0, int(bool(opt)))
    data = bytes((len(text),)) + text
    record = _QUESTION_NAME + wire.RECORD.pack(wire.TXT, wire.CLASS_CHAOS, 0, len(data)) + data
    return header + packet[wire.HEADER_SIZE : question_end] + record + opt
