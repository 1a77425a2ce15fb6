"""The frame of the liar drill: an arena has worlds and lies of one principal, and hill climbing finds the worst lie of each world.

A world (a setting) is run twice with the same seed: once everybody says what is true, once the liar lies. The difference in what
others get is the damage. `climb` changes the lie where that does more damage, so that the worst of many tries counts, not the
mean of all.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

S = TypeVar("S")
"""A world before anybody lies."""
L = TypeVar("L")
"""A lie: a dataclass whose fields are what the principal can claim. A field with its default value is said truly."""
O = TypeVar("O")  # noqa: E741 - of outcome
"""What others get in a run."""


@dataclass(frozen=True, order=True)
class Damage:
    """What became different for others, the worst first.

    `outside` counts answers beyond the fence, which must be none. `refused` is the share of others' requests that are refused
    more, `taken` the share of what is divided (quotas, slots, budgets) that others lose, `changed` the share of their answers that changed.
    """

    outside: int = 0
    refused: float = 0.0
    taken: float = 0.0
    changed: float = 0.0


NONE = Damage()


class Arena(ABC, Generic[S, L, O]):
    """Worlds and lies of one principal."""

    principal: str
    """Whose lies these are, in words."""
    promised: ClassVar[bool] = True
    """No lie of these leads out of a fence. False: some do, as docs/security.md says under "What is open"."""
    kinds: ClassVar[Mapping[str, str]]
    """Letter → what the lies of that kind are about, in words."""

    @abstractmethod
    def setting(self, rng: random.Random) -> S:
        """A world."""

    @abstractmethod
    def lie(self, rng: random.Random, setting: S, kinds: str) -> L:
        """A lie with these kinds in it."""

    @abstractmethod
    def run(self, setting: S, lie: L | None) -> O:
        """What others get; None: nobody lies."""

    @abstractmethod
    def damage(self, setting: S, honest: O, lied: O) -> Damage:
        """What became different between two runs of a setting."""

    def rows(self) -> list[tuple[str, str]]:
        """Each kind of lie, and all kinds at once, with what they are about in words."""
        every = [("".join(self.kinds), "all of these")] if len(self.kinds) > 1 else []
        return [*self.kinds.items(), *every]


def mutated(rng: random.Random, best: Any, fresh: Any) -> Any:
    """A lie that has some claims of the worst one so far, and the others of a new one."""
    given = {one.name: getattr(best if rng.random() < 0.5 else fresh, one.name) for one in fields(fresh)}
    return type(fresh)(**given)


def climb(arena: Arena[S, L, O], rng: random.Random, setting: S, kinds: str, tries: int) -> tuple[Damage, L]:
    """The worst of some lies, each a change of the worst so far or a new one."""
    honest = arena.run(setting, None)
    worst: tuple[Damage, L] | None = None
    tried: list[L] = []
    for _ in range(tries):
        lie = arena.lie(rng, setting, kinds)
        if worst is not None and rng.random() < 0.6:
            lie = mutated(rng, worst[1], lie)
        if lie in tried:
            continue
        tried.append(lie)
        found = arena.damage(setting, honest, arena.run(setting, lie))
        if worst is None or found > worst[0]:
            worst = found, lie
    assert worst is not None, "a climb tries one lie at least"
    return worst


HEAD = (
    "| who lies | about | worlds | worst share of others' answers that changed | mean | worst share refused | worst share taken | outside of the fence |\n"
    "|---|---|---:|---|---|---|---|---|"
)


def row(principal: str, about: str, found: list[Damage]) -> str:
    """A row of the table: the worst and the mean of some worlds."""
    mean = sum(one.changed for one in found) / len(found)
    return (
        f"| {principal} | {about} | {len(found)} | {max(one.changed for one in found):.1%} | {mean:.1%} | {max(one.refused for one in found):.1%} | "
        f"{max(one.taken for one in found):.1%} | {sum(one.outside for one in found)} |"
    )


def worst_of(arena: Arena[Any, Any, Any], letters: str, seed: int, tries: int) -> Damage:
    """The damage of the worst lie of these kinds in the world of a seed."""
    rng = random.Random(f"{letters} {seed}")
    return climb(arena, rng, arena.setting(rng), letters, tries)[0]
