"""Which questions the short way answers, and which ranking class each audience falls into."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import dns.name

from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.router import Ranker
from gtm.core.memory import Memory
from gtm.dns.answer.clients import Client, Clients, Edns, NoEdns
from gtm.dns.answer.led import Leads, leads
from gtm.dns.answer.ready import EDNS, Ready
from gtm.dns.protocol import wire
from gtm.dns.zone.content import second_draw
from gtm.dns.zone.static import static_content
from gtm.dns.zone.zones import Host, Names
from gtm.telemetry import Tally

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
