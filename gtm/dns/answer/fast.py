r"""The short way: addresses of services' host names, from bytes made ready.

A query of which everything was met before costs a dictionary hit each for its question, its OPT record and the client's
audience, and one concatenation (`FastWay.repeated`). A new state of the world makes new answers for the ranking classes,
which are few; which audience a client is of, and which class that has, outlives it. What is new, drawn or has a cookie takes
`FastWay.answer`; whatever is unusual in a packet makes that give None, and it goes the full way.

Theory. A reply to one question depends on the query in four places, and on nothing else of its bytes. The rest is made once for
each (question, ranking class, option, turn, signed or not) by the same `host_content` that the full way asks, and kept (`Ready`):

  bytes        what                        whence
  0-1          the id                      copied from the packet
  2-11         flags and counts            one of four heads made ready, by the query's shape: whether it has RD, whether an OPT
  12-end       the question                as the packet spells it (RFC 1035 §4.1.2), in its own case
  then         answer to additional        made ready: owners are pointers to byte 12 and on
  last         the OPT record              made ready for the bytes of the query's OPT record; one for answers that depend on the
                                           client (scope of its network, RFC 7871 §7.2.1), one for those that do not (scope 0)

Why these are the bytes of the full way:

  - RA, Z, AD and CD of a query have no bearing on an authoritative answer; every other header takes the full way (`_SHAPES`).
  - Names are compared without case (RFC 4343 §3). Records point *into the question* and to no other place, so that they keep
    the case that was asked, and a body made ready for one spelling fits behind every other of the same length.
  - An OPT record is remembered as bytes: equal bytes are read alike. What is not in the record (a cookie's client address, a
    keepalive over TCP) is not remembered, or takes the full way.
  - Draws decide in both ways by the same running sums and by the same `second_draw`.
  - What would be too long becomes a header, the question and the OPT record with TC, as there (RFC 2181 §9).

Only compression may differ: the full way's library also points into earlier records, where the short way writes names in the data
out. Then the messages are equal, and the bytes are not (tests/dns/answer/test_properties.py holds both to it).

Laws:
  1. What `repeated` reads was prepared under this object's token, hence in this View: another View has another `FastWay`, and
     another token.
  2. A client's number is never given twice, so that one of an older Ranker finds nothing.
  3. Every reply is counted once, where the full way would count it.

Example. One region, two spellings: id, RD flag and case come from the packet, all else was ready.

>>> from gtm.core.decision.view import Window, view_of
>>> from gtm.core.model.state import State
>>> from gtm.core.model.policy import Policy
>>> from gtm.core.model.regions import Endpoint, Region
>>> from gtm.core.model.requests import UNKNOWN_LOCATION
>>> from gtm.core.model.services import Member, RefusalAddress, Service, Zone
>>> from gtm.core.model.state import EndpointHealth, HealthStatus
>>> from gtm.core.policy.compile import compile_policy
>>> from gtm.dns.answer.answerer import Answerer
>>> fra = Region("fra", 50.1, 8.7, "DE", (Endpoint("https://fra.test", ("192.0.2.10",)),))
>>> service = Service("chat", (Member("fra"),), hostnames=("chat.test",), zone="test",
...                   refusal=RefusalAddress(("192.0.2.1",)))
>>> policy = Policy(regions=(fra,), services=(service,), zones=(Zone("test", "ns.test", "hostmaster.test"),))
>>> up = State(health={"fra": {"https://fra.test": EndpointHealth(HealthStatus.UP)}})
>>> view = view_of(compile_policy(policy, ()), up, Window(0.0, 0.0))
>>> server = Answerer(Router(view), lambda address: UNKNOWN_LOCATION, Counts())
>>> first = bytes.fromhex("1234 0000 0001 0000 0000 0000") + b"\4chat\4test\0" + bytes((0, 1, 0, 1))
>>> second = bytes.fromhex("5678 0100 0001 0000 0000 0000") + b"\4cHAt\4tEST\0" + bytes((0, 1, 0, 1))
>>> for packet in (first, second):
...     reply = server.answer(packet, "192.0.2.1", tcp=False, draw=0.0)
...     print(reply[:2].hex(), reply[2:12].hex(" ", 2), reply[12:23], reply[-16:].hex(" ", 2))
...     assert reply == server.answer_fully(packet, "192.0.2.1", tcp=False, draw=0.0)
1234 8400 0001 0001 0000 0000 b'\x04chat\x04test\x00' c00c 0001 0001 0000 001e 0004 c000 020a
5678 8500 0001 0001 0000 0000 b'\x04cHAt\x04tEST\x00' c00c 0001 0001 0000 001e 0004 c000 020a

`c00c` is the pointer to byte 12, then A, IN, 30 s, 4 bytes, 192.0.2.10. Asked again over UDP, `repeated` knows the first; the
other spelling is not remembered, for clients that draw the case anew for each query would fill the memory.

>>> server._fast.repeated(first, "192.0.2.1", 0.0) == server.answer_fully(first, "192.0.2.1", tcp=False, draw=0.0)
True
>>> server._fast.repeated(second, "192.0.2.1", 0.0) is None
True

Sources: RFC 1035 §4.1 (messages, compression), RFC 4343 (case), RFC 6891 §6.1 (OPT), RFC 7871 §7.2.1 (scope), RFC 2181 §9 (TC).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import dns.name

from gtm.core.decision.choice import Choice, pick
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.router import Ranker, Router
from gtm.core.memory import Memory
from gtm.dns.answer.clients import Client, Clients, Edns, NoEdns
from gtm.dns.answer.led import Leads, ended, leads, within
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, Record, host_content, second_draw, turns
from gtm.dns.zone.static import static_content
from gtm.dns.zone.zones import Host, Names, suffixes
from gtm.telemetry import Counts, Tally, decision_key, joint_key, metric_key

# --- Answers made ready in bytes, which a query completes with its id, its question and its OPT record. ---


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


# --- Which questions the short way answers, and which ranking class each audience falls into. ---


LIMIT = 1 << 18
"""How many pairs of question and audience are remembered, some 200 bytes each."""
NO_EDNS = NoEdns()
_NO_RECORDS: dict[bytes, Edns] = {b"": NO_EDNS}
_NUMBERS = count()
_TYPES = (wire.A, wire.AAAA, wire.HTTPS)
_ASKED_TYPES = frozenset(bytes((0, rdtype, 0, wire.CLASS_IN)) for rdtype in _TYPES)
_WILDCARD = b"\x01*"
_WILD = 4096
"""Names remembered for which wildcards stand: hostile clients make up new ones for each query."""


class Asked:
    """A host name and type as one ranking class asks for it, whose regions' aliases lead the same way for all of its clients."""

    __slots__ = ("group", "leads", "question")

    def __init__(self, question: Question, group: RankingClass, known: Leads) -> None:
        self.question = question
        self.group = group
        self.leads = known


class Drawn:
    """The ends that a draw picks from: of each option, the answers, one for each turn, and where they are counted.

    `cumulative` are the running sums of the options' weights, of which the last is 1.
    """

    __slots__ = ("_bounds", "ends")

    def __init__(self, cumulative: Sequence[float]) -> None:
        self._bounds = cumulative[:-1]
        self.ends: list[tuple[list[Ready | None], Tally] | None] = [None] * len(cumulative)

    def pick(self, draw: float) -> tuple[Ready | None, Tally]:
        """The answer for a draw, None where it is not ready yet."""
        end = self.ends[bisect_right(self._bounds, draw)]
        if end is None:
            return None, _UNCOUNTED
        several, tally = end
        return several[0] if len(several) == 1 else several[int(second_draw(draw) * len(several))], tally


_UNCOUNTED = Tally("")
Prepared = tuple[object, tuple[bytes, ...], bool, Tally, Drawn | None]
"""A token of the View, what a `Ready` has as fronts and whether it is tailored, where it is counted; and where draws
decide, what they pick from instead."""


@dataclass(slots=True, eq=False, repr=False)
class Audience:
    """Clients whom a question's answers do not tell apart: their ranking class, their demand cell, and where their answers are counted.

    `plain` and `signed` are the prepared ends without and with DNSSEC, read and replaced whole, as several threads may
    do so.
    """

    asked: Asked
    cell: str
    tallies: tuple[tuple[str, Tally], ...] = field(init=False, default=())
    plain: Prepared | None = field(init=False, default=None)
    signed: Prepared | None = field(init=False, default=None)


class Question:
    """A host name and type, with the audiences known so far, and their classes. `label` names it in metrics.

    `wildcard` is the question for the wildcard that stands for the name, if one does: it knows the classes.
    """

    __slots__ = ("audiences", "host", "label", "rdtype", "wildcard", "wire")

    def __init__(self, question: bytes, host: Host, rdtype: int, wildcard: Question | None = None) -> None:
        self.wire = question
        self.host = host
        self.rdtype = rdtype
        self.wildcard = wildcard
        self.label: str = name_label(question[:-4]) if wildcard is None else wildcard.label
        self.audiences: dict[int, Audience] = {}


Spelling = tuple[dict[bytes, Edns], dict[int, Audience], int]
"""A query's bytes from its flags to its question's end stand for: the OPT records that may follow, the question's audiences,
and the query's shape."""


@dataclass(slots=True, eq=False, repr=False)
class Questions:
    """What the short way answers, and which ranking class each audience falls into: valid as long as a Ranker.

    Args:
        ranker: what tells clients apart.
        names: of the Ranker's policy.
        clients: what is known of clients.
        limit: how many pairs of question and audience are remembered. Past it, the older half is forgotten.
    """

    ranker: Ranker
    names: Names
    clients: Clients
    limit: int = LIMIT
    spellings: dict[bytes, Spelling] = field(init=False, default_factory=dict)
    _known: int = field(init=False, default=0)
    _asked: Memory[tuple[Question, RankingClass, Leads], Asked] = field(init=False)
    _has_wildcards: bool = field(init=False)
    _numbers: dict[object, int] = field(init=False, default_factory=dict)
    _wild: dict[bytes, Question] = field(init=False, default_factory=dict)
    by_wire: dict[bytes, Question] = field(init=False)

    def __post_init__(self) -> None:
        self._asked = Memory(lambda key: Asked(*key), self.limit)
        self._has_wildcards = any(name.startswith(_WILDCARD) for name in self.names.hosts)
        self.by_wire = {
            question: Question(question, host, rdtype)
            for name in self.names.hosts
            for rdtype in _TYPES
            if isinstance(host := static_content(self.names, name, rdtype), Host)
            for question in (name + bytes((0, rdtype, 0, wire.CLASS_IN)),)
        }

    def find(self, asked: bytes) -> Question | None:
        """The question that bytes ask, in lower case, for a host name of a service; None: they ask another, or none."""
        found = self.by_wire.get(asked) or self._wild.get(asked)
        if found is not None or not self._has_wildcards:
            return found
        name, rest = asked[:-4], asked[-4:]
        if rest not in _ASKED_TYPES or not wire.is_name(name):
            return None
        rdtype = rest[1]
        host = static_content(self.names, name, rdtype)
        zone = self.names.zone_of(name)
        source = None if zone is None else self.names.source_of(name, zone)
        wildcard = None if source is None else self.by_wire.get(source + rest)
        if not isinstance(host, Host) or wildcard is None:
            return None
        if len(self._wild) >= _WILD:
            self._wild.clear()
        found = self._wild[asked] = Question(asked, host, rdtype, wildcard)
        return found

    def spelt(self, query: bytes, question: Question, shape: int) -> None:
        """Remember a query's bytes from its flags to its question's end."""
        records = self.clients.records if shape & EDNS else _NO_RECORDS
        self.spellings[query] = records, question.audiences, shape

    def number(self, client: Client) -> int:
        """What stands for all clients ranked as one is: hashing what ranks them takes longer than all else."""
        # Who has no network sticks to no region: for such clients a draw picks, where others' network does.
        ranked_by = self.ranker.seen(client.location), client.location.network is None
        found = self._numbers.get(ranked_by)
        if found is None:
            if len(self._numbers) >= LIMIT:
                self._numbers.clear()
                for question in (*self.by_wire.values(), *self._wild.values()):
                    question.audiences.clear()
                self._known = 0
            # Never one that was given before: a client may still have it.
            found = self._numbers[ranked_by] = next(_NUMBERS)
        client.audience, client.questions = found, self
        return found

    def learn(self, question: Question, client: Client, number: int) -> Audience:
        """The audience of a client that a question has not met yet."""
        if question.wildcard is not None:
            known = question.wildcard.audiences.get(number) or self.learn(question.wildcard, client, number)
            return self._audience(
                question, number, (question, known.asked.group, known.asked.leads), known.cell
            )
        ranking = self.ranker.fresh(question.host.request(client.location, question.rdtype))
        # Where aliases lead depends on more of the client than its class of this service.
        known_leads = leads(self.ranker, self.names, ranking, client.location)
        return self._audience(question, number, (question, ranking.group, known_leads), ranking.cell)

    def _audience(
        self, question: Question, number: int, asked: tuple[Question, RankingClass, Leads], cell: str
    ) -> Audience:
        if self._known >= self.limit:
            self._forget()
        self._known += 1
        found = question.audiences[number] = Audience(self._asked[asked], cell)
        return found

    def _forget(self) -> None:
        """Forget the half of each question's audiences that it met first, and all names that wildcards stand for."""
        self._known = 0
        self._wild.clear()
        for question in self.by_wire.values():
            for number in list(question.audiences)[: (len(question.audiences) + 1) // 2]:
                del question.audiences[number]
            self._known += len(question.audiences)


def name_label(name: bytes) -> str:
    """A name of the policy, in wire form, as a metric's label."""
    return dns.name.from_wire(name, 0)[0].to_text(omit_final_dot=True)


# --- The short way: addresses of services' host names, from bytes made ready. ---


ROOM = 64 << 20
"""Bytes of answers made ready in one View, about: hostile clients make up names for which a wildcard stands."""
_TALLIES = 15
"""Tallies that an audience keeps: for each region, rcode and transport one."""

_SHAPES = {
    bytes((rd, low << 4, 0, 1, 0, 0, 0, 0, 0, edns)): (RECURSION if rd else 0) | (EDNS if edns else 0)
    for rd in (0, 1)
    for low in range(16)
    for edns in (0, 1)
}
"""Bytes 2–11 of a standard query with one question and nothing else but perhaps one additional record → what of it
matters. The flags in `low` (RA, Z, AD, CD) have no bearing on an authoritative answer."""


@dataclass(slots=True, eq=False, repr=False)
class _Way:
    """How a question from a ranking class ends in one View: the choice, and the answers made ready so far.

    `only` is the option where there is but one. `ready` has, by the option's id (hashing the option takes longer than all
    else, and the choice keeps the options, so that no other can get the id of one), an answer for each turn.
    """

    choice: Choice
    only: Option | None = field(init=False)
    ready: dict[int, list[Ready | None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.only = self.choice.alone


@dataclass(slots=True, eq=False, repr=False)
class FastWay:
    """The short way for one Router.

    Args:
        router: what decides.
        questions: of the Router's Ranker.
        clients: what is known of clients.
        counts: what answers are counted in.
        sign: what DNSSEC makes of an answer; None: nothing.
    """

    router: Router
    questions: Questions
    clients: Clients
    counts: Counts
    sign: Sign | None = None
    _token: object = field(init=False, default_factory=object)
    _plain: Memory[Asked, _Way] = field(init=False)
    _signed: Memory[Asked, _Way] = field(init=False)
    _ready_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._plain = Memory(self._way, LIMIT)
        self._signed = Memory(self._way, LIMIT)

    def repeated(self, packet: bytes, source: str, draw: float) -> bytes | None:
        """The reply over UDP to a packet of which everything has been met before in this View; None for others.

        The arguments are those of `answer`: what this leaves open, that must answer with the same draw.
        """
        end = packet.find(0, 12) + 5
        spelling = self.questions.spellings.get(packet[2:end])
        if spelling is None:
            return None
        records, audiences, shape = spelling
        edns = records.get(packet[end:])
        if edns is None or edns.cookie is not None:
            return None
        client = self.clients.sources.get(source) if edns.client is None else edns
        if client is None or client.questions is not self.questions:
            return None
        known = audiences.get(client.audience)
        if known is None:
            return None
        prepared = known.signed if edns.dnssec_ok else known.plain
        if prepared is None or prepared[0] is not self._token:
            return None
        _, fronts, tailored, tally, drawn = prepared
        if drawn is not None:
            ready, tally = drawn.pick(draw)
            if ready is None:
                return None
            fronts, tailored = ready.fronts, ready.tailored
        reply = packet[:2] + fronts[shape] + (edns.tailored if tailored else edns.general)
        if len(reply) > edns.limit:
            return None
        counts = self.counts
        if tally.round is not counts.round:
            tally.round = counts.round
            tally.round.append(tally)
        tally.n += 1
        return reply

    def answer(self, packet: bytes, source: str, draw: float, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for the short way."""
        shape = _SHAPES.get(packet[2:12])
        if shape is None:
            return None
        # No label of a known name holds a zero byte, and lowering touches neither lengths nor the types looked for.
        end = packet.find(0, 12) + 5
        asked = packet[12:end]
        question = self.questions.find(asked.lower())
        if question is None:
            return None
        if shape & EDNS:
            edns = self.clients.edns(packet[end:])
            if edns is None or (tcp and edns.keepalive):
                return None
        elif len(packet) == end:
            edns = NO_EDNS
        else:
            return None
        client = edns.client or self.clients.source(source)
        number = client.audience if client.questions is self.questions else self.questions.number(client)
        if edns.client is not None:
            edns.audience, edns.questions = number, self.questions
        known = question.audiences.get(number) or self.questions.learn(question, client, number)
        ready = self._ready(known, edns, client, draw, tcp=tcp)
        if asked == question.wire and question.wildcard is None:
            # Other spellings are a client's that draws the case anew for each query, to know its replies by it.
            self.questions.spelt(packet[2:end], question, shape)
        return _reply(packet, end, shape, ready, edns, source, tcp=tcp)

    def _ready(self, known: Audience, edns: Edns, client: Client, draw: float, *, tcp: bool) -> Ready:
        """The answer that a draw picks, counted."""
        asked = known.asked
        way = (self._signed if edns.dnssec_ok else self._plain)[asked]
        picked, ready = self._drawn(asked, way, client, draw, dnssec_ok=edns.dnssec_ok)
        tally = self._tally(known, ready, tcp=tcp)
        self.counts.tally(tally)
        sticky = way.choice.keyed and client.location.network is not None
        if (way.only is not None or not sticky) and not tcp and not ready.error:
            self._prepare(known, way, picked, (ready, tally), dnssec_ok=edns.dnssec_ok)
        return ready

    def _way(self, asked: Asked) -> _Way:
        return _Way(self.router.choices[asked.group])

    def _prepare(
        self, known: Audience, way: _Way, picked: Option, end: tuple[Ready, Tally], *, dnssec_ok: bool
    ) -> None:
        """Make an end ready for `repeated`."""
        several, (ready, tally) = way.ready[id(picked)], end
        if way.only is not None and len(several) == 1:
            prepared: Prepared = self._token, ready.fronts, ready.tailored, tally, None
        else:
            last = known.signed if dnssec_ok else known.plain
            drawn = last[4] if last is not None and last[0] is self._token else None
            if drawn is None:
                drawn = Drawn(way.choice.cumulative)
            drawn.ends[0 if way.only is not None else way.choice.options.index(picked)] = several, tally
            prepared = self._token, ready.fronts, ready.tailored, tally, drawn
        if dnssec_ok:
            known.signed = prepared
        else:
            known.plain = prepared

    def _drawn(
        self, asked: Asked, way: _Way, client: Client, draw: float, *, dnssec_ok: bool
    ) -> tuple[Option, Ready]:
        """The option that a draw picks, and the answer made ready for it."""
        question, view = asked.question, self.router.view
        picked = way.only or pick(
            way.choice, question.host.request(client.location, question.rdtype), draw, sheds=False
        )
        ready = way.ready.get(id(picked))
        if ready is None:
            option, _ = within(view, asked.group, asked.leads, picked)
            several = turns(view, question.host, question.rdtype, option)
            ready = way.ready[id(picked)] = [None] * several
        turn = 0 if len(ready) == 1 else int(second_draw(draw) * len(ready))
        made = ready[turn]
        if made is None:
            option, most = within(view, asked.group, asked.leads, picked)
            content = host_content(view, question.host, question.rdtype, option, turn=turn)
            content = ended(content, option, most)
            if self.sign is not None:
                # The CO flag is about names that are not there (RFC 9824 §5.1).
                content = self.sign(content, question.wire[:-4], question.rdtype, dnssec_ok, False)
            made = ready[turn] = Ready(content, question.wire, option)
            self._ready_bytes += made.size
            if self._ready_bytes > ROOM:
                self._plain.clear()
                self._signed.clear()
                self._ready_bytes = 0
        return picked, made

    def _tally(self, known: Audience, ready: Ready, *, tcp: bool) -> Tally:
        """Where an answer is counted: among the queries, and among the decisions."""
        mark = ready.marks[tcp]
        for counted, tally in known.tallies:
            if counted == mark:
                return tally
        question = known.asked.question
        decision = decision_key(known.asked.group, known.cell, ready.option, "dns")
        # Only addresses bring a client to a region; questions for anything else are no demand.
        if question.rdtype not in (wire.A, wire.AAAA):
            decision = metric_key(decision)
        key = joint_key(query_key(question.rdtype, ready.rcode, question.label, tcp=tcp), decision)
        found = Tally(key)
        known.tallies = (*known.tallies[-_TALLIES:], (mark, found))
        return found


def _reply(  # noqa: PLR0917 - one for every query: names cost
    packet: bytes, end: int, shape: int, ready: Ready, edns: Edns, source: str, *, tcp: bool
) -> bytes:
    if ready.error or edns.cookie is not None:
        opt = edns.opt(ready.error, source, tailored=ready.tailored)
    else:
        opt = edns.tailored if ready.tailored else edns.general
    reply = packet[:2] + ready.heads[shape] + packet[12:end] + ready.body + opt
    if len(reply) > (wire.TCP_PAYLOAD if tcp else edns.limit):
        return packet[:2] + ready.truncated_heads[shape] + packet[12:end] + opt
    return reply


def query_key(rdtype: int, rcode: int, name: str, *, tcp: bool) -> str:
    """The counter of queries that an answer belongs to; `name` is the service's host name or the zone, if any."""
    transport = "tcp" if tcp else "udp"
    return f"gtm_dns_queries_total\t{name}\t{wire.type_label(rdtype)}\t{wire.RCODE_NAMES[rcode]}\t{transport}"
