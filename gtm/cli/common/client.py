"""Calls to the control API and to an edge, as commands make them: every failure is a `CommandError`, never a traceback.

Which failure ends in which exit code: no connection, no answer in time, an answer that is not gtm's, and 5xx are
UNREACHABLE; 401 and 403 NOT_ALLOWED; every other refusal BAD_INPUT.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.client.calls import Answer, Call, Content, segment
from gtm.client.control import Control
from gtm.client.edge import Edge
from gtm.client.errors import ConnectionFailed, Fault, NotGtm, ProblemError, UsageError
from gtm.client.retries import NEVER
from gtm.client.sessions import Session, from_environment

__all__ = ["Client", "Document", "control", "edge", "segment"]

T = TypeVar("T")
_TIMEOUT = 60.0
_PAGE = 1000
_SHOWN = 200
_LOGGED = "unexpected error at"
"""How control's log begins what it says of such a failure (`gtm.api.problems`)."""

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


class Client:
    """One server.

    Args:
        session: speaks with it.
        what: what the server is, for messages (`the control API`).
        option: the option that gives its address, for messages (`--control`).
        hint: how such a server is started, for messages.
    """

    def __init__(self, session: Session, *, what: str, option: str, hint: str) -> None:
        self._session = session
        self._what = what
        self._option = option
        self._hint = hint
        weakref.finalize(self, session.close)

    def get(self, path: str, **parameters: Any) -> Document:
        """The JSON object at a path; parameters that are None are left out."""
        return self.call("GET", path, parameters=parameters).value

    def items(self, path: str, **parameters: Any) -> Iterator[Document]:
        """Every item of a list, page after page."""
        for page in self.pages(path, **parameters):
            yield from page["items"]

    def pages(self, path: str, **parameters: Any) -> Iterator[Document]:
        """Every page of a list."""
        call: Call[Document] = Call("GET", path, {**parameters, "limit": _PAGE})
        with self._told(call):
            yield from self._session.pages(call)

    def call(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
    ) -> Answer[Document]:
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
        return self.answer(Call(method, path, parameters or {}, headers or {}, body, accept=accept))

    def answer(self, call: Call[T]) -> Answer[T]:
        """Make a call.

        Raises:
            CommandError: anything but an answer.
        """
        with self._told(call):
            return self._session.send(call)

    def send(self, method: str, path: str, *, body: Any = None) -> None:
        """Make a request whose answer has no content (204).

        Raises:
            CommandError: it was refused, or nothing answered.
        """
        self.answer(Call(method, path, body=body, content=Content.NOTHING))

    @contextmanager
    def _told(self, call: Call[Any]) -> Iterator[None]:
        """Failures as commands tell them."""
        try:
            yield
        except ProblemError as error:
            raise self._refusal(error, call) from error
        except ConnectionFailed as error:
            message = f"{self._what} at {error.url} {error.why}: {self._hint}, or give its address with {self._option}"
            raise CommandError(message, Exit.UNREACHABLE) from error
        except NotGtm as error:
            message = f"what answers at {error.url} is not {self._what} ({error.said}): check {self._option}"
            raise CommandError(message, Exit.UNREACHABLE) from error

    def _refusal(self, error: ProblemError, call: Call[Any]) -> CommandError:
        if error.status == 500:
            done = (
                ""
                if call.method == "GET"
                else "; whether it was done, `gtm revisions list` and `gtm audit` say"
            )
            message = (
                f"{self._what} at {self._session.url} failed at {call.method} {call.path} (HTTP 500), which is no fault of what "
                f"you gave: its log on that machine says why, at `{_LOGGED} {call.method} {call.path}`{done}"
            )
            return CommandError(message, Exit.UNREACHABLE, said=error.code)
        problems = tuple(filter(lambda told: told != error.detail, map(_shown, error.faults)))
        if error.status in {401, 403}:
            message = error.detail
            if error.status == 401:
                known = self._session.has_token
                message = f"{error.detail}: {_NOT_KNOWN}" if known else _UNAUTHENTICATED
            return CommandError(message, Exit.NOT_ALLOWED, problems)
        code = Exit.UNREACHABLE if error.status >= 500 else Exit.BAD_INPUT
        return CommandError(error.detail, code, problems, error.code)


def control(url: str, token: str | None, *, timeout: float = _TIMEOUT) -> Client:
    """The control API; `timeout` in seconds.

    Raises:
        CommandError: there is no token, or the URL or the token cannot be one.
    """
    if not (token or "").strip():
        raise CommandError(_UNAUTHENTICATED, Exit.NOT_ALLOWED)
    session = _session(Control, url, token, "--control", timeout)
    return Client(
        session,
        what="the control API",
        option="--control",
        hint="start it with `gtm serve` or `gtm control`",
    )


def edge(url: str, token: str | None) -> Client:
    """An edge's HTTP; a token is needed only where look-ups are not open.

    Raises:
        CommandError: the URL or the token cannot be one.
    """
    session = _session(Edge, url, token, "--edge", _TIMEOUT)
    return Client(session, what="an edge", option="--edge", hint="start one with `gtm serve` or `gtm edge`")


def _session(kind: type[Session], url: str, token: str | None, option: str, timeout: float) -> Session:
    _, _, of_commands = from_environment()
    told = replace(of_commands, timeout=timeout, retries=NEVER, agent="gtm-cli", hook=Document)
    try:
        return kind(url, token, told)
    except UsageError as error:
        if error.parameter == "insecure":
            options.check_in_the_clear(url, insecure=False, option=option)
        code = Exit.NOT_ALLOWED if error.parameter == "token" else Exit.BAD_INPUT
        raise CommandError(f"{option}: {error}" if error.parameter == "url" else str(error), code) from error


def _shown(fault: Fault) -> str:
    return str(fault)[:_SHOWN]
