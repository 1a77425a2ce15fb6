"""What both sessions share: where the server is, how to speak with it, how its answers are read and its failures told."""

from __future__ import annotations

import os
import random
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import httpx

from gtm.client.calls import Answer, Call
from gtm.client.errors import ConnectionFailed, GtmError, NotGtm, UsageError
from gtm.client.proxies import proxy_for
from gtm.client.reading import answer
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
            "params": {name: _text(value) for name, value in call.query.items()},
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


def _text(value: Any) -> Any:
    """A parameter as it is written: booleans as in JSON, times in ISO 8601."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else value


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
