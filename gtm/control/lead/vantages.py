"""The edges that report to one control process: who is alive, who has one name with another, and what they see together.

Laws:
  1. All edges of one token have one vote (`gtm.core.health.verdicts.combine`).
  2. Two edges that run under one name count both, and are told of each other. One that was started anew replaces the one
     before: an instance counts no more once another of its name has come, unless it goes on reporting.
  3. Nothing is told before all edges had the time to report: until then, each goes by its own probes.
  4. Memory is bounded by the policy and by the number of tokens, whatever is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, combinations

from gtm.control.errors import Conflict
from gtm.control.live.present import Health
from gtm.core.health.addresses import FAMILIES, NO_ADDRESSES, AddressReport, combine_addresses
from gtm.core.health.alarm import Alarm, look, presumed, withdrawn
from gtm.core.health.verdicts import HealthTable, VantageReport, combine, up_regions
from gtm.core.policy.snapshot import Snapshot
from gtm.feed.reports import EdgeReport

logger = logging.getLogger(__name__)

MAX_AGE = 10.0
"""Seconds without a report after which an edge has no vote on health and counts as unreachable."""
MAX_EDGES = 1_000
"""Names under which one token may report."""
MAX_INSTANCES = 8
"""Running edges of one name and token; more report again and again under new instances, which no edge does."""
GATHERING = 3.0
"""Seconds from the first report for which a control that starts tells no verdicts: the first to speak is not most of them."""
MAX_SCOPES = 2_000
"""Sets of regions that an alarm is about."""
OVERLAP = 2.0
"""Seconds for which an edge and the one that replaces it may both be heard of."""
_FORGET = 86_400.0


@dataclass(frozen=True, slots=True)
class LiveEdge:
    """An edge as this control last heard of it. `heard` is monotonic, `seen_at` the time of day.

    `report` is what is kept of its last report: no demand, samples, leases, plan or outcomes, the certificates as last told, and of `dns`
    whether it tells any. `source` tells its demand from that
    of others. `token` is a token's name, which another may have once it is revoked, `token_id` the token itself.
    """

    name: str
    address: str
    report: EdgeReport
    heard: float
    seen_at: datetime
    token: str = ""
    instance: str = ""
    source: str = ""
    token_id: str = ""


@dataclass(slots=True)
class _Place:
    """One running edge: `began` when its instance was first heard of, `replaced` when another of its name was."""

    edge: LiveEdge
    began: float
    replaced: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the vantages say together.

    `votes` are the verdicts as voted, `told` those that edges are told (`gtm.core.health.alarm`), `presumed` what plans
    are made for. `addresses` are those on addresses that edges are told, `address_votes` as voted, and `address_alarms` what is
    remembered of them, by family.
    """

    votes: Health = field(default_factory=dict)
    told: Health = field(default_factory=dict)
    presumed: Health = field(default_factory=dict)
    alarm: Alarm = field(default_factory=Alarm)
    addresses: dict[str, Health] = field(default_factory=dict)
    address_votes: dict[str, Health] = field(default_factory=dict)
    address_alarms: Mapping[str, Alarm] = field(default_factory=dict)


class Vantages:
    """The running edges of one control process.

    Args:
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.judgement = Judgement()
        self._clock = clock
        self._monotonic = monotonic
        self._began: float | None = None
        self._judged_by: Snapshot | None = None
        self._scopes: tuple[frozenset[str], ...] = ()
        self._places: dict[tuple[str, str], dict[str, _Place]] = {}

    def take(self, token: str, name: str, address: str, report: EdgeReport, token_id: str = "") -> LiveEdge:
        """Take in a report of which only what the policy names is left.

        Args:
            token: whose it is; empty: the edge's own.
            name: the edge's.
            address: where it came from.
            report: it.
            token_id: the token's id, which no other ever has.

        Raises:
            Conflict: the token reports under too many names, or the edge under too many instances.
        """
        now = self._monotonic()
        if self._began is None:
            self._began = now
        instance = report.leases.instance if report.leases is not None else ""
        places = self._places.get((token, name))
        if places is None:
            if sum(1 for one, _ in self._places if one == token) >= MAX_EDGES:
                raise Conflict(
                    f"this token reports under {MAX_EDGES} names already: make another one, by "
                    "`gtm token create NAME --role edge`"
                )
            places = self._places[token, name] = {}
        place = places.get(instance)
        source = f"{token}\n{name}"
        if place is None:
            running = [one for one in places.values() if now - one.edge.heard <= MAX_AGE]
            if len(running) >= MAX_INSTANCES:
                raise Conflict(
                    f"{len(running)} edges named `{name}` report with this token: give each a name of its own (--name)"
                )
            for other in places.values():
                other.replaced = now
        else:
            source = place.edge.source
            if place.replaced is not None and now - place.replaced > OVERLAP:
                place.replaced, source = None, f"{token}\n{name}\n{instance}"
        certificates = report.certificates
        if certificates is None and place is not None:
            certificates = place.edge.report.certificates
        kept = EdgeReport(
            report.version,
            report.revision,
            report.epoch,
            report.health,
            overruled=report.overruled,
            place=report.place,
            handoff_keys=report.handoff_keys,
            dns=None if report.dns is None else {},
            dns_limits=report.dns_limits,
            certificates=certificates,
            kept=report.kept,
            addresses=report.addresses,
        )
        seen_at = datetime.fromtimestamp(self._clock(), UTC)
        edge = LiveEdge(name, address, kept, now, seen_at, token, instance, source, token_id)
        if place is None:
            places[instance] = _Place(edge, now)
        else:
            place.edge = edge
        return edge

    def all(self) -> list[LiveEdge]:
        """Every edge heard of within a day, by name; edges of one name oldest first."""
        self._forget()
        found = [
            (place.edge, place.began)
            for places in self._places.values()
            for place in places.values()
            if place.replaced is None
        ]
        return [edge for edge, _ in sorted(found, key=lambda one: (one[0].name, one[1]))]

    def live(self) -> list[LiveEdge]:
        """The edges heard of within `MAX_AGE`, likewise."""
        now = self._monotonic()
        return [edge for edge in self.all() if now - edge.heard <= MAX_AGE]

    def notice(self, edge: LiveEdge) -> str:
        """What an edge should be told of others, to be said in its log; empty if there is nothing."""
        running = [other for other in self.live() if other.name == edge.name]
        others = [other for other in running if (other.token, other.instance) != (edge.token, edge.instance)]
        if not others or edge not in running:  # the last words of one that was replaced
            return ""
        where = ", ".join(sorted({other.address for other in others}))
        return (
            f"another edge named `{edge.name}` runs and reports to control (from {where}): both count, but nobody can "
            "tell them apart; give each a name of its own (--name, GTM_EDGE_NAME)"
        )

    def forget(self, name: str) -> None:
        """Forget the edges of a name."""
        for key in [key for key in self._places if key[1] == name]:
            del self._places[key]

    def retain(self, tokens: Container[str]) -> list[LiveEdge]:
        """Forget the edges of other tokens than these, by id; which they were. An edge without a token's id stays."""
        gone = [
            (key, instance, place.edge)
            for key, places in self._places.items()
            for instance, place in places.items()
            if place.edge.token_id and place.edge.token_id not in tokens
        ]
        for key, instance, _ in gone:
            del self._places[key][instance]
        self._places = {key: places for key, places in self._places.items() if places}
        return [edge for _, _, edge in gone]

    @property
    def gathering(self) -> bool:
        """Whether not all edges had the time to report yet."""
        return self._began is None or self._monotonic() - self._began < GATHERING

    def judge(
        self, snapshot: Snapshot | None, clients: Callable[[], Mapping[str, float]] = dict
    ) -> Judgement:
        """Combine what the vantages say now.

        Args:
            snapshot: the policy in force.
            clients: tells how much is asked of the edges of each token, by the token's name.
        """
        now = self._monotonic()
        edges = self.all()
        reports = [
            VantageReport(f"{edge.name}\n{edge.instance}", edge.heard, edge.report.health, edge.token)
            for edge in edges
        ]
        votes = combine(reports, now, MAX_AGE, self.judgement.votes)
        fresh = [report for report in reports if now - report.received <= MAX_AGE]
        seen = frozenset[str]().union(*(up_regions(report.health) for report in fresh))
        before = self.judgement.alarm
        if snapshot is not self._judged_by:
            self._judged_by, self._scopes = snapshot, scopes(snapshot)
        alarm = look(before, votes, seen, self._scopes, now)
        told = {} if self.gathering else withdrawn(votes, alarm)
        presumed_ = presumed(votes, alarm, fresh, now, MAX_AGE, clients=clients)
        of_addresses = self._judge_addresses(
            [
                AddressReport(report, edge.report.addresses or NO_ADDRESSES)
                for report, edge in zip(reports, edges, strict=True)
            ],
            now,
        )
        self.judgement = Judgement(votes, told, presumed_, alarm, *of_addresses)
        if alarm.disputed.keys() - before.disputed.keys():
            logger.error("%s", self.alarm_words())
        elif before.disputed and not alarm.disputed:
            logger.warning("the alarm over health is over")
        return self.judgement

    def _judge_addresses(
        self, cast: Sequence[AddressReport], now: float
    ) -> tuple[dict[str, Health], dict[str, Health], dict[str, Alarm]]:
        """What is told of addresses, what the votes on them are, and the alarms: by the rules of endpoints, for each family."""
        before = self.judgement
        votes = combine_addresses(cast, now, MAX_AGE, before.address_votes)
        alarms = {}
        for family in FAMILIES:
            fresh = [one for one in cast if now - one.endpoints.received <= MAX_AGE]
            seen = frozenset[str]().union(*(up_regions(one.addresses.get(family, {})) for one in fresh))
            was = before.address_alarms.get(family, Alarm())
            alarms[family] = look(was, votes[family], seen, self._scopes, now)
        told = {} if self.gathering else {one: withdrawn(votes[one], alarms[one]) for one in FAMILIES}
        return told, votes, alarms

    def alarm_words(self) -> str:
        """What the alarm is about, and what to do; empty while there is none."""
        disputed = self.judgement.alarm.disputed
        if not disputed:
            return ""
        live = self.live()
        voters: dict[str, list[HealthTable]] = {}
        for edge in live:
            voters.setdefault(edge.token or edge.name, []).append(edge.report.health)
        up = sorted(
            name
            for name, tables in voters.items()
            if any(up_regions(one) & disputed.keys() for one in tables)
        )
        down = sorted(
            name
            for name, tables in voters.items()
            if any((one.keys() & disputed.keys()) - up_regions(one) for one in tables)
        )
        lone = " Only one token's edges vote, so nobody else can tell." if len(voters) == 1 else ""
        return (
            f"alarm: regions {_listed(sorted(disputed))} went down at once by the votes of edges alone; their verdicts are "
            f"withdrawn, and each edge goes by its own probes. Tokens whose edges say down: {_listed(down)}; up: "
            f"{_listed(up)}. If they are up, look at the edges that say down, or revoke their tokens.{lone}"
        )

    def tie_words(self) -> str:
        """Which regions the votes are split over, and what that means; empty while there are none."""
        disputed = self.judgement.alarm.disputed
        tied = sorted(
            name
            for name, table in self.judgement.votes.items()
            if name not in disputed and any(one.tied for one in table.values())
        )
        if not tied:
            return ""
        return (
            f"as many tokens' edges say that regions {_listed(tied)} are up as say down: the verdict stays what it was, and "
            "each edge goes by its own probes; `gtm regions show REGION` tells who says what"
        )

    def _forget(self) -> None:
        now = self._monotonic()
        for key, places in list(self._places.items()):
            for instance, place in list(places.items()):
                age = now - place.edge.heard
                if age > _FORGET or (age > MAX_AGE and place.replaced is not None):
                    del places[instance]
                elif age > MAX_AGE and place.edge.report.health:
                    bare = replace(
                        place.edge.report, health={}, overruled=(), certificates=None, addresses=None
                    )
                    place.edge = replace(place.edge, report=bare)
            if not places:
                del self._places[key]


def scopes(snapshot: Snapshot | None) -> tuple[frozenset[str], ...]:
    """The regions that clients depend on together: all, those of each service, and those inside each fence of a service.

    A fence is what one residency rule leaves of a service, or two rules together; of all of these, `MAX_SCOPES` count.
    """
    if snapshot is None:
        return ()
    services = [one.mask for one in snapshot.services.values()]
    fences = [
        dict.fromkeys(one.mask & rule.allowed for rule in one.rules if rule.enforced)
        for one in snapshot.services.values()
    ]
    pairs = (first & second for of_one in fences for first, second in combinations(of_one, 2))
    masks: set[int] = set()
    for mask in chain([(1 << len(snapshot.regions)) - 1], services, chain.from_iterable(fences), pairs):
        if len(masks) >= MAX_SCOPES:
            break
        masks.add(mask)
    return tuple(frozenset(snapshot.names(mask)) for mask in masks if mask.bit_count() > 1)


def _listed(names: list[str], most: int = 10) -> str:
    words = ", ".join(f"`{name}`" for name in names[:most]) or "none"
    return words if len(names) <= most else f"{words} and {len(names) - most} more"
