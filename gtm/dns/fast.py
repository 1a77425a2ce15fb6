"""The short way: addresses of services' host names, from bytes made ready.

A warm query is one look at the header, a dictionary hit each for the question, the OPT record, the client's kind and
its ranking class, and one concatenation. A new state of the world makes new answers for the ranking classes, which are
few; what kind a client is of, and which class that is, outlives it. Whatever is unusual in a packet makes `FastWay.answer` give None, and it goes the full way.
"""

from __future__ import annotations

from gtm.core.choice import Choice, Option, pick
from gtm.core.model import Request
from gtm.core.outcomes import Outcome, Reason
from gtm.core.ranking import Ranking, RankingClass
from gtm.core.router import Ranker, Router
from gtm.dns import wire
from gtm.dns.clients import Client, Clients, Edns
from gtm.dns.content import Content, Record, host_content
from gtm.dns.zones import Host, Names, suffixes
from gtm.telemetry import decision_key

LIMIT = 1 << 17
"""How many pairs of question and kind of client are remembered; past it the memory starts anew."""

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

    __slots__ = ("body", "error", "heads", "option", "tailored", "tcp_key", "truncated_heads", "udp_key")

    def __init__(self, content: Content, rdtype: int, option: Option, question: bytes) -> None:
        self.body = _body(content, question)
        self.heads = _heads(content, truncated=False)
        self.truncated_heads = _heads(content, truncated=True)
        self.tailored = content.tailored
        self.error = b"" if content.error is None else content.error.option
        self.option = option
        self.udp_key = query_key(rdtype, content.rcode, tcp=False)
        self.tcp_key = query_key(rdtype, content.rcode, tcp=True)


class _Split:
    """A choice that leaves several options open, with the answer of each."""

    __slots__ = ("_choice", "_ready")

    def __init__(self, choice: Choice, ready: dict[Option, _Ready]) -> None:
        self._choice = choice
        self._ready = ready

    def pick(self, service: str, client: Client, draw: float) -> _Ready:
        return self._ready[pick(self._choice, Request(service, client.location), draw, sheds=False)]


class _Asked:
    """A host name and type as one ranking class asks for it."""

    __slots__ = ("group", "question")

    def __init__(self, question: _Question, group: RankingClass) -> None:
        self.question = question
        self.group = group


class _Kind:
    """A kind of client asking a question: its ranking class, and the counters of its demand by what it was answered."""

    __slots__ = ("asked", "keys", "ranking")

    def __init__(self, asked: _Asked, ranking: Ranking) -> None:
        self.asked = asked
        self.ranking = ranking
        self.keys: dict[tuple[int, Outcome], str] = {}


class _Question:
    """A host name and type, with the kinds of client known so far, and their classes."""

    __slots__ = ("by_class", "by_kind", "host", "rdtype", "wire")

    def __init__(self, question: bytes, host: Host, rdtype: int) -> None:
        self.wire = question
        self.host = host
        self.rdtype = rdtype
        self.by_kind: dict[object, _Kind] = {}
        self.by_class: dict[RankingClass, _Asked] = {}


class Questions:
    """What the short way answers, and which ranking class each kind of client falls into: valid as long as a Ranker.

    Args:
        ranker: what tells clients apart.
        names: of the Ranker's policy.
    """

    __slots__ = ("_known", "_limit", "by_wire", "ranker")

    def __init__(self, ranker: Ranker, names: Names) -> None:
        self.ranker = ranker
        self._known = 0
        self._limit = min(LIMIT, 2 * ranker.limit)
        self.by_wire = {
            question: _Question(question, host, rdtype)
            for name, host in names.hosts.items()
            for rdtype in (wire.A, wire.AAAA)
            for question in (name + bytes((0, rdtype, 0, wire.CLASS_IN)),)
        }

    def learn(self, question: _Question, client: Client) -> _Kind:
        """The kind of a client that a question has not met yet."""
        if self._known >= self._limit:
            self._known = 0
            for other in self.by_wire.values():
                other.by_kind = {}
                other.by_class = {}
        self._known += 1
        ranking = self.ranker.ranking(Request(question.host.service, client.location))
        asked = question.by_class.get(ranking.group)
        if asked is None:
            asked = question.by_class[ranking.group] = _Asked(question, ranking.group)
        found = question.by_kind[client.kind_for(self.ranker)] = _Kind(asked, ranking)
        return found


class FastWay:
    """The short way for one Router.

    Args:
        router: what decides.
        questions: of the Router's Ranker.
        clients: what is known of clients.
        counts: what answers are counted in.
    """

    __slots__ = ("_answers", "_by_option", "_clients", "_counts", "_questions", "_ranker", "_router")

    def __init__(
        self, router: Router, questions: Questions, clients: Clients, counts: dict[str, float]
    ) -> None:
        self._router = router
        self._ranker = router.ranker
        self._questions = questions
        self._clients = clients
        self._counts = counts
        self._answers: dict[_Asked, _Ready | _Split] = {}
        self._by_option: dict[tuple[_Question, int, Reason], _Ready] = {}

    def answer(self, packet: bytes, source: str, draw: float, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for the short way."""
        shape = _SHAPES.get(packet[2:12])
        if shape is None:
            return None
        # No label of a known name holds a zero byte, and lowering touches neither lengths nor the types looked for.
        end = packet.find(0, 12) + 5
        question = self._questions.by_wire.get(packet[12:end].lower())
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
        kind = client.kind if client.ranker is self._ranker else client.kind_for(self._ranker)
        known = question.by_kind.get(kind) or self._questions.learn(question, client)
        ready = self._answers.get(known.asked) or self._prepare(known.asked)
        if isinstance(ready, _Split):
            ready = ready.pick(question.host.service, client, draw)
        counts = self._counts
        key = ready.tcp_key if tcp else ready.udp_key
        counts[key] = counts.get(key, 0) + 1
        option = ready.option
        key = known.keys.get((option.number, option.outcome)) or _demand_key(known, option)
        counts[key] = counts.get(key, 0) + 1
        return _reply(packet, end, shape, ready, edns, tcp=tcp)

    def _prepare(self, asked: _Asked) -> _Ready | _Split:
        """The answers to a question from a ranking class, in this state of the world."""
        choice = self._router.choice(asked.group)
        ready: _Ready | _Split
        if choice.certain is not None:
            ready = self._ready(asked.question, choice.certain)
        else:
            ready = _Split(choice, {option: self._ready(asked.question, option) for option in choice.every})
        if len(self._answers) >= LIMIT:
            self._answers = {}
        self._answers[asked] = ready
        return ready

    def _ready(self, question: _Question, option: Option) -> _Ready:
        key = (question, option.number, option.reason)
        found = self._by_option.get(key)
        if found is None:
            content = host_content(self._router.view, question.host, question.rdtype, option)
            found = self._by_option[key] = _Ready(content, question.rdtype, option, question.wire)
        return found


def _demand_key(known: _Kind, option: Option) -> str:
    key = known.keys[option.number, option.outcome] = decision_key(known.ranking, option, "dns")
    return key


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
        authorities = 0 if truncated else len(content.authority)
        additionals = (0 if truncated else len(content.additional)) + (1 if shape & _EDNS else 0)
        counts = (1, answers, authorities, additionals)
        heads.append(wire.HEADER.pack(0, flags | content.rcode, *counts)[2:])
    return tuple(heads)


def _body(content: Content, question: bytes) -> bytes:
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


def query_key(rdtype: int, rcode: int, *, tcp: bool) -> str:
    """The counter of queries that an answer belongs to."""
    transport = "tcp" if tcp else "udp"
    return f"gtm_dns_queries_total\t{wire.type_label(rdtype)}\t{wire.RCODE_NAMES[rcode]}\t{transport}"
