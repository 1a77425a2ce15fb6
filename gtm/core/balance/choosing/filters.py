"""Who may take a request: one question a function, and all of them in order.

    serves the model ─▶ not draining ─▶ healthy (or panic) ─▶ of the version ─▶ has it loaded ─▶ has memory left

The first three bind. The last two are preferences: where none passes, all who came so far do (a model that nobody has loaded must be
loaded somewhere). Whether too few are healthy is asked of all versions together, for a canary of one server that fails must not
count as a region in panic.

Laws:
  1. What is unknown neither shuts out nor is preferred: a server that does not say what it has loaded counts by what it declares.
  2. Panic brings back servers that are unhealthy or ejected, never one that is draining or does not serve the model; servers of
     other regions are not in the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.values import Candidate, Eligible, Settings, Why, eligible_of
from gtm.core.balance.choosing.versions import OTHERS


class Kind(NamedTuple):
    """What eligible sets are remembered by. `version` None: any; `OTHERS`: all that have no share."""

    model: str | None
    adapter: str | None
    version: str | None


def declares(one: Candidate, model: str | None) -> bool:
    """Whether the server is there to serve the model, or the LoRA adapter of that name, which it lists."""
    wanted = one.backend.models
    return model is None or not wanted or model in wanted or model in (one.condition.adapters or ())


def loaded(condition: Condition, model: str | None, adapter: str | None) -> bool:
    """Whether it has model and adapter loaded, as far as is known. An adapter that nobody reports counts as not loaded.

    A request names either by its `model`: what is no model may be an adapter.
    """
    adapters = condition.adapters or ()
    if (
        model is not None
        and condition.models is not None
        and model not in condition.models
        and model not in adapters
    ):
        return False
    return adapter is None or adapter in adapters


def healthy(condition: Condition) -> bool:
    """Whether checks pass and live requests do not fail."""
    return condition.healthy and not condition.ejected


def of_version(backend: Backend, version: str | None, shares: tuple[tuple[str, float], ...]) -> bool:
    """Whether it is of the version."""
    if version == OTHERS:
        return all(backend.version != name for name, _ in shares)
    return version is None or backend.version == version


def has_memory(condition: Condition, most: float) -> bool:
    """Whether its memory is not nearly full; where that is unknown, nobody says it is."""
    return condition.memory is None or condition.memory <= most


def eligible(candidates: Sequence[Candidate], kind: Kind, settings: Settings) -> Eligible:
    """The candidates that may take requests of a kind, or why there are none."""
    if not candidates:
        return Eligible(why=Why.NO_BACKEND)
    able = [one for one in candidates if declares(one, kind.model)]
    if not able:
        return Eligible(why=Why.NO_MODEL)
    if not any(of_version(one.backend, kind.version, settings.shares) for one in able):
        return Eligible(why=Why.NO_VERSION)
    staying = [one for one in able if not one.condition.draining]
    usable = [one for one in staying if healthy(one.condition)]
    panic = len(usable) < settings.panic * len(staying)
    of_it = [one for one in staying if of_version(one.backend, kind.version, settings.shares)]
    if not of_it:
        return Eligible(why=Why.DRAINING)
    found = of_it if panic else [one for one in of_it if healthy(one.condition)]
    if not found:
        return Eligible(why=Why.UNHEALTHY)
    having = [one for one in found if loaded(one.condition, kind.model, kind.adapter)]
    missing = not having
    found = having or found
    found = [one for one in found if has_memory(one.condition, settings.most_memory)] or found
    return eligible_of(found, missing=missing, panic=panic)


def left_out(candidates: Sequence[Candidate], kind: Kind, settings: Settings) -> dict[str, Why]:
    """Why each candidate is left out that is not eligible, by name."""
    chosen = {one.number for one in eligible(candidates, kind, settings).candidates}
    return {one.backend.name: _why(one, kind, settings) for one in candidates if one.number not in chosen}


def _why(one: Candidate, kind: Kind, settings: Settings) -> Why:
    if not declares(one, kind.model):
        return Why.NO_MODEL
    if not of_version(one.backend, kind.version, settings.shares):
        return Why.NO_VERSION
    if one.condition.draining:
        return Why.DRAINING
    if not healthy(one.condition):
        return Why.UNHEALTHY
    if not loaded(one.condition, kind.model, kind.adapter):
        return Why.NOT_LOADED
    return Why.MEMORY
