"""What one client can do to other tenants of a region: one that has a tenant's key, or a stranger without any."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gtm.core.model.services import Priority
from tests.drills.liars.arena import Arena, Damage
from tests.drills.liars.region import LASTS, LIAR, LIMITS, Call, Outcome, Region, Setting, shares


@dataclass(frozen=True)
class Lie:
    """All that a client's requests can say, and how many come."""

    key: bool = True
    """With the key of a tenant of its own; else with none, as others without a key."""
    rate: float = 0.0
    stated: Priority | None = None
    wait: float | None = None
    most: int | None = None
    sessions: int = 0
    models: int = 0
    size: int = 200
    seconds: float = 0.5
    crashes: float = 0.0
    """The share of its requests that crash whatever server they come to."""


class ClientArena(Arena[Setting, Lie, Outcome]):
    """One client against the others."""

    principal = "client"
    limits = LIMITS
    kinds: ClassVar[Mapping[str, str]] = {
        "p": "priority, waits",
        "b": "budgets, sizes",
        "n": "sessions, names of models",
        "c": "requests that crash servers",
    }

    def setting(self, rng: random.Random) -> Setting:
        """A region."""
        return Setting.drawn(rng)

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:  # noqa: ARG002 - the contract
        """A lie with these kinds in it: always more requests than it should make."""
        priority, budget, names, crash = (kind in kinds for kind in "pbnc")
        return Lie(
            rng.random() < 0.7,
            rng.choice((5.0, 60.0, 120.0)),
            rng.choice((None, *Priority)) if priority else None,
            rng.choice((None, -1.0, 0.0, 1e9, 300.0)) if priority else None,
            rng.choice((None, 0, 1, 10**9, 10**15)) if budget else None,
            rng.choice((0, 1, 3, 10**6)) if names else 0,
            rng.choice((0, 1, 10**6)) if names else 0,
            rng.choice((200, 10**7, 10**9)) if budget else 200,
            rng.choice((0.01, 0.5, 30.0)) if budget else 0.5,
            rng.choice((0.2, 0.5, 1.0)) if crash else 0.0,
        )

    def run(self, setting: Setting, lie: Lie | None) -> Outcome:
        """How honest requests end."""
        calls = [*enumerate(setting.calls)]
        if lie is not None:
            calls += [(-1, call) for call in _calls(setting, lie)]
        found = Region(setting, limits=self.limits).play(calls)
        if lie is not None:
            found.apart = LIAR if lie.key else None
        return found

    def damage(self, setting: Setting, honest: Outcome, lied: Outcome) -> Damage:
        """`taken`: of the servers those that were taken out. `changed`: requests of others that failed at a server."""
        refused, failed = shares(setting, honest, lied)
        return Damage(0, refused, max(0, lied.ejected - honest.ejected) / setting.servers, failed)


def _calls(setting: Setting, lie: Lie) -> list[Call]:
    rng, now, found = random.Random(setting.seed), 0.0, []
    while (now := now + rng.expovariate(lie.rate)) < LASTS:
        found.append(
            Call(
                now,
                LIAR if lie.key else None,
                lie.seconds,
                stated=lie.stated,
                wait=lie.wait,
                most=lie.most,
                session=f"x{rng.randrange(lie.sessions)}" if lie.sessions else None,
                model=f"x{rng.randrange(lie.models)}" if lie.models else "m",
                size=lie.size,
                crashes=rng.random() < lie.crashes,
            )
        )
    return found
