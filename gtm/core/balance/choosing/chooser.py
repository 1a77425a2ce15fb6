"""Filters, scores and picks put together: `choice(pool, wanted, draw)`, and `begin`, which counts what was chosen.

Theory. A `BackendPool` is one immutable value: servers, what is known of them, and settings. Which servers may take a kind of request
(model, version) is worked out when the first of its kind comes and remembered until the pool is replaced; a pick reads
the counts, which change with each request, and nothing else changes with a request. So a choice among a thousand servers costs what one among
two does: a look-up of the set, two draws among running sums, two scores.

  1. Version: the client's by its key, else by the draw; where none of its servers is usable, those of another with a share; where there is
     none either, those of its own that pass their checks.
  2. Eligible servers (`filters`), without those that were tried.
  3. What none has loaded goes where it is best loaded (`placement`).
  4. The session's server; without a session the one of the prompt's beginning, or that has most of it in its cache; each within the bound
     (`affinity`).
  5. The pick.

Laws:
  1. What is chosen is in the pool, and passes the filters. No fallback leaves the pool: no fence is crossed here.
  2. A request that names a version gets that version or none.
  3. The same pool, counts, wanted and draw give the same choice (round robin apart, whose turn is a count too).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gtm.core.balance.backends import UNKNOWN, Backend, Condition
from gtm.core.balance.choosing import (
    affinity,
    filters,
    least_requests,
    least_work,
    p2c,
    peak_ewma,
    placement,
    prequal,
    round_robin,
    scan,
    versions,
)
from gtm.core.balance.choosing.filters import Kind
from gtm.core.balance.choosing.placement import Placements
from gtm.core.balance.choosing.prefixes import PrefixMap
from gtm.core.balance.choosing.values import (
    By,
    Candidate,
    ChoosingSettings,
    Eligible,
    Pick,
    Prefix,
    Score,
    Scoring,
    WantedBackend,
    Why,
    eligible_of,
)
from gtm.core.balance.flights import Flights, FlightTicket

_LEAST = 0.25
"""A server with less than this part of its share gets prompts whoever has them cached."""
ANY_KIND = Kind(None, None)
_BY_LOAD = By.LOAD
_P2C, _SCANNING = Pick.P2C, (Pick.SCAN, Pick.P2C)
MOST_KINDS = 1024
"""Eligible sets that are remembered: clients may name models that do not exist."""


class BackendChoice(NamedTuple):
    """A server that was chosen, by what, and whether the one that this led to first had more than its share already."""

    candidate: Candidate
    by: By
    moved: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BackendPool:
    """The servers to choose from; made by `pool_of`, replaced by `updated`. `flights`, `prefixes` and `placements` are measured."""

    settings: ChoosingSettings
    candidates: tuple[Candidate, ...]
    score: Scoring
    flights: Flights
    prefixes: PrefixMap
    placements: Placements
    _sets: dict[tuple[str | None, str | None], Eligible] = field(default_factory=dict)
    _rings: list[affinity.HashRing] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _usable: list[tuple[Candidate, ...]] = field(default_factory=list)

    @property
    def usable(self) -> tuple[Candidate, ...]:
        """The servers that would take some request now (`filters.usable`): what admission, reports and health of the region go by."""
        if not self._usable:
            self._usable.append(filters.usable(self.candidates, self.settings))
        return self._usable[0]

    @property
    def ring(self) -> affinity.HashRing:
        """The ring of all its servers."""
        if not self._rings:
            self._rings.append(affinity.ring([one.backend for one in self.candidates]))
        return self._rings[0]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Servers' places, by name."""
        if not self._numbers:
            self._numbers.update({one.backend.name: one.number for one in self.candidates})
        return self._numbers

    def eligible(self, kind: Kind) -> Eligible:
        """Who may take requests of a kind."""
        found = self._sets.get(kind)
        if found is None:
            found = filters.eligible(self.candidates, kind, self.settings)
            if len(self._sets) >= MOST_KINDS:
                self._sets.clear()
            self._sets[kind] = found
        return found

    def free_slots(self, kind: Kind = ANY_KIND) -> int | None:
        """Slots that are free at those who may take requests of a kind; None: nobody's slots are known."""
        known = [one for one in self.eligible(kind).candidates if one.slots]
        return sum(int(max(0.0, one.slots - one.flight.known)) for one in known) if known else None

    def updated(self, conditions: Mapping[str, Condition]) -> BackendPool:
        """The pool in which these servers, by name, are in these conditions; itself, if that changes no choice."""
        changed = {
            one.number: condition
            for one in self.candidates
            if (condition := conditions.get(one.backend.name)) is not None
            and self._facts(one.condition) != self._facts(condition)
        }
        if not changed:
            return self
        candidates = tuple(
            one
            if one.number not in changed
            else _candidate(one.number, one.backend, changed[one.number], self.flights)
            for one in self.candidates
        )
        return replace(self, candidates=candidates, _sets={}, _usable=[])

    def _facts(self, condition: Condition) -> tuple[object, ...]:
        """What of a condition choices depend on."""
        return (
            condition.healthy,
            filters.well(condition),
            condition.draining,
            condition.models,
            condition.adapters,
            filters.has_memory(condition, self.settings.most_memory),
            condition.warmth,
            condition.slots,
            condition.refuses,
        )


def pool_of(
    backends: Sequence[Backend],
    conditions: Mapping[str, Condition],
    flights: Flights,
    settings: ChoosingSettings | None = None,
    *,
    prefixes: PrefixMap | None = None,
    placements: Placements | None = None,
) -> BackendPool:
    """A pool of servers.

    Args:
        backends: the region's servers, each name once.
        conditions: by name; a server without one counts as unknown, and so as not healthy.
        flights: the counts, kept over pools; `Flights.keep` is told of these servers.
        settings: how to choose.
        prefixes: who has which prompts, kept over pools, of these servers alone from now on; None: a new map.
        placements: what servers were used for, kept over pools.

    Raises:
        ValueError: two servers have one name.
    """
    names = frozenset(backend.name for backend in backends)
    if len(names) < len(backends):
        twice = sorted(
            {one.name for one in backends if sum(one.name == other.name for other in backends) > 1}
        )
        raise ValueError(
            f"backends are listed twice: {', '.join(twice)}; name each URL once, and give it a weight"
        )
    flights.keep(backends)
    placements = placements or Placements()
    placements.keep(names)
    prefixes = PrefixMap() if prefixes is None else prefixes
    prefixes.keep(names)
    settings = settings or ChoosingSettings()
    return BackendPool(
        settings,
        tuple(
            _candidate(number, backend, conditions.get(backend.name, UNKNOWN), flights)
            for number, backend in enumerate(backends)
        ),
        scoring(settings),
        flights,
        prefixes,
        placements,
    )


def scoring(settings: ChoosingSettings) -> Scoring:
    """The score that the settings ask for."""
    score = least_work.score if settings.score is Score.WORK else least_requests.score
    return peak_ewma.weighted(score) if settings.latency else score


def choice(pool: BackendPool, wanted: WantedBackend, draw: float) -> BackendChoice | Why:
    """The server that takes a request, or why none does. Whoever sends it there calls `begin`.

    Args:
        pool: the servers.
        wanted: what the request needs.
        draw: uniform in [0, 1), a fresh one for each request.
    """
    shares = pool.settings.shares
    if shares:
        version, draw = versions.assigned(shares, wanted.key, draw)
        eligible = pool.eligible(Kind(wanted.model, version))
        if not eligible.candidates:
            eligible = _another_version(pool, wanted, version) or eligible
    else:
        kind = wanted.model, None  # equal to the `Kind`, made at a third of the cost
        eligible = pool._sets.get(kind) or pool.eligible(Kind(*kind))  # noqa: SLF001 - the two are one
    if not eligible.candidates:
        if eligible.last is None:
            return eligible.why
        eligible = eligible.last
    if wanted.tried:
        left = [one for one in eligible.candidates if one.backend.name not in wanted.tried]
        if not left and eligible.last is not None:
            eligible = eligible.last
            left = [one for one in eligible.candidates if one.backend.name not in wanted.tried]
        if not left:
            return Why.TRIED
        eligible = eligible_of(left, missing=eligible.missing)
    if eligible.missing and wanted.model is not None:
        eligible = eligible_of(placement.hint(eligible.candidates, pool.placements, wanted.model))
    if wanted.key is not None or wanted.prefix:
        return _sticky(pool, eligible, wanted, draw)
    # As `BackendChoice(…)`, in half of the time.
    return tuple.__new__(BackendChoice, (_picked(pool, eligible, wanted.cost, draw), _BY_LOAD, False))


def begin(pool: BackendPool, chosen: Candidate, wanted: WantedBackend) -> FlightTicket:
    """Count a request that is now sent to the server that was chosen for it. The ticket must be ended, however the request ends.

    The counts are looked up by name: between choice and begin the server may have left the configuration, and come back.
    """
    name = chosen.backend.name
    if wanted.model is not None:
        pool.placements.used(name, wanted.model, chosen.backend.max_loaded)
    if wanted.prefix and pool.settings.prefix is Prefix.MAP:
        pool.prefixes.sent(name, wanted.prefix)
    return pool.flights.of(name).begin(wanted.cost)


def _picked(pool: BackendPool, eligible: Eligible, cost: float, draw: float) -> Candidate:
    pick = pool.settings.pick
    if pick is _P2C and len(eligible.candidates) > pool.settings.scans:
        return p2c.pick(eligible, pool.score, cost, draw)
    if pick in _SCANNING:
        return scan.pick(eligible.candidates, pool.score, cost, draw)
    if pick is Pick.PREQUAL:
        return prequal.pick(eligible, pool.flights.hot, pool.flights.typical, draw)
    if pick is Pick.ROUND_ROBIN:
        return round_robin.pick(eligible.candidates)
    return p2c.one(eligible, draw)


def _sticky(pool: BackendPool, eligible: Eligible, wanted: WantedBackend, draw: float) -> BackendChoice:
    """The server that the session, else the prompt's beginning leads to."""
    if wanted.key is not None:
        return _on_ring(pool, eligible, wanted.key, By.SESSION)
    if pool.settings.prefix is Prefix.HASH:
        return _on_ring(pool, eligible, f"{wanted.prefix[0]:x}", By.PREFIX)
    if pool.settings.prefix is Prefix.MAP:
        return _cached(pool, eligible, wanted, draw)
    return BackendChoice(_picked(pool, eligible, wanted.cost, draw), By.LOAD)


def _on_ring(pool: BackendPool, eligible: Eligible, key: str, by: By) -> BackendChoice:
    """The server that a key is bound to, or the next with room within its share: somebody always has."""
    found, moved = affinity.within(pool.ring.after(key), eligible, pool.settings.bound)
    assert found is not None  # noqa: S101 - by the theory of `affinity`
    return BackendChoice(found, by, moved)


def _cached(pool: BackendPool, eligible: Eligible, wanted: WantedBackend, draw: float) -> BackendChoice:
    """The server that has most of the prompt, and of those the least loaded; where none of them has room within its share, the pick.

    The pick too while it starves: else those that have what all prompts share could carry it all within the bound, and who comes new
    would never get it.
    """
    picked = _picked(pool, eligible, wanted.cost, draw)
    if affinity.starves(picked, eligible, _LEAST):
        return BackendChoice(picked, By.LOAD)
    numbers, numbered = pool.numbers, eligible.numbered
    moved = False
    for _, holders in pool.prefixes.holders(wanted.prefix):
        having = [one for name in holders if (one := numbered.get(numbers.get(name, -1))) is not None]
        if not having:
            continue
        if len(having) == len(numbered):
            return BackendChoice(picked, By.CACHE)
        having.sort(key=lambda one: pool.score(one, wanted.cost))
        found, passed = affinity.within((one.number for one in having), eligible, pool.settings.bound)
        moved = moved or passed
        if found is not None:
            return BackendChoice(found, By.CACHE, moved)
    return BackendChoice(picked, By.CACHE if moved else By.LOAD, moved)


def _another_version(pool: BackendPool, wanted: WantedBackend, version: str) -> Eligible | None:
    """The servers of the version that stands in for one that has none usable."""
    for other in versions.otherwise(pool.settings.shares, version):
        eligible = pool.eligible(Kind(wanted.model, other))
        if eligible.candidates:
            return eligible
    return None


def _candidate(number: int, backend: Backend, condition: Condition, flights: Flights) -> Candidate:
    return Candidate(
        number,
        backend,
        condition,
        flights.of(backend.name),
        backend.weight * condition.warmth,
        backend.slots or condition.slots or 0,
    )
