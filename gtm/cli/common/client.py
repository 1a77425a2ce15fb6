"""Calls to the control API and to an edge, as commands make them: every failure is a `CommandError`, never a traceback.

Which failure ends in which exit code: no connection, no answer in time, an answer that is not gtm's, and 5xx are
UNREACHABLE; 401 and 403 NOT_ALLOWED; every other refusal BAD_INPUT.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.client.calls import Answer, Call
from gtm.client.control import Control
from gtm.client.edge import Edge
from gtm.client.errors import ConnectionFailed, NotGtm, ProblemError, UsageError
from gtm.client.objects import JsonObject
from gtm.client.retries import NEVER
from gtm.client.sessions import Session, from_environment

T = TypeVar("T")
TIMEOUT = 60.0
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


class Document(JsonObject):
    """A JSON object of an answer. A field that should be there and is not ends the command."""

    def __missing__(self, key: str) -> Any:
        raise CommandError(
            f"the server's answer has no field `{key}`: it is not gtm, or one of another version",
            Exit.UNREACHABLE,
        )


class _Asked(Session):
    """A server whose every failure is a `CommandError`.

    `what` the server is, `option` gives its address, `hint` how such a server is started: for messages.
    """

    what: ClassVar[str]
    option: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        _, _, of_commands = from_environment()
        told = replace(of_commands, timeout=timeout, retries=NEVER, agent="gtm-cli", hook=Document)
        try:
            super().__init__(url, token, told)
        except UsageError as error:
            if error.parameter == "insecure":
                options.check_in_the_clear(url, insecure=False, option=self.option)
            code = Exit.NOT_ALLOWED if error.parameter == "token" else Exit.BAD_INPUT
            message = f"{self.option}: {error}" if error.parameter == "url" else str(error)
            raise CommandError(message, code) from error
        weakref.finalize(self, self._http.close)

    def send(self, call: Call[T], *, known: Answer[T] | None = None) -> Answer[T]:
        with self._told(call):
            return super().send(call, known=known)

    def pages(self, call: Call[T]) -> Iterator[T]:
        with self._told(call):
            yield from super().pages(call)

    @contextmanager
    def _told(self, call: Call[Any]) -> Iterator[None]:
        """Failures as commands tell them."""
        try:
            yield
        except ProblemError as error:
            raise self._refusal(error, call) from error
        except ConnectionFailed as error:
            message = (
                f"{self.what} at {error.url} {error.why}: {self.hint}, or give its address with {self.option}"
            )
            raise CommandError(message, Exit.UNREACHABLE) from error
        except NotGtm as error:
            message = f"what answers at {error.url} is not {self.what} ({error.said}): check {self.option}"
            raise CommandError(message, Exit.UNREACHABLE) from error

    def _refusal(self, error: ProblemError, call: Call[Any]) -> CommandError:
        if error.status == 500:
            done = (
                ""
                if call.method == "GET"
                else "; whether it was done, `gtm revisions list` and `gtm audit` say"
            )
            message = (
                f"{self.what} at {self.url} failed at {call.method} {call.path} (HTTP 500), which is no fault of what "
                f"you gave: its log on that machine says why, at `{_LOGGED} {call.method} {call.path}`{done}"
            )
            return CommandError(message, Exit.UNREACHABLE, said=error.code)
        problems = tuple(
            filter(lambda told: told != error.detail, (str(fault)[:_SHOWN] for fault in error.faults))
        )
        if error.status in {401, 403}:
            message = error.detail
            if error.status == 401:
                known = self.has_token
                message = f"{error.detail}: {_NOT_KNOWN}" if known else _UNAUTHENTICATED
            return CommandError(message, Exit.NOT_ALLOWED, problems)
        code = Exit.UNREACHABLE if error.status >= 500 else Exit.BAD_INPUT
        return CommandError(error.detail, code, problems, error.code)


class Client(_Asked, Control):
    """The control API."""

    what = "the control API"
    option = "--control"
    hint = "start it with `gtm serve` or `gtm control`"


class EdgeClient(_Asked, Edge):
    """An edge's HTTP; a token is needed only where look-ups are not open."""

    what = "an edge"
    option = "--edge"
    hint = "start one with `gtm serve` or `gtm edge`"


def control(url: str, token: str | None, *, timeout: float = TIMEOUT) -> Client:
    """The control API; `timeout` in seconds.

    Raises:
        CommandError: there is no token, or the URL or the token cannot be one.
    """
    if not (token or "").strip():
        raise CommandError(_UNAUTHENTICATED, Exit.NOT_ALLOWED)
    return Client(url, token, timeout)
