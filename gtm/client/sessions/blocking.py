"""The session of programs with threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import httpx

from gtm.client.calls import Answer, Call, PagedCall
from gtm.client.errors import GtmError, NotGtm
from gtm.client.reading import line
from gtm.client.sessions.base import UNMADE, Options, Speaker, cursor_of, page_of

T = TypeVar("T")


class Session(Speaker):
    """Sends calls, for programs with threads; safe to share among them. A context manager: its connections end with it.

    Args:
        url: the server's base, http or https.
        token: a bearer token; None where none is needed.
        options: how to speak with it.

    Raises:
        UsageError: one of them cannot be.
    """

    def __init__(self, url: str, token: str | None = None, options: Options | None = None) -> None:
        super().__init__(url, token, options)
        self._http = httpx.Client(**self.settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def send(self, call: Call[T], *, known: Answer[T] | None = None) -> Answer[T]:
        """Make a call, again where that is safe.

        Args:
            call: which.
            known: an answer to it that was had before: returned again if it still holds (304).

        Raises:
            ProblemError: gtm says no.
            ConnectionFailed: nothing answered.
            NotGtm: something else did.
        """
        call, made = self.asking(call, known), 0
        while True:
            made += 1
            try:
                return self.read(call, self._made(call), known)
            except GtmError as error:
                pause = self.pause(call, error, made)
            time.sleep(pause)

    def _made(self, call: Call[Any]) -> httpx.Response:
        try:
            return self._http.request(**self.request(call))
        except UNMADE as error:
            raise self.failed(error) from error

    def ask(self, call: Call[T]) -> T:
        """Make a call; what it answers."""
        return self.send(call).value

    def items(self, call: PagedCall[Any, T]) -> Iterator[T]:
        """Every item of a list, page after page; each page is asked for once its items are wanted."""
        for page in self.pages(call.largest):
            yield from page["items"]

    def pages(self, call: Call[T]) -> Iterator[T]:
        """Every page of a list."""
        cursor = None
        while True:
            page = self.send(page_of(call, cursor)).value
            yield page
            cursor = cursor_of(self.url, page)
            if cursor is None:
                return

    def lines(self, call: Call[Any]) -> Iterator[Any]:
        """Every value of an answer that has one a line, as they come; such a call is made once."""
        with self._streamed(call) as response:
            try:
                for text in response.iter_lines():
                    yield line(self.url, text)
            except UNMADE as error:
                raise self.failed(error) from error

    @contextmanager
    def _streamed(self, call: Call[Any]) -> Iterator[httpx.Response]:
        request = self._http.build_request(**self.request(call))
        try:
            response = self._http.send(request, stream=True)
            if response.status_code != 200:
                response.read()
        except UNMADE as error:
            raise self.failed(error) from error
        try:
            if response.status_code != 200:
                self.read(call, response, None)
                raise NotGtm(self.url, f"status {response.status_code}")
            yield response
        finally:
            response.close()
