"""The short way: addresses of services' host names, from bytes made ready.

A warm query is one look at the header, a dictionary hit each for the question, the OPT record, the client's kind and
its ranking class, and one concatenation. A new state of the world makes new answers for the ranking classes, which are
few; what kind a client is of, and which class that is, outlives it. Whatever is unusual in a packet makes
`FastWay.answer` give None, and it goes the full way.
"""

from __future__ import annotations

from collections.abc import Callable

import dns.name

from gtm.core.choice import Choice, Option, pick
from gtm.core.model import Request
from gtm.core.ranking import Ranking, RankingClass
from gtm.core.router import Ranker, Router
from gtm.dns import wire
from gtm.dns.clients import Client, Clients, Edns, NoEdns
from gtm.dns.content import Content, Record, host_content, second_draw, turns
from gtm.dns.zones import Host, Names, suffixes
from gtm.telemetry import decision_key, joint_key, metric_key

LIMIT = 1 << 17
"""How many pairs of question and kind of client are remembered; past it the memory starts anew."""

Seal = Callable[[Content, bytes, int, bool], Content]
"""(content, name, type, DO flag) → the content with what DNSSEC adds to it."""

_RD, _EDNS = 1, 2
_SHAPES = {
    bytes((rd, low << 4, 0, 1, 0, 0, 0, 0, 0, edns)): (_RD if rd else 0) | (_EDNS if edns else 0)
    for rd in (0, 1)
    for low in range(16)
    for edns in (0, 1)
}
"""Bytes 2–11 of a standard query with one question and nothing else but perhaps one additional record → what of it
matters. The flags in `low` (RA, Z, AD, CD) have no bearing on an authoritative answer."""

_NO_EDNS = NoEdns()


class Ready:
    """An answer in bytes, but for what each query brings: its id, its question and its OPT record.

    The marks stand for all that the answer is counted by, the client aside.
    """

    __slots__ = (
        "body",
        "error",
        "heads",
        "option",
        "rcode",
        "tailored",
        "tcp_mark",
        "truncated_heads",
        "udp_mark",
    )

    def __init__(self, content: Content, question: bytes, option: Option) -> None:
        self.option = option
        self.rcode = content.rcode
        self.body = _body(content, question)
        self.heads = _heads(content, truncated=False)
        self.truncated_heads = _heads(content, truncated=True)
        self.tailored = content.tailored
        self.error = b"" if content.error is None else content.error.option
        self.udp_mark = f"udp {content.rcode} {option.number} {option.outcome.value}"
        self.tcp_mark = f"tcp {content.rcode} {option.number} {option.outcome.value}"


class _Asked:
    """A host name and type as one ranking class asks for it."""

    __slots__ = ("group", "question")

    def __init__(self, question: _Question, group: RankingClass) -> None:
        self.question = question
        self.group = group


class Kind:
    """A kind of client asking a question: its ranking class, and what its answers are counted as, by their marks."""

    __slots__ = ("asked", "keys", "ranking")

    def __init__(self, asked: _Asked, ranking: Ranking) -> None:
        self.asked = asked
        self.ranking = ranking
        self.keys: dict[str, str] = {}


class _Question:
    """A host name and type, with the kinds of client known so far, and their classes. `label` names it in metrics."""

    __slots__ = ("by_class", "by_kind", "host", "label", "rdtype", "wire")

    def __init__(self, question: bytes, host: Host, rdtype: int) -> None:
        self.wire = question
        self.host = host
        self.rdtype = rdtype
        self.label = name_label(question[:-4])
        self.by_kind: dict[object, Kind] = {}
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
            for rdtype in (wire.A, wire.AAAA, wire.HTTPS)
            if rdtype not in names.records.get(name, {})
            for question in (name + bytes((0, rdtype, 0, wire.CLASS_IN)),)
        }

    def learn(self, question: _Question, client: Client) -> Kind:
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
        found = question.by_kind[client.kind_for(self.ranker)] = Kind(asked, ranking)
        return found


class Way:
    """How a question from a ranking class ends in one View: the choice, and the answers made ready so far.

    `only` is the option where there is but one, and `certain` its answer if that comes in one turn only. `ready` has, by
    the option's id (hashing the option takes longer than all else), an answer for each turn.
    """

    __slots__ = ("certain", "choice", "only", "ready")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.only = choice.alone
        self.certain: Ready | None = None
        self.ready: dict[int, list[Ready | None]] = {}


Found = tuple[int, int, Edns, Client, Kind, Way]
"""What is known of a query: where its question ends, its shape, its OPT record, who asks, as what kind of client, and
how that ends. A bare tuple, as one is made for every query."""

Ending = tuple[bytes, str]
"""A reply after its id, and what it is counted as."""


class FastWay:
    """The short way for one Router.

    Args:
        router: what decides.
        questions: of the Router's Ranker.
        clients: what is known of clients.
        counts: what answers are counted in.
        seal: what DNSSEC makes of an answer; None: nothing.
    """

    __slots__ = ("_clients", "_counts", "_plain", "_questions", "_ranker", "_router", "_seal", "_signed")

    def __init__(
        self,
        router: Router,
        questions: Questions,
        clients: Clients,
        counts: dict[str, float],
        seal: Seal | None = None,
    ) -> None:
        self._router = router
        self._ranker = router.ranker
        self._questions = questions
        self._clients = clients
        self._counts = counts
        self._seal = seal
        self._plain: dict[_Asked, Way] = {}
        self._signed: dict[_Asked, Way] = {}

    def answer(self, packet: bytes, source: str, draw: float, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for the short way."""
        found = self.find(packet, source, tcp=tcp)
        if found is None:
            return None
        end, key = self.ending(packet, source, found, draw, tcp=tcp)
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        return packet[:2] + end

    def find(self, packet: bytes, source: str, *, tcp: bool) -> Found | None:
        """What a packet asks, and all that is known about it; None if it is not for the short way."""
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
            if edns is None or (tcp and edns.keepalive):
                return None
        elif len(packet) == end:
            edns = _NO_EDNS
        else:
            return None
        client = edns.client or self._clients.source(source)
        kind = client.kind if client.ranker is self._ranker else client.kind_for(self._ranker)
        known = question.by_kind.get(kind) or self._questions.learn(question, client)
        ways = self._signed if edns.dnssec_ok else self._plain
        way = ways.get(known.asked)
        if way is None:
            if len(ways) >= LIMIT:
                ways.clear()
            way = ways[known.asked] = Way(self._router.choice(known.asked.group))
        return end, shape, edns, client, known, way

    def ready(self, found: Found, draw: float) -> Ready:
        """The answer made ready that a draw picks."""
        _, _, edns, client, known, way = found
        question = known.asked.question
        option = way.only or pick(
            way.choice, Request(question.host.service, client.location), draw, sheds=False
        )
        ready = way.ready.get(id(option))
        if ready is None:
            count = turns(self._router.view, question.host, question.rdtype, option)
            ready = way.ready[id(option)] = [None] * count
        turn = 0 if len(ready) == 1 else int(second_draw(draw) * len(ready))
        made = ready[turn]
        if made is None:
            made = ready[turn] = self._make_ready(question, option, turn, dnssec_ok=edns.dnssec_ok)
            if way.only is not None and len(ready) == 1:
                way.certain = made
        return made

    def settled(self, found: Found) -> bool:
        """Whether every draw picks the same answer. It has been picked once."""
        _, _, _, client, _, way = found
        if way.certain is not None:
            return True
        if way.only is not None or not way.choice.sticky or client.location.network is None:
            return False
        return all(len(ready) == 1 for ready in way.ready.values())

    def ending(self, packet: bytes, source: str, found: Found, draw: float, *, tcp: bool) -> Ending:
        """The reply for a draw.

        Args:
            packet: the query.
            source: the client's address as text.
            found: about the query.
            draw: uniform in [0, 1).
            tcp: it came over TCP.
        """
        end, shape, edns, _, known, way = found
        ready = way.certain or self.ready(found, draw)
        if ready.error or edns.cookie is not None:
            opt = edns.opt(ready.error, source, tailored=ready.tailored)
        else:
            opt = edns.tailored if ready.tailored else edns.general
        reply = ready.heads[shape] + packet[12:end] + ready.body + opt
        if len(reply) + 2 > (wire.TCP_PAYLOAD if tcp else edns.limit):
            reply = ready.truncated_heads[shape] + packet[12:end] + opt
        mark = ready.tcp_mark if tcp else ready.udp_mark
        return reply, known.keys.get(mark) or self._key(known, ready, mark, tcp=tcp)

    def _key(self, known: Kind, ready: Ready, mark: str, *, tcp: bool) -> str:
        """What an answer is counted as: among the queries, and among the decisions."""
        question = known.asked.question
        decision = decision_key(known.ranking, ready.option, "dns")
        # Only addresses bring a client to a region; questions for anything else are no demand.
        if question.rdtype not in (wire.A, wire.AAAA):
            decision = metric_key(decision)
        query = query_key(question.rdtype, ready.rcode, question.label, tcp=tcp)
        key = known.keys[mark] = joint_key(query, decision)
        return key

    def _make_ready(self, question: _Question, option: Option, turn: int, *, dnssec_ok: bool) -> Ready:
        content = host_content(self._router.view, question.host, question.rdtype, option, turn=turn)
        if self._seal is not None:
            content = self._seal(content, question.wire[:-4], question.rdtype, dnssec_ok)
        return Ready(content, question.wire, option)


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


def query_key(rdtype: int, rcode: int, name: str, *, tcp: bool) -> str:
    """The counter of queries that an answer belongs to; `name` is the service's host name or the zone, if any."""
    transport = "tcp" if tcp else "udp"
    return f"gtm_dns_queries_total\t{name}\t{wire.type_label(rdtype)}\t{wire.RCODE_NAMES[rcode]}\t{transport}"


def name_label(name: bytes) -> str:
    """A name of the policy, in wire form, as a metric's label."""
    return dns.name.from_wire(name, 0)[0].to_text(omit_final_dot=True)
