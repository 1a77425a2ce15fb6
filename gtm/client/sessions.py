"""Sessions send calls: one for threads, one for asyncio. Both do the same: where the server is, how to speak with it, how its answers are read and its failures told."""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from gtm.client.calls import Answer, Call, PagedCall
from gtm.client.errors import ConnectionFailed, GtmError, NotGtm, UsageError
from gtm.client.proxies import proxy_for
from gtm.client.reading import answer, line
from gtm.client.retries import PATIENT, Retries
from gtm.secret import TOKEN, SecretError, clean, given, redact, said
from gtm.transport import CertificatesError, context_for, in_the_clear

T = TypeVar("T")
_CONNECT = 5.0
_Hook = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How a client speaks with a server.

    Args:
        ca_file: certificates (PEM) that count besides the public ones, such as a private CA's.
        insecure: send the token over http to other machines, where the network between is your own.
        timeout: seconds for a whole answer; to connect, 5 at most.
        retries: which calls are made again (`gtm.client.retries`).
        managed_by: the tool for which changes are made (`terraform/prod-network`, docs/managers.md); None: nobody's.
        agent: what the client calls itself in `User-Agent`.
        hook: makes the objects of answers; None: they are dicts with attributes (`gtm.client.objects.JsonObject`).
    """

    ca_file: Path | str | None = None
    insecure: bool = False
    timeout: float = 60.0
    retries: Retries = PATIENT
    managed_by: str | None = None
    agent: str = "gtm-client"
    hook: _Hook | None = None


class Speaker:
    """What both sessions know: where the server is, how to speak with it, how to read it.

    Raises:
        UsageError: the address, the token or the environment's proxy cannot be one, or certificates cannot be read.
    """

    tier: ClassVar[str | None] = None
    """What the server's problems say of it (`X-GTM-Tier`), which tells control from an edge."""

    def __init__(self, url: str, token: str | None = None, options: Options | None = None) -> None:
        self.options = options or Options()
        self.url = _address(url)
        self._token = _token(token)
        try:
            self._proxy = proxy_for(self.url)
        except ValueError as error:
            raise UsageError(f"the proxy set in the environment cannot be used: {error}", "proxy") from None
        if self._token is not None and not self.options.insecure and in_the_clear(self.url):
            raise UsageError(
                f"`{self.url}` is http to another machine, which would send the token in the clear: put TLS in front of it and use "
                "https, or say `insecure` where the network between is your own",
                "insecure",
            )

    @property
    def has_token(self) -> bool:
        """Whether it sends one."""
        return self._token is not None

    def settings(self) -> dict[str, Any]:
        """What its `httpx` client is made with.

        Raises:
            UsageError: certificates cannot be read.
        """
        options = self.options
        headers = {
            "Accept": "application/json, application/problem+json, */*;q=0.1",
            "User-Agent": options.agent,
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if options.managed_by is not None:
            headers["GTM-Managed-By"] = options.managed_by
        return {
            "headers": headers,
            "timeout": httpx.Timeout(options.timeout, connect=min(options.timeout, _CONNECT)),
            "trust_env": False,
            "proxy": self._proxy,
            "verify": self._certificates(direct=self._proxy is None),
        }

    def _certificates(self, *, direct: bool) -> ssl.SSLContext:
        named = self.options.ca_file
        try:
            return context_for(self.url, Path(named) if named is not None else None, direct=direct)
        except CertificatesError as error:
            raise UsageError(str(error), "ca_file") from error

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """A call as `httpx` takes it."""
        return {
            "method": call.method,
            "url": self.url + call.path,
            "params": call.query,
            "headers": call.fields,
            **({} if call.body is None else {"json": call.body}),
        }

    def read(self, call: Call[T], response: httpx.Response, known: Answer[T] | None) -> Answer[T]:
        """What a response answers (`gtm.client.reading`); one that was known before, where it still holds."""
        found = answer(self.url, call, response, self.tier, self.options.hook)
        return known if found.status == 304 and known is not None else found

    def failed(self, error: Exception) -> ConnectionFailed:
        """A failure to connect, to send or to read, in words."""
        if isinstance(error, httpx.ConnectTimeout):
            return ConnectionFailed(
                self.url, f"does not answer (connection timed out{self._by_way})", sent=False
            )
        if isinstance(error, httpx.ConnectError):
            return ConnectionFailed(
                self.url, f"cannot be reached ({_reason(error)}{self._by_way})", sent=False
            )
        if isinstance(error, httpx.ProxyError):
            return ConnectionFailed(
                self.url, f"cannot be reached ({_reason(error)}{self._by_way})", sent=False
            )
        if isinstance(error, httpx.TimeoutException):
            return ConnectionFailed(self.url, "does not answer in time", sent=True)
        return ConnectionFailed(self.url, f"broke the connection off ({_reason(error)})", sent=True)

    @property
    def _by_way(self) -> str:
        """The proxy between, for messages: what fails is the way to it, as a rule."""
        if self._proxy is None:
            return ""
        return f", through the proxy `{redact(self._proxy)}` of the environment; `no_proxy` names who is asked without"

    def pause(self, call: Call[Any], error: GtmError, made: int) -> float:
        """How long to wait before a call is made again.

        Raises:
            GtmError: it is not.
        """
        pause = self.options.retries.pause(call, error, made, random.random())
        if pause is None:
            raise error
        return pause

    @staticmethod
    def asking(call: Call[T], known: Answer[T] | None) -> Call[T]:
        """The call, for an answer only if what is known holds no more."""
        return (
            call
            if known is None or known.etag is None
            else call.having(headers={"If-None-Match": known.etag})
        )


UNMADE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
"""How a request fails that gets no answer."""


def from_environment(environment: Mapping[str, str] | None = None) -> tuple[str, str | None, Options]:
    """Address, token and options of control as the `gtm` command takes them.

    `GTM_CONTROL_URL` (http://127.0.0.1:8080), `GTM_TOKEN` or a file that `GTM_TOKEN_FILE` names, `GTM_CA_FILE`,
    `GTM_INSECURE_CONTROL`.

    Raises:
        UsageError: the token cannot be one, or cannot be read.
    """
    found = os.environ if environment is None else environment
    insecure = found.get("GTM_INSECURE_CONTROL", "").lower() in {"1", "true", "yes", "on"}
    options = Options(ca_file=found.get("GTM_CA_FILE") or None, insecure=insecure)
    try:
        token = given("GTM_TOKEN", found.get("GTM_TOKEN"), found.get("GTM_TOKEN_FILE"), TOKEN)
    except SecretError as error:
        raise UsageError(str(error), "token") from None
    return found.get("GTM_CONTROL_URL") or "http://127.0.0.1:8080", token, options


def page_of(call: Call[T], cursor: str | None) -> Call[T]:
    """The call for one page of a list."""
    return call if cursor is None else call.having(parameters={"cursor": cursor})


def cursor_of(url: str, page: Any) -> str | None:
    """Where a list goes on behind a page; None: it ends there.

    Raises:
        NotGtm: the page does not say.
    """
    try:
        found: str | None = page["next_cursor"]
    except KeyError as error:
        raise NotGtm(url, "a page of a list without `next_cursor`") from error
    return found


def _address(url: str) -> str:
    text = url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        httpx.URL(text)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable or "?" in text or "#" in text or not text.isprintable():
        raise UsageError(f"`{url}` is not a URL such as http://127.0.0.1:8080", "url")
    return text


def _token(token: str | None) -> str | None:
    """The token without the white space that copying adds. It is never repeated in messages."""
    if not (token or "").strip():
        return None
    try:
        return clean(token or "", "the token", TOKEN)
    except SecretError as error:
        raise UsageError(str(error), "token") from None


def _reason(error: Exception) -> str:
    """What the operating system said, without the layers around it."""
    text = said(error)
    if "WRONG_VERSION_NUMBER" in text.upper():
        return "it speaks http there, not https"
    return re.sub(r"^\[Errno -?\d+\] ", "", text).lower()


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
