"""What can go wrong in a use case: one base class that carries the HTTP status it ends in, and its kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from gtm.core.change.safety import Breach
from gtm.core.model.kinds import label
from gtm.core.model.problems import Problem


class ControlError(Exception):
    """A request that cannot be done, and why.

    Args:
        detail: one sentence for people, lowercase, user input in backticks.
        problems: every single thing wrong, where there are several.
        headers: HTTP headers that belong to the answer.
        members: what its kind of problem says beside that (RFC 9457 §3.2).
    """

    status: ClassVar[int] = 400
    title: ClassVar[str] = ""
    """Names the kind of problem, where HTTP's word for the status does not; its hyphenated form is the problem's type (RFC 9457 §3.1.1)."""

    def __init__(
        self,
        detail: str,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problems = tuple(problems)
        self.headers = dict(headers or {})
        self.members = dict(members or {})


class BadRequest(ControlError):  # noqa: N818 - these name HTTP's own words
    """The request means nothing."""


class Unauthorized(ControlError):  # noqa: N818
    """No token, or none that counts (RFC 6750 §3)."""

    status = 401

    def __init__(self, detail: str) -> None:
        challenge = 'Bearer realm="gtm"'
        if detail != NO_TOKEN:
            challenge += ', error="invalid_token"'
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


NO_TOKEN = "a bearer token is needed: send `Authorization: Bearer <token>`"  # noqa: S105 - no secret, a hint


class Forbidden(ControlError):  # noqa: N818
    """A good token without the right."""

    status = 403


class NotFound(ControlError):  # noqa: N818
    """There is no such thing."""

    status = 404


class Conflict(ControlError):  # noqa: N818
    """What is there stands against it."""

    status = 409


class UnsafeChange(ControlError):  # noqa: N818
    """A change that breaks safety rules; `problems` has each with its numbers in words.

    Args:
        breaches: the rules, and by how much.
        needed: what forcing it takes beside a reason, as a sentence; empty: nothing.
        fingerprint: what the change goes by where somebody else has to approve of it.
        may_force: whether whoever asked may overrule these rules.
    """

    status = 409
    title = "unsafe change"

    def __init__(
        self,
        breaches: Sequence[Breach],
        needed: str = "",
        fingerprint: str | None = None,
        *,
        may_force: bool = True,
    ) -> None:
        count = len(breaches)
        super().__init__(
            f"the change breaks {count} safety rule{'' if count == 1 else 's'}; nothing was changed; to make it all "
            "the same, force it and say why (`force` and `force_reason`; --force --reason on the command line)"
            f"{'; ' if needed else ''}{needed}",
            [Problem(breach.rule.value, "unsafe_change", breach.message) for breach in breaches],
            members={
                "breaches": tuple(breaches),
                "may_force": may_force,
                **({"fingerprint": fingerprint} if fingerprint else {}),
            },
        )
        self.breaches = tuple(breaches)


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """A resource that a tool manages: which, and since when."""

    kind: str
    name: str
    manager: str
    since: datetime


class ManagedByAnother(ControlError):  # noqa: N818
    """A change of what another tool manages; `managed` has every such resource."""

    status = 409
    title = "managed by another"

    def __init__(self, managed: Sequence[ManagedResource]) -> None:
        first, count = managed[0], len(managed)
        more = f", and {count - 1} more that other tools manage" if count > 1 else ""
        problems = [
            Problem(
                f"{one.kind}.{one.name}",
                "managed_by_another",
                f"managed by `{one.manager}` since {one.since:%Y-%m-%d %H:%M} UTC",
            )
            for one in managed
        ]
        super().__init__(
            f"{label(first.kind)} `{first.name}` is managed by `{first.manager}` since {first.since:%Y-%m-%d %H:%M} UTC{more}; "
            "nothing was changed; change it there, or do it here on purpose and say why: `on_managed=override` for this once, "
            "`on_managed=take_over` to manage it from now on, with `managed_reason` (--on-managed and --reason on the "
            "command line)",
            problems,
            members={"managed": tuple(managed)},
        )


class PreconditionFailed(ControlError):  # noqa: N818
    """The resource is not what the client thinks (RFC 9110 §13)."""

    status = 412


class ContentTooLarge(ControlError):  # noqa: N818
    """More than is accepted at once."""

    status = 413
    title = "content too large"


class Invalid(ControlError):  # noqa: N818
    """Well-formed, but wrong; `problems` says all that is."""

    status = 422
    title = "invalid"


class Unavailable(ControlError):  # noqa: N818
    """Not now; the same request may succeed later."""

    status = 503
    title = "unavailable"
