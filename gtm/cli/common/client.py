"""Calls to the control API and to an edge, as commands make them: every failure is a `CommandError`, never a traceback.

Which failure ends in which exit code: no connection, no answer in time, an answer that is not gtm's, and 5xx are
UNREACHABLE; 401 and 403 NOT_ALLOWED; every other refusal BAD_INPUT.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.transport import CertificatesError, context_for

_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 5.0
_PAGE = 1000
_SHOWN = 200

_UNAUTHENTICATED = (
    "this needs a token: set GTM_TOKEN to the one printed at the first start, or to one made by "
    "`gtm token create NAME --role ROLE`; lost them all? add --direct to that command on control's machine"
)
_NOT_KNOWN = (
    "see that GTM_TOKEN (or --token) has all of its text and that it is of this installation; another is made by "
    "`gtm token create NAME --role ROLE`, without any token with --direct on control's machine"
)


class Document(dict[str, Any]):
    """A JSON object of an answer. A field that should be there and is not ends the command."""

    def __missing__(self, key: str) -> Any:
        raise CommandError(
            f"the server's answer has no field `{key}`: it is not gtm, or one of another version",
            Exit.UNREACHABLE,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: HTTP status, JSON object and headers."""

    status: int
    body: Document
    headers: httpx.Headers


class Client:
    """One server.

    Args:
        url: its base, http or https.
        token: bearer token, None for none.
        what: what the server is, for messages (`the control API`).
        option: the option that gives its address, for messages (`--control`).
        hint: how such a server is started, for messages.
        tier: what its answers say of themselves (`X-GTM-Tier`), which tells the control API from an edge.
        timeout: seconds for a whole answer.

    Raises:
        CommandError: the URL or the token cannot be one.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        what: str,
        option: str,
        hint: str,
        tier: str | None,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._what = what
        self._option = option
        self._hint = hint
        self._tier = tier
        self._url = _checked_url(url, option)
        self._token = _checked_token(token)
        host = urlsplit(self._url).hostname or ""
        headers = {"Accept": "application/json, application/problem+json", "User-Agent": "gtm-cli"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
            insecure = os.environ.get("GTM_INSECURE_CONTROL", "").lower() in {"1", "true", "yes", "on"}
            options.check_in_the_clear(self._url, insecure=insecure, option=option)
        # No proxy leads to this machine's own loopback.
        limit = httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT))
        own = host in {"localhost", "::1"} or host.startswith("127.")
        try:
            named = os.environ.get("GTM_CA_FILE")
            verify = context_for(self._url, Path(named) if named else None, direct=own)
            self._http = httpx.Client(timeout=limit, trust_env=not own, headers=headers, verify=verify)
        except CertificatesError as error:
            raise CommandError(str(error)) from error
        except (ValueError, ImportError) as error:
            raise CommandError(f"the proxy set in the environment cannot be used: {error}") from error
        weakref.finalize(self, self._http.close)

    def get(self, path: str, **parameters: Any) -> Document:
        """The JSON object at a path; parameters that are None are left out."""
        return self.call("GET", path, parameters=parameters).body

    def items(self, path: str, **parameters: Any) -> Iterator[Document]:
        """Every item of a list, page after page."""
        for page in self.pages(path, **parameters):
            yield from page["items"]

    def pages(self, path: str, **parameters: Any) -> Iterator[Document]:
        """Every page of a list."""
        cursor = None
        while True:
            page = self.get(path, limit=_PAGE, cursor=cursor, **parameters)
            yield page
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def call(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
    ) -> Answer:
        """Make a request.

        Args:
            method: of HTTP.
            path: behind the base URL; its variable parts quoted (`segment`).
            parameters: of the query; None values are left out.
            body: sent as JSON, None for none.
            headers: to send along.
            accept: statuses from 400 on that are answers too.

        Raises:
            CommandError: anything but an answer.
        """
        return self._answered(self._request(method, path, parameters, body, headers), accept)

    def send(self, method: str, path: str, *, body: Any = None) -> None:
        """Make a request whose answer has no content (204).

        Raises:
            CommandError: it was refused, or nothing answered.
        """
        response = self._request(method, path, None, body, None)
        if response.status_code != 204:
            self._answered(response, frozenset())

    def _answered(self, response: httpx.Response, accept: frozenset[int]) -> Answer:
        answer = self._answer(response)
        if answer.status >= 400 and answer.status not in accept:
            raise self._refusal(answer)
        return answer

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> httpx.Response:
        try:
            return self._http.request(
                method,
                self._url + path,
                params={key: value for key, value in (parameters or {}).items() if value is not None},
                json=body,
                headers=dict(headers or {}),
            )
        except httpx.ConnectTimeout as error:
            raise self._unreachable("does not answer (connection timed out)") from error
        except httpx.ConnectError as error:
            raise self._unreachable(f"cannot be reached ({_reason(error)})") from error
        except httpx.TimeoutException as error:
            raise self._unreachable("does not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(f"broke the connection off ({_reason(error)})") from error

    def _answer(self, response: httpx.Response) -> Answer:
        try:
            body = json.loads(response.content, object_hook=Document)
        except (ValueError, RecursionError):
            body = None
        if response.is_redirect or not isinstance(body, Document):
            raise self._strange(response)
        if response.status_code >= 400 and response.headers.get("X-GTM-Tier") != self._tier:
            raise self._strange(response)
        return Answer(response.status_code, body, response.headers)

    def _strange(self, response: httpx.Response) -> CommandError:
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        said = f"status {response.status_code}{f', {kind}' if kind else ''}"
        return CommandError(
            f"what answers at {self._url} is not {self._what} ({said}): check {self._option}",
            Exit.UNREACHABLE,
        )

    def _unreachable(self, why: str) -> CommandError:
        message = f"{self._what} at {self._url} {why}: {self._hint}, or give its address with {self._option}"
        return CommandError(message, Exit.UNREACHABLE)

    def _refusal(self, answer: Answer) -> CommandError:
        """A problem document (RFC 9457) as an error."""
        document = answer.body
        detail = document.get("detail") or document.get("title") or f"{self._what} answered {answer.status}"
        found = document.get("errors")
        problems = tuple(_problem(item) for item in found) if isinstance(found, list) else ()
        if problems == (str(detail),):
            problems = ()
        if answer.status in {401, 403}:
            message = str(detail)
            if answer.status == 401:
                message = _UNAUTHENTICATED if self._token is None else f"{detail}: {_NOT_KNOWN}"
            return CommandError(message, Exit.NOT_ALLOWED, problems)
        code = Exit.UNREACHABLE if answer.status >= 500 else Exit.BAD_INPUT
        return CommandError(str(detail), code, problems, str(document.get("code", "")))


def control(url: str, token: str | None, *, timeout: float = _TIMEOUT) -> Client:
    """The control API; `timeout` in seconds.

    Raises:
        CommandError: there is no token, or the URL or the token cannot be one.
    """
    if not (token or "").strip():
        raise CommandError(_UNAUTHENTICATED, Exit.NOT_ALLOWED)
    return Client(
        url,
        token,
        what="the control API",
        option="--control",
        hint="start it with `gtm serve` or `gtm control`",
        tier="control",
        timeout=timeout,
    )


def edge(url: str, token: str | None) -> Client:
    """An edge's HTTP; a token is needed only where look-ups are not open.

    Raises:
        CommandError: the URL or the token cannot be one.
    """
    return Client(
        url,
        token,
        what="an edge",
        option="--edge",
        hint="start one with `gtm serve` or `gtm edge`",
        tier=None,
    )


def segment(text: str) -> str:
    """A name as one segment of a path. The dots of `..` are quoted as well, so that no name leads elsewhere."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


def _checked_url(url: str, option: str) -> str:
    text = url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        httpx.URL(text)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable or "?" in text or "#" in text or not text.isprintable():
        raise CommandError(f"{option}: `{url}` is not a URL such as http://127.0.0.1:8080")
    return text


def _checked_token(token: str | None) -> str | None:
    """The token without the white space that copying adds. It is never repeated in messages."""
    text = (token or "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isprintable() or " " in text:
        raise CommandError(
            "the token holds characters that no token has: copy it again, it looks like gtm_…",
            Exit.NOT_ALLOWED,
        )
    return text


def _problem(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)[:_SHOWN]
    path = item.get("path")
    return f"{path}: {item.get('message')}" if path else str(item.get("message"))


def _reason(error: Exception) -> str:
    """What the operating system said, without the layers around it."""
    text = str(error) or type(error).__name__
    if "WRONG_VERSION_NUMBER" in text.upper():
        return "it speaks http there, not https"
    return re.sub(r"^\[Errno -?\d+\] ", "", text).lower()
