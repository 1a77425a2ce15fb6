"""Calls as methods of sessions: one declaration for threads and for asyncio, with the arguments, types and words of the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from gtm.client.calls import Call, PagedCall

if TYPE_CHECKING:
    from gtm.client.sessions import Session

P = ParamSpec("P")
T = TypeVar("T")
Now = TypeVar("Now")
Later = TypeVar("Later")


class AsyncAsker(Protocol):
    """What sends calls with asyncio, such as a session."""

    async def ask(self, call: Call[T]) -> T:
        """Make a call; what it answers."""
        ...


class Method(Generic[P, Now, Later]):
    """Makes a call and has the session it is a method of send it: `Now` is what it returns for threads, `Later` for asyncio.

    Args:
        make: the call.
        how: the session's method that sends it.
    """

    def __init__(self, make: Callable[P, Call[Any]], how: str) -> None:
        self._make = make
        self._how = how
        update_wrapper(self, make)

    def __call__(self, session: Session | AsyncAsker, *given: Any, **named: Any) -> Any:
        return getattr(session, self._how)(self._make(*given, **named))

    @overload
    def __get__(self, session: None, _: type) -> Self: ...
    @overload
    def __get__(self, session: Session, _: type) -> Callable[P, Now]: ...
    @overload
    def __get__(self, session: AsyncAsker, _: type) -> Callable[P, Later]: ...
    def __get__(self, session: Any, _: type) -> Any:
        if session is None:
            return self
        return wraps(self._make)(lambda *given, **named: self(session, *given, **named))


def value(make: Callable[P, Call[T]]) -> Method[P, T, Coroutine[Any, Any, T]]:
    """The method that returns what a call answers."""
    return Method(make, "ask")


def items(make: Callable[P, PagedCall[Any, T]]) -> Method[P, Iterator[T], AsyncIterator[T]]:
    """The method that goes through every item of a list, page after page."""
    return Method(make, "items")


def lines(make: Callable[P, Call[Any]]) -> Method[P, Iterator[Any], AsyncIterator[Any]]:
    """The method that goes through the values of an answer that has one a line."""
    return Method(make, "lines")
