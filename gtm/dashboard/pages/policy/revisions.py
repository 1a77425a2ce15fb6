"""Revisions of the policy: who changed what, when and why, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.core.model.access import Role
from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.pages.policy.words import SLUGS, TITLES, as_yaml
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

_DIGITS = 18
"""Of a revision's number: Postgres knows none that is longer."""
PAGE = 50
"""Revisions on a page."""
MOST_CHANGES = 200
"""Resources whose changes a page lists."""
MOST_TEXTS = 20
"""New resources that a page shows the whole of."""
FORCED = "forced against the safety rules "
"""How what control adds to a forced change's reason begins."""


@page("/policy/revisions")
async def _timeline(visit: Visit) -> Response:
    """Newest first."""
    newest, found = await asyncio.gather(
        visit.api.ask(calls.list_revisions(limit=1)),
        visit.api.ask(calls.list_revisions(limit=PAGE, cursor=visit.query("after"))),
    )
    return visit.render(
        "policy_revisions.html",
        items=[{**one, "forced": FORCED in one.comment} for one in found.items_],
        in_force=_newest(newest),
        next_cursor=found.next_cursor,
        titles=TITLES,
    )


def _newest(found: types.PageRevisionSchema) -> int:
    return int(found.items_[0].number) if found.items_ else 0


def _number(visit: Visit) -> int:
    text: str = visit.part("number")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ApiProblem(404, {"title": "not found", "detail": f"there is no revision {text[:20]}"})
    return int(text)


@page("/policy/revisions/{number}")
async def _revision(visit: Visit) -> Response:
    """One of them, and what differs from the one before."""
    number = _number(visit)
    before, changed, newest = await asyncio.gather(
        visit.api.ask(calls.list_revisions(limit=1, below=number + 1)),
        visit.api.diff_revision(number),
        visit.api.ask(calls.list_revisions(limit=1)),
    )
    policy = await _after(visit, number, changed.changes)
    return visit.render(
        "policy_revision.html",
        one=before.items_[0],
        forced=FORCED in before.items_[0].comment,
        in_force=_newest(newest),
        titles=TITLES,
        **shown(changed.changes, policy=policy),
    )


async def _after(
    visit: Visit, number: int, changes: Iterable[types.ResourceChangeSchema]
) -> Mapping[str, Any] | None:
    """The policy of a revision, if something in it is new: it may be large."""
    if not any(one.action == "created" for one in changes):
        return None
    return (await visit.api.get_revision(number)).policy


def shown(
    changes: list[Any],
    managed: Iterable[types.ManagedResourceSchema] = (),
    policy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Changes as pages list them: no more than somebody may read, each with the tool that manages it.

    `policy` is the one after them, or the part of it that they are of: what is new is shown as it stands there.
    """
    managers = {(one.kind, one.name): one.manager for one in managed}
    new = [one for one in changes[:MOST_CHANGES] if one.action == "created"][:MOST_TEXTS]
    texts = {(one.kind, one.name): _text(one, policy or {}) for one in new}
    return {
        "changes": [
            {
                **one,
                "manager": managers.get((one.kind, one.name)),
                "text": texts.get((one.kind, one.name)),
            }
            for one in changes[:MOST_CHANGES]
        ],
        "unlisted": max(0, len(changes) - MOST_CHANGES),
        "slugs": SLUGS,
    }


def _text(change: types.ResourceChangeSchema, policy: Mapping[str, Any]) -> str | None:
    """A new resource as YAML; None: the policy at hand does not hold it."""
    kind = change.kind
    found = next((one for one in policy.get(kind) or () if one.name == change.name), None)
    return None if found is None else as_yaml({kind: [found]})


@page("/policy/revisions/{number}/roll-back", role=Role.OPERATOR)
async def _ask_back(visit: Visit) -> Response:
    """What going back would change, and what stands against it."""
    return await _question(visit, _number(visit), 200)


async def _question(
    visit: Visit, number: int, status: int, refused: Mapping[str, Any] | None = None
) -> Response:
    tried = await visit.api.rollback_revision(number, {"dry_run": True})
    policy = await _after(visit, number, tried.changes)
    given = {} if visit.request.method == "GET" else await visit.form()
    return visit.render(
        "policy_roll_back.html",
        status,
        number=number,
        tried=tried,
        refused=refused,
        given=given,
        titles=TITLES,
        **shown(tried.changes, tried.managed, policy),
    )


def on_purpose(form: Mapping[str, str], reason: str) -> dict[str, Any]:
    """What a request says whose form says that safety rules are overruled, or that another tool's resource is meant."""
    overruled, meant = form.get("force_reason", "").strip(), form.get("on_managed") == "override"
    return {
        **({"force": True, "force_reason": overruled} if overruled else {}),
        **({"on_managed": "override", "managed_reason": reason[:1000]} if meant else {}),
    }


@page("/policy/revisions/{number}/roll-back", methods=("POST",), role=Role.OPERATOR)
async def _go_back(visit: Visit) -> Response:
    """Go back, if nothing was changed since it was shown what that does."""
    number, form = _number(visit), await visit.form()
    reason = form.get("reason", "").strip()
    if not reason:
        return await _question(visit, number, 422, {"detail": "say why: it is kept with the revision"})
    seen = form.get("revision", "")
    try:
        done = await visit.api.rollback_revision(
            number,
            {"comment": reason},
            if_match=f'"{seen}"' if seen.isascii() and seen.isdigit() else None,
            **on_purpose(form, reason),
        )
    except ApiProblem as found:
        if found.status not in (400, 403, 409, 412, 422):
            raise
        return await _question(visit, number, found.status, found.document)
    return visit.go(f"/policy/revisions/{done.revision}")
