"""Fields behind a chunked body (RFC 9110 §6.5), of answers and of requests: which of them go on.

Whoever takes them may handle them as if they had been in the head (some servers do: §6.5.1 forbids it, unless a field allows it). So
what goes on is what could stand there: nothing that says how to read, route, authenticate or keep a message; nothing that gtm reads or
says itself, by that name or one which servers take for the same; nothing that Connection names (§7.6.1); of a request nothing that
its head has said already.

A request's need no `TE: trailers`: that says what its sender takes (§10.1.4). `Trailer` goes on with the names that do (§6.6.2).
"""

from __future__ import annotations

from gtm.balancer.wire.heads import OWN_PREFIXES, RequestHead, passes, plain_name, tokens

MAX_TRAILERS = 32
"""Fields behind a request's body."""
MAX_TRAILER_BYTES = 8 * 1024
"""Bytes of all of them."""
_OF_ONE_HOP = (
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
    b"trailer",
)
_FORBIDDEN = frozenset(
    (
        *_OF_ONE_HOP,
        *(b"host", b"authorization", b"cookie", b"set-cookie", b"cache-control", b"expires", b"age", b"date"),
        *(b"vary", b"location", b"retry-after", b"www-authenticate", b"proxy-authenticate"),
        *(b"authentication-info", b"expect", b"max-forwards", b"range", b"pragma", b"warning", b"via"),
        *(b"forwarded", b"tracestate", b"baggage"),
    )
)
_DIGEST = b"content-digest"
"""Of all that begin with `content-` the one that says nothing of how to read it, and is made to stand here (RFC 9530 §2)."""


def is_trailer(name: bytes) -> bool:
    """Whether a field may stand behind a body: not one that says how to read, route or keep a message (RFC 9110 §6.5.1)."""
    low = name.lower()
    return low == _DIGEST or not (low in _FORBIDDEN or low.startswith((b"content-", b"if-", *OWN_PREFIXES)))


def goes_on(head: RequestHead, name: bytes) -> bool:
    """Whether a field behind a request's body goes on to a backend: see above."""
    plain = plain_name(name)
    if not passes(name) or not is_trailer(plain):
        return False
    if plain in map(plain_name, tokens(head.seen.get(b"connection", b""))):
        return False
    return not any(plain == plain_name(line.partition(b":")[0]) for line in head.lines)


def announcement(head: RequestHead) -> bytes:
    """The header line that says which fields follow a request's body, of those that its sender has named; empty: none."""
    said = head.seen.get(b"trailer")
    if said is None or not head.chunked:
        return b""
    names = sorted(name for name in tokens(said) if name and goes_on(head, name))
    return b"trailer: %b\r\n" % b", ".join(names) if names else b""
