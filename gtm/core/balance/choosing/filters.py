"""Who may take a request: one question a function, and all of them in order.

    serves the model ─▶ not draining ─▶ well (or panic) ─▶ of the version ─▶ does not refuse ─▶ has it loaded ─▶ has memory left

The first four bind (`takers`). The last three are preferences: where none passes, all who came so far do (a model that nobody has loaded must be
loaded somewhere). Whether too few are well is asked of all versions together, for a canary of one server that fails must not
count as a region in panic.

Laws:
  1. What is unknown neither shuts out nor is preferred: a server that does not say what it has loaded counts by what it declares.
  2. Panic brings back servers that are held or ejected, with all of their weight, never one that fails a check, is draining or does not
     serve the model; servers of other regions are not in the pool.
  3. While a server that may serve a request passes its checks and is not draining, somebody is asked (unless `panic` is 0).
  4. `usable` is exactly who `eligible` finds for some model, but for the preferences.
  5. A server that is known to lack a model gets no request for it while another is known to have it, usable or not (`serving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.values import Candidate, ChoosingSettings, Eligible, Why, eligible_of
from gtm.core.balance.choosing.versions import OTHERS, with_others
from gtm.core.balance.serving import asked_for, loaded, named, serving

_UNHEARD_OF = "\0unheard-of"
"""Stands for all models that no server names: those that serve any may be asked for them."""


class Kind(NamedTuple):
    """What eligible sets are remembered by. `version` None: any; `OTHERS`: all that have no share."""

    model: str | None
    version: str | None


def well(condition: Condition) -> bool:
    """Whether checks pass, and it is neither held nor ejected."""
    return condition.healthy and not condition.held and not condition.ejected


def of_version(backend: Backend, version: str | None, shares: tuple[tuple[str, float], ...]) -> bool:
    """Whether it is of the version."""
    if version == OTHERS:
        return all(backend.version != name for name, _ in shares)
    return version is None or backend.version == version


def has_memory(condition: Condition, most: float) -> bool:
    """Whether its memory is not nearly full; where that is unknown, nobody says it is."""
    return condition.memory is None or condition.memory <= most


class Takers(NamedTuple):
    """Who may take a request of a kind by its model, state and version; `why` there is nobody.

    `last`: those of the same who pass their checks, and are out; who is asked before a request is refused.
    """

    found: Sequence[Candidate] = ()
    last: Sequence[Candidate] = ()
    why: Why = Why.NO_BACKEND


def takers(candidates: Sequence[Candidate], kind: Kind, settings: ChoosingSettings) -> Takers:
    """The filters that bind."""
    if not candidates:
        return Takers(why=Why.NO_BACKEND)
    able = serving(candidates, kind.model)
    if not able:
        return Takers(why=Why.NO_MODEL)
    if not any(of_version(one.backend, kind.version, settings.shares) for one in able):
        return Takers(why=Why.NO_VERSION)
    staying = [one for one in able if not one.condition.draining]
    panic = sum(well(one.condition) for one in staying) < settings.panic * len(staying)
    of_it = [one for one in staying if of_version(one.backend, kind.version, settings.shares)]
    if not of_it:
        return Takers(why=Why.DRAINING)
    if panic:  # in slow start or not: a tenth of the weight beside servers that have all of theirs would spread nothing
        found = [replace(one, weight=one.backend.weight) for one in of_it if one.condition.healthy]
        return Takers(found, (), Why.UNHEALTHY)
    found = [one for one in of_it if well(one.condition)]
    out = [one for one in of_it if one.condition.healthy and not well(one.condition)]
    return Takers(found, out if settings.panic else (), Why.UNHEALTHY)


def eligible(candidates: Sequence[Candidate], kind: Kind, settings: ChoosingSettings) -> Eligible:
    """The candidates that may take requests of a kind, or why there are none."""
    found, out, why = takers(candidates, kind, settings)
    able = [one for one in found if loaded(one.condition, kind.model)] or found
    if any(one.condition.refuses for one in able) and not all(one.condition.refuses for one in able):
        out = [*(one for one in found if one.condition.refuses), *out]
        found = [one for one in found if not one.condition.refuses]
    last = _preferred(out, kind, settings) if out else None
    if not found:
        return Eligible(why=why, last=last)
    return _preferred(found, kind, settings, last=last)


def _preferred(
    found: Sequence[Candidate],
    kind: Kind,
    settings: ChoosingSettings,
    *,
    last: Eligible | None = None,
) -> Eligible:
    """Of these, at least one, those that suit best."""
    having = [one for one in found if loaded(one.condition, kind.model)]
    best = having or found
    best = [one for one in best if has_memory(one.condition, settings.most_memory)] or best
    return eligible_of(best, missing=not having, last=last)


def usable(candidates: Sequence[Candidate], settings: ChoosingSettings) -> tuple[Candidate, ...]:
    """All that would take some request now, of whatever model: the region's servers for admission, its reports and its health."""
    if not settings.shares and all(well(one.condition) or not one.condition.healthy for one in candidates):
        # Nobody is out that passes its checks: panic would bring back nobody.
        return tuple(one for one in candidates if well(one.condition) and not one.condition.draining)
    numbers = {one.number for model, able in _sets(candidates) for one in _taking(able, model, settings)}
    return tuple(one for one in candidates if one.number in numbers)


def _taking(able: Sequence[Candidate], model: str | None, settings: ChoosingSettings) -> Sequence[Candidate]:
    """Who would take requests for a model that name no version."""
    versions: Sequence[str | None] = (None,)
    if settings.shares:
        versions = [name for name, share in with_others(settings.shares) if share > 0]
    ways = [takers(able, Kind(model, version), settings) for version in versions]
    found = [one for way in ways for one in way.found]
    return found or [one for way in ways for one in way.last]


def _sets(candidates: Sequence[Candidate]) -> Iterable[tuple[str | None, Sequence[Candidate]]]:
    """The sets of servers that are asked together, each with one of the models that it is asked for: many names have few sets."""
    # Who is known for a name, and whether as for a model: names for which that is the same have the same servers.
    known: dict[str, list[tuple[int, bool]]] = {}
    for one in candidates:
        adapters = one.condition.adapters or ()
        for name in asked_for(one):
            known.setdefault(name, []).append((one.number, not named(name, adapters)))
    names = {tuple(where): name for name, where in known.items()}.values()
    return ((name, serving(candidates, name)) for name in (None, _UNHEARD_OF, *names))
