"""Control, as programs speak with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Self

from gtm.client.calls import Answer, Call
from gtm.client.errors import PreconditionFailed, UsageError
from gtm.client.generated import control_calls
from gtm.client.generated.control_methods import ControlMethods
from gtm.client.sessions import AsyncSession, Session, from_environment

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes of a resource what it is to be."""
_ROUNDS = 5


class Control(ControlMethods, Session):
    """Control's API. A context manager: its connections end with it; threads may share it.

    Args:
        url: control's base, http or https.
        token: a bearer token (`gtm token create`).
        options: `Options`: certificates, time-outs, retries, for which tool changes are made.

    Raises:
        UsageError: one of them cannot be.
    """

    tier: ClassVar[str | None] = "control"

    @classmethod
    def from_environment(cls) -> Self:
        """As the `gtm` command finds it: `GTM_CONTROL_URL`, `GTM_TOKEN`, `GTM_CA_FILE`, `GTM_INSECURE_CONTROL`.

        Raises:
            UsageError: one of them cannot be.
        """
        return cls(*from_environment())

    def update(self, kind: str, name: str, change: Change, **parameters: Any) -> Answer[Any]:
        """Change a resource as it is now: what somebody else writes meanwhile is never lost, the change is made to that.

        Args:
            kind: as in the API's paths: `regions`, `residency-rules`.
            name: of the resource, which must be there.
            change: makes of it, a dict, what it is to be; called again if somebody was faster.
            parameters: of the put: `comment`, `force`, `force_reason`.

        Raises:
            NotFound: there is no such resource.
            PreconditionFailed: others were faster five times.
            GtmError: as `send`.
        """
        for left in reversed(range(_ROUNDS)):
            found = self.send(_call("get", kind, name))
            try:
                return self.send(
                    _call("put", kind, name, change(found.value), if_match=found.etag, **parameters)
                )
            except PreconditionFailed:
                if not left:
                    raise
        raise AssertionError("unreachable")


class AsyncControl(ControlMethods, AsyncSession):
    """Control's API for asyncio. An asynchronous context manager. Arguments are those of `Control`."""

    tier: ClassVar[str | None] = "control"

    @classmethod
    def from_environment(cls) -> Self:
        """Make a client by the variables of the environment, as `Control.from_environment` does."""
        return cls(*from_environment())

    async def update(
        self,
        kind: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]],
        **parameters: Any,
    ) -> Answer[Any]:
        """Read, change and write a resource, as `Control.update` does; `change` may be asynchronous."""
        for left in reversed(range(_ROUNDS)):
            found = await self.send(_call("get", kind, name))
            wanted = change(found.value)
            body = await wanted if isinstance(wanted, Awaitable) else wanted
            try:
                return await self.send(_call("put", kind, name, body, if_match=found.etag, **parameters))
            except PreconditionFailed:
                if not left:
                    raise
        raise AssertionError("unreachable")


def _call(verb: str, kind: str, *given: Any, **parameters: Any) -> Call[Any]:
    """The call that reads or writes a resource.

    Raises:
        UsageError: there is no such kind.
    """
    make: Callable[..., Call[Any]] | None = getattr(control_calls, f"{verb}_{kind.replace('-', '_')}", None)
    if make is None or not hasattr(control_calls, f"delete_{kind.replace('-', '_')}"):
        raise UsageError(
            f"`{kind}` is no kind of resource; `regions` is one, `residency-rules` another", "kind"
        )
    return make(*given, **parameters)
