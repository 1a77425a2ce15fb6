"""What one server says of its load, and for how long it is believed."""

from __future__ import annotations

from gtm.core.balance.backends import Scraped
from gtm.core.balance.health.settings import Settings
from gtm.core.balance.health.values import Load


class Loads:
    """The newest of everything that a server said. What is stale or was never said is None: unknown, never idle."""

    __slots__ = (
        "_adapters",
        "_listed",
        "_listed_at",
        "_memory",
        "_models",
        "_running",
        "_settings",
        "_waiting",
    )

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: tuple[float, float] | None = None
        self._waiting: tuple[float, float] | None = None
        self._memory: tuple[float, float] | None = None
        self._models: tuple[frozenset[str], float] | None = None
        self._adapters: tuple[frozenset[str], float] | None = None
        self._listed: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        self._listed_at: float | None = None

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._settings = settings

    def scraped(self, load: Load, now: float) -> None:
        """All that its metrics say; what they do not say is unknown from now on."""
        self._running = _at(load.running, now)
        self._waiting = _at(load.waiting, now)
        self._memory = _at(load.memory, now)
        self._models = None if load.models is None else (load.models, now)
        self._adapters = None if load.adapters is None else (load.adapters, now)

    def reported(self, load: Load, now: float) -> None:
        """Some of it, as a response's header does; the rest is as it was."""
        self._running = _at(load.running, now) or self._running
        self._waiting = _at(load.waiting, now) or self._waiting
        self._memory = _at(load.memory, now) or self._memory

    def listed(self, models: frozenset[str], adapters: frozenset[str], now: float) -> None:
        """The list of what it has loaded."""
        self._listed = (models, adapters)
        self._listed_at = now

    def requests(self, now: float) -> Scraped | None:
        """Requests that run and wait in it, as old as the older of both."""
        running, waiting = self._running, self._waiting
        if running is None or waiting is None:
            return None
        at = min(running[1], waiting[1])
        return Scraped(running[0], waiting[0], at) if now - at <= self._settings.lasts else None

    def memory(self, now: float) -> float | None:
        """The used part of its memory."""
        known = self._memory
        return known[0] if known is not None and now - known[1] <= self._settings.lasts else None

    def models(self, now: float) -> frozenset[str] | None:
        """The models that it has loaded: those of its list, else those of its metrics."""
        if self._lists(now):
            return self._listed[0]
        known = self._models
        return known[0] if known is not None and now - known[1] <= self._settings.lasts else None

    def adapters(self, now: float) -> frozenset[str] | None:
        """The LoRA adapters that it has loaded: those of its list and those of its metrics."""
        known = self._adapters
        said = known[0] if known is not None and now - known[1] <= self._settings.lasts else None
        if not self._lists(now):
            return said
        return self._listed[1] | said if said else self._listed[1]

    def _lists(self, now: float) -> bool:
        at = self._listed_at
        return at is not None and now - at <= self._settings.lists_last


def _at(value: float | None, now: float) -> tuple[float, float] | None:
    return None if value is None else (value, now)
