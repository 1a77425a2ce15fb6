"""What a location database that lies does to where clients are answered, and what a doubt and a rule's settings leave of that.

Pure: the edge's router, asked for clients as the database tells of them. `outside` counts answers beyond the fence that the rules ask for by what is said,
which is what gtm promises. `taken` is the share of answers to clients in the EEA that left it in truth: where the lie is believed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from gtm.core.decision.router import Router
from gtm.core.model.policy import OnAnonymous, OnDoubtfulLocation, OnUnknownLocation
from gtm.core.model.requests import Location, Request
from gtm.core.model.state import State
from tests import worlds
from tests.drills.liars.arena import Arena, Damage
from tests.drills.liars.edge import CLIENTS, DRAWS, EEA, REGIONS

BOUND_KM = 100.0
COUNTRIES = ("DE", "FR", "US", "JP", "AU", "BR", None)


@dataclass(frozen=True)
class Setting:
    """What the rule says of locations that may be wrong; which region is down; what an honest database says of accuracy."""

    unknown: OnUnknownLocation
    anonymous: OnAnonymous
    doubtful: OnDoubtfulLocation
    within_km: float | None
    down: str | None
    accuracy: float | None


@dataclass(frozen=True)
class Lie:
    """What the database says of each client, by name; and whether two balancers' round trips have put it in doubt."""

    berlin: Location | None = None
    lyon: Location | None = None
    boston: Location | None = None
    osaka: Location | None = None
    sydney: Location | None = None
    doubted: bool = False


@dataclass(frozen=True)
class Outcome:
    """By client: how often which region answers, and what was said of it."""

    answers: Mapping[str, Counter[str]]
    said: Mapping[str, Location]


def _router(setting: Setting) -> Router:
    return _kept(replace(setting, accuracy=None))


@cache
def _kept(setting: Setting) -> Router:
    law = worlds.policy(
        *worlds.regions(" ".join(REGIONS)),
        worlds.service("chat", " ".join(REGIONS)),
        worlds.rule(
            "gdpr",
            "EEA",
            services="chat",
            client_jurisdictions="EEA",
            on_unknown_location=setting.unknown,
            on_anonymous=setting.anonymous,
            on_doubtful_location=setting.doubtful,
            max_accuracy_km=setting.within_km,
        ),
    )
    up = State(1, health=worlds.health(law.regions, [setting.down] if setting.down else []))
    return Router(worlds.view(law, up))


def concerned(setting: Setting, said: Location) -> bool:
    """Whether the rule is about a client of whom this is said, told from docs/residency.md."""
    if said.country in ("DE", "FR"):
        return True
    if said.anonymous and setting.anonymous is OnAnonymous.MATCH:
        return True
    if setting.unknown is OnUnknownLocation.IGNORE:
        return False
    far = said.accuracy_km is None or (setting.within_km is not None and said.accuracy_km > setting.within_km)
    return (
        said.country is None
        or (setting.within_km is not None and far)
        or (said.doubtful and setting.doubtful is OnDoubtfulLocation.MATCH)
    )


class LocationArena(Arena[Setting, Lie, Outcome]):
    """A database that lies about every client, against all of them.

    Args:
        defaults: the rule says nothing of how far locations are believed.
    """

    kinds: ClassVar[Mapping[str, str]] = {
        "w": "where clients are",
        "d": "the same, in doubt by two balancers' round trips",
    }

    def __init__(self, *, defaults: bool = False) -> None:
        self.defaults = defaults
        self.principal = "location database" + ("" if defaults else ", and a rule with any settings")

    def setting(self, rng: random.Random) -> Setting:
        """A world."""
        drawn = Setting(
            rng.choice([*OnUnknownLocation]),
            rng.choice([*OnAnonymous]),
            rng.choice([*OnDoubtfulLocation]),
            rng.choice((None, BOUND_KM)),
            rng.choice((None, *REGIONS)),
            rng.choice((None, 20.0, 500.0)),
        )
        if not self.defaults:
            return drawn
        return Setting(
            OnUnknownLocation.MATCH,
            OnAnonymous.MATCH,
            OnDoubtfulLocation.MATCH,
            None,
            drawn.down,
            drawn.accuracy,
        )

    def rows(self) -> list[tuple[str, str]]:
        """One is the other in doubt: there is no third."""
        return [*self.kinds.items()]

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:  # noqa: ARG002 - the contract
        """Every client somewhere else."""

        def said() -> Location:
            place = rng.choice((Location(), *CLIENTS.values()))
            accuracy = rng.choice((None, 20.0, 500.0))
            country = rng.choice(COUNTRIES)
            return place._replace(country=country, accuracy_km=accuracy, anonymous=rng.random() < 0.2)

        return Lie(*(said() for _ in CLIENTS), "d" in kinds)

    def run(self, setting: Setting, lie: Lie | None) -> Outcome:
        """What everybody gets."""
        router, answers, told = _router(setting), {}, {}
        for name, truth in CLIENTS.items():
            said = None if lie is None else getattr(lie, name)
            located = truth._replace(accuracy_km=setting.accuracy) if said is None else said
            if lie is not None and lie.doubted:
                located = located._replace(doubtful=True)
            routing = router.routing(Request("chat", located))
            told[name] = located
            answers[name] = Counter(routing.pick(draw).region or "" for draw in DRAWS)
        return Outcome(answers, told)

    def damage(self, setting: Setting, honest: Outcome, lied: Outcome) -> Damage:
        """Each client counts alike."""
        outside = changed = refused = crossed = bound = 0
        for name, after in lied.answers.items():
            left = sum(count for region, count in after.items() if region and region not in EEA)
            outside += left if concerned(setting, lied.said[name]) else 0
            if CLIENTS[name].country in ("DE", "FR"):
                crossed += left
                bound += len(DRAWS)
            changed += (honest.answers[name] - after).total()
            refused += max(0, after[""] - honest.answers[name][""])
        whole = len(CLIENTS) * len(DRAWS)
        return Damage(outside, refused / whole, crossed / bound, changed / whole)
