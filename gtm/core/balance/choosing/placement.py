"""Where a model or a LoRA adapter is to be loaded that no server has: where one goes that was used least recently.

Servers drop the least recently used when they load one too many. Here a list of the same length is kept for each, of what requests
were sent for, so that the server with a place free is found, or the one whose next victim is the coldest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gtm.core.balance.choosing.values import Candidate


class Placements:
    """What each server was last used for, as many things as it holds at once. Memory: servers × what they hold."""

    def __init__(self) -> None:
        self._uses: dict[str, OrderedDict[str, int]] = {}
        self._count = 0

    def used(self, backend: str, item: str, holds: int) -> None:
        """A request for a model or an adapter goes to a server that holds `holds` of them at once."""
        self._count += 1
        uses = self._uses.get(backend)
        if uses is None:
            uses = self._uses[backend] = OrderedDict()
        uses[item] = self._count
        uses.move_to_end(item)
        while len(uses) > holds:
            uses.popitem(last=False)

    def has(self, backend: str, item: str) -> bool:
        """Whether the server should have it, by what it was used for."""
        return item in self._uses.get(backend, ())

    def victim(self, backend: str, holds: int) -> int:
        """How recently that was used which the server would drop: 0 if it has a place free, else the higher the more recently."""
        uses = self._uses.get(backend)
        return 0 if uses is None or len(uses) < holds else next(iter(uses.values()))

    def keep(self, names: frozenset[str]) -> None:
        """Forget all servers but these."""
        for name in [name for name in self._uses if name not in names]:
            del self._uses[name]


def hint(candidates: Sequence[Candidate], placements: Placements, item: str) -> list[Candidate]:
    """The candidates (at least one) where an item is best sent that none has loaded: those that were sent it last, and are
    loading it; else those with the coldest victim."""  # noqa: D205, D209
    loading = [candidate for candidate in candidates if placements.has(candidate.backend.name, item)]
    if loading:
        return loading
    victims = [
        placements.victim(candidate.backend.name, candidate.backend.max_loaded) for candidate in candidates
    ]
    coldest = min(victims)
    return [candidate for candidate, victim in zip(candidates, victims, strict=True) if victim == coldest]
