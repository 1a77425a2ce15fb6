"""What a request's head says, and the head that goes on to a backend.

The parser (llhttp, strict) refuses what is no HTTP/1.1: bare LF, folded lines, two lengths, a length beside a transfer coding,
characters that no header has. What it accepts is checked here for what lets two servers read one request differently (RFC 9112
§11.2) or means nothing to a proxy; then the head is written anew, so that a backend reads what was understood here, not what
a client sent:

  - exactly one Host in HTTP/1.1, of the characters of a host and a port (RFC 9112 §3.2); an absolute target's authority counts
    instead (§3.2.2);
  - the one transfer coding is `chunked`, in HTTP/1.1 only (§6.1: anything else is 501, or 400 before 1.1);
  - CONNECT is refused, and an upgrade with a body too: what follows its head could be taken for either;
  - fields of one hop go no further (RFC 9110 §7.6.1): those that Connection names, and Keep-Alive, Proxy-Connection, TE, Upgrade;
  - fields that gtm alone may say (forwarding, the client's address) are written here, and dropped where a client writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[bytes, bytes]]

MAX_HEAD = 32 * 1024
"""Bytes of a request's head: its first line and its header lines."""
MAX_HEADERS = 100
"""Header lines of a request."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_DROPPED = frozenset(
    (b"keep-alive", b"proxy-connection", b"te", b"proxy-authenticate", b"proxy-authorization", b"trailer")
)
"""Fields of one hop, and credentials for this proxy, of which there are none (RFC 9110 §7.6.1, §11.7)."""
_WRITTEN_HERE = frozenset(
    (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded", b"x-real-ip")
)
_SINGLE = frozenset(
    (
        b"content-type",
        b"authorization",
        b"gtm-handoff",
        b"expect",
        b"traceparent",
        b"gtm-priority",
        b"gtm-timeout",
    )
)
"""Fields that gtm reads, of which two would let somebody choose which one counts."""
_LOOKED_AT = (
    _DROPPED
    | _WRITTEN_HERE
    | _SINGLE
    | {b"host", b"connection", b"transfer-encoding", b"content-length", b"upgrade"}
)
_KEPT_WHEN_READ = frozenset((b"content-type", b"authorization", b"traceparent", b"content-length"))
"""Fields that are read and go on."""


class HeadError(Exception):
    """A request that is refused by its head alone: the HTTP status, a stable code, and what was wrong."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


@dataclass(slots=True)
class RequestHead:
    """A request as it was understood.

    `target` is in origin form (or `*`), as it was sent. `length` is the body's, None without one or where it is chunked.
    `lines` are the header lines that go on to a backend; `seen` has the fields that gtm reads, by lower-case name.
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

    @property
    def has_body(self) -> bool:
        """Whether anything follows the head."""
        return self.chunked or bool(self.length)

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]


def read_head(
    method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool
) -> RequestHead:
    """Understand a request's head.

    Args:
        method: as sent.
        target: as sent.
        version: `1.0` or `1.1`.
        headers: names and values as sent.
        keep_alive: whether the connection goes on after it, by its version and Connection header.

    Raises:
        HeadError: it is refused.
    """
    if version not in ("1.1", "1.0"):
        raise HeadError(505, "version", f"HTTP/{version} is not spoken here: use HTTP/1.1")
    if len(headers) > MAX_HEADERS:
        raise HeadError(
            431, "head_too_large", f"the request has more than the {MAX_HEADERS} header lines accepted"
        )
    lines: list[bytes] = []
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        low = name.lower()
        if low in _LOOKED_AT:
            if low in seen:
                _repeated(low, value, seen)
            else:
                seen[low] = value
            if low not in _KEPT_WHEN_READ:
                continue
        lines.append(b"%b: %b\r\n" % (name, value))
    if b"connection" in seen:
        lines = _without(lines, seen[b"connection"])
    target, host = _target(method, target, version, seen)
    coding = seen.get(b"transfer-encoding")
    if coding is not None:
        _check_coding(coding, version)
    length = seen.get(b"content-length")
    upgrade = _upgrade(seen)
    has_body = coding is not None or (length is not None and int(length) > 0)
    if upgrade and has_body:
        raise HeadError(
            400, "upgrade_with_body", "a request that asks for another protocol cannot have a body here"
        )
    return RequestHead(
        method,
        target,
        version,
        host,
        None if length is None else int(length),
        coding is not None,
        upgrade,
        version == "1.1" and has_body and seen.get(b"expect", b"").lower() == b"100-continue",
        keep_alive,
        lines,
        seen,
    )


def _repeated(name: bytes, value: bytes, seen: dict[bytes, bytes]) -> None:
    """A field that was there before: an error if it may be there once only, else joined (RFC 9110 §5.3)."""
    if name in _SINGLE or name == b"host":
        raise HeadError(400, "repeated_header", f"the header `{name.decode('latin-1')}` is there twice")
    seen[name] = seen[name] + b"," + value


def _without(lines: list[bytes], connection: bytes) -> list[bytes]:
    """The lines but for those of fields that Connection names. It cannot name away what a request means."""
    named = {token.strip().lower() for token in connection.split(b",")} - {
        b"close",
        b"keep-alive",
        b"upgrade",
        b"",
    }
    named -= {b"host", b"content-length", b"content-type", b"authorization"}
    if not named:
        return lines
    return [line for line in lines if line.partition(b":")[0].lower() not in named]


def _target(method: bytes, target: bytes, version: str, seen: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """The target in origin form, and the host that is asked."""
    host = seen.get(b"host")
    if host is None and version == "1.1":
        raise HeadError(400, "host", "the request has no Host header (RFC 9112 §3.2)")
    host = host or b""
    if method == b"CONNECT":
        raise HeadError(501, "method", "CONNECT is not offered: this is no tunnel")
    if not target.startswith(b"/"):
        whole = _ABSOLUTE.fullmatch(target)
        if whole is not None:
            host, rest = whole[1], whole[2] or b"/"
            target = rest if rest.startswith(b"/") else b"/" + rest
        elif not (target == b"*" and method == b"OPTIONS"):
            raise HeadError(400, "target", "the target must begin with `/` (RFC 9112 §3.2)")
    if b"#" in target:
        raise HeadError(400, "target", "the target has a fragment (RFC 9112 §3.2)")
    if host and not _HOST.fullmatch(host):
        raise HeadError(400, "host", "the Host header is no host with an optional port (RFC 9112 §3.2)")
    return target, host


def _check_coding(coding: bytes, version: str) -> None:
    if version == "1.0":
        raise HeadError(400, "transfer_coding", "HTTP/1.0 has no Transfer-Encoding (RFC 9112 §6.1)")
    if coding.lower() != b"chunked":
        raise HeadError(
            501, "transfer_coding", "the only transfer coding understood is `chunked` (RFC 9112 §6.1)"
        )


def _upgrade(seen: dict[bytes, bytes]) -> bytes:
    """The protocol that the client asks for, if it is one that is carried; others are ignored (RFC 9110 §7.8)."""
    protocol = seen.get(b"upgrade", b"").strip()
    tokens = {token.strip().lower() for token in seen.get(b"connection", b"").split(b",")}
    return protocol if b"upgrade" in tokens and protocol.lower() == b"websocket" else b""


def forwarded_head(head: RequestHead, target: bytes, host: bytes, more: bytes, *, expect: bool) -> bytes:
    """The bytes of the head that a backend gets.

    Args:
        head: as understood.
        target: what is asked of the backend, in origin form.
        host: what its Host header says.
        more: header lines of gtm's own: the client's address, trace and request identity.
        expect: the client waits for 100 (Continue), which the backend shall give.
    """
    framing = b""
    if head.chunked:
        framing = b"transfer-encoding: chunked\r\n"
    if head.upgrade:
        framing += b"connection: upgrade\r\nupgrade: %b\r\n" % head.upgrade
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


_RESPONSE_DROPPED = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"trailer")
)


@dataclass(slots=True)
class ResponseHead:
    """A backend's response as it was understood; `length` None: chunked, or until the connection ends."""

    status: int
    reason: bytes
    length: int | None
    chunked: bool
    lines: list[bytes]
    upgrade: bytes
    content_type: bytes


def read_response_head(status: int, reason: bytes, headers: Headers) -> ResponseHead:
    """Understand a response's head. What the parser accepts has at most one length, and none beside a transfer coding."""
    lines: list[bytes] = []
    length, chunked, upgrade, connection, content_type = None, False, b"", b"", b""
    for name, value in headers:
        low = name.lower()
        if low in _RESPONSE_DROPPED:
            if low == b"transfer-encoding":
                chunked = value.lower() == b"chunked"
            elif low == b"upgrade":
                upgrade = value
            elif low == b"connection":
                connection += value + b","
            continue
        if low == b"content-length":
            length = int(value)
        elif low == b"content-type":
            content_type = value
        lines.append(b"%b: %b\r\n" % (name, value))
    if connection:
        lines = _without(lines, connection)
    return ResponseHead(status, reason, length, chunked, lines, upgrade, content_type)
