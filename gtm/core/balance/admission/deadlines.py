"""When those who wait must have begun: a heap, from which who waits no more is dropped when it comes to the top or is the most."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from gtm.core.balance.admission.values import Ticket

_SPARE = 64


class Deadlines:
    """The deadlines of all tickets that wait."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []

    def add(self, ticket: Ticket, waiting: int) -> None:
        """Watch a ticket, one of so many that wait."""
        if len(self._heap) > 2 * waiting + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2].waiting]
            heapify(self._heap)
        heappush(self._heap, (ticket.deadline, ticket.number, ticket))

    def first(self) -> Ticket | None:
        """The ticket that must begin first; None: none waits."""
        heap = self._heap
        while heap and not heap[0][2].waiting:
            heappop(heap)
        return heap[0][2] if heap else None
