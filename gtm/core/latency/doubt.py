"""Networks that are not where the location database says: what physics says of a claim, and whose word it takes.

A round trip bounds how far away a client can be, whatever way its packets go (Gueye et al., "Constraint-based
geolocation of Internet hosts", 2006). Where balancers measure round trips that light in fibre could not make from the
place that the database claims, the location is doubtful.

Laws:
  1. Only what balancers measured with a token is evidence. Browsers never raise a doubt, and never end one.
  2. A doubt takes the votes of `DoubtSettings.votes` reporters. A token has one vote of a network, however many regions,
     edges and samples it speaks through.
  3. A token that disputes more than `DoubtSettings.share` of the networks measured has no vote: its region stands
     elsewhere, or it lies. Votes that came through one token alone make few networks doubtful, and none where several edges run.
     What one edge says in others' names, or of made-up reporters, takes no vote, room or place from what others say.
  4. A doubt is of a network and of what was claimed of it: another claim ends it. So do samples that fit, and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from ipaddress import ip_network
from math import isfinite
from typing import NamedTuple

from gtm.core.model.geometry import FIBRE_MS_PER_KM, square_key, square_of
from gtm.core.model.requests import Location

ERROR_MS = 1.0
"""What clocks may be wrong by."""
ACCURACY_FACTOR = 2.0
"""A database's radius holds the client in two cases of three, as its makers say (GeoIP2: 67%)."""
LEAST_KM = 250.0
"""Nothing is claimed more exactly than this."""
UNSTATED_KM = 1_000.0
"""What is allowed where the database states no radius."""
COUNTRY_KM = 6_000.0
"""What is allowed where the coordinates are the middle of a country: its farthest addresses."""
_NARROWEST = {4: 24, 6: 48}
"""Longest prefixes that doubts are told of: below them a network may be one person's."""
_MAX_SAMPLES = 1_000_000
_MAX_MS = 3_000.0
_MAX_NAME = 253


class Witness(NamedTuple):
    """What one reporter's interval says of a network's claimed location, from one region.

    `against` and `fits` count samples: those that light in fibre could not have made from the claimed place, and the
    others. `ms` is the median over their sources of the quickest round trip, `at` POSIX seconds.
    """

    network: str
    claim: str
    region: str
    reporter: str
    against: int
    fits: int
    ms: float
    at: float


class Vote(NamedTuple):
    """Witnesses of one reporter through one edge, summed up: weights in samples as of `updated` (POSIX seconds)."""

    network: str
    claim: str
    region: str
    reporter: str
    edge: str
    against: float
    fits: float
    ms: float
    updated: float


VoteKey = tuple[str, str, str, str, str]
"""Network, claim, region, reporter, edge."""


class Doubt(NamedTuple):
    """What edges know of a disputed network.

    `claim` is what is disputed; `doubtful`: by enough votes. `fastest` has the quickest round trip in ms of each region
    that disputes it.
    """

    claim: str
    doubtful: bool
    fastest: dict[str, float]


@dataclass(frozen=True, slots=True)
class DoubtSettings:
    """What it takes. Times in seconds, weights in samples.

    `votes`: reporters. `min_weight`: samples against the claim that make a vote, more than fit it; half of either keep
    it. `share`, `spared`: a reporter that disputes more than this share of the networks measured from its regions, and
    more than so many, has none. `alone`: how many networks the votes through the only edge make doubtful.
    `most_weight`: beyond this the newest samples outweigh the oldest. `max_votes`, `max_doubts`: of the memory and of
    the table.
    """

    half_life: float = 86_400.0
    votes: int = 2
    min_weight: float = 4.0
    share: float = 0.25
    spared: int = 8
    alone: int = 100
    most_weight: float = 100.0
    max_votes: int = 20_000
    max_doubts: int = 1_000


@dataclass(frozen=True, slots=True)
class Disputed:
    """A network as control sees it: its `doubt`, and whose votes count.

    `edges` are whom those votes came through, `weight` is of the samples against the claim, as of now.
    """

    network: str
    doubt: Doubt
    reporters: frozenset[str]
    edges: frozenset[str]
    weight: float


@dataclass(slots=True)
class _Case:
    """Votes of one network and claim that count."""

    votes: list[Vote] = field(default_factory=list)
    weight: float = 0.0


def claim_of(location: Location) -> str | None:
    """What a database claims of a network, as far as doubts tell claims apart; None if it claims no place."""
    if location.lat is None or location.lon is None:
        return None
    return f"{location.country or ''}|{square_key(square_of(location.lat, location.lon))}"


def allowance_km(location: Location) -> float:
    """How far from its coordinates a client may be without a contradiction."""
    if location.central:
        return COUNTRY_KM
    if location.accuracy_km is None:
        return UNSTATED_KM
    return max(LEAST_KM, ACCURACY_FACTOR * location.accuracy_km)


def disputes(direct_km: float, rtt_ms: float, allowed_km: float) -> bool:
    """Whether a round trip is too short for a client so far away, give or take what is allowed."""
    return direct_km - allowed_km > (rtt_ms + ERROR_MS) / FIBRE_MS_PER_KM


def tellable(network: str | None) -> bool:
    """Whether a network is wide enough to be named in a doubt."""
    if network is None:
        return False
    try:
        parsed = ip_network(network)
    except ValueError:
        return False
    return parsed.prefixlen <= _NARROWEST[parsed.version]


def check_witness(witness: Witness) -> None:
    """Refuse a witness that cannot be.

    Raises:
        ValueError: its numbers or names are impossible.
    """
    names = (witness.network, witness.claim, witness.region, witness.reporter)
    if not all(0 < len(name) <= _MAX_NAME and name.isascii() and name.isprintable() for name in names):
        raise ValueError(f"names of a witness are 1 to {_MAX_NAME} printable ASCII characters")
    counts = (witness.against, witness.fits)
    if not all(0 <= count <= _MAX_SAMPLES for count in counts) or not any(counts):
        raise ValueError(f"a witness of `{witness.network}` has impossible numbers: {witness}")
    if not 0 <= witness.ms <= _MAX_MS or not isfinite(witness.at):
        raise ValueError(f"a witness of `{witness.network}` has impossible numbers: {witness}")
    if not tellable(witness.network):
        raise ValueError(
            f"`{witness.network}` is no network of at most 24 bits (ipv4) or 48 bits (ipv6): doubts name no narrower ones"
        )


class Doubts:
    """The votes of all edges.

    Args:
        votes: what was stored, from `votes`.
        settings: what a doubt takes.
    """

    def __init__(self, votes: Iterable[Vote] = (), settings: DoubtSettings | None = None) -> None:
        self.settings = settings or DoubtSettings()
        self._votes: dict[VoteKey, Vote] = {vote[:5]: vote for vote in votes}

    def merge(self, edge: str, witnesses: Iterable[Witness], now: float) -> None:
        """Add what an edge sent.

        Args:
            edge: what it shares with no other: its token's id.
            witnesses: `check_witness` has found nothing wrong; those dated after `now` count as of now.
            now: POSIX seconds.
        """
        for witness in witnesses:
            self._add(edge, witness, min(witness.at, now))
        if len(self._votes) > self.settings.max_votes:
            self._shorten(now)

    def votes(self, now: float) -> list[Vote]:
        """All that is to be stored. What has all but been forgotten is dropped for good."""
        self._votes = {
            key: vote for key, vote in self._votes.items() if vote.against * self._decay(vote, now) >= 0.1
        }
        return list(self._votes.values())

    def forget(self, regions: Iterable[str]) -> None:
        """Drop the votes from regions: they stand elsewhere than when the votes were cast."""
        gone = frozenset(regions)
        self._votes = {key: vote for key, vote in self._votes.items() if vote.region not in gone}

    def hand_on(self, token: str, successor: str) -> None:
        """What came through edges of a token counts as its successor's from now on, unless that one's say the same thing."""
        if token != successor and any(vote.edge == token for vote in self._votes.values()):
            moved = [vote._replace(edge=successor) for vote in self._votes.values() if vote.edge == token]
            self.retain(lambda edge: edge != token)
            self._votes = {vote[:5]: vote for vote in moved} | self._votes

    def retain(self, stays: Callable[[str], bool]) -> None:
        """Drop the votes through edges of tokens whose ids do not stay."""
        self._votes = {key: vote for key, vote in self._votes.items() if stays(vote.edge)}

    def set_aside(self, measured: Mapping[str, int], now: float) -> frozenset[str]:
        """The reporters without a vote, at least through some edge, because they dispute too much.

        Args:
            measured: how many networks were measured from each region, by whomever.
            now: POSIX seconds.
        """
        return frozenset(reporter for reporter, _ in self._aside(measured, now))

    def _aside(self, measured: Mapping[str, int], now: float) -> frozenset[tuple[str, str]]:
        """The reporters, each with an edge, whose votes through that edge do not count.

        Where a reporter disputes too much, the edges through which it disputes most are left out first, until the rest
        is little enough: an edge that speaks in another's name takes its own word away, and no vote that came
        through others.
        """
        through: dict[str, dict[str, set[tuple[str, str]]]] = {}
        regions: dict[str, set[str]] = {}
        for vote in self._votes.values():
            if self._counts(vote, now, published=True):
                found = through.setdefault(vote.reporter, {}).setdefault(vote.edge, set())
                found.add((vote.network, vote.claim))
                regions.setdefault(vote.reporter, set()).add(vote.region)
        settings = self.settings
        aside = set()
        for reporter, by_edge in through.items():
            most = settings.share * max(measured.get(region, 0) for region in regions[reporter])
            rest: set[tuple[str, str]] = set()
            for edge in sorted(by_edge, key=lambda edge: (len(by_edge[edge]), edge)):
                rest |= by_edge[edge]
                if len(rest) > max(settings.spared, most):
                    aside.add((reporter, edge))
        return frozenset(aside)

    def disputed(
        self,
        previous: Mapping[str, Doubt],
        now: float,
        regions: Iterable[str],
        measured: Mapping[str, int],
        *,
        lone: bool = True,
    ) -> list[Disputed]:
        """The networks with votes against what is claimed of them, the doubtful ones and the heaviest first.

        Args:
            previous: what edges have: votes for these stay down to half their weight.
            now: POSIX seconds.
            regions: names of those that the policy has.
            measured: as for `set_aside`.
            lone: no more than one edge runs; else what came through one token alone makes nothing doubtful, since its holder
                can make reporters up.
        """
        known, aside = frozenset(regions), self._aside(measured, now)
        cases: dict[tuple[str, str], _Case] = {}
        for vote in self._votes.values():
            before = previous.get(vote.network)
            published = before is not None and before.claim == vote.claim
            if vote.region not in known or (vote.reporter, vote.edge) in aside:
                continue
            if self._counts(vote, now, published=published):
                case = cases.setdefault((vote.network, vote.claim), _Case())
                case.votes.append(vote)
                case.weight += vote.against * self._decay(vote, now)
        # Of two claims of a network (edges with different databases) one is told: that of more edges, then the heavier.
        told: dict[str, Disputed] = {}
        for (network, claim), case in sorted(cases.items()):
            one = self._judged(network, claim, case)
            if network not in told or _standing(one) > _standing(told[network]):
                told[network] = one
        return self._bounded(told.values(), self.settings.alone if lone else 0)

    def _judged(self, network: str, claim: str, case: _Case) -> Disputed:
        fastest: dict[str, float] = {}
        for vote in case.votes:
            fastest[vote.region] = min(vote.ms, fastest.get(vote.region, vote.ms))
        reporters = frozenset(vote.reporter for vote in case.votes)
        edges = frozenset(vote.edge for vote in case.votes)
        doubtful = len(reporters) >= self.settings.votes
        return Disputed(network, Doubt(claim, doubtful, fastest), reporters, edges, case.weight)

    def _bounded(self, found: Iterable[Disputed], most: int) -> list[Disputed]:
        """As many as may be told, and of those that hang on one edge's word, at most so many that are doubtful."""
        alone: dict[str, int] = {}
        kept = []
        for one in sorted(found, key=_order):
            if one.doubt.doubtful and len(one.edges) == 1:
                (edge,) = one.edges
                alone[edge] = alone.get(edge, 0) + 1
                if alone[edge] > most:
                    kept.append(replace(one, doubt=one.doubt._replace(doubtful=False)))
                    continue
            kept.append(one)
        # Only now cut off: what is one edge's word too many must not take the place of a doubt.
        return sorted(kept, key=_order)[: self.settings.max_doubts]

    def _add(self, edge: str, witness: Witness, dated: float) -> None:
        key = (witness.network, witness.claim, witness.region, witness.reporter, edge)
        vote = self._votes.get(key)
        if vote is None:
            if witness.against:
                against, fits = self._scaled(0.0, 0.0, witness)
                self._votes[key] = Vote(*key, against, fits, witness.ms, dated)
            return
        at = max(vote.updated, dated)
        share = self._decay(vote, at)
        against, fits = self._scaled(vote.against * share, vote.fits * share, witness)
        ms = witness.ms if witness.against else vote.ms
        self._votes[key] = Vote(*key, against, fits, ms, at)

    def _scaled(self, against: float, fits: float, witness: Witness) -> tuple[float, float]:
        """Weights with an interval's added, and no heavier together than the most: the old ones give way."""
        most = self.settings.most_weight
        added = witness.against + witness.fits
        new = min(1.0, most / added)
        old = min(1.0, (most - added * new) / (against + fits)) if against + fits else 0.0
        return against * old + witness.against * new, fits * old + witness.fits * new

    def _counts(self, vote: Vote, now: float, *, published: bool) -> bool:
        ease = 2.0 if published else 1.0
        against = vote.against * self._decay(vote, now)
        return ease * against >= self.settings.min_weight and ease * vote.against > vote.fits

    def _decay(self, vote: Vote, now: float) -> float:
        return float(0.5 ** (max(0.0, now - vote.updated) / self.settings.half_life))

    def _shorten(self, now: float) -> None:
        """Keep the heaviest votes, as many of each edge as of any other, and of each reporter of an edge likewise.

        First by edge, because an edge can make up reporters: however many, they share its room.
        """
        by_edge: dict[str, dict[str, list[Vote]]] = {}
        for vote in self._votes.values():
            by_edge.setdefault(vote.edge, {}).setdefault(vote.reporter, []).append(vote)
        room = max(1, self.settings.max_votes * 3 // 4 // len(by_edge))

        def weight(vote: Vote) -> float:
            return vote.against * self._decay(vote, now)

        kept: list[Vote] = []
        for by_reporter in by_edge.values():
            each = max(1, room // len(by_reporter))
            of_edge = [vote for votes in by_reporter.values() for vote in nlargest(each, votes, key=weight)]
            kept += nlargest(room, of_edge, key=weight)
        self._votes = {vote[:5]: vote for vote in kept}


def _standing(one: Disputed) -> tuple[bool, int, float]:
    """Which of a network's claims is told: the greatest."""
    return one.doubt.doubtful, len(one.edges), one.weight


def _order(one: Disputed) -> tuple[bool, float, str]:
    """The doubtful first, then the heaviest."""
    return not one.doubt.doubtful, -one.weight, one.network
