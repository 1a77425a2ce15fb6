"""Look-ups at any of several edges, with answers kept as long as they hold.

Laws:
  1. An answer is kept for its `ttl` seconds from when it was asked for, on a clock that goes on while the machine sleeps, and not a moment longer: edges end
     `ttl` at the next moment at which a rule changes. `ttl` 0 is for one request. Refusals are not kept.
  2. An answer is given again only for the very same question: another client, tenant or data class is another question.
  3. Who cannot answer (nobody there, not gtm, no policy yet, an edge outside of a rule that binds edges) is passed over for the next edge; a refusal is an
     answer, and no other edge is asked for a better one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from gtm.client.calls import Call
from gtm.client.edge import AsyncEdge, Edge
from gtm.client.errors import (
    ConnectionFailed,
    GtmError,
    Misdirected,
    NotGtm,
    ProblemError,
    Unavailable,
    UsageError,
)
from gtm.client.generated import edge_calls
from gtm.client.retries import NEVER
from gtm.client.sessions import Options

if TYPE_CHECKING:
    from gtm.client.generated import edge_types as types

E = TypeVar("E")
_QUICK = Options(timeout=2.0, retries=NEVER)
"""There is another edge to ask."""
_PASSED_OVER = 5.0
"""Seconds for which an edge that could not answer is asked last."""
_KEPT = 10_000


def _boot() -> float:
    """Seconds on a clock that goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(slots=True)
class _Question:
    """One look-up: what is asked of edges, and whether their answer may be given again."""

    call: Call[types.Route]
    key: tuple[tuple[str, Any], ...] | None


class _Lookups(Generic[E]):
    """What both look-ups share: which edge next, and what is known."""

    _edge: ClassVar[Callable[..., Any]]
    """Makes an edge's client."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None = None,
        options: Options = _QUICK,
        *,
        keep: int = _KEPT,
        clock: Callable[[], float] = _boot,
    ) -> None:
        self._edges: tuple[E, ...] = tuple(
            self._edge(url, token, options) for url in ([urls] if isinstance(urls, str) else urls)
        )
        if not self._edges:
            raise UsageError("give at least one edge", "urls")
        self._clock = clock
        self._keep = keep
        self._known: OrderedDict[tuple[tuple[str, Any], ...], tuple[float, types.Route]] = OrderedDict()
        self._passed_over = [-_PASSED_OVER] * len(self._edges)
        self._lock = threading.Lock()

    def _question(self, asked: dict[str, Any]) -> _Question:
        """What is asked. An explanation is of its moment, and not kept."""
        given = {name: value for name, value in asked.items() if value is not None}
        return _Question(
            edge_calls.route(**given), None if "explain" in given else tuple(sorted(given.items()))
        )

    def _recalled(self, question: _Question) -> types.Route | None:
        """The answer to a question, if it still holds."""
        if question.key is None:
            return None
        with self._lock:
            found = self._known.get(question.key)
            if found is None:
                return None
            if self._clock() >= found[0]:
                del self._known[question.key]
                return None
            self._known.move_to_end(question.key)
            return found[1]

    def _remember(self, question: _Question, answer: types.Route, asked: float) -> None:
        """Remember an answer that was asked for at `asked`."""
        if question.key is None or answer["ttl"] <= 0:
            return
        with self._lock:
            self._known[question.key] = asked + answer["ttl"], answer
            while len(self._known) > self._keep:
                self._known.popitem(last=False)

    def _order(self) -> Iterator[tuple[int, int, E]]:
        """How many are left after it, number and edge: in the order given, those that could not answer lately last."""
        now = self._clock()
        with self._lock:
            late = [now - since < _PASSED_OVER for since in self._passed_over]
        numbers = sorted(range(len(self._edges)), key=lambda number: late[number])
        for tried, number in enumerate(numbers, 1):
            yield len(numbers) - tried, number, self._edges[number]

    def _passes_over(self, number: int, error: GtmError) -> bool:
        """Whether another edge may know what this one could not say."""
        if isinstance(error, Misdirected):  # of this request; others it may answer
            return True
        unable = isinstance(error, (ConnectionFailed, NotGtm)) or (
            isinstance(error, ProblemError)
            and (error.status == 500 or (isinstance(error, Unavailable) and error.code == "not_ready"))
        )
        if unable:
            with self._lock:
                self._passed_over[number] = self._clock()
        return unable


class Lookup(_Lookups[Edge]):
    """Look-ups at any of several edges; answers are kept as long as they hold. A context manager; threads may share it.

    Args:
        urls: of the edges, in the order in which they are to be asked: the nearest first.
        token: needed to ask about others than yourself; None: none.
        options: `Options`; an edge has two seconds to answer, and is not asked twice.
        keep: how many answers are kept.
        clock: seconds, as of when the machine started.

    Raises:
        UsageError: one of them cannot be.
    """

    _edge = Edge

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        for edge in self._edges:
            edge.close()

    def route(self, **asked: Any) -> types.Route:
        """Which region serves a request.

        Args:
            asked: as `Edge.route` takes it: `service`, `client_ip`, `tenant`, `data_class`, `host`, `model`, `affinity`, `priority`, `explain`.

        Raises:
            ProblemError: a refusal (`RefusedByLaw`, `Unavailable`, `TooManyRequests`), or a question that cannot be asked.
            GtmError: no edge could answer; the last one's reason.
        """
        question = self._question(asked)
        known = self._recalled(question)
        if known is not None:
            return known
        for left, number, edge in self._order():
            began = self._clock()
            try:
                answer = edge.send(question.call).value
            except GtmError as error:
                if not self._passes_over(number, error) or not left:
                    raise
                continue
            self._remember(question, answer, began)
            return answer
        raise AssertionError("the last edge answers or fails")


class AsyncLookup(_Lookups[AsyncEdge]):
    """Looks regions up as `Lookup` does, for asyncio."""

    _edge = AsyncEdge

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections."""
        for edge in self._edges:
            await edge.close()

    async def route(self, **asked: Any) -> types.Route:
        """Ask which region serves a request, as `Lookup.route` does."""
        question = self._question(asked)
        known = self._recalled(question)
        if known is not None:
            return known
        for left, number, edge in self._order():
            began = self._clock()
            try:
                answer = (await edge.send(question.call)).value
            except GtmError as error:
                if not self._passes_over(number, error) or not left:
                    raise
                continue
            self._remember(question, answer, began)
            return answer
        raise AssertionError("the last edge answers or fails")
