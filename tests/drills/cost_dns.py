"""Readers of DNS messages, and what they may cost (`costs`): of queries that are answered."""

from __future__ import annotations

from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol.wire import MAX_OPTIONS, MAX_RECORDS
from gtm.telemetry import Counts
from tests.dns.world import locate, router
from tests.drills.costs import Reader, RefusedError

_ROUTER = router()
_QUESTION = b"\4chat\4demo\4test\0\0\1\0\1"
_OPT = b"\0\0\x29\x10\0\0\0\0\0"
"""As far as the length of its options (RFC 6891 §6.1.2)."""
_ADDRESS = b"\0\x08\0\x07\0\1\x18\0\x0a\1\2"
_COOKIE = b"\0\x0a\0\x08abcdefgh"


def _reply(query: bytes) -> int:
    """The rcode that somebody gets who is the first to ask this: nothing is remembered."""
    reply = Answerer(_ROUTER, locate, Counts()).answer(query, "127.0.0.1", tcp=True, draw=0.5)
    if reply is None:
        raise RefusedError
    return reply[3] & 15


def _answered(query: bytes) -> None:
    if _reply(query):
        raise RefusedError


def _optioned(options: bytes) -> bytes:
    """A query with these options."""
    head = bytes.fromhex("123401200001000000000001")
    return head + _QUESTION + _OPT + len(options).to_bytes(2) + options


def _recorded(records: bytes) -> bytes:
    """A query with these records behind its question, as many as they are if each is whole."""
    count = at = 0
    while at < len(records):
        while at < len(records) and records[at]:
            at += 2 if records[at] >= 0xC0 else 1 + records[at]
        at += 11 + int.from_bytes(records[at + 9 : at + 11])
        count += 1
    return bytes.fromhex("12340120000100000000") + min(count, 0xFFFF).to_bytes(2) + _QUESTION + records


def _asked(name: bytes) -> bytes:
    """A query about a name with these labels."""
    return bytes.fromhex("123401200001000000000000") + name + b"\4chat\4demo\4test\0\0\1\0\1"


def _asks(query: bytes) -> None:
    """Names that are not there are answered so."""
    if _reply(query) not in (0, 3):
        raise RefusedError


READERS: tuple[Reader, ...] = (
    Reader(
        "DNS queries, their options",
        _answered,
        [
            b"\xff\xff\0\0",
            b"\xff\xfe\0\x04abcd",
            b"\0\x03\0\0",
            b"\0\x0b\0\0",
            b"\0\x0c\0\x10" + bytes(16),
            _COOKIE,
            b"\0\x0f\0\x02\0\0",
            b"\0\x0f\0\x06\0\0text",
            b"\0\x12\0\x0a\3www\4test\0",
            b"\0\x05\0\x03\x08\x0a\x0d",
            b"\0\x0a\0\x18abcdefgh" + bytes(16),
        ],
        steps=8.0,
        peak=60.0,
        begin=_ADDRESS,
        most=4 * MAX_OPTIONS,
        wrap=_optioned,
        worst=[b"\xff\xff\0\0"],
    ),
    Reader(
        "DNS queries, their long options",
        _answered,
        [
            b"\xff\xff\1\0" + bytes(256),
            b"\0\x0c\2\0" + bytes(512),
            b"\0\x0f\1\0" + b"a" * 256,
            b"\0\x03\1\x10" + b"a" * 272,
            b"\0\x0b\1\0" + b"a" * 256,
        ],
        steps=1.0,
        peak=12.0,
        begin=_ADDRESS,
        wrap=_optioned,
    ),
    Reader(
        "DNS queries, their records",
        _answered,
        [
            b"\0\0\1\0\1\0\0\0\0\0\0",
            b"\xc0\x0c\0\1\0\1\0\0\0\0\0\x04abcd",
            b"\1a\0\0\1\0\1\0\0\0\0\0\0",
            b"\1a\1a\1a\1a\1a\1a\1a\1a\0\0\1\0\1\0\0\0\0\0\0",
            b"\x3f" + b"a" * 63 + b"\0\0\1\0\1\0\0\0\0\0\0",
            b"\0\0\xfa\0\xff\0\0\0\0\0\0",
            b"\1a\xc0\x0c\0\1\0\1\0\0\0\0\0\0",
            b"\0\0\5\0\1\0\0\0\0\0\x02\xc0\x0c",
        ],
        steps=8.0,
        peak=60.0,
        most=11 * (MAX_RECORDS - 2),
        wrap=_recorded,
        worst=[b"\0\0\1\0\1\0\0\0\0\0\0"],
    ),
    Reader(
        "DNS queries, their names",
        _asks,
        [
            b"\1a",
            b"\2Ab",
            b"\1*",
            b"\3www",
            b"\1_",
            b"\1\0",
            b"\1\xff",
            b"\4chat\4demo\4test",
            b"\x20" + b"a" * 32,
        ],
        steps=160.0,
        peak=400.0,
        begin=b"\1b" * 16 + b"\1\0" * 16,
        most=220,
        wrap=_asked,
        worst=[b"\1a"],
    ),
)
