"""What control knows of round trips: sums that forget, and the table that edges estimate from.

Laws:
  1. A sum's weight halves with every half-life, whether or not anything is added.
  2. A delta no heavier than what is known moves it by at most its share of the weight times `AggregateSettings.most_step_ms`.
  3. Browsers' deltas of fewer sources than a row needs count only if they bring a source that the sum does not know:
     nobody can talk a sum round alone, however long he talks.
  4. A row enters the table only with enough samples of enough sources; of a network's, with many.
  5. The table changes only where an estimate has moved enough to matter, and then its version grows.
  6. Whose word it is, is kept: each author (the token of the edges or balancers that measured) has sums of its own. What
     several say is the median of their means, whatever number of samples each says it took; of an even number, geography
     has a voice, too. What one says alone counts for `AggregateSettings.alone_ms` at most, and the table marks it, so that all of
     it together moves an estimate by no more, unless it speaks of its own: a region's balancers of that region, the only
     edge of everything. Authors share the table's rows and the memory evenly.
     `forget` takes out what an author taught.

Example. Two edges measured Berlin's round trips to Frankfurt, 12 and 15 ms above what geography says. A third says -2,900,
of a million samples; the median is 12. What it alone says of Paris counts as -25.

>>> def of(key, ms, samples):
...     return Delta(Level.COUNTRY, key, "fra", True, samples, 7, ms, 1.0, 0.0)
>>> sums = Aggregates()
>>> for author, deltas in {"a": [of("DE", 12.0, 9)], "b": [of("DE", 15.0, 9)],
...                        "liar": [of("DE", -2900.0, 10**6), of("FR", -2900.0, 10**6)]}.items():
...     sums.merge(deltas, 0.0, author)
>>> {key: row["fra"][0] for key, row in sums.table(LatencyTable(), 0.0, {"fra"}).countries.items()}
{'DE': 12.0, 'FR': -25.0}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain
from math import floor, isfinite, log2
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from gtm.core.latency.doubt import Doubt
from gtm.core.latency.samples import MAX_RTT_MS, Delta, Level
from gtm.core.latency.table import ALONE_MS, LatencyTable, Row, network_key
from gtm.core.model.access import matches
from gtm.core.model.geometry import parse_square


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """How sums are kept and published. Times in seconds, weights in samples.

    `half_life`: after this long, a sample counts half. `beacon_weight`: what a browser's sample counts beside a
    balancer's. `most_weight`: beyond this, the newest outweigh the oldest. `step_ms`, `most_step_ms`: a delta counts
    as at most three spreads away from what it meets, at least the one and at most the other. `alone_ms`: what one author
    of several moves an estimate by where no other measured. `min_weight`,
    `min_sources`: what a row needs to be published; `network_weight` what a network's needs instead of `min_weight`.
    `min_change_ms`: what an estimate must move to be published anew. `max_rows`: of the table, heaviest first.
    `max_sums`: of the memory, heaviest kept.
    """

    half_life: float = 86_400.0
    beacon_weight: float = 0.25
    most_weight: float = 500.0
    step_ms: float = 20.0
    most_step_ms: float = 100.0
    alone_ms: float = ALONE_MS
    min_weight: float = 4.0
    network_weight: float = 20.0
    min_sources: int = 3
    min_change_ms: float = 3.0
    max_rows: int = 3_000
    max_sums: int = 200_000


class Sum(NamedTuple):
    """A sum as it is stored: no client and no address, and of the sources one bit in 63 each.

    `author` is the id of the token whose edges say so; empty: from before this was kept, or of all together. `weight` in samples as of `updated` (POSIX seconds); `mean` and `spread` in ms, as in `Delta`.
    """

    level: Level
    key: str
    region: str
    author: str
    weight: float
    mean: float
    spread: float
    updated: float
    sources: int


_What = tuple[Level, str, str]
"""Level, key and region."""
Expected = Callable[[str, str], float]
"""The round trip in ms between two regions as geography has it, by their names."""


class Authors(NamedTuple):
    """Who may say what: the authors that are `bound` to regions (a name or a pattern of names), and those of `edges` that run.

    Authors of sums that are neither count as of edges that ran.
    """

    bound: Mapping[str, str] = MappingProxyType({})
    edges: frozenset[str] = frozenset()


NO_AUTHORS = Authors()


def _nowhere(_one: str, _other: str) -> float:
    """Without regions' places geography says nothing."""
    return 0.0


class Aggregates:
    """The sums of all edges' deltas.

    Args:
        sums: what was stored, from `sums`.
        settings: how sums are kept and published.
    """

    def __init__(self, sums: Iterable[Sum] = (), settings: AggregateSettings | None = None) -> None:
        self.settings = settings or AggregateSettings()
        self._sums = _by_author(sums)
        self._authors = self._saying()

    @property
    def authors(self) -> frozenset[str]:
        """Whose word the sums are, without what is from before this was kept."""
        return self._authors

    def forget(self, authors: Collection[str]) -> None:
        """Take out what these authors taught."""
        self._reduce(lambda one: one.author not in authors)

    def hand_on(self, author: str, successor: str) -> None:
        """What an author taught is its successor's from now on, unless that one measured the same thing."""
        if author == successor:
            return
        for by_author in self._sums.values():
            kept = by_author.pop(author, None)
            if kept is not None:
                by_author.setdefault(successor, kept._replace(author=successor))
        self._authors = self._saying()

    def merge(self, deltas: Iterable[Delta], now: float, author: str = "") -> None:
        """Add what an edge sent. The order of deltas does not matter, but for what is cut off of outliers.

        Args:
            deltas: as sent; those dated after `now` count as of now, because a wrong clock must not outlast the right.
            now: POSIX seconds.
            author: the id of its token.

        Raises:
            ValueError: a delta's numbers or its key are impossible. None of the deltas is added.
        """
        checked = list(deltas)
        for delta in checked:
            check_delta(delta)
        if author and self.authors <= {author}:
            self.hand_on("", author)  # from before authors were kept: there was no other
        for delta in checked:
            self._add(delta, min(delta.at, now), author)
        self._authors |= {author} - {""}
        if sum(map(len, self._sums.values())) > self.settings.max_sums:
            newest = max(one.updated for one in self._every())
            heaviest = _shared(
                {_key(one): self._weight(one, newest) for one in self._every()},
                lambda key: (key[3],),
                self.settings.max_sums * 3 // 4,
            )
            self._reduce(lambda one: _key(one) in heaviest)

    def known(
        self, level: Level, key: str, region: str, now: float, authors: Authors = NO_AUTHORS
    ) -> Sum | None:
        """What all authors say together of one thing, with its weight as of now; None if nothing was ever measured."""
        said = list(self._sums.get((level, key, region), {}).values())
        return self._together(said, now, self._entitled(authors))[0] if said else None

    def measured(self) -> dict[str, int]:
        """How many networks were measured from each region."""
        return Counter(region for level, _, region in self._sums if level is Level.NETWORK)

    def sums(self, now: float) -> list[Sum]:
        """All that is to be stored. What has all but been forgotten is dropped for good."""
        self._reduce(lambda one: self._weight(one, now) >= 0.1)
        return list(self._every())

    def table(
        self,
        previous: LatencyTable,
        now: float,
        regions: Collection[str],
        processing_ms: Mapping[str, Mapping[str, float]] | None = None,
        doubts: Mapping[str, Doubt] | None = None,
        *,
        expected: Expected = _nowhere,
        authors: Authors = NO_AUTHORS,
    ) -> LatencyTable:
        """The table for the edges: `previous` itself, if nothing has moved enough to matter.

        Args:
            previous: the table that edges have.
            now: POSIX seconds.
            regions: names of those that may be in the table.
            processing_ms: what regions take themselves, by region and service; None: as in `previous`.
            doubts: the networks whose locations are disputed; None: as in `previous`.
            expected: what geography says of two regions.
            authors: who may say what.
        """
        mutual: dict[str, dict[str, float]] = {}
        levels: dict[Level, dict[str, Row]] = {level: {} for level in LEVEL_FIELDS}
        weights: dict[tuple[Level, str], float] = {}
        said_by: dict[tuple[Level, str], set[str]] = {}
        alone: dict[Level, dict[str, set[str]]] = {}
        entitled = self._entitled(authors)
        for (level, key, region), by_author in self._sums.items():
            if region not in regions:
                continue
            kept, lone = self._together(list(by_author.values()), now, entitled, expected)
            weight = kept.weight
            if level is Level.REGION:
                if key in regions and weight >= 0.5:
                    before = previous.mutual.get(key, {}).get(region)
                    mutual.setdefault(key, {})[region] = self._damped(kept.mean, before)
                    if lone:
                        alone.setdefault(level, {}).setdefault(key, set()).add(region)
                continue
            old = getattr(previous, LEVEL_FIELDS[level]).get(key, {}).get(region)
            if self._enough(level, kept, weight, published=old is not None):
                levels[level].setdefault(key, {})[region] = self._entry(kept.mean, weight, old)
                if lone:
                    alone.setdefault(level, {}).setdefault(key, set()).add(region)
                favour = 1.0 if old is None else 2.0  # so that rows of like weight do not take turns
                weights[level, key] = weights.get((level, key), 0.0) + favour * weight
                said_by.setdefault((level, key), set()).update(by_author)
        chosen = _shared(weights, said_by.__getitem__, self.settings.max_rows)
        table = LatencyTable(
            version=previous.version,
            mutual=mutual,
            processing_ms=_damped_processing(previous, processing_ms),
            doubts=previous.doubts if doubts is None else self._damped_doubts(previous.doubts, doubts),
            alone={
                LEVEL_FIELDS.get(level, "mutual"): {
                    key: said for key, said in rows.items() if level is Level.REGION or (level, key) in chosen
                }
                for level, rows in alone.items()
            },
            **{
                name: {key: row for key, row in levels[level].items() if (level, key) in chosen}
                for level, name in LEVEL_FIELDS.items()
            },
        )
        return previous if table == previous else replace(table, version=previous.version + 1)

    def _every(self) -> Iterator[Sum]:
        return chain.from_iterable(by_author.values() for by_author in self._sums.values())

    def _reduce(self, stays: Callable[[Sum], bool]) -> None:
        """Drop the other sums. What is replaced stays whole for who reads it meanwhile."""
        self._sums = _by_author(one for one in self._every() if stays(one))
        self._authors = self._saying()

    def _saying(self) -> frozenset[str]:
        return frozenset(one.author for one in self._every()) - {""}

    def lone(self, authors: Authors) -> bool:
        """Whether no two speak, or run as edges, that are bound to no region."""
        return len((self.authors | authors.edges) - authors.bound.keys()) <= 1

    def _entitled(self, authors: Authors) -> Callable[[Sum], bool]:
        """Whether a sum is of what its author can know alone, so that nobody has to agree."""
        lone = self.lone(authors)

        def entitled(one: Sum) -> bool:
            bound = authors.bound.get(one.author)
            return (lone or not one.author) if bound is None else matches(bound, one.region)

        return entitled

    def _together(
        self, said: list[Sum], now: float, entitled: Callable[[Sum], bool], expected: Expected = _nowhere
    ) -> tuple[Sum, bool]:
        """What authors say of one thing, as of now, and whether that is the word of one who cannot know it alone.

        Authors of few samples have one voice together, and none beside those of enough.
        """
        settings, first, sources = self.settings, said[0], 0
        weights = [self._weight(one, now) for one in said]
        for one in said:
            sources |= one.sources
        voices = [
            one
            for one, weight in zip(said, weights, strict=True)
            if weight >= settings.min_weight and one.sources.bit_count() >= settings.min_sources
        ]
        heard = voices or said
        model = expected(first.key, first.region) if first.level is Level.REGION else 0.0
        lone = len(voices) <= 1 and not all(map(entitled, heard))
        if len(voices) > 1:
            means = [one.mean for one in voices]
            mean = median(means if len(means) % 2 else [*means, model])
        else:
            mean = _mean(heard, [min(weight, settings.min_weight) for weight in weights])
            if lone:
                mean = max(model - settings.alone_ms, min(model + settings.alone_ms, mean))
        together = first._replace(
            author="",
            weight=min(sum(weights), settings.most_weight),
            mean=mean,
            spread=median(one.spread for one in heard),
            updated=max(one.updated for one in said),
            sources=sources,
        )
        return together, lone

    def _add(self, delta: Delta, dated: float, author: str) -> None:
        settings = self.settings
        added = delta.samples * (1.0 if delta.trusted else settings.beacon_weight)
        what = delta.level, delta.key, delta.region
        by_author = self._sums.setdefault(what, {})
        kept = by_author.get(author)
        if kept is None:
            weight = min(added, settings.most_weight)
            by_author[author] = Sum(*what, author, weight, delta.centre, delta.spread, dated, delta.sources)
            return
        few = not delta.trusted and delta.sources.bit_count() < settings.min_sources
        if few and not delta.sources & ~kept.sources:
            return
        at = max(kept.updated, dated)
        had = self._weight(kept, at)
        added *= self._decay(at - dated)
        total = had + added
        limit = min(settings.most_step_ms, max(settings.step_ms, 3 * kept.spread))
        step = max(-limit, min(limit, delta.centre - kept.mean))
        # From the heavier of the two, the lighter counts as no farther away than the limit.
        mean = kept.mean + step * added / total if had >= added else delta.centre - step * had / total
        variance = (had * kept.spread**2 + added * delta.spread**2 + had * added / total * step**2) / total
        by_author[author] = Sum(
            *what,
            author,
            min(total, settings.most_weight),
            mean,
            variance**0.5,
            at,
            kept.sources | delta.sources,
        )

    def _decay(self, seconds: float) -> float:
        return float(0.5 ** (max(0.0, seconds) / self.settings.half_life))

    def _weight(self, kept: Sum, now: float) -> float:
        return kept.weight * self._decay(now - kept.updated)

    def _enough(self, level: Level, kept: Sum, weight: float, *, published: bool) -> bool:
        """Whether a sum may be in the table; what is there already stays down to half the weight."""
        settings = self.settings
        needed = settings.network_weight if level is Level.NETWORK else settings.min_weight
        return kept.sources.bit_count() >= settings.min_sources and weight >= (
            needed / 2 if published else needed
        )

    def _damped(self, mean: float, before: float | None) -> float:
        return (
            before
            if before is not None and abs(mean - before) < self.settings.min_change_ms
            else round(mean, 1)
        )

    def _damped_doubts(self, previous: Mapping[str, Doubt], doubts: Mapping[str, Doubt]) -> dict[str, Doubt]:
        """Doubts as published: one of which only milliseconds have changed a little stays as it was."""
        damped = {}
        for network, doubt in doubts.items():
            before = previous.get(network)
            if (
                before is not None
                and before[:2] == doubt[:2]
                and before.fastest.keys() == doubt.fastest.keys()
                and all(
                    abs(ms - before.fastest[name]) < self.settings.min_change_ms
                    for name, ms in doubt.fastest.items()
                )
            ):
                doubt = before  # noqa: PLW2901
            damped[network] = doubt
        return damped

    def _entry(self, mean: float, weight: float, before: tuple[float, float] | None) -> tuple[float, float]:
        """A residual and its weight as published: the weight in powers of two, that it change rarely."""
        if before is not None and before[1] / 2 <= weight < before[1] * 4:
            worth = before[1]
        else:
            worth = 2.0 ** floor(log2(weight))
        return self._damped(mean, None if before is None else before[0]), worth


R = TypeVar("R", bound=tuple[Any, ...])


def _shared(weights: Mapping[R, float], authors: Callable[[R], Iterable[str]], most: int) -> Collection[R]:
    """The heaviest of each author, as many of each as of any other; all, if there are no more than `most`."""
    if len(weights) <= most:
        return weights.keys()
    places: dict[R, int] = {}
    counts: Counter[str] = Counter()
    for one in sorted(weights, key=lambda row: (-weights[row], row)):
        of = tuple(authors(one))
        places[one] = min(counts[author] for author in of)
        counts.update(of)
    return set(nsmallest(most, weights, key=lambda row: (places[row], -weights[row], row)))


def _mean(said: Sequence[Sum], weights: Sequence[float]) -> float:
    """The mean of sums' means; of one alone, its own to the last digit."""
    if len(said) == 1:
        return said[0].mean
    return sum(weight * one.mean for weight, one in zip(weights, said, strict=True)) / sum(weights)


def _by_author(sums: Iterable[Sum]) -> dict[_What, dict[str, Sum]]:
    found: dict[_What, dict[str, Sum]] = {}
    for one in sums:
        found.setdefault((one.level, one.key, one.region), {})[one.author] = one
    return found


def _key(kept: Sum) -> tuple[Level, str, str, str]:
    return kept.level, kept.key, kept.region, kept.author


LEVEL_FIELDS = {
    Level.NETWORK: "networks",
    Level.ASN: "asns",
    Level.COUNTRY: "countries",
    Level.PLACE: "places",
}
"""Where each level is in a `LatencyTable`."""


def check_delta(delta: Delta) -> None:
    """Refuse a delta that cannot be.

    Raises:
        ValueError: its numbers or its key are impossible.
    """
    if delta.level is Level.PLACE:
        parse_square(delta.key)
    if delta.level is Level.NETWORK and network_key(delta.key) != delta.key:
        raise ValueError(f"a delta of network `{delta.key}`, which could be one person's: at most /24 or /48")
    numbers = (delta.centre, delta.spread, delta.at)
    if delta.samples < 1 or not 0 < delta.sources < 1 << 63 or not all(map(isfinite, numbers)):
        raise ValueError(f"a delta of {delta.level} `{delta.key}` has impossible numbers: {delta}")
    if abs(delta.centre) > MAX_RTT_MS or not 0 <= delta.spread <= 2 * MAX_RTT_MS:
        raise ValueError(f"a delta of {delta.level} `{delta.key}` is beyond {MAX_RTT_MS:.0f} ms: {delta}")


def _damped_processing(
    previous: LatencyTable, measured: Mapping[str, Mapping[str, float]] | None
) -> dict[str, dict[str, float]]:
    """Processing times as published: anew only where they are a quarter and 1 ms away from what was."""
    if measured is None:
        return previous.processing_ms
    damped: dict[str, dict[str, float]] = {}
    for region, services in measured.items():
        before = previous.processing_ms.get(region, {})
        for service, ms in services.items():
            old = before.get(service)
            close = old is not None and abs(ms - old) < max(1.0, old / 4)
            damped.setdefault(region, {})[service] = old if close and old is not None else round(ms, 1)
    return damped
