"""From single round trips to small sums: what an edge keeps of its clients' round trips, and sends to control.

Laws:
  1. One source, one vote: within an interval each source has the median of its few samples, and a level has the median
     of its sources. One liar among three sources moves a value no further than to what an honest one said.
  2. Nothing of a client outlives the interval: what leaves are statistics of networks, operators, countries and places.
  3. Memory is bounded, and browsers cannot take all of it: half is left to what balancers and regions measure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import median, median_low
from typing import NamedTuple

from gtm.core.affinity import key_hash
from gtm.core.geometry import FIBRE_MS_PER_KM, arc_km, cell_key, cell_of
from gtm.core.model import Location, Region
from gtm.core.rtt_model import SHIPPED, Parameters, model_ms, point_at, terminal_at
from gtm.core.rtt_table import asn_key, network_key

MAX_RTT_MS = 3000.0
"""A round trip above this is a stalled client, not a distance."""

MAX_PLACE_KM = 250.0
"""A client whose coordinates are less accurate than this is in no particular place."""


class SampleKind(StrEnum):
    """Who measured."""

    BALANCER = "balancer"
    """The kernel's TCP_INFO of a client's connection: trusted."""
    BEACON = "beacon"
    """An anonymous browser, that may say anything."""
    PROBE = "probe"
    """One region, of another: `Sample.source` is the name of the region that measured."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One round trip between a client and a region, in ms, at a POSIX time in seconds.

    `source` names the reporter for the caps, in as few names as one reporter can have: a hash of the client's /24 or
    /48. `location` is the client's; that of a probe is not read.
    """

    location: Location
    region: str
    rtt_ms: float
    at: float
    source: str
    kind: SampleKind = SampleKind.BEACON


class Verdict(StrEnum):
    """What became of a sample."""

    ACCEPTED = "accepted"
    UNKNOWN_REGION = "unknown_region"
    UNKNOWN_LOCATION = "unknown_location"
    IMPLAUSIBLE = "implausible"
    """Quicker than light in fibre, slower than `MAX_RTT_MS`, or no number."""
    CAPPED = "capped"
    """The source has had its say of this region in this interval."""
    FULL = "full"
    """The aggregator has no room left in this interval."""


class Level(StrEnum):
    """What a statistic is about."""

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


class _Report:
    """What one source said of one region, from one place."""

    __slots__ = ("keys", "region", "source", "trusted", "values")

    def __init__(
        self, keys: tuple[tuple[Level, str], ...], region: str, source: int, *, trusted: bool
    ) -> None:
        self.keys = keys
        self.region = region
        self.source = source
        self.trusted = trusted
        self.values: list[float] = []


_Group = tuple[Level, str, str, bool]
"""Level, key, region, and whether the sources are trusted."""


class SampleAggregator:
    """Takes samples in for an interval; `take` ends it.

    Args:
        regions: those whose samples are accepted.
        per_source: how many samples a source may give of a region within one interval.
        limit: how many pairs of source and region are remembered within one interval; beacons have half of them.
        parameters: of the geographic model that residuals are taken from.
    """

    def __init__(
        self,
        regions: Iterable[Region],
        *,
        per_source: int = 8,
        limit: int = 20_000,
        parameters: Parameters = SHIPPED,
    ) -> None:
        self._terminals = {region.name: terminal_at(region.lat, region.lon) for region in regions}
        self._per_source = per_source
        self._limit = limit
        self._parameters = parameters
        self._reports: dict[tuple[str, str, SampleKind], _Report] = {}
        self._latest = 0.0

    def add(self, sample: Sample) -> Verdict:
        """Take one sample in, if it can be believed."""
        terminal = self._terminals.get(sample.region)
        if terminal is None:
            return Verdict.UNKNOWN_REGION
        if sample.kind is SampleKind.PROBE:
            origin = self._terminals.get(sample.source)
            point = None if origin is None or sample.source == sample.region else origin.point
        else:
            lat, lon = sample.location.lat, sample.location.lon
            point = None if lat is None or lon is None else point_at(lat, lon)
        if point is None:
            return Verdict.UNKNOWN_LOCATION
        fastest = FIBRE_MS_PER_KM * arc_km(point.vector, terminal.point.vector)
        if not (fastest <= sample.rtt_ms <= MAX_RTT_MS and isfinite(sample.at)):  # false for NaN too
            return Verdict.IMPLAUSIBLE
        key = (sample.source, sample.region, sample.kind)
        report = self._reports.get(key)
        if report is None:
            room = self._limit // 2 if sample.kind is SampleKind.BEACON else self._limit
            if len(self._reports) >= room:
                return Verdict.FULL
            report = self._reports[key] = _Report(
                _keys(sample),
                sample.region,
                source_bit(sample.source),
                trusted=sample.kind is not SampleKind.BEACON,
            )
        if len(report.values) >= self._per_source:
            return Verdict.CAPPED
        probe = sample.kind is SampleKind.PROBE
        report.values.append(sample.rtt_ms - (0.0 if probe else model_ms(point, terminal, self._parameters)))
        self._latest = max(self._latest, sample.at)
        return Verdict.ACCEPTED

    def take(self) -> list[Delta]:
        """End the interval: what it said, and nothing of it is kept."""
        reports, self._reports = self._reports, {}
        at, self._latest = self._latest, 0.0
        groups: dict[_Group, list[_Report]] = {}
        for report in reports.values():
            for level, key in report.keys:
                groups.setdefault((level, key, report.region, report.trusted), []).append(report)
        return [_delta(group, reports, at) for group, reports in groups.items()]


def _keys(sample: Sample) -> tuple[tuple[Level, str], ...]:
    """The levels' keys that a sample counts for."""
    if sample.kind is SampleKind.PROBE:
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
        keys.append((Level.PLACE, cell_key(cell_of(location.lat, location.lon))))
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
