"""What all endpoints share: the process they run in, who is asking, names in paths, answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic.json_schema import SkipJsonSchema
from starlette.convertors import StringConvertor, register_url_convertor

from gtm.api.query import TypedResponse
from gtm.control.errors import NO_TOKEN, Forbidden, Unauthorized, Unavailable
from gtm.control.lead.active import Active
from gtm.control.lead.edges import Sync, sync
from gtm.control.live.failed_sign_ins import FailedSignIns
from gtm.control.live.present import Current, Present
from gtm.control.live.sessions import SignInLinks
from gtm.control.policy.apart import Apart
from gtm.control.policy.changes import Intent
from gtm.control.policy.managers import PERSON, OnManaged, PolicyWriter, writer
from gtm.control.policy.questions import Answers
from gtm.control.policy.safety import SafetyCheck, force_reason
from gtm.control.policy.simulation import Situation, situation_of
from gtm.control.replica import Replica
from gtm.core.model.access import Hands, Role, permits
from gtm.core.policy.snapshot import Snapshot
from gtm.documents import fields
from gtm.documents.fields import LINE_PATTERN
from gtm.feed.wire import CONTENT_TYPE
from gtm.geoip.networks import Locate
from gtm.settings import ControlSettings
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Actor, Via
from gtm.storage.resources import Managed
from gtm.storage.session import Database
from gtm.storage.tokens import Token
from gtm.storage.turns import CALLER

_READERS = 2
"""Threads that read drafts: others compile what is put in force."""


class _Segment(StringConvertor):
    """Up to the next slash or colon: `/v1/regions/x:drain` is no region named `x:drain`."""

    regex = "[^/:]+"


register_url_convertor("segment", _Segment())


@dataclass(frozen=True, slots=True)
class Context:
    """One control process.

    `replica` is what runs in it, `settings` what it was told, `locate` tells where an address is, `failed` counts sign-ins that fail, `answers` says what an
    edge would send, `apart` looks at drafts, `links` sign people in, `readers` bounds the short drafts that are read at once.
    """

    database: Database
    replica: Replica
    settings: ControlSettings
    locate: Locate
    failed: FailedSignIns
    answers: Answers | None = None
    apart: Apart = field(default_factory=Apart)
    links: SignInLinks = field(default_factory=lambda: SignInLinks(time.monotonic))
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READERS))

    @property
    def present(self) -> Present:
        """What the process holds to be true now."""
        return self.replica.now

    def leading(self) -> Active:
        """What only the active control has.

        Raises:
            Unavailable: this one stands by.
        """
        return self.replica.leading()

    def running(self) -> Snapshot:
        """The policy in force.

        Raises:
            Unavailable: none is loaded yet.
        """
        if self.present.compiled is None:
            raise Unavailable("no policy revision is loaded yet: try again")
        return self.present.compiled

    async def sync(self, revision: int) -> Sync:
        """How far a revision has got among the edges."""
        return await sync(self.database, self.replica.edges(), revision, self.present.lost)

    async def situation(self) -> Situation:
        """The present, for simulations, explanations and safety rules.

        Raises:
            Unavailable: this control stands by, and knows nothing of it.
        """
        return await situation_of(self.present, self.leading(), time.time())

    def intent(
        self,
        who: Principal,
        comment: str,
        *,
        force: bool,
        reason: str,
        writer: PolicyWriter = PERSON,
        expected: int | None = None,
    ) -> Intent:
        """Somebody's change, and what judges it; see `force_reason` for what is wrong with the parameters."""
        check = SafetyCheck(
            self.situation,
            self.settings.max_moved_share,
            author=who.name,
            role=who.role,
            hands=who.hands,
            reason=force_reason(force=force, reason=reason),
            keys=self.present.keys,
            approvals=self.settings.fence_approvals,
        )
        return Intent(who.actor, comment, check, writer, expected)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking: the token's name and role. `sha256` is the hash of its text in hex.

    `credential` is the token or, of somebody without one, the session (`token ID`, `session ID`), `hands` in whose that is.

    `edges` is of tokens of role `edge`: the name of the edge that it speaks for, or a pattern of names. `regions` is of those
    that are bound to regions: what they may report on, likewise; `names` of role `acme`: at which names it may write challenges.
    """

    name: str
    role: Role
    sha256: str
    edges: str | None = None
    regions: str | None = None
    via: Via = Via.API
    _: KW_ONLY
    names: str | None = None
    credential: str
    hands: Hands

    @property
    def actor(self) -> Actor:
        """As the audit log has them."""
        return Actor(self.name, self.role, self.via, self.credential, self.hands)


PRINCIPAL = "gtm.principal"
"""In the scope of a request that this very process makes: who it is for. No server puts anything there that comes from outside."""


def context(request: Request) -> Context:
    """The process's context, from the application."""
    found: Context = request.app.state.context
    return found


Ctx = Annotated[Context, Depends(context)]

Force = Annotated[
    bool, Query(description="Make the change although it breaks safety rules; needs `force_reason`.")
]
ForceReason = Annotated[
    str,
    Query(
        max_length=1000,
        pattern=LINE_PATTERN,
        description="Why it has to be made all the same; kept with the revision.",
    ),
]

MANAGED_BY = "GTM-Managed-By"
"""The header by which a tool says what it is, and reads say who manages a resource."""
MANAGED_SINCE = "GTM-Managed-Since"
OnlyManagedBy = Annotated[
    fields.Manager | SkipJsonSchema[None],
    Query(description="Only what this tool manages, such as `terraform/prod-network`."),
]


def _writer(
    managed_by: Annotated[
        fields.Manager | SkipJsonSchema[None],  # no text of a header means null
        Header(
            alias=MANAGED_BY,
            description="The tool that makes the change, and manages from now on what it writes: `terraform/prod-network`. Left out: "
            "nobody's.",
        ),
    ] = None,
    on_managed: Annotated[
        OnManaged | SkipJsonSchema[None],
        Query(
            description="What to do with what another tool manages; needs `managed_reason`. `override`: change it this once. "
            "`take_over`: manage it from now on. Left out: the change is refused."
        ),
    ] = None,
    managed_reason: Annotated[
        str, Query(max_length=1000, pattern=LINE_PATTERN, description="Why; kept with the revision.")
    ] = "",
) -> PolicyWriter:
    """For which tool a change is made; see `gtm.control.policy.managers.writer` for what is wrong with it."""
    return writer(managed_by, on_managed, managed_reason)


Writing = Annotated[PolicyWriter, Depends(_writer)]
Comment = Annotated[
    str,
    Query(max_length=1000, pattern=LINE_PATTERN, description="Why; kept with the revision."),
]

_bearer = HTTPBearer(auto_error=False, description="A token made by `gtm token create` or `POST /v1/tokens`.")


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def whose(address: str) -> str:
    """Whom an address stands for: who has one of IPv6 has its /64 (RFC 6177 §2).

    >>> whose("192.0.2.1"), whose("::ffff:192.0.2.1"), whose("2001:db8::1")
    ('192.0.2.1', '192.0.2.1', '2001:db8::/64')
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False))


async def authenticate(ctx: Context, text: str) -> Principal:
    """Who holds a token.

    Raises:
        Unauthorized: nobody, any more.
        Unavailable: it is not known here, and the database cannot be asked.
    """
    digest = sha256(text.encode(errors="replace"))
    held = ctx.present.token(digest.hexdigest(), time.time())
    if held is not None:
        return _principal(held, digest.hexdigest())
    try:
        async with ctx.database.transaction() as transaction:
            token = await transaction.tokens.find_by_hash(digest.digest())
        if token is not None and not _revoked(token):
            await ctx.replica.watch.refresh()  # made elsewhere a moment ago
            held = ctx.present.token(digest.hexdigest(), time.time())
    except StorageUnavailable as error:
        raise Unavailable(
            "the database cannot be reached, so the token cannot be checked: try again"
        ) from error
    if token is None:
        raise Unauthorized("the token is not known here")
    if _revoked(token):
        raise Unauthorized("the token has been revoked")
    if held is None or (token.expires_at is not None and token.expires_at <= datetime.now(UTC)):
        raise Unauthorized("the token has expired")
    return _principal(held, digest.hexdigest())


def _principal(held: Token, sha256: str) -> Principal:
    credential = f"token {held.id}"
    return Principal(
        held.name,
        held.role,
        sha256,
        held.edges,
        held.regions,
        names=held.names,
        credential=credential,
        hands=held.hands,
    )


def _revoked(token: Token) -> bool:
    return token.revoked_at is not None and token.revoked_at <= datetime.now(UTC)


def requires(role: Role, *others: Role) -> Callable[..., Awaitable[Principal]]:
    """A dependency that lets only tokens of a role (or one that includes it) pass; or of others that it names.

    Raises:
        Unauthorized: no token, or one that does not count.
        Forbidden: the token's role is not enough.
    """

    async def principal(request: Request, ctx: Ctx, credentials: Credentials) -> Principal:
        found: Principal | None = request.scope.get(PRINCIPAL)
        if found is None:
            if credentials is None:
                raise Unauthorized(NO_TOKEN)
            found = await authenticate(ctx, credentials.credentials)
        CALLER.set(found.credential)
        if not any(permits(found.role, one) for one in (role, *others)):
            raise Forbidden(
                f"this needs a token of role `{role.value}`; yours is `{found.role.value}` "
                f"(gtm token create NAME --role {role.value})"
            )
        return found

    return principal


Viewer = Annotated[Principal, Depends(requires(Role.VIEWER))]
Operator = Annotated[Principal, Depends(requires(Role.OPERATOR))]
FenceAdmin = Annotated[Principal, Depends(requires(Role.FENCE_ADMIN))]
Admin = Annotated[Principal, Depends(requires(Role.ADMIN))]
Edge = Annotated[Principal, Depends(requires(Role.EDGE))]
Balancer = Annotated[Principal, Depends(requires(Role.BALANCER))]
Reporter = Annotated[Principal, Depends(requires(Role.REPORTER))]
Acme = Annotated[Principal, Depends(requires(Role.ACME))]
AcmeOrViewer = Annotated[Principal, Depends(requires(Role.VIEWER, Role.ACME))]


def reply_lines(lines: AsyncIterator[bytes]) -> StreamingResponse:
    """A feed, which ends with `lines`. No proxy on the way should hold it back."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines, media_type=CONTENT_TYPE, headers=headers)


def managed_headers(managed: Managed | None) -> dict[str, str]:
    """Who manages a resource, beside its entity tag."""
    if managed is None:
        return {}
    return {MANAGED_BY: managed.manager, MANAGED_SINCE: managed.since.isoformat()}


def reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> TypedResponse[Any]:
    """A JSON answer of plain data, dataclasses and documents."""
    return TypedResponse(msgspec.json.encode(content), status, headers, "application/json")


# What answers rest on that is worked out of a policy once: before somebody asks, beside the event loop.

G = TypeVar("G")
M = TypeVar("M")


class Once(Generic[G, M]):
    """Remembers what was made of the last thing asked about, which is known by its identity. For any thread.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[G], M]) -> None:
        self._make = make
        self._kept: tuple[G, M] | None = None

    def of(self, given: G) -> M:
        """Make the value of what is given, or return the one that was made of it before."""
        kept = self._kept
        if kept is None or kept[0] is not given:
            kept = self._kept = given, self._make(given)
        return kept[1]


async def prepare(current: Current, work: Callable[[Snapshot], object]) -> None:
    """Do the work for each policy as soon as it is in force, until cancelled: whoever is the first to look would wait for it."""
    last = None
    while True:
        changed, compiled = current.changed, current.now.compiled
        if compiled is not None and compiled is not last:
            last = compiled
            await asyncio.to_thread(work, compiled)
        await changed.wait()
