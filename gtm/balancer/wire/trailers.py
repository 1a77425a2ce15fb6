"""Fields behind a chunked body (RFC 9110 §6.5), of answers and of requests: which of them go on.

Whoever takes them may handle them as if they had been in the head (some servers do: §6.5.1 forbids it, unless a field allows it). So
what goes on is what could stand there: nothing that says how to read, route, authenticate or keep a message; nothing that gtm reads or
says itself, by that name or one which servers take for the same; nothing that Connection names (§7.6.1); of a request nothing that
its head has said already.

A request's need no `TE: trailers`: that says what its sender takes (§10.1.4). `Trailer` goes on with the names that do (§6.6.2).
"""

from __future__ import annotations

from gtm.balancer.wire.heads import KEYS, OWN_PREFIXES, RequestHead, passes, plain_name, tokens

MAX_TRAILERS = 32
"""Fields behind a request's body."""
MAX_TRAILER_BYTES = 8 * 1024
"""Bytes of all of them."""
MAX_FRAMING = 64 * 1024
"""Bytes that may come of a chunked body, one after the other, without a byte of the body among them: a chunk's size and extensions, or all that
stands behind the body. Whoever parses them keeps them until the line is whole."""
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
        *(*KEYS, b"host", b"cookie", b"set-cookie", b"cache-control", b"expires", b"age", b"date"),
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


def kept_back(head: RequestHead) -> frozenset[bytes]:
    """The names that no field behind this request's body may have, in plain form: those that Connection names, and those of the head.

    They are found once for a request: the head may name thousands, and as many fields may follow.
    """
    named = map(plain_name, tokens(head.seen.get(b"connection", b"")))
    return frozenset((*named, *(plain_name(line.partition(b":")[0]) for line in head.lines)))


def goes_on(name: bytes, withheld: frozenset[bytes]) -> bool:
    """Whether a field behind a request's body goes on to a backend: see above.

    Args:
        name: as it was sent.
        withheld: what `kept_back` says of the request's head.
    """
    plain = plain_name(name)
    return passes(name) and is_trailer(plain) and plain not in withheld


def announcement(head: RequestHead) -> bytes:
    """The header line that says which fields follow a request's body, of those that its sender has named; empty: none."""
    said = head.seen.get(b"trailer")
    if said is None or not head.chunked:
        return b""
    withheld = kept_back(head)
    names = sorted(name for name in tokens(said) if name and goes_on(name, withheld))
    return b"trailer: %b\r\n" % b", ".join(names) if names else b""
