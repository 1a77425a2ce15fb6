"""Who of many gets what few may have at a time, before anything is taken that others need.

Laws:
  1. Callers are let in one after the other, each with what it has waited for longest; a caller that asks for much waits for
     itself.
  2. A caller never has all places: what it may have at a time is bounded, and so is how many of its requests wait.
  3. Where as many wait as may, the newest of the longest line gives its place to a newcomer of a shorter one.
  4. Whoever is not let in is told so, in time and truly: because of its own requests, or of all others'.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

CALLER: ContextVar[str] = ContextVar("gtm.caller", default="")
"""For whom this task works, as far as turns go: a credential, or where a request without one comes from. Empty: for gtm itself."""


@contextmanager
def own_work() -> Iterator[None]:
    """What is done within is gtm's own, and waits for no turn: others wait for its end."""
    caller = CALLER.get()
    CALLER.set("")
    try:
        yield
    finally:
        CALLER.set(caller)  # and no reset: a generator may be ended in another context


class Busy(Exception):  # noqa: N818 - it names a state, as its readers (429, 503) do
    """No turn came. Nothing was done; the same call may succeed later.

    Args:
        what: what is waited for, as a noun with its verb: "changes of the policy wait".
        own: how many of the caller's own wait, if that is why; 0: because of all others'.
        waited: seconds.
    """

    def __init__(self, what: str, own: int = 0, waited: float = 0.0) -> None:
        why = f"{own} of yours do already" if own else f"no turn came within {waited:g} s"
        super().__init__(f"{what}: {why}" if own or waited else f"{what}: too many of all callers do already")
        self.own = bool(own)


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """These say how many turns of one kind there are, and who may wait for one."""

    places: int
    """So many turns last at the same time."""
    each: int
    """A caller has at most so many of them."""
    waiting_each: int = 64
    """So many requests of one caller wait."""
    waiting: int = 1024
    """So many requests of all callers wait."""
    patience: float = 10.0
    """A request waits for so many seconds."""


class Turns:
    """One kind of turn. Belongs to one event loop.

    Args:
        limits: how many there are, and who may wait.
        what: what is waited for, in words (`Busy`).
    """

    def __init__(self, limits: TurnLimits, what: str) -> None:
        self._limits = limits
        self._what = what
        self._held: Counter[str] = Counter()
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.waiting = 0
        """This says how many requests wait now."""

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Have a turn, for as long as the block lasts.

        Raises:
            Busy: none came.
        """
        await self._enter(caller)
        try:
            yield
        finally:
            self._leave(caller)

    async def _enter(self, caller: str) -> None:
        if self._is_free_for(caller):
            self._held[caller] += 1
            return
        self._make_room(caller)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, deque()).append(turn)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                await turn
        except BaseException as error:
            if not turn.done() or turn.cancelled():
                self._give_up(caller, turn)
            elif turn.exception() is None:
                self._leave(caller)  # the turn came in the moment in which nobody wanted it any more
            if isinstance(error, TimeoutError):
                raise Busy(self._what, waited=self._limits.patience) from None
            raise

    def _is_free_for(self, caller: str) -> bool:
        """Whether a caller may have a turn now. Who waits already cannot, or would have it."""
        return self._held.total() < self._limits.places and self._held[caller] < self._limits.each

    def _make_room(self, caller: str) -> None:
        """Let one more of a caller's wait.

        Raises:
            Busy: there is no room for it.
        """
        own = len(self._lines.get(caller, ()))
        if own >= self._limits.waiting_each:
            raise Busy(self._what, own)
        if self.waiting < self._limits.waiting:
            return
        longest = max(self._lines, key=lambda other: len(self._lines[other]))
        size = len(self._lines[longest])
        if size <= own + 1:
            raise Busy(self._what)
        newest = self._lines[longest][-1]
        self._give_up(longest, newest)
        if not newest.done():
            newest.set_exception(Busy(self._what, size))

    def _give_up(self, caller: str, turn: asyncio.Future[None]) -> None:
        """Take a place out of its line, if it is in it still."""
        line = self._lines.get(caller, deque())
        if turn not in line:
            return
        line.remove(turn)
        self.waiting -= 1
        if not line:
            del self._lines[caller]

    def _leave(self, caller: str) -> None:
        """End a turn, and give it to who is next."""
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        while (following := next(filter(self._is_free_for, self._lines), None)) is not None:
            turn = self._lines[following][0]
            self._lines.move_to_end(following)
            self._give_up(following, turn)
            if not turn.done():  # it may have been cancelled a moment ago
                self._held[following] += 1
                turn.set_result(None)
                return
