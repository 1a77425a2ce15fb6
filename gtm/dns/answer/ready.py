"""Answers made ready in bytes, which a query completes with its id, its question and its OPT record."""

from __future__ import annotations

from collections.abc import Callable

from gtm.core.decision.options import Option
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, Record
from gtm.dns.zone.zones import suffixes

RECURSION, EDNS = 1, 2
"""Bits of a query's shape: it has the RD flag, it has an OPT record. All else in its header has no bearing."""

_OWN = 1500
"""Bytes that an answer takes besides its texts, about."""

Sign = Callable[[Content, bytes, int, bool, bool], Content]
"""(content, name, type, DO flag, CO flag) → the content with what DNSSEC adds to it."""


class Ready:
    """An answer in bytes, but for what each query brings: its id, its question and its OPT record.

    `fronts` have the question as the policy spells it. `marks`, over UDP and TCP, stand for all that the answer is counted
    by, the client aside.
    """

    __slots__ = (
        "body",
        "error",
        "fronts",
        "heads",
        "marks",
        "option",
        "rcode",
        "tailored",
        "truncated_heads",
    )

    def __init__(self, content: Content, question: bytes, option: Option) -> None:
        self.option = option
        self.rcode = content.rcode
        counted = f"{content.rcode} {option.number} {option.outcome.value}"
        self.marks = f"udp {counted}", f"tcp {counted}"
        self.body = body(content, question)
        self.heads = _heads(content, truncated=False)
        self.fronts = tuple(head + question + self.body for head in self.heads)
        self.truncated_heads = _heads(content, truncated=True)
        self.tailored = content.tailored
        self.error = b"" if content.error is None else content.error.option

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _OWN + len(self.body) + sum(map(len, self.fronts))


def _heads(content: Content, *, truncated: bool) -> tuple[bytes, ...]:
    """Bytes 2–11 of the reply, by shape of the query."""
    heads = []
    for shape in range(4):
        asked = wire.RD if shape & RECURSION else 0
        flags = wire.reply_flags(asked, authoritative=content.authoritative, truncated=truncated)
        answers = 0 if truncated else len(content.records)
        authorities = 0 if truncated else len(content.authority)
        additionals = (0 if truncated else len(content.additional)) + (1 if shape & EDNS else 0)
        counts = (1, answers, authorities, additionals)
        heads.append(wire.HEADER.pack(0, flags | content.rcode, *counts)[2:])
    return tuple(heads)


def body(content: Content, question: bytes) -> bytes:
    """Answer, authority and additional section, but for the OPT record."""
    name = question[:-4]
    sections = (content.records, content.authority, content.additional)
    return b"".join(_record(record, name) for section in sections for record in section)


def _record(record: Record, name: bytes) -> bytes:
    """Owners inside the question are pointers into it, so its case is kept (RFC 4343 §4.1)."""
    owner = name if record.owner is None else record.owner
    if name.endswith(owner) and (inside := len(name) - len(owner)) in _label_starts(name):
        encoded = (0xC000 | wire.HEADER_SIZE + inside).to_bytes(2)
    else:
        encoded = owner
    rest = wire.RECORD.pack(record.rdtype, wire.CLASS_IN, record.ttl, len(record.rdata))
    return encoded + rest + record.rdata


def _label_starts(name: bytes) -> set[int]:
    return {len(name) - len(suffix) for suffix in suffixes(name) if suffix != b"\0"}
