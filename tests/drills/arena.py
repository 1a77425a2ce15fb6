"""Where attacks happen: real systems, and how an attack says what it saw.

An attack is a function that does to a running system what an attacker, an accident or a mistake would do. It returns, in a
few words, what it saw that shows the promise held; it raises `Broken` with what it saw when the promise did not hold.

    @attack("A2", "an answer one second before a rule begins")
    def outlived(arena: Arena) -> str:
        answer = arena.shared.resolve("chat.demo.test")
        held(answer.answer[0].ttl <= 1, f"TTL {answer.answer[0].ttl}")
        return "TTL 1"
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.harness import System, system


class Broken(Exception):  # noqa: N818 - it names what happened to a promise
    """A promise did not hold; the message says what was seen."""


def held(condition: object, seen: str) -> None:
    """Go on if a condition is true.

    Raises:
        Broken: it is not; `seen` says what was there instead.
    """
    if not condition:
        raise Broken(seen)


class Arena:
    """The systems that attacks are made on.

    Args:
        directory: for data directories and logs, empty.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._shared: System | None = None

    @property
    def shared(self) -> System:
        """A demo world for attacks that leave nothing behind; started when first asked for."""
        if self._shared is None or self._shared.process.popen.poll() is not None:
            self._shared = self._stack.enter_context(system(self.fresh(), "--demo"))
        return self._shared

    @contextmanager
    def own(self, *arguments: str) -> Iterator[System]:
        """A `gtm serve` for one attack alone, without a policy unless `arguments` have `--demo`."""
        with system(self.fresh(), *arguments) as running:
            yield running

    def fresh(self) -> Path:
        """A data directory's path that nobody has used yet."""
        return self.directory / f"world-{next(self._numbers)}"

    def close(self) -> None:
        """End what was started."""
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: the promise (`A` the fence, `B` the edges) and number it is known by, and what is tried."""

    item: str
    title: str
    run: Callable[[Arena], str]


ATTACKS: list[Attack] = []


def attack(item: str, title: str) -> Callable[[Callable[[Arena], str]], Callable[[Arena], str]]:
    """Register an attack under its item and a title of a few words."""

    def register(run: Callable[[Arena], str]) -> Callable[[Arena], str]:
        ATTACKS.append(Attack(item, title, run))
        return run

    return register
