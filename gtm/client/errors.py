"""What can go wrong between a client and gtm, as exceptions.

GtmError
  UsageError          what the caller gave cannot be: an address, a token
  ConnectionFailed    nothing answered, or not to the end
  NotGtm              something answered that is not gtm, or gtm of another version
  ProblemError        gtm answered with a problem document (RFC 9457), by its status:
    BadRequest 400, Unauthenticated 401, Forbidden 403, NotFound 404, Conflict 409, PreconditionFailed 412,
    Misdirected 421, Invalid 422, TooManyRequests 429, RefusedByLaw 451, Unavailable 503
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class GtmError(Exception):
    """All that a client raises."""


class UsageError(GtmError, ValueError):
    """What the caller gave cannot be; nothing was sent. `parameter` is what it is called."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class ConnectionFailed(GtmError):
    """Nothing answered.

    `url` is the server's, `why` a clause such as `does not answer in time`. `sent`: the request may have arrived, and what it asks
    for may have been done.
    """

    def __init__(self, url: str, why: str, *, sent: bool) -> None:
        super().__init__(f"{url} {why}")
        self.url = url
        self.why = why
        self.sent = sent


class NotGtm(GtmError):
    """What answers is not what was asked for: another server, a proxy's own page, another version of gtm."""

    def __init__(self, url: str, said: str) -> None:
        super().__init__(f"what answers at {url} is not gtm ({said})")
        self.url = url
        self.said = said


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: `path` says where (`services.chat.members[0].region`; empty: nowhere in particular), `code` is the kind in a word."""

    path: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ProblemError(GtmError):
    """A problem document.

    `code` is the type in a word (`unknown_tenant`), `detail` what was wrong and what to do, `faults` all that is wrong with what was
    sent, `retry_after` the seconds after which it may be tried again (None: it was not said), `document` the whole of it: a refused look-up
    holds the decision as well.
    """

    statuses: ClassVar[dict[int, type[ProblemError]]] = {}

    def __init__(self, status: int, document: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.document = document
        self.code = str(document.get("code", ""))
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail") or self.title or f"answered {status}")
        errors = document.get("errors")
        self.faults = tuple(map(_fault, errors)) if isinstance(errors, list) else ()
        self.retry_after = retry_after
        super().__init__(self.detail)

    def __init_subclass__(cls, *, status: int, **more: Any) -> None:
        super().__init_subclass__(**more)
        ProblemError.statuses[status] = cls

    @staticmethod
    def of(status: int, document: Mapping[str, Any], retry_after: float | None = None) -> ProblemError:
        """The exception of a status; of one that has none of its own, a `ProblemError`."""
        return ProblemError.statuses.get(status, ProblemError)(status, document, retry_after)

    def __str__(self) -> str:
        told = [str(one) for one in self.faults if str(one) != self.detail]
        return "\n".join([self.detail, *(f"  {one}" for one in told)])


class BadRequest(ProblemError, status=400):
    """The request cannot be understood."""


class Unauthenticated(ProblemError, status=401):
    """No token, or none that counts."""


class Forbidden(ProblemError, status=403):
    """The token's role is not enough."""


class NotFound(ProblemError, status=404):
    """There is no such thing."""


class Conflict(ProblemError, status=409):
    """What is there stands against it: safety rules, another tool that manages it, references."""


class PreconditionFailed(ProblemError, status=412):
    """It is not any more as the caller has seen it (`If-Match`)."""


class Misdirected(ProblemError, status=421):
    """This edge may not answer for that request; another one may."""


class Invalid(ProblemError, status=422):
    """The content is wrong; `faults` lists everything that is."""


class TooManyRequests(ProblemError, status=429):
    """A tenant beyond its share of a capacity that is short, or too many calls."""


class RefusedByLaw(ProblemError, status=451):
    """Residency rules forbid every region for the request."""


class Unavailable(ProblemError, status=503):
    """Nothing can serve it now; nothing was changed."""


def _fault(item: Any) -> Fault:
    if not isinstance(item, dict):
        return Fault("", "", str(item))
    return Fault(*(str(item.get(name) or "") for name in ("path", "code", "message")))
