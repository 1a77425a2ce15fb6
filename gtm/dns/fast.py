"""The short way: addresses of services' host names, from bytes made ready.

A warm query is one look at the header, a dictionary hit each for the question, the OPT record and the client's kind,
and one concatenation. Whatever is unusual in a packet makes `FastWay.answer` give None, and it goes the full way.
"""

from __future__ import annotations

from gtm.core.decide import Choice, Decision, pick
from gtm.core.model import UNKNOWN_LOCATION, Request
from gtm.core.router import Router
from gtm.dns import wire
from gtm.dns.clients import Client, Clients, Edns
from gtm.dns.content import Content, host_content
from gtm.dns.zones import Host, Names
from gtm.telemetry import decision_key

LIMIT = 1 << 17
"""How many pairs of question and kind of client are remembered per View; past it the memory starts anew."""

_RD, _EDNS = 1, 2
_SHAPES = {
    bytes((rd, low << 4, 0, 1, 0, 0, 0, 0, 0, edns)): (_RD if rd else 0) | (_EDNS if edns else 0)
    for rd in (0, 1)
    for low in range(16)
    for edns in (0, 1)
}
"""Bytes 2–11 of a standard query with one question and nothing else but perhaps one additional record → what of it
matters. The flags in `low` (RA, Z, AD, CD) have no bearing on an authoritative answer."""

_NO_EDNS = Edns(0, wire.PLAIN_PAYLOAD, None, None)
_NO_EDNS.general = _NO_EDNS.tailored = b""


class _Ready:
    """An answer in bytes, but for what each query brings: its id, its question and its OPT record."""

    __slots__ = (
        "body",
        "decision_key",
        "error",
        "heads",
        "tailored",
        "tcp_key",
        "truncated_heads",
        "udp_key",
    )

    def __init__(self, content: Content, rdtype: int, decision_key: str, question: bytes) -> None:
        self.body = _body(content, question)
        self.heads = _heads(content, truncated=False)
        self.truncated_heads = _heads(content, truncated=True)
        self.tailored = content.tailored
        self.error = b"" if content.error is None else content.error.option
        self.decision_key = decision_key
        self.udp_key = query_key(rdtype, content.rcode, tcp=False)
        self.tcp_key = query_key(rdtype, content.rcode, tcp=True)


class _Split:
    """A choice that leaves several decisions open, with the answer of each."""

    __slots__ = ("_choice", "_ready")

    def __init__(self, choice: Choice, ready: dict[int, _Ready]) -> None:
        self._choice = choice
        self._ready = ready

    def pick(self, service: str, client: Client, draw: float) -> _Ready:
        return self._ready[id(pick(self._choice, Request(service, client.location), draw))]


class _Question:
    """A host name and type, with the answers known so far: by kind of client, and by decision."""

    __slots__ = ("by_kind", "by_reason", "host", "rdtype", "wire")

    def __init__(self, question: bytes, host: Host, rdtype: int) -> None:
        self.wire = question
        self.host = host
        self.rdtype = rdtype
        self.by_kind: dict[tuple[str | None, float | None, float | None], _Ready | _Split] = {}
        self.by_reason: dict[tuple[int, str], _Ready] = {}


class FastWay:
    """The short way for one Router.

    Args:
        router: what decides.
        names: of the Router's policy.
        clients: what is known of clients.
        counts: what answers are counted in.
    """

    __slots__ = ("_clients", "_counts", "_known", "_limit", "_questions", "_router")

    def __init__(self, router: Router, names: Names, clients: Clients, counts: dict[str, float]) -> None:
        self._router = router
        self._clients = clients
        self._counts = counts
        self._known = 0
        self._limit = min(LIMIT, 2 * router.limit)
        self._questions = {
            question: _Question(question, host, rdtype)
            for name, host in names.hosts.items()
            for rdtype in (wire.A, wire.AAAA)
            for question in (name + bytes((0, rdtype, 0, wire.CLASS_IN)),)
        }

    def answer(self, packet: bytes, source: str, draw: float, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for the short way."""
        shape = _SHAPES.get(packet[2:12])
        if shape is None:
            return None
        # No label of a known name holds a zero byte, and lowering touches neither lengths nor the types looked for.
        end = packet.find(0, 12) + 5
        question = self._questions.get(packet[12:end].lower())
        if question is None:
            return None
        if shape & _EDNS:
            edns = self._clients.edns(packet[end:])
            if edns is None:
                return None
        elif len(packet) == end:
            edns = _NO_EDNS
        else:
            return None
        client = edns.client or self._clients.source(source)
        ready = question.by_kind.get(client.kind) or self._learn(question, client)
        if isinstance(ready, _Split):
            ready = ready.pick(question.host.service, client, draw)
        counts = self._counts
        key = ready.tcp_key if tcp else ready.udp_key
        counts[key] = counts.get(key, 0) + 1
        key = ready.decision_key
        counts[key] = counts.get(key, 0) + 1
        return _reply(packet, end, shape, ready, edns, tcp=tcp)

    def _learn(self, question: _Question, client: Client) -> _Ready | _Split:
        """The answers for a question from a kind of client."""
        choice = self._router.choice(question.host.service, client.location)
        ready: _Ready | _Split
        if len(choice.decisions) == 1:
            ready = self._ready(question, choice.decisions[0])
        else:
            decisions = (*choice.decisions, *choice.sticky)
            ready = _Split(choice, {id(decision): self._ready(question, decision) for decision in decisions})
        if self._known >= self._limit:
            self._known = 0
            for other in self._questions.values():
                other.by_kind = {}
        self._known += 1
        question.by_kind[client.kind] = ready
        return ready

    def _ready(self, question: _Question, decision: Decision) -> _Ready:
        key = (decision.number, decision.reason.value)
        found = question.by_reason.get(key)
        if found is None:
            content = host_content(
                self._router.view, question.host, question.rdtype, decision, UNKNOWN_LOCATION
            )
            found = _Ready(content, question.rdtype, decision_key(decision, "dns"), question.wire)
            question.by_reason[key] = found
        return found


def _reply(packet: bytes, end: int, shape: int, ready: _Ready, edns: Edns, *, tcp: bool) -> bytes:
    if ready.error and shape & _EDNS:
        opt = edns.opt(tailored=ready.tailored, more=ready.error)
    else:
        opt = edns.tailored if ready.tailored else edns.general
    reply = packet[:2] + ready.heads[shape] + packet[12:end] + ready.body + opt
    if len(reply) > (wire.TCP_PAYLOAD if tcp else edns.limit):
        return packet[:2] + ready.truncated_heads[shape] + packet[12:end] + opt
    return reply


def _heads(content: Content, *, truncated: bool) -> tuple[bytes, ...]:
    """Bytes 2–11 of the reply, by shape of the query."""
    heads = []
    for shape in range(4):
        asked = wire.RD if shape & _RD else 0
        flags = wire.reply_flags(asked, authoritative=content.authoritative, truncated=truncated)
        answers = 0 if truncated else len(content.records)
        authorities = int(content.denied_by is not None and not truncated)
        counts = (1, answers, authorities, 1 if shape & _EDNS else 0)
        heads.append(wire.HEADER.pack(0, flags | content.rcode, *counts)[2:])
    return tuple(heads)


def _body(content: Content, question: bytes) -> bytes:
    """Answer and authority sections. Owner names are pointers into the question, so its case is kept (RFC 4343 §4.1)."""
    parts = [_record(0xC00C, record.rdtype, record.ttl, record.rdata) for record in content.records]
    zone = content.denied_by
    if zone is not None:
        apex = wire.HEADER_SIZE + len(question) - 4 - len(zone.name)
        parts.append(_record(0xC000 | apex, wire.SOA, zone.negative_ttl, zone.soa))
    return b"".join(parts)


def _record(owner: int, rdtype: int, ttl: int, rdata: bytes) -> bytes:
    return wire.RECORD.pack(owner, rdtype, wire.CLASS_IN, ttl, len(rdata)) + rdata


def query_key(rdtype: int, rcode: int, *, tcp: bool) -> str:
    """The counter of queries that an answer belongs to."""
    transport = "tcp" if tcp else "udp"
    return f"gtm_dns_queries_total\t{wire.type_label(rdtype)}\t{wire.RCODE_NAMES[rcode]}\t{transport}"
