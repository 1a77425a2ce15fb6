"""Servers of one region as values: what they are (`Backend`, from configuration), and what is known of them now (`Condition`)."""

from __future__ import annotations

from dataclasses import dataclass

MOST_REQUESTS = 1e9
"""That a server can say it has: sums of what all say stay finite."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A server that requests can be sent to.

    `name` is its URL. `weight`: work it gets done in a second, relative to the others; above 0. `slots`: how many requests
    it serves at once (None: unknown). `models` are those it serves, loaded or to be loaded on demand (empty: any).
    `version` is what canaries and blue-green deployments tell apart. `max_loaded`: how many models or LoRA adapters it
    holds at once before it drops the one that was used least recently.
    """

    name: str
    weight: float = 1.0
    slots: int | None = None
    models: frozenset[str] = frozenset()
    version: str = ""
    max_loaded: int = 4


@dataclass(frozen=True, slots=True)
class Scraped:
    """What a server said of itself: requests it runs and requests that wait in it, read at `at` (seconds of the caller's clock)."""

    running: float
    waiting: float
    at: float

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: a number is impossible.
        """
        if not (0 <= self.running <= MOST_REQUESTS and 0 <= self.waiting <= MOST_REQUESTS):
            raise ValueError(
                f"a server says that {self.running} requests run and {self.waiting} wait: no counts"
            )

    def requests(self, now: float, lasts: float) -> float | None:
        """All requests in the server; None, unknown, if that is older than `lasts` seconds. Stale is never idle."""
        return self.running + self.waiting if now - self.at <= lasts else None


@dataclass(frozen=True, slots=True)
class Condition:
    """What is known of a server now. Nothing is healthy before it was found so.

    `healthy`: checks pass. `held`: it fell too often. `ejected`: live requests failed. `draining`: finishes what it has, takes nothing. `models` and
    `adapters` (LoRA) are what is loaded (None: unknown). `memory`: the used part of its KV cache or GPU memory, 0 to 1 (None:
    unknown). `warmth`, in (0, 1]: the part of its weight that counts, below 1 during slow start. `slots`: how many requests it serves at once, as
    far as that was learned; a backend's own count. `refuses`: it says that it is full while nothing is known to be there: others are asked first.
    """

    healthy: bool = False
    held: bool = False
    ejected: bool = False
    draining: bool = False
    models: frozenset[str] | None = None
    adapters: frozenset[str] | None = None
    memory: float | None = None
    warmth: float = 1.0
    scraped: Scraped | None = None
    slots: int | None = None
    refuses: bool = False


UNKNOWN = Condition()
"""Of a server that nobody has looked at yet."""
