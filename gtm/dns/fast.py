"""The short way: addresses of services' host names, from bytes made ready.

A query of which everything was met before costs a dictionary hit each for its question, its OPT record and the client's
kind, and one concatenation (`FastWay.repeated`). A new state of the world makes new answers for the ranking classes,
which are few; what kind a client is of, and which class that is, outlives it. What is new, drawn or has a cookie takes
`FastWay.answer`; whatever is unusual in a packet makes that give None, and it goes the full way.
"""

from __future__ import annotations

from collections.abc import Callable

from gtm.core.choice import Choice, pick
from gtm.core.model import Request
from gtm.core.router import Router
from gtm.dns import wire
from gtm.dns.clients import Client, Clients, Edns
from gtm.dns.content import Content, host_content, second_draw, turns
from gtm.dns.questions import LIMIT, NO_EDNS, Asked, Kind, Question, Questions
from gtm.dns.ready import EDNS, RECURSION, Ready
from gtm.telemetry import decision_key, joint_key, metric_key

Seal = Callable[[Content, bytes, int, bool], Content]
"""(content, name, type, DO flag) → the content with what DNSSEC adds to it."""

_SHAPES = {
    bytes((rd, low << 4, 0, 1, 0, 0, 0, 0, 0, edns)): (RECURSION if rd else 0) | (EDNS if edns else 0)
    for rd in (0, 1)
    for low in range(16)
    for edns in (0, 1)
}
"""Bytes 2–11 of a standard query with one question and nothing else but perhaps one additional record → what of it
matters. The flags in `low` (RA, Z, AD, CD) have no bearing on an authoritative answer."""


class _Way:
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


class FastWay:
    """The short way for one Router.

    Args:
        router: what decides.
        questions: of the Router's Ranker.
        clients: what is known of clients.
        counts: what answers are counted in.
        seal: what DNSSEC makes of an answer; None: nothing.
    """

    __slots__ = ("_clients", "_counts", "_plain", "_questions", "_router", "_seal", "_signed", "_token")

    def __init__(
        self,
        router: Router,
        questions: Questions,
        clients: Clients,
        counts: dict[str, float],
        seal: Seal | None = None,
    ) -> None:
        self._router = router
        self._questions = questions
        self._clients = clients
        self._counts = counts
        self._seal = seal
        self._token = object()
        self._plain: dict[Asked, _Way] = {}
        self._signed: dict[Asked, _Way] = {}

    def repeated(self, packet: bytes, source: str) -> bytes | None:  # noqa: PLR0911 - at each step, all may be over
        """The reply over UDP to a packet of which everything has been met before and nothing is drawn; None for others."""
        end = packet.find(0, 12) + 5
        spelling = self._questions.spellings.get(packet[2:end])
        if spelling is None:
            return None
        records, kinds, shape = spelling
        edns = records.get(packet[end:])
        if edns is None or edns.cookie is not None:
            return None
        client = edns.client or self._clients.sources.get(source)
        if client is None or client.questions is not self._questions:
            return None
        known = kinds.get(client.kind)
        if known is None:
            return None
        prepared = known.signed if edns.dnssec_ok else known.plain
        if prepared is None or prepared[0] is not self._token:
            return None
        _, ready, key = prepared
        reply = packet[:2] + ready.fronts[shape] + (edns.tailored if ready.tailored else edns.general)
        if len(reply) > edns.limit:
            return None
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        return reply

    def answer(self, packet: bytes, source: str, draw: float, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for the short way."""
        shape = _SHAPES.get(packet[2:12])
        if shape is None:
            return None
        # No label of a known name holds a zero byte, and lowering touches neither lengths nor the types looked for.
        end = packet.find(0, 12) + 5
        asked = packet[12:end]
        question = self._questions.find(asked.lower())
        if question is None:
            return None
        if shape & EDNS:
            edns = self._clients.edns(packet[end:])
            if edns is None or (tcp and edns.keepalive):
                return None
        elif len(packet) == end:
            edns = NO_EDNS
        else:
            return None
        client = edns.client or self._clients.source(source)
        number = client.kind if client.questions is self._questions else self._questions.number(client)
        known = question.kinds.get(number) or self._questions.learn(question, client, number)
        ready, key = self._ending(known, edns, client, draw, tcp=tcp)
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        if asked == question.wire and question.wildcard is None:
            # Other spellings are a client's that draws the case anew for each query, to know its replies by it.
            self._questions.spelt(packet[2:end], question, shape)
        return _reply(packet, end, shape, ready, edns, source, tcp=tcp)

    def _ending(
        self, known: Kind, edns: Edns, client: Client, draw: float, *, tcp: bool
    ) -> tuple[Ready, str]:
        """The answer for a draw, and what it is counted as."""
        asked = known.asked
        ways = self._signed if edns.dnssec_ok else self._plain
        way = ways.get(asked)
        if way is None:
            if len(ways) >= LIMIT:
                ways.clear()
            way = ways[asked] = _Way(self._router.choice(asked.group))
        ready = way.certain or self._drawn(asked.question, way, client, draw, dnssec_ok=edns.dnssec_ok)
        mark = ready.tcp_mark if tcp else ready.udp_mark
        key = None if known.keys is None else known.keys.get(mark)
        if key is None:
            key = self._key(known, ready, mark, tcp=tcp)
        if way.certain is not None and not tcp and not ready.error:
            prepared = self._token, ready, key
            if edns.dnssec_ok:
                known.signed = prepared
            else:
                known.plain = prepared
        return ready, key

    def _drawn(self, question: Question, way: _Way, client: Client, draw: float, *, dnssec_ok: bool) -> Ready:
        """The answer made ready that a draw picks."""
        option = way.only or pick(
            way.choice, Request(question.host.service, client.location), draw, sheds=False
        )
        ready = way.ready.get(id(option))
        if ready is None:
            several = turns(self._router.view, question.host, question.rdtype, option)
            ready = way.ready[id(option)] = [None] * several
        turn = 0 if len(ready) == 1 else int(second_draw(draw) * len(ready))
        made = ready[turn]
        if made is None:
            content = host_content(self._router.view, question.host, question.rdtype, option, turn=turn)
            if self._seal is not None:
                content = self._seal(content, question.wire[:-4], question.rdtype, dnssec_ok)
            made = ready[turn] = Ready(content, question.wire, option)
            if way.only is not None and len(ready) == 1:
                way.certain = made
        return made

    def _key(self, known: Kind, ready: Ready, mark: str, *, tcp: bool) -> str:
        """What an answer is counted as: among the queries, and among the decisions."""
        question = known.asked.question
        decision = decision_key(known.asked.group, known.cell, ready.option, "dns")
        # Only addresses bring a client to a region; questions for anything else are no demand.
        if question.rdtype not in (wire.A, wire.AAAA):
            decision = metric_key(decision)
        key = joint_key(query_key(question.rdtype, ready.rcode, question.label, tcp=tcp), decision)
        if known.keys is None:
            known.keys = {}
        known.keys[mark] = key
        return key


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
