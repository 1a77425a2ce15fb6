"""A correction, or why there was none, in words and as the plain data that JSON answers are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gtm.core.balance.spill.edge import Correction
from gtm.core.balance.spill.outcomes import Why
from gtm.core.balance.spill.room import Standing
from gtm.core.balance.spill.ways import ways
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.view import View
from gtm.core.model.services import Push

_STANDS = "the plan's choice stands"
_STAYS = {
    Why.ROOM_HERE: "{}, which the plan chose, has a slot open",
    Why.UNKNOWN_HERE: "nothing is known of free slots in {}, which the plan chose: " + _STANDS,
    Why.NO_ROOM: "{}, and no other region that the request may go to is known to have one for this edge: "
    + _STANDS,
    Why.NO_QUOTA: "{}; other regions have, but the tokens of the spillover quotas on the way there are used up: "
    + _STANDS,
}
_WITHOUT = "a request that finds no slot in {} "
_WITHOUT_WAIT = {
    Push.CARRY: "is carried to {} by its balancer, if it gains by that and tokens suffice",
    Push.REDIRECT: "is sent to {} by its balancer (307), if it gains by that and tokens suffice",
}
_NOT_CORRECTED = "free slots are not asked for: requests that end by `{}`, of a service with this steering and affinity, stay"


def correction_document(  # noqa: PLR0917 - what is told
    view: View,
    group: RankingClass,
    drawn: Option,
    correction: Correction | None,
    known: Callable[[int], Standing | None],
    now: float,
    ended: Option,
) -> dict[str, Any]:
    """What is known of free slots for one request, and what came of it.

    Args:
        view: that the request was decided from.
        group: its class.
        drawn: what the plan chose.
        correction: what became of it; None: it was not asked for.
        known: what is known now of the region of a number.
        now: by the clock of `Standing.at`.
        ended: how the request ends.

    Returns:
        `drawn` (region, null for a refusal), `why` (code, null where it was not asked for), `text`; `push`, what the balancer of the
        region that the request is sent to would do if it found no slot there, null for a refusal; and for each of the service's
        `regions` that something is known of: `open` and `limit` slots, requests `waiting`, and `age` in seconds.
    """
    regions = [(view.snapshot.regions[number].name, known(number)) for number in group.order]
    return {
        "drawn": drawn.region,
        "why": None if correction is None else correction.why.value,
        "text": _text(view, drawn, correction),
        "push": None if ended.region is None else _push(view, group, ended, known),
        "regions": [
            {
                "region": name,
                "open": found.open,
                "limit": found.limit,
                "waiting": found.waiting,
                "age": round(max(0.0, now - found.at), 3),
            }
            for name, found in regions
            if found is not None
        ],
    }


def _push(
    view: View, group: RankingClass, ended: Option, known: Callable[[int], Standing | None]
) -> dict[str, Any]:
    """Where a balancer without a slot may push to by what is known here: what else it goes by (its wait, tokens) is its own."""
    how = group.service.service.push
    every = [way.number for way in ways(view, group, "") if way.number != ended.number]
    able = [number for number in every if (found := known(number)) is not None and found.open >= 1]
    to = [] if how is Push.NEVER else [view.snapshot.regions[number].name for number in able]
    if how is Push.NEVER:
        text = _WITHOUT.format(ended.region) + "waits: the service's pushes are `never`"
    elif not to:
        text = _WITHOUT.format(ended.region) + "waits: no other region that it may go to is known to have one"
    else:
        words = _WITHOUT_WAIT[how].format(" or ".join(to))
        text = _WITHOUT.format(ended.region) + words
    return {"how": how.value, "to": to, "text": text}


def _text(view: View, drawn: Option, correction: Correction | None) -> str:
    if correction is None:
        return _NOT_CORRECTED.format(drawn.reason.value)
    full = (
        "the plan refuses the request for want of capacity"
        if drawn.region is None
        else f"{drawn.region}, which the plan chose, has no slot open"
    )
    if correction.way is not None:
        return f"{full}; {view.snapshot.regions[correction.way.number].name} has one, and takes the request"
    lacking = correction.why in (Why.NO_ROOM, Why.NO_QUOTA)
    return _STAYS[correction.why].format(full if lacking else drawn.region)
