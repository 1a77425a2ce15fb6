"""DNS packets in, DNS packets out: no socket, no clock, no randomness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import lru_cache, partial

from gtm.core.decision.router import Router
from gtm.core.decision.view import Basis, elsewhere
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.dns.answer.clients import Clients
from gtm.dns.answer.fast import NO_EDNS, FastWay, Questions, Sign, body, name_label, query_key
from gtm.dns.answer.full import Query, Question, Rejected, read_query, render
from gtm.dns.answer.led import ended, led
from gtm.dns.protocol import wire
from gtm.dns.protocol.options import NO_OPTIONS, ServerOptions
from gtm.dns.zone.content import Content, explains, explanation, host_content, second_draw, turns
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.dns.zone.static import NOT_AUTHORITATIVE, Alias, static_content
from gtm.dns.zone.zones import Host, Names, build_names
from gtm.geoip.networks import Locate
from gtm.telemetry import Counts, decision_key, metric_key

# --- The short way of answers for everyone: records of zones, denials and refusals, without dnspython. ---
#
# Whoever floods a server with names that are not there makes it answer just these, and each only once, so nothing is
# remembered. What is unusual in a packet, depends on the client or is long makes `StaticWay.answer` give None.


Count = Callable[[bytes, int, Content, bool], None]
"""(name, type, content, over TCP): count an answer."""

_COUNTS = b"\0\1\0\0\0\0\0"
"""Bytes 4–10 of a query with one question and at most one additional record."""


class StaticWay:
    """The short way for the names of one policy.

    Args:
        names: of the policy.
        clients: what is known of OPT records.
        sign: what DNSSEC makes of an answer; None: nothing.
        count: counts what is answered.
    """

    __slots__ = ("_clients", "_count", "_names", "_sign")

    def __init__(self, names: Names, clients: Clients, sign: Sign | None, count: Count) -> None:
        self._names = names
        self._clients = clients
        self._sign = sign
        self._count = count

    def answer(self, packet: bytes, source: str, *, tcp: bool) -> bytes | None:
        """The reply to a packet, or None if it is not for this way."""
        end = packet.find(0, wire.HEADER_SIZE) + 5
        asked = packet[wire.HEADER_SIZE : end - 4]
        if packet[4:11] != _COUNTS or packet[2] > 1 or packet[3] & 0xF or not wire.is_name(asked):
            return None
        has_edns = packet[11] == 1
        edns = self._clients.edns(packet[end:]) if has_edns else NO_EDNS
        if edns is None or (has_edns and tcp and edns.keepalive) or len(packet) < end + 11 * has_edns:
            return None
        if packet[11] > 1 or (not has_edns and len(packet) != end) or packet[end - 2 : end] != b"\0\1":
            return None
        name, rdtype = asked.lower(), int.from_bytes(packet[end - 4 : end - 2])
        content = static_content(self._names, name, rdtype)
        if not isinstance(content, Content) or content.delegation is not None:
            return None
        if self._sign is not None:
            flags = int.from_bytes(packet[end + 7 : end + 9])
            content = self._sign(content, name, rdtype, edns.dnssec_ok, bool(flags & wire.CO))
        opt = edns.opt(
            b"" if content.error is None else content.error.option, source, tailored=content.tailored
        )
        head = packet[:2] + _head(content, packet[2], has_edns=has_edns)
        reply = head + packet[wire.HEADER_SIZE : end] + body(content, packet[wire.HEADER_SIZE : end]) + opt
        # The full way compresses, and so may still fit where this does not.
        if len(reply) > (wire.TCP_PAYLOAD if tcp else edns.limit):
            return None
        self._count(name, rdtype, content, tcp)
        return reply


def _head(content: Content, recursion: int, *, has_edns: bool) -> bytes:
    """Bytes 2–11 of the reply."""
    flags = wire.reply_flags(recursion << 8, authoritative=content.authoritative) | content.rcode
    return wire.HEADER.pack(
        flags, 1, len(content.records), len(content.authority), len(content.additional) + has_edns, 0
    )[:10]


# --- DNS packets in, DNS packets out: no socket, no clock, no randomness. ---


_label = lru_cache(maxsize=4096)(name_label)


@dataclass(slots=True, eq=False, repr=False)
class Answerer:
    """Answers DNS packets from one Router. Cheap enough to be made anew for each: answers are prepared when first asked.

    Args:
        router: what decides; its View holds the zones and host names.
        locate: where an address is (text, or packed bytes).
        counts: what answers and dropped packets are counted in.
        predecessor: the Answerer that this one takes over from, if it has the same `locate` with the same data: what
            it remembers of clients, the name tables too while the policy is the same, and the clients' ranking
            classes while the Ranker is.
        signer: what signs the answers of zones that have keys; None: there are none.
        options: what replies may say of the server; the same as the predecessor's.
        draw: a new draw, uniform in [0, 1), for services whose weights split clients; by default always 0.
    """

    router: Router
    locate: Locate
    counts: Counts
    predecessor: InitVar[Answerer | None] = None
    signer: ZoneSigner | None = None
    _: KW_ONLY
    options: ServerOptions = NO_OPTIONS
    draw: Callable[[], float] = float
    clients: Clients = field(init=False)
    names: Names = field(init=False)
    questions: Questions = field(init=False)
    _count: Count = field(init=False)
    _sign: Sign | None = field(init=False)
    _fast: FastWay = field(init=False)
    _static: StaticWay = field(init=False)

    def __post_init__(self, predecessor: Answerer | None) -> None:
        self.router = router = self.router.in_dns
        signer, counts, basis = self.signer, self.counts, router.view.basis
        self.clients = Clients(self.locate, self.options) if predecessor is None else predecessor.clients
        known = None if predecessor is None else predecessor.router.view.basis
        if predecessor is not None and known is not None and _names_alike(known, basis):
            self.names = predecessor.names
        else:
            self.names = build_names(router.view.snapshot, elsewhere(basis))
        if predecessor is not None and predecessor.router.ranker is router.ranker:
            self.questions = predecessor.questions
        else:
            self.questions = Questions(router.ranker, self.names, self.clients)
        # No methods of this object: Views come and go each second, and a cycle would leave them to the garbage collector.
        self._count = partial(_count, counts, self.names)
        self._sign = None if signer is None or not signer.zones else partial(_sign, signer, self.names)
        self._fast = FastWay(router, self.questions, self.clients, counts, self._sign)
        self._static = StaticWay(self.names, self.clients, self._sign, self._count)

    def answer(self, packet: bytes, client: str, *, tcp: bool, draw: float) -> bytes | None:
        """The reply to a packet, or None to drop it.

        Args:
            packet: as it came, without TCP's length.
            client: the address it came from, as text.
            tcp: it came over TCP, so the reply may be long.
            draw: uniform in [0, 1), for services whose weights split clients.
        """
        reply = self._fast.answer(packet, client, draw, tcp=tcp)
        if reply is None:
            reply = self._static.answer(packet, client, tcp=tcp)
        if reply is not None:
            return reply
        self.counts.add(f"gtm_dns_full_way_total\t{'tcp' if tcp else 'udp'}")
        return self.answer_fully(packet, client, tcp=tcp, draw=draw)

    def udp(self, packet: bytes, client: str) -> bytes | None:
        """The reply to a packet that came over UDP, with a new draw."""
        draw = self.draw()
        reply = self._fast.repeated(packet, client, draw)
        return self.answer(packet, client, tcp=False, draw=draw) if reply is None else reply

    def answer_fully(self, packet: bytes, client: str, *, tcp: bool, draw: float) -> bytes | None:
        """The reply to a packet, always made in full; arguments are those of `answer`."""
        query = read_query(packet, client, self.options, tcp=tcp)
        if isinstance(query, Rejected):
            if query.reply is None:
                self.counts.add(f"gtm_dns_dropped_total\t{query.dropped}")
            else:
                self.counts.add(query_key(0, query.rcode, "", tcp=tcp))
            return query.reply
        location = UNKNOWN_LOCATION
        content: Content | Host | Alias = (
            static_content(self.names, query.question.name, query.question.rdtype)
            if query.question.rdclass == wire.CLASS_IN
            else NOT_AUTHORITATIVE
        )
        counted = query.question.name
        if isinstance(content, Host):
            location = self._location(query, client)
            counted = (
                self.names.source_of(counted, content.zone) or counted
            )  # of a wildcard: made-up names are many
            content = self._decided(content, query.question, location, draw)
        elif isinstance(content, Alias):
            location = self._location(query, client)
            content = content.before(self._decided(content.host, query.question, location, draw))
        if self._sign is not None and query.question.rdclass == wire.CLASS_IN:
            flags = query.edns_flags or 0
            content = self._sign(
                content,
                query.question.name,
                query.question.rdtype,
                bool(flags & wire.DO),
                bool(flags & wire.CO),
            )
        self._count(counted, query.question.rdtype, content, tcp)
        return render(query, content, location, tcp=tcp)

    def _location(self, query: Query, client: str) -> Location:
        """Where the client is: its subnet, or else the address that asks."""
        if query.subnet is not None and query.subnet.source > 0:
            return self.clients.subnet(query.subnet).location
        return self.locate(client)

    def _decided(self, host: Host, question: Question, location: Location, draw: float) -> Content:
        """The answer of a service's host name for one client."""
        router = self.router
        routing = router.routing(host.request(location, question.rdtype))
        picked = routing.pick(draw, sheds=False)
        ranking = routing.ranking
        option, most = led(router, self.names, ranking, picked, location)
        key = decision_key(ranking.group, ranking.cell, option, "dns")
        # Only addresses bring a client to a region; questions for anything else are no demand.
        self.counts.add(key if question.rdtype in (wire.A, wire.AAAA) else metric_key(key))
        texts: Sequence[str] = ()
        if question.rdtype == wire.TXT and explains(host, question.name):
            texts = explanation(router.explained(ranking, option), routing.request)
        turn = int(second_draw(draw) * turns(router.view, host, question.rdtype, option))
        content = host_content(router.view, host, question.rdtype, option, texts, turn=turn)
        return ended(content, option, most)


def _names_alike(one: Basis, other: Basis) -> bool:
    """Whether two bases have the same names: of one policy, and of the same zones answered for."""
    if one.snapshot is not other.snapshot:
        return False
    return one.rules is other.rules or elsewhere(one) == elsewhere(other)


def _count(  # noqa: PLR0917 - a `static_way.Count`, and what it is made from
    counts: Counts, names: Names, name: bytes, rdtype: int, content: Content, tcp: bool
) -> None:
    """Count an answer under a service's host name, else the zone's; under none where we have none."""
    label = ""
    if content.zone is not None:
        label = _label(name if name in names.hosts else content.zone.name)
    counts.add(query_key(rdtype, content.rcode, label, tcp=tcp))


def _sign(  # noqa: PLR0917 - a `ready.Sign`, and what it is made from
    signer: ZoneSigner,
    names: Names,
    content: Content,
    name: bytes,
    rdtype: int,
    dnssec_ok: bool,
    compact_ok: bool,
) -> Content:
    return signer.signed(content, name, rdtype, names, dnssec_ok=dnssec_ok, compact_ok=compact_ok)
