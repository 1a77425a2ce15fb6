"""The audit log: who did what, when, by what, and why."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Mapping
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.kinds import KINDS, label
from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.security import PERSONAL
from gtm.dashboard.visits import Visit, page

FIELDS = ("who", "action", "target", "since", "until", "forced")
FAMILIES = (
    "policy",
    *(label(kind).replace(" ", "-") for kind in KINDS),
    *("fence", "health", "dnssec", "edge", "token", "session", "sign-in"),
)
"""Families of actions, to choose from."""
PAGE = 50


@page("/access/audit")
async def _audit(visit: Visit) -> Response:
    """A page of what was done."""
    given = {name: text for name in FIELDS if (text := visit.query(name)) is not None}
    problem: Mapping[str, Any] | None = None
    found: Any = JsonObject(items=[], next_cursor=None)
    status = 200
    try:
        found = await visit.api.ask(
            calls.list_audit(limit=PAGE, cursor=visit.query("cursor"), **asked(given))
        )
    except ApiProblem as refused:
        if refused.status not in (400, 422):
            raise
        problem, status = refused.document, refused.status
    query = urlencode(given)
    return visit.render(
        "audit.html",
        status,
        given=given,
        query=query,
        families=FAMILIES,
        entries=found.items_,
        older=found.next_cursor and urlencode({**given, "cursor": found.next_cursor}),
        further=visit.query("cursor") is not None,
        problem=problem,
        command=_command(given),
        call=f"GET /v1/audit{'?' + urlencode(asked(given)) if given else ''}",
    )


def asked(given: Mapping[str, str]) -> dict[str, Any]:
    """What the API is asked for: whole days of UTC become moments, all else is its to judge.

    >>> asked({"since": "2026-01-02", "until": "2026-01-02", "who": "ann"})
    {'since': '2026-01-02T00:00:00Z', 'until': '2026-01-03T00:00:00Z', 'who': 'ann'}
    """
    return {key: _moment(key, value) if key in ("since", "until") else value for key, value in given.items()}


def _moment(key: str, text: str) -> str:
    try:
        day = date.fromisoformat(text) + timedelta(days=key == "until")
    except (ValueError, OverflowError):
        return text
    return f"{day.isoformat()}T00:00:00Z"


def _command(given: Mapping[str, str]) -> str:
    parts = ["gtm", "audit"]
    for key, value in asked(given).items():
        parts += ["--forced"] if key == "forced" else [f"--{key}", value]
    return shlex.join(parts)


@page("/access/audit.jsonl")
async def _export(visit: Visit) -> Response:
    """All that is found, the oldest first, as it is read."""
    given = asked({name: text for name in FIELDS if (text := visit.query(name)) is not None})
    first = await visit.api.ask(calls.list_audit(limit=1000, oldest_first=True, **given))

    async def lines() -> AsyncIterator[bytes]:
        part: Any = first
        while True:
            yield "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in part.items_).encode()
            if part.next_cursor is None:
                return
            cursor = part.next_cursor
            part = await visit.api.ask(
                calls.list_audit(limit=1000, oldest_first=True, cursor=cursor, **given)
            )

    headers = {
        **PERSONAL,
        "Cache-Control": "no-store",
        "Content-Disposition": 'attachment; filename="gtm-audit.jsonl"',
    }
    return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)
