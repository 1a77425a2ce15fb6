"""Which server has what clients go on with (`gtm.balancer.wire.states`), as far as this process has seen it.

Laws:
  1. What is kept is bounded; what was not asked for the longest goes first. What is not known is looked for (`gtm.balancer.plane.exchange`).
  2. Who has something has it until that server is gone: another that says the same id takes nothing away from it.
"""

from __future__ import annotations

MOST_HELD = 65_536
"""Things of which is remembered who has them: some 10 MiB."""


class Holders:
    """What is remembered of who has what, by ids."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def of(self, thing: str) -> str | None:
        """The server that has it; None: nobody knows."""
        holder = self._holders.pop(thing, None)
        if holder is not None:
            self._holders[thing] = holder  # as the newest
        return holder

    def learn(self, thing: str, server: str) -> None:
        """A server has made it, or has shown to have it."""
        if thing in self._holders:
            return
        if len(self._holders) >= MOST_HELD:
            del self._holders[next(iter(self._holders))]
        self._holders[thing] = server
