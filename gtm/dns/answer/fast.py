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

from dataclasses import dataclass, field

from gtm.core.decision.choice import Choice, pick
from gtm.core.decision.options import Option
from gtm.core.decision.router import Router
from gtm.core.memory import Memory
from gtm.dns.answer.clients import Client, Clients, Edns
from gtm.dns.answer.led import ended, within
from gtm.dns.answer.questions import LIMIT, NO_EDNS, Asked, Audience, Drawn, Prepared, Questions
from gtm.dns.answer.ready import EDNS, RECURSION, Ready, Sign
from gtm.dns.protocol import wire
from gtm.dns.zone.content import host_content, second_draw, turns
from gtm.telemetry import Counts, Tally, decision_key, joint_key, metric_key

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
