"""What a request's head says, and the head that goes on to a backend.

The parser (llhttp, strict) refuses what is no HTTP/1.1: bare LF, folded lines, two lengths, a length beside a transfer coding,
characters that no header has. What it accepts is checked here for what lets two servers read one request differently (RFC 9112
§11.2) or means nothing to a proxy; then the head is written anew, so that a backend reads what was understood here, not what
a client sent:

  - exactly one Host in HTTP/1.1, of the characters of a host and a port (RFC 9112 §3.2); an absolute target's authority counts
    instead (§3.2.2);
  - the one transfer coding is `chunked`, in HTTP/1.1 only (§6.1: anything else is 501, or 400 before 1.1);
  - a length is written as it was understood: `007` may be read by a base of eight;
  - CONNECT and TRACE are refused, and an upgrade with a body too: what follows its head could be taken for either;
  - fields of one hop go no further (RFC 9110 §7.6.1): those that Connection names, and Keep-Alive, Proxy-Connection, TE, Upgrade;
  - fields that gtm alone may say (forwarding, the client's address, gtm's own) are read, and written here only. What differs from
    one of these by `_` or `.` for `-` is dropped: servers that hand fields on as variables take both for one (CGI, RFC 3875 §4.1.18).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gtm.core.model.services import Priority

Headers = Sequence[tuple[bytes, bytes]]

MAX_HEAD = 32 * 1024
"""Bytes of a request's head: its first line and its header lines."""
MAX_HEADERS = 100
"""Header lines of a request."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_hosts: set[bytes] = set()
"""Some that are."""
_MAX_HOSTS = 1024
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_REFUSED_METHODS = frozenset(
    (b"CONNECT", b"TRACE", b"DESCRIBE", b"ANNOUNCE", b"SETUP", b"PLAY", b"PAUSE", b"TEARDOWN")
)
_REFUSED_METHODS |= {b"GET_PARAMETER", b"SET_PARAMETER", b"REDIRECT", b"RECORD", b"FLUSH", b"SOURCE"}
"""No tunnels; no echo of credentials (RFC 9110 §9.3.8); and what the parser takes for RTSP and ICE."""
_ONE_HOP = frozenset(
    (b"keep-alive", b"proxy-connection", b"te", b"proxy-authenticate", b"proxy-authorization", b"trailer")
)
"""Fields of one hop, and credentials for this proxy, of which there are none (RFC 9110 §7.6.1, §11.7)."""
_WRITTEN_HERE = frozenset((b"forwarded", b"x-real-ip", b"via"))
OWN_PREFIXES = (b"x-forwarded-", b"gtm-", b"x-gtm-")
"""Beginnings of the names of fields that gtm alone may say to a backend."""
_FRAMING = frozenset((b"host", b"connection", b"transfer-encoding", b"content-length", b"upgrade", b"expect"))
_SINGLE = frozenset((b"host", b"content-type", b"expect", b"traceparent", b"idempotency-key"))
"""Fields that gtm reads, of which two would let somebody choose which one counts; besides all that begin with `gtm-`."""
_KEPT = frozenset(
    (b"content-type", b"content-encoding", b"traceparent", b"idempotency-key", b"authorization")
)
"""Fields that are read and go on, besides `KEYS`."""
KEYS = (b"authorization", b"x-api-key", b"api-key")
"""Fields in which clients show a key: OpenAI's as a bearer token (RFC 6750 §2.1), Anthropic's and Azure's plainly. They are read, and go on."""
PRIORITY = b"gtm-priority"
"""The field in which a client states how urgent its request is."""
_PRIORITIES = {priority.value.encode(): priority for priority in Priority}
_OF_PAGES = frozenset((b"origin", b"access-control-request-method", b"access-control-request-headers"))
"""Fields that browsers say and that gtm reads, too, by which nothing but gtm's own answers goes."""
_PASSED, _READ, _TAKEN, _LOST = range(4)
_kinds: dict[bytes, tuple[bytes, int]] = {}
"""By a field's name as sent: in lower case, and what becomes of it. Bounded: anybody can make up names."""
_MAX_KINDS = 1024


def _kind(name: bytes) -> tuple[bytes, int]:
    low = name.lower()
    kind = _PASSED
    if low in _KEPT or low in KEYS or low in _OF_PAGES:
        kind = _READ
    elif _is_taken(low):
        kind = _TAKEN
    elif (b"_" in low or b"." in low) and ((plain := plain_name(low)) in _KEPT or _is_taken(plain)):
        kind = _LOST
    if len(_kinds) < _MAX_KINDS:
        _kinds[name] = low, kind
    return low, kind


def plain_name(name: bytes) -> bytes:
    """A field's name as servers may understand it that hand fields on as variables."""
    return name.lower().replace(b"_", b"-").replace(b".", b"-")


def passes(name: bytes) -> bool:
    """Whether gtm neither reads nor says a field of this name."""
    return _kind(name)[1] is _PASSED


def _is_taken(low: bytes) -> bool:
    return low in _FRAMING or low in _ONE_HOP or low in _WRITTEN_HERE or low.startswith(OWN_PREFIXES)


class HeadError(Exception):
    """A request that is refused by its head alone: the HTTP status, a stable code, and what was wrong."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


@dataclass(slots=True, eq=False)
class RequestHead:
    """A request as it was understood.

    `target` is in origin form (or `*`), as it was sent. `length` is the body's, None without one or where it is chunked.
    `lines` are the header lines that go on to a backend; `seen` has the fields that gtm reads, by lower-case name: those of
    framing and forwarding, all that begin with `gtm-`, and content-type, content-encoding, traceparent, idempotency-key, and those that show keys (`KEYS`).
    `trailers`: the client takes trailers (RFC 9110 §10.1.4).
    """

    method: bytes
    target: bytes
    version: str
    host: bytes
    length: int | None
    chunked: bool
    upgrade: bytes
    expects: bool
    keep_alive: bool
    lines: list[bytes]
    seen: dict[bytes, bytes]
    trailers: bool = False

    @property
    def has_body(self) -> bool:
        """Whether anything follows the head."""
        return self.chunked or bool(self.length)

    @property
    def path(self) -> bytes:
        """The target without its query."""
        target = self.target
        return target.partition(b"?")[0] if b"?" in target else target


def read_head(
    method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool, upgrades: bool = False
) -> RequestHead:
    """Understand a request's head.

    Args:
        method: as sent.
        target: as sent.
        version: `1.0` or `1.1`.
        headers: names and values as sent.
        keep_alive: whether the connection goes on after it, by its version and Connection header.
        upgrades: the parser takes what follows the head for another protocol, whatever it is.

    Raises:
        HeadError: it is refused.
    """
    if version not in ("1.1", "1.0"):
        raise HeadError(505, "version", f"HTTP/{version} is not spoken here: use HTTP/1.1")
    if method in _REFUSED_METHODS:
        raise HeadError(501, "method", f"{method.decode()} is not offered here")
    if len(headers) > MAX_HEADERS:
        raise HeadError(
            431, "head_too_large", f"the request has more than the {MAX_HEADERS} header lines accepted"
        )
    lines, seen = _sorted(headers)
    target, host = _target(method, target, version, seen)
    coding = seen.get(b"transfer-encoding")
    if coding is not None:
        _check_coding(coding, version)
    length = None if (said := seen.get(b"content-length")) is None else _length(said)
    has_body = coding is not None or bool(length)
    if upgrades and has_body:
        raise HeadError(
            400, "upgrade_with_body", "a request that asks for another protocol cannot have a body here"
        )
    expects = seen.get(b"expect")
    if expects is not None and expects.lower() != b"100-continue":
        raise HeadError(417, "expectation", "the only expectation that can be met is `100-continue`")
    connection = tokens(seen[b"connection"]) if b"connection" in seen else frozenset()
    if connection:
        lines = without(lines, connection)
    upgrade = b""
    if upgrades and method == b"GET" and version == "1.1" and b"upgrade" in connection:
        # Others are ignored (RFC 9110 §7.8), and all in HTTP/1.0.
        upgrade = b"websocket" if seen.get(b"upgrade", b"").lower() == b"websocket" else b""
    return RequestHead(
        method,
        target,
        version,
        host,
        length,
        coding is not None,
        upgrade,
        expects is not None and has_body and version == "1.1",
        keep_alive and b"close" not in connection,
        lines,
        seen,
        b"te" in seen and version == "1.1" and b"trailers" in tokens(seen[b"te"]),
    )


def _sorted(headers: Headers) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The lines that go on, and the fields that are read here."""
    lines: list[bytes] = []
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        low, kind = _kinds.get(name) or _kind(name)
        if kind:
            if kind is _LOST:
                continue
            stripped = value.strip(b" \t")
            if low in seen:
                _repeated(low, stripped, seen)
            else:
                seen[low] = stripped
            if kind is _TAKEN:
                continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return lines, seen


def _repeated(name: bytes, value: bytes, seen: dict[bytes, bytes]) -> None:
    """A field that was there before: an error if it may be there once only, else joined (RFC 9110 §5.3)."""
    if name in _SINGLE or name in KEYS or name.startswith((b"gtm-", b"x-gtm-")):
        raise HeadError(400, "repeated_header", f"the header `{name.decode('latin-1')}` is there twice")
    seen[name] = seen[name] + b", " + value


def accepted(lines: Sequence[bytes]) -> bytes:
    """What a client takes (`Accept`), of a head's lines: looked for where a request is refused, so that no other costs more."""
    return b",".join(line[7:].strip() for line in lines if line[:7].lower() == b"accept:")


def is_host(value: bytes) -> bool:
    """Whether it can stand in Host: a host with an optional port (RFC 9112 §3.2)."""
    if value in _hosts:
        return True
    if not _HOST.fullmatch(value):
        return False
    if len(_hosts) < _MAX_HOSTS and len(value) <= 256:
        _hosts.add(value)
    return True


def priority_of(said: bytes) -> Priority | None:
    """What `gtm-priority` says, in any case, with hyphens or underscores; None: nothing that is a priority."""
    return _PRIORITIES.get(said.strip().lower().replace(b"-", b"_"))


def tokens(value: bytes) -> frozenset[bytes]:
    """The members of a list of tokens, in lower case."""
    return frozenset(token.strip(b" \t").lower() for token in value.split(b","))


def without(lines: list[bytes], connection: frozenset[bytes]) -> list[bytes]:
    """The lines but for those of fields that Connection names. It cannot name away what a request means."""
    named = connection - {b"close", b"keep-alive", b"upgrade", b"", *KEYS} - _KEPT
    if not named:
        return lines
    return [line for line in lines if line.partition(b":")[0].lower() not in named]


def _target(method: bytes, target: bytes, version: str, seen: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """The target in origin form, and the host that is asked."""
    host = seen.get(b"host")
    if host is None and version == "1.1":
        raise HeadError(400, "host", "the request has no Host header (RFC 9112 §3.2)")
    host = host or b""
    if host and not is_host(host):
        raise HeadError(400, "host", "the Host header is no host with an optional port (RFC 9112 §3.2)")
    if not target.startswith(b"/"):
        whole = _ABSOLUTE.fullmatch(target)
        if whole is not None:
            host, rest = whole[1], whole[2] or (b"*" if method == b"OPTIONS" else b"/")
            target = b"/" + rest if rest.startswith(b"?") else rest
            if not is_host(host):
                raise HeadError(400, "target", "the target's authority is no host with an optional port")
        elif not (target == b"*" and method == b"OPTIONS"):
            raise HeadError(400, "target", "the target must begin with `/` (RFC 9112 §3.2)")
    if b"#" in target:
        raise HeadError(400, "target", "the target has a fragment (RFC 9112 §3.2)")
    return target, host


def read_length(said: bytes) -> int | None:
    """The bytes that a Content-Length says (RFC 9110 §8.6); None if it is no number of at most 15 digits."""
    return int(said) if said.isdigit() and len(said) <= 15 else None


def _length(said: bytes) -> int:
    length = read_length(said)
    if length is None:
        raise HeadError(
            400, "content_length", "the Content-Length is not one number of at most 15 digits (RFC 9110 §8.6)"
        )
    return length


def _check_coding(coding: bytes, version: str) -> None:
    if version == "1.0":
        raise HeadError(400, "transfer_coding", "HTTP/1.0 has no Transfer-Encoding (RFC 9112 §6.1)")
    if coding.lower() != b"chunked":
        raise HeadError(
            501, "transfer_coding", "the only transfer coding understood is `chunked` (RFC 9112 §6.1)"
        )


def forwarded_head(head: RequestHead, target: bytes, host: bytes, more: bytes, *, expect: bool) -> bytes:
    """The bytes of the head that a backend gets.

    Args:
        head: as understood.
        target: what is asked of the backend, in origin form.
        host: what its Host header says.
        more: header lines of gtm's own: the client's address, trace and request identity.
        expect: the client waits for 100 (Continue), which the backend shall give.
    """
    framing = b"via: 1.1 gtm\r\n" if head.version == "1.1" else b"via: 1.0 gtm\r\n"
    if b"via" in head.seen:
        framing = b"via: %b, %b" % (head.seen[b"via"], framing[5:])
    if head.chunked:
        framing += b"transfer-encoding: chunked\r\n"
    elif head.length is not None:
        framing += b"content-length: %d\r\n" % head.length
    if head.upgrade:
        framing += b"connection: upgrade\r\nupgrade: %b\r\n" % head.upgrade
    elif head.trailers:
        framing += b"connection: te\r\nte: trailers\r\n"
    if expect:
        framing += b"expect: 100-continue\r\n"
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b%b\r\n" % (
        head.method,
        target,
        host,
        b"".join(head.lines),
        framing,
        more,
    )


# --- Fields behind a chunked body (RFC 9110 §6.5), of answers and of requests: which of them go on.
#
# Whoever takes them may handle them as if they had been in the head (some servers do: §6.5.1 forbids it, unless a field allows it). So
# what goes on is what could stand there: nothing that says how to read, route, authenticate or keep a message; nothing that gtm reads or
# says itself, by that name or one which servers take for the same; nothing that Connection names (§7.6.1); of a request nothing that
# its head has said already.
#
# A request's need no `TE: trailers`: that says what its sender takes (§10.1.4). `Trailer` goes on with the names that do (§6.6.2).


MAX_TRAILERS = 32
"""Fields behind a request's body."""
MAX_TRAILER_BYTES = 8 * 1024
"""Bytes of all of them."""
MAX_FRAMING = 64 * 1024
"""Bytes that may come of a chunked body, one after the other, without a byte of the body among them: a chunk's size and extensions, or all that
stands behind the body. Whoever parses them keeps them until the line is whole."""
OF_ONE_HOP = (
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
        *OF_ONE_HOP,
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
