"""Drain, activate or disable a region: first what it would do to real requests, then the act, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from gtm.client.calls import Call
from gtm.client.generated import control_calls as calls
from gtm.core.model.access import Role
from gtm.dashboard.effects import told
from gtm.dashboard.inside import ApiProblem, Inside, name
from gtm.dashboard.pages.simulate import BACK, TRAFFIC, USUAL
from gtm.dashboard.visits import Visit, page


@dataclass(frozen=True, slots=True)
class Change:
    """What can be done to a region: the admin state that it leads to, and what that means."""

    verb: str
    state: str
    words: str


CHANGES = {
    one.verb: one
    for one in (
        Change(
            "drain",
            "draining",
            "The region takes no new clients. Those with affinity leave it step by step; requests under way end there.",
        ),
        Change(
            "activate",
            "active",
            "The region takes clients again, step by step, as fast as its health and room allow.",
        ),
        Change(
            "disable",
            "disabled",
            "The region takes nobody from now on, with affinity or without, and edges stop probing it.",
        ),
    )
}


@page("/regions/{name}/{verb}", methods=("GET", "POST"), role=Role.OPERATOR)
async def _change(visit: Visit) -> Response:
    change = CHANGES.get(visit.part("verb"))
    if change is None:
        raise HTTPException(404)
    which = name(visit.part("name"))
    top = await visit.api.get_top()
    region = next((one for one in top.regions if one.region == which), None)
    if region is None:
        raise ApiProblem(404, {"title": "not found", "detail": f"there is no region `{which}`"})
    chosen = visit.query("traffic")
    shown: dict[str, Any] = {
        "change": change,
        "region": region,
        "traffic": TRAFFIC,
        "chosen": chosen if chosen in TRAFFIC else USUAL,
        "preview": None,
        "reason": "",
        "refusal": None,
        "problem": None,
        "commands": commands(which, change, chosen if chosen in TRAFFIC else USUAL),
    }
    if visit.request.method == "POST":
        return await _done(visit, which, change, shown)
    asked = visit.query("preview")
    if asked == "now":
        shown["preview"] = await preview(visit.api, which, change, shown["chosen"])
    return visit.render(
        "region_preview.html" if visit.partial else "region_change.html", skip=asked == "skip", **shown
    )


async def _done(visit: Visit, which: str, change: Change, shown: dict[str, Any]) -> Response:
    """Make the change; what refuses it is shown with the form, as it was filled in."""
    form = await visit.form()
    reason, forced = form.get("reason", "").strip(), form.get("force") == "yes"
    shown |= {"reason": reason[:1000], "skip": True}
    if not reason:
        words = "say why: the reason is kept with the revision, for those who look later"
        shown["problem"] = {"title": "no reason given", "detail": words}
        return visit.render("region_change.html", 422, **shown)
    said = {"force": True, "force_reason": reason} if forced else {"comment": reason}
    try:
        await visit.api.ask(getattr(calls, f"{change.verb}_region")(which, **said))
    except ApiProblem as found:
        shown["refusal" if found.document.get("breaches") else "problem"] = found.document
        return visit.render("region_change.html", found.status, **shown)
    return visit.go(f"/regions/{which}")


async def preview(api: Inside, which: str, change: Change, chosen: str) -> dict[str, Any]:
    """What a change would do: a simulation, as `gtm simulate` makes it, and what the safety rules say.

    Where one of the two cannot be had, its problem is in its place.

    Raises:
        ApiProblem: the region cannot be read.
    """
    draft = drafted(await api.get_regions(which), change.state)
    simulated, judged = await asyncio.gather(
        _simulated(api, draft, chosen),
        _answer(api, calls.apply_policy(draft | {"dry_run": True})),
    )
    made, taken = simulated
    return {
        "made": made if made is None or "average" in made else None,
        "trouble": made if made is not None and "average" not in made else None,
        "taken": taken,
        "safety": judged.get("safety"),
        "unjudged": judged if "safety" not in judged else None,
        "effect": told(made) if made is not None and "average" in made else None,
    }


def drafted(region: Mapping[str, Any], state: str) -> Any:
    """The part of a policy that a region's admin state is, as endpoints take drafts."""
    changed = {**region, "admin_state": state, "draining_since": None}
    return {"policy": {"regions": [changed]}, "partial": True}


async def _simulated(api: Inside, draft: Mapping[str, Any], chosen: str) -> tuple[Any, str]:
    """A simulation, and with which traffic: that chosen or, where it was not recorded, that of this moment; none without demand."""
    for one in dict.fromkeys((chosen, "now")):
        asked: Any = {**draft, "traffic": "current"}
        if one in BACK:
            asked |= {"traffic": "recorded", "since": (datetime.now(UTC) - BACK[one]).isoformat()}
        made = await _answer(api, calls.simulate_policy(asked))
        if made.get("status") != 404:
            return made, one
    return None, "now"


async def _answer(api: Inside, call: Call[Any]) -> dict[str, Any]:
    """What is answered to a call, or the problem that it is refused with."""
    try:
        found: dict[str, Any] = await api.ask(call)
    except ApiProblem as problem:
        return dict(problem.document)
    return found


def commands(which: str, change: Change, chosen: str) -> dict[str, list[str]]:
    """What does the same: the preview, and the act."""
    api = 'curl -X POST -H "Authorization: Bearer $GTM_TOKEN"'
    edit = f'\'(.regions[] | select(.name == "{which}")).admin_state = "{change.state}"\''
    tried = f"gtm export - --admin-states --json | jq {edit} > draft.yaml"
    since = f" --since {chosen}" if chosen in BACK else ""
    body = '\'{"policy": …, "traffic": "current"}\'' if chosen == "now" else "'{\"policy\": …}'"
    simulate = [f"gtm simulate --policy draft.yaml --traffic recorded{since}"] if chosen in BACK else []
    return {
        "preview": [
            tried,
            *simulate,
            f'{api} "$GTM_CONTROL_URL/v1/policy:simulate" -H "Content-Type: application/json" -d {body}',
            "gtm plan draft.yaml",
        ],
        "act": [
            f'gtm regions {change.verb} {which} --comment "WHY"',
            f'{api} "$GTM_CONTROL_URL/v1/regions/{which}:{change.verb}?comment=WHY"',
        ],
        "force": [
            f'gtm regions {change.verb} {which} --force --reason "WHY"',
            f'{api} "$GTM_CONTROL_URL/v1/regions/{which}:{change.verb}?force=true&force_reason=WHY"',
        ],
    }
