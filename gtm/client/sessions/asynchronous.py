"""The session of programs with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import httpx

from gtm.client.calls import Answer, Call, PagedCall
from gtm.client.errors import GtmError, NotGtm
from gtm.client.reading import line
from gtm.client.sessions.base import UNMADE, Options, Speaker, cursor_of, page_of

T = TypeVar("T")


class AsyncSession(Speaker):
    """Sends calls, for programs with asyncio. An asynchronous context manager: its connections end with it.

    Arguments and exceptions are those of `Session`.
    """

    def __init__(self, url: str, token: str | None = None, options: Options | None = None) -> None:
        super().__init__(url, token, options)
        self._http = httpx.AsyncClient(**self.settings())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections."""
        await self._http.aclose()

    async def send(self, call: Call[T], *, known: Answer[T] | None = None) -> Answer[T]:
        """Send a request, as `Session.send` does."""
        call, made = self.asking(call, known), 0
        while True:
            made += 1
            try:
                return self.read(call, await self._made(call), known)
            except GtmError as error:
                pause = self.pause(call, error, made)
            await asyncio.sleep(pause)

    async def _made(self, call: Call[Any]) -> httpx.Response:
        try:
            return await self._http.request(**self.request(call))
        except UNMADE as error:
            raise self.failed(error) from error

    async def ask(self, call: Call[T]) -> T:
        """Make a call, as `Session.ask` does."""
        return (await self.send(call)).value

    async def items(self, call: PagedCall[Any, T]) -> AsyncIterator[T]:
        """Yield the items of all pages, as `Session.items` does."""
        async for page in self.pages(call.largest):
            for item in page["items"]:
                yield item

    async def pages(self, call: Call[T]) -> AsyncIterator[T]:
        """Yield pages, as `Session.pages` does."""
        cursor = None
        while True:
            page = (await self.send(page_of(call, cursor))).value
            yield page
            cursor = cursor_of(self.url, page)
            if cursor is None:
                return

    async def lines(self, call: Call[Any]) -> AsyncIterator[Any]:
        """Yield the lines of an answer, as `Session.lines` does."""
        async with self._streamed(call) as response:
            try:
                async for text in response.aiter_lines():
                    yield line(self.url, text)
            except UNMADE as error:
                raise self.failed(error) from error

    @asynccontextmanager
    async def _streamed(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        request = self._http.build_request(**self.request(call))
        try:
            response = await self._http.send(request, stream=True)
            if response.status_code != 200:
                await response.aread()
        except UNMADE as error:
            raise self.failed(error) from error
        try:
            if response.status_code != 200:
                self.read(call, response, None)
                raise NotGtm(self.url, f"status {response.status_code}")
            yield response
        finally:
            await response.aclose()
