"""From single round trips to small sums: what an edge keeps of its clients' round trips, and sends to control.

Laws:
  1. One source, one vote: within an interval each source has the median of its few samples, and a level has the median
     of its sources. One liar among three sources moves a value no further than to what an honest one said.
  2. Nothing of a client outlives the interval: what leaves are statistics of networks, operators, countries and places.
  3. Memory is bounded, and browsers cannot take all of it: half is left to what balancers and regions measure. Nor can a reporter's
     token: it takes no more than it leaves to others.
  4. What balancers measure counts for the client's network, wherever the location database says that is. For anything
     coarser it counts only where nothing disputes the location.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite
from statistics import median, median_low
from types import MappingProxyType
from typing import NamedTuple

from gtm.core.latency.doubt import Doubt, Witness, allowance_km, claim_of, disputes, tellable
from gtm.core.latency.geographic import SHIPPED, Parameters, Point, model_ms, point_at, terminal_at
from gtm.core.latency.table import asn_key, network_key
from gtm.core.model.affinity import key_hash
from gtm.core.model.geometry import FIBRE_MS_PER_KM, arc_km, square_key, square_of
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location

MAX_RTT_MS = 3000.0
"""A round trip above this is a stalled client, not a distance."""

MAX_PLACE_KM = 250.0
"""A client whose coordinates are less accurate than this is in no particular place."""


class SampleMethod(StrEnum):
    """By whom and how a round trip was measured."""

    BALANCER = "balancer"
    """The kernel's TCP_INFO of a client's connection: trusted. `RoundTripSample.reporter` is whose token it came with."""
    BEACON = "beacon"
    """An anonymous browser, that may say anything."""
    PROBE = "probe"
    """One region, of another: `RoundTripSample.source` is the name of the region that measured."""


@dataclass(frozen=True, slots=True)
class RoundTripSample:
    """One round trip between a client and a region, in ms, at a POSIX time in seconds.

    `source` names the client for the caps, in as few names as one person can have: a hash of the client's /24 or /48.
    `location` is the client's; that of a probe is not read. `reporter` names the token of a balancer.
    """

    location: Location
    region: str
    rtt_ms: float
    at: float
    source: str
    method: SampleMethod = SampleMethod.BEACON
    reporter: str = ""


class SampleVerdict(StrEnum):
    """Whether a sample was taken, or why not."""

    ACCEPTED = "accepted"
    UNKNOWN_REGION = "unknown_region"
    OTHER_REGION = "other_region"
    """The token that it came with is bound to others."""
    UNKNOWN_LOCATION = "unknown_location"
    IMPLAUSIBLE = "implausible"
    """Slower than `MAX_RTT_MS`, no number, or quicker than light in fibre: from a browser, or of no known network."""
    CAPPED = "capped"
    """The source has had its say of this region in this interval."""
    FULL = "full"
    """The aggregator has no room left in this interval."""


class Level(StrEnum):
    """What a statistic of round trips is about."""

    REGION = "region"
    """A region that measured another: values are round trips, not residuals."""
    NETWORK = "network"
    ASN = "asn"
    COUNTRY = "country"
    PLACE = "place"


class Delta(NamedTuple):
    """What one interval says of one region at one key of one level.

    `centre` and `spread` are the median and the median absolute deviation over the sources, in ms, of residuals above the
    geographic model (of round trips where the level is `region`). `sources` has one of 63 bits for each source, by
    hash: enough to count a few, too little to know one, and a number that databases take.
    """

    level: Level
    key: str
    region: str
    trusted: bool
    samples: int
    sources: int
    centre: float
    spread: float
    at: float


def source_bit(source: str) -> int:
    """The bit of `Delta.sources` that stands for a source."""
    return 1 << key_hash(source) % 63


class Interval(NamedTuple):
    """What an interval said: of round trips, and of claimed locations."""

    deltas: list[Delta]
    witnesses: list[Witness]


@dataclass(slots=True)
class _Report:
    """What one source said of one region, from one place and by one reporter."""

    first: RoundTripSample
    source: int  # its bit, as `source_bit` gives it
    values: list[float] = field(default_factory=list)
    quickest: float = inf
    impossible: bool = False
    against: int = 0

    @property
    def network(self) -> str | None:
        """The network of its client, as far as such are told apart."""
        network = self.first.location.network
        return None if network is None else network_key(network)

    @property
    def claim(self) -> str | None:
        """Where the client is said to be."""
        return claim_of(self.first.location)


_Group = tuple[Level, str, str, bool]
"""Level, key, region, and whether the sources are trusted."""
_NO_DOUBTS: Mapping[str, Doubt] = MappingProxyType({})


class SampleAggregator:
    """Takes samples in for an interval; `take` ends it.

    Args:
        regions: those whose samples are accepted.
        doubts: the networks whose locations are disputed, as the latency table has them.
        per_source: how many samples a source may give of a region within one interval.
        limit: how many pairs of source and region are remembered within one interval; beacons have half of them.
        parameters: of the geographic model that residuals are taken from.
    """

    def __init__(
        self,
        regions: Iterable[Region],
        *,
        doubts: Mapping[str, Doubt] = _NO_DOUBTS,
        per_source: int = 8,
        limit: int = 20_000,
        parameters: Parameters = SHIPPED,
    ) -> None:
        self._terminals = {region.name: terminal_at(region.lat, region.lon) for region in regions}
        self._doubts = doubts
        self._per_source = per_source
        self._limit = limit
        self._parameters = parameters
        self._reports: dict[tuple[str, str, SampleMethod, str, str | None], _Report] = {}
        self._taken: Counter[str] = Counter()
        """How many pairs of a source and a region each reporter has told of in this interval."""
        self._latest = 0.0

    def add(self, sample: RoundTripSample) -> SampleVerdict:
        """Take one sample in, if it can be believed."""
        terminal = self._terminals.get(sample.region)
        if terminal is None:
            return SampleVerdict.UNKNOWN_REGION
        point = self._origin(sample)
        if point is None:
            return SampleVerdict.UNKNOWN_LOCATION
        if not (0 < sample.rtt_ms <= MAX_RTT_MS and isfinite(sample.at)):  # false for NaN too
            return SampleVerdict.IMPLAUSIBLE
        direct_km = arc_km(point.vector, terminal.point.vector)
        possible = sample.rtt_ms >= FIBRE_MS_PER_KM * direct_km
        balancer = sample.method is SampleMethod.BALANCER and sample.location.network is not None
        report = self._report(sample) if possible or balancer else SampleVerdict.IMPLAUSIBLE
        if isinstance(report, SampleVerdict):
            return report
        probe = sample.method is SampleMethod.PROBE
        report.values.append(sample.rtt_ms - (0.0 if probe else model_ms(point, terminal, self._parameters)))
        report.quickest = min(report.quickest, sample.rtt_ms)
        if not possible:
            report.impossible = True
            report.against += disputes(direct_km, sample.rtt_ms, allowance_km(sample.location))
        self._latest = max(self._latest, sample.at)
        return SampleVerdict.ACCEPTED

    def _report(self, sample: RoundTripSample) -> _Report | SampleVerdict:
        """Where a sample of its source goes; why not, if there is no room for it."""
        network = sample.location.network if sample.method is SampleMethod.BALANCER else None
        key = (sample.source, sample.region, sample.method, sample.reporter, network)
        report = self._reports.get(key)
        if report is None:
            room = self._limit // 2 if sample.method is SampleMethod.BEACON else self._limit
            left = room - len(self._reports)
            if left <= (self._taken[sample.reporter] if sample.reporter else 0):
                return SampleVerdict.FULL
            report = self._reports[key] = _Report(sample, source_bit(sample.source))
            self._taken[sample.reporter] += 1
        return SampleVerdict.CAPPED if len(report.values) >= self._per_source else report

    def _origin(self, sample: RoundTripSample) -> Point | None:
        """Where a sample was measured from, if that is known."""
        if sample.method is SampleMethod.PROBE:
            origin = self._terminals.get(sample.source)
            return None if origin is None or sample.source == sample.region else origin.point
        lat, lon = sample.location.lat, sample.location.lon
        return None if lat is None or lon is None else point_at(lat, lon)

    def take(self) -> Interval:
        """End the interval: what it said, and nothing of it is kept."""
        reports, self._reports = self._reports, {}
        self._taken.clear()
        at, self._latest = self._latest, 0.0
        # A reporter whom light contradicts in one region teaches nothing of the client's place in the others either.
        contradicted = {
            (report.first.reporter, report.network) for report in reports.values() if report.impossible
        }
        groups: dict[_Group, list[_Report]] = {}
        for report in reports.values():
            alone = (report.first.reporter, report.network) in contradicted or self._doubtful(report)
            trusted = report.first.method is not SampleMethod.BEACON
            for level, key in _keys(report.first):
                if not alone or level in {Level.NETWORK, Level.REGION}:
                    groups.setdefault((level, key, report.first.region, trusted), []).append(report)
        return Interval(
            [_delta(group, reports, at) for group, reports in groups.items()],
            self._witnesses(reports.values(), at),
        )

    def _doubtful(self, report: _Report) -> bool:
        """Whether edges know that the location of a report's network is doubtful."""
        doubt = self._doubts.get(report.network or "")
        return doubt is not None and doubt.doubtful and doubt.claim == report.claim

    def _witnesses(self, reports: Iterable[_Report], at: float) -> list[Witness]:
        """What balancers' samples say of locations: where they dispute one, or where somebody has."""
        groups: dict[tuple[str, str, str, str], list[_Report]] = {}
        for report in reports:
            network, claim = report.network, report.claim
            if report.first.method is SampleMethod.BALANCER and network is not None and claim is not None:
                groups.setdefault((network, claim, report.first.region, report.first.reporter), []).append(
                    report
                )
        found = []
        for (network, claim, region, reporter), group in groups.items():
            known = self._doubts.get(network)
            against = sum(report.against for report in group)
            watched = against or (known is not None and known.claim == claim)
            if watched and reporter and tellable(network):
                count = sum(len(report.values) for report in group)
                quickest = median_low(report.quickest for report in group if report.against or not against)
                found.append(
                    Witness(
                        network, claim, region, reporter, against, count - against, round(quickest, 2), at
                    )
                )
        return found


def _keys(sample: RoundTripSample) -> tuple[tuple[Level, str], ...]:
    """The levels' keys that a sample counts for."""
    if sample.method is SampleMethod.PROBE:
        return ((Level.REGION, sample.source),)
    return keys_of(sample.location)


def keys_of(location: Location) -> tuple[tuple[Level, str], ...]:
    """The levels' keys that a client's samples count for.

    An anonymous client may be anywhere: it speaks for its own network alone. One that is only roughly known does not
    speak for a place.
    """
    keys: list[tuple[Level, str]] = []
    if location.network is not None:
        keys.append((Level.NETWORK, network_key(location.network)))
    if location.anonymous:
        return tuple(keys)
    operator = asn_key(location)
    if operator is not None:
        keys.append((Level.ASN, operator))
    if location.country is not None:
        keys.append((Level.COUNTRY, location.country))
    exact = location.accuracy_km is None or location.accuracy_km <= MAX_PLACE_KM
    if exact and location.lat is not None and location.lon is not None:
        keys.append((Level.PLACE, square_key(square_of(location.lat, location.lon))))
    return tuple(keys)


def _delta(group: _Group, reports: list[_Report], at: float) -> Delta:
    # Of an even number the lower of the middle two: one liar of two could lift their mean.
    centre = median_low(median(report.values) for report in reports)
    spread = median_low(median(abs(value - centre) for value in report.values) for report in reports)
    sources = 0
    for report in reports:
        sources |= report.source
    count = sum(len(report.values) for report in reports)
    return Delta(*group, count, sources, round(centre, 2), round(spread, 2), at)


# --- How many samples a source may give over a longer time than one interval.
#
# `SampleAggregator` gives each source one vote within an interval. A source that speaks in every interval would still
# outweigh those that speak once a day; this bounds what it says in all.


class SourceBudget:
    """Counts samples by source and region, in fixed windows of time.

    Args:
        most: samples of one region that a source may give within a window.
        seconds: length of a window.
        limit: pairs of source and region that are remembered; when they are all taken, others wait for the next window.
    """

    def __init__(self, most: int = 16, seconds: float = 3600.0, limit: int = 50_000) -> None:
        self._most = most
        self._seconds = seconds
        self._limit = limit
        self._window: float | None = None
        self._spent: dict[tuple[str, str], int] = {}

    def spend(self, source: str, region: str, now: float) -> bool:
        """Take one sample off a source's budget; False if there is none left.

        Args:
            source: as in `gtm.core.latency.samples.RoundTripSample`.
            region: the region that it measured.
            now: seconds of any clock.
        """
        window = now // self._seconds
        if window != self._window:
            self._window, self._spent = window, {}
        key = (source, region)
        spent = self._spent.get(key, 0)
        if spent >= self._most or (not spent and len(self._spent) >= self._limit):
            return False
        self._spent[key] = spent + 1
        return True
