"""Access: who may do what: tokens, people and their sessions, roles."""

from __future__ import annotations

import asyncio
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.calls import Call
from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.access import Role
from gtm.dashboard.inside import ApiProblem, name
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

MOST_TOKENS = 5000
"""Tokens that are looked through."""
FEW = 12
"""Browsers that an admin sees at once: what there is below them must be found, too."""
SHOWN = 500
"""Tokens that are shown."""
SOON = timedelta(days=14)
"""A token that ends within it is marked."""
LASTS = {"": "it is revoked", "1": "1 day", "7": "7 days", "30": "30 days", "90": "90 days", "365": "1 year"}
"""Days → how long a new token works: until …, or for …."""
GRACES = {"3600": "1 hour", "86400": "1 day", "604800": "7 days", "0": "no time: it has leaked"}
"""Seconds → for how long a token's old text works yet."""
_CLI_GRACES = {"3600": "1h", "86400": "1d", "604800": "7d", "0": "0s"}

ABILITIES: Sequence[tuple[str, Role]] = (
    ("See all pages, try drafts, ask where a client would be sent", Role.VIEWER),
    ("Change policy; drain, disable and activate regions; roll DNSSEC keys; forget edges", Role.OPERATOR),
    ("Force a change against the safety rules of capacity and of how much moves", Role.OPERATOR),
    ("Force a change that opens a fence or deletes much; approve those of others", Role.FENCE_ADMIN),
    ("Make, replace and revoke tokens; sign others out; read the whole audit log", Role.ADMIN),
)
"""What people may do, and the least role for it (`docs/operations.md`, Tokens)."""
PROGRAMS: Sequence[tuple[Role, str]] = (
    (Role.EDGE, "follows the feed with zone-signing keys, reports its clients, probes and round trips"),
    (Role.BALANCER, "follows the feed without zone-signing keys, reports of the regions that it is bound to"),
    (Role.REPORTER, "sends load reports and measured round trips, and nothing else"),
    (
        Role.ACME,
        "writes challenges of certificate authorities at the names that it is bound to, and nothing else",
    ),
)
"""What tokens of programs may do; they sign nobody in."""


@page("/access")
async def _access(visit: Visit) -> Response:
    """The page."""
    return await _overview(visit)


async def _overview(visit: Visit, status: int = 200, **more: Any) -> Response:
    """The page, perhaps with a problem or a new token on it."""
    now = datetime.now(UTC)
    sessions = (await visit.api.list_sessions()).items_
    values: dict[str, Any] = {
        "sessions": sessions,
        "people": _people(sessions),
        "abilities": ABILITIES,
        "programs": PROGRAMS,
        "roles": (Role.VIEWER, Role.OPERATOR, Role.FENCE_ADMIN, Role.ADMIN),
        "all_roles": tuple(Role),
        "lasts": LASTS,
        "few": FEW,
        "given": {},
        "problem": None,
        "made": None,
    }
    if visit.may("admin"):
        tokens = await _all_tokens(visit)
        values |= _tokens_shown(visit, tokens, now)
        values["owners"] = sorted(
            {one.owner for one in tokens if one.owner} | {one.name for one in sessions}
        )[:SHOWN]
    return visit.render("access.html", status, **{**values, **more})


async def _all_tokens(visit: Visit) -> list[types.TokenView]:
    found: list[types.TokenView] = []
    cursor: str | None = None
    while len(found) < MOST_TOKENS:
        part = await visit.api.ask(calls.list_tokens(limit=1000, cursor=cursor))
        found += part.items_
        cursor = part.next_cursor
        if cursor is None:
            break
    return found


def _tokens_shown(visit: Visit, tokens: Sequence[types.TokenView], now: datetime) -> dict[str, Any]:
    """Those that are looked for, with their states."""
    sought, ended = (visit.query("q") or "").lower(), visit.query("ended") is not None
    rows = [JsonObject(one, **state_of(one, now)) for one in tokens]
    fitting = [
        one
        for one in rows
        if sought in f"{one.name} {one.role} {one.owner or 'unknown'} {one.id}".lower()
        and (ended or one.works)
    ]
    return {
        "tokens": fitting[:SHOWN],
        "left_out": max(0, len(fitting) - SHOWN),
        "working": sum(one.works for one in rows),
        "ended_ones": sum(not one.works for one in rows),
        "sought": sought,
        "ended": ended,
    }


def state_of(token: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """What a token is now: its state in a word, whether it works, when it ends, and whether that is soon."""
    revoked, expires = (_time(token[key]) for key in ("revoked_at", "expires_at"))
    ends = min((at for at in (revoked, expires) if at is not None), default=None)
    works = ends is None or ends > now
    if works:
        state = "works" if revoked is None else "replaced"
    else:
        state = "revoked" if revoked is not None and revoked <= now else "expired"
    return {
        "state": state,
        "works": works,
        "ends": ends,
        "soon": works and ends is not None and ends - now < SOON,
    }


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _people(sessions: Sequence[types.SessionView]) -> list[dict[str, Any]]:
    """Who is signed in, by name, the last seen first."""
    by_name: dict[str, list[types.SessionView]] = defaultdict(list)
    for one in sessions:
        by_name[one.name].append(one)
    return [
        {
            "name": who,
            "role": found[0].role,
            "sessions": len(found),
            "seen_at": max(one.seen_at for one in found),
        }
        for who, found in by_name.items()
    ]


# Tokens


@page("/access/tokens", methods=("POST",), role=Role.ADMIN)
async def _create(visit: Visit) -> Response:
    """Make a token: its text is on this one answer."""
    given = await visit.form()
    body: Any = {
        key: given[key].strip()
        for key in ("name", "role", "edges", "regions", "names", "owner")
        if given.get(key, "").strip()
    }
    days = given.get("lasts", "")
    if days in LASTS and days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(days))).isoformat()
    try:
        made = await visit.api.create_token(body)
    except ApiProblem as found:
        return await _overview(visit, found.status, problem=found.document, given=given)
    command = ["gtm", "token", "create", body["name"], "--role", body["role"]]
    command += ["--expires", f"{days}d"] if days else []
    command += [
        part
        for key in ("edges", "regions", "names", "owner")
        if key in body
        for part in (f"--{key}", body[key])
    ]
    return await _overview(visit, 201, made=made, command=shlex.join(command))


@page("/access/tokens/{token}", role=Role.ADMIN)
async def _token(visit: Visit, status: int = 200, problem: Mapping[str, Any] | None = None) -> Response:
    """One token by its name: what it is, who uses it, and what ends it."""
    wanted = name(visit.part("token"))
    tokens, sessions, edges, balancers = await asyncio.gather(
        _all_tokens(visit),
        visit.api.list_sessions(),
        _told(visit, calls.list_edges()),
        _told(visit, calls.list_balancers()),
    )
    now = datetime.now(UTC)
    mine = [JsonObject(one, **state_of(one, now)) for one in tokens if one.name == wanted]
    if not mine:
        raise ApiProblem(404, {"title": "not found", "detail": f"there is no token `{wanted}`"})
    return visit.render(
        "access_token.html",
        status,
        token=mine[0],
        every=mine,
        hands=tuple(dict.fromkeys((mine[0].owner, *mine[0].makers))),
        works=any(one.works for one in mine),
        graces=GRACES,
        problem=problem,
        sessions=[one for one in sessions.items_ if one.name == wanted],
        users=_users(wanted, edges, balancers),
    )


def _users(wanted: str, *lists: list[JsonObject] | None) -> str:
    """Which edges and balancers report with a token, in words."""
    parts = []
    for kind, found in zip(("edge", "balancer"), lists, strict=True):
        if found is None:
            return "edges and balancers that only the active control knows"
        names = [one.name for one in found if one.token == wanted]
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            parts.append(
                f"{len(names)} {kind}{'' if len(names) == 1 else 's'}: {', '.join(names[:10])}{more}"
            )
    return "; ".join(parts) or "no edge and no balancer"


async def _told(visit: Visit, call: Call[Any]) -> list[JsonObject] | None:
    """A list of the active control; None: this one stands by."""
    try:
        items: list[JsonObject] = (await visit.api.ask(call)).items_
    except ApiProblem as found:
        if found.status != 503:
            raise
        return None
    return items


@page("/access/tokens/{token}/rotate", methods=("POST",), role=Role.ADMIN)
async def _rotate(visit: Visit) -> Response:
    """Replace a token's text: the new one is on this one answer."""
    wanted, given = name(visit.part("token")), await visit.form()
    grace = given.get("grace", "")
    body: Any = {"grace_seconds": int(grace) if grace in GRACES else grace}
    owner = given.get("owner", "").strip()
    if owner:
        body["owner"] = owner
    try:
        made = await visit.api.rotate_token(wanted, body)
    except ApiProblem as found:
        return await _token(visit, found.status, found.document)
    words = ["gtm", "token", "rotate", wanted, "--grace", _CLI_GRACES[grace]]
    command = shlex.join([*words, "--owner", owner] if owner else words)
    return await _overview(visit, 201, made=made, command=command)


@page("/access/tokens/{token}/revoke", methods=("POST",), role=Role.ADMIN)
async def _revoke(visit: Visit) -> Response:
    """Revoke a token, and those that it replaced."""
    wanted = name(visit.part("token"))
    await visit.api.revoke_token(wanted)
    return visit.go("/access")


# Sessions


@page("/access/sessions/end", methods=("POST",))
async def _end(visit: Visit) -> Response:
    """Sign one browser out."""
    session = (await visit.form()).get("session", "")
    await visit.api.end_session(name(session))
    return visit.go("/access")


@page("/access/people/end", methods=("POST",), role=Role.ADMIN)
async def _end_all(visit: Visit) -> Response:
    """Sign somebody out everywhere."""
    who = (await visit.form()).get("name", "")
    await visit.api.end_sessions(name(who))
    return visit.go("/access")
