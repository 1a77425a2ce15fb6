"""An edge's correction of the plan's choice, for one request over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gtm.core.balance.spill.room import OpenSlots, Sender, SpillReason
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import RankingClass, ranked
from gtm.core.decision.view import View
from gtm.core.decision.weights import added_ms, quotas_by_plan, quotas_of
from gtm.core.model.affinity import key_hash
from gtm.core.model.outcomes import FenceError
from gtm.core.model.services import PLANNED, Affinity, Push
from gtm.core.quota.names import QuotaText

REFUSED = -1
"""In place of a drawn region: the plan sheds the request."""


class Way(NamedTuple):
    """A region that a class's requests may be sent to, and the quotas that they count against there.

    `number` is the region's place in `Snapshot.regions`, `added_ms` what it takes longer than the class's home, `key` the hash of the
    sender's and the region's names.
    """

    number: int
    added_ms: float
    quotas: tuple[QuotaText, ...]
    key: int


class Correction(NamedTuple):
    """The way that a request takes instead of the plan's; None: the plan's. And why."""

    way: Way | None
    why: SpillReason


def correct(
    drawn: int, ways: Iterable[Way], sender: Sender, now: float, *, paid: tuple[QuotaText, ...] = ()
) -> Correction:
    """Send one request elsewhere if the region drawn has no room and another has, at the least latency.

    Args:
        drawn: the number of the region that the plan drew, or `REFUSED`.
        ways: where the request's class may go, the least latency first (`gtm.core.balance.spill.edge`).
        sender: the edge's worker; what it has sent is added to.
        now: by the clock of `OpenSlots.at`.
        paid: the quotas of which tokens were taken for the request already.
    """
    if drawn != REFUSED:
        here = sender.known(drawn)
        if here is None:
            return Correction(None, SpillReason.UNKNOWN_HERE)
        if here.open - sender.sent.since(drawn, here.at) >= 1:
            return Correction(None, SpillReason.ROOM_HERE)
    why = SpillReason.NO_ROOM
    for way in ways:
        if way.number == drawn or sender.room_at(way.number, way.key) is None:
            continue
        owed = tuple(quota for quota in way.quotas if quota not in paid)
        if owed and not sender.afford(owed):
            why = SpillReason.NO_QUOTA
            continue
        sender.sent.add(way.number, now)
        return Correction(way, SpillReason.MOVED)
    return Correction(None, why)


# --- Where the requests of a ranking class may be sent instead of where the plan sends them. ---


def ways(view: View, group: RankingClass, sender: str) -> tuple[Way, ...]:
    """A class's ways in one View, the least latency first; to be made once for both, as a Choice is.

    These are its eligible regions (inside the fence, with the models, taking new clients, up) that are not in slow start and
    that spillover rules lead to from its home. None where the plan steers nothing: a service that follows weights or an order means
    these, one with affinity means its region, and an edge outside a rule answers nothing.

    Args:
        view: the state of the world.
        group: the class.
        sender: the name of the edge's worker, or of the balancer.

    Raises:
        FenceError: a region is outside the fence (a bug in gtm).
    """
    service = group.service.service
    if group.outside or service.steering not in PLANNED or service.affinity is not Affinity.NONE:
        return ()
    order = ranked(group.service, group.order, group.eligible(view.up_for(group.family)))
    added = added_ms(view.basis, group, order)
    found = []
    for number in order:
        region = view.snapshot.regions[number].name
        if not group.allowed >> number & 1:
            raise FenceError(f"region {region} is outside the fence")
        quotas = () if number == order[0] else quotas_of(view, group, order[0], number)
        if quotas is None or number in view.ramps:
            continue
        found.append(Way(number, added[number], quotas, key_hash(f"{sender}\n{region}")))
    return tuple(sorted(found, key=lambda way: way.added_ms))


def counted_at(
    view: View, group: RankingClass, every: tuple[Way, ...], here: int | None
) -> frozenset[QuotaText]:
    """The quotas that a class's requests count against where they are: paid by who sent them, or used by the plan's DNS answers.

    Args:
        view: the state of the world.
        group: the class.
        every: its ways.
        here: the number of the region that they are in; None: the policy does not have it.
    """
    home = next(iter(ranked(group.service, group.order, group.eligible(view.up_for(group.family)))), None)
    if not every or home is None or here is None or here == home:
        return frozenset()
    return frozenset(quotas_by_plan(view, group, home, here))


def owed(quotas: tuple[QuotaText, ...], counted: frozenset[QuotaText]) -> tuple[QuotaText, ...]:
    """What is to be paid for the way to another region by a request that counts against some quotas already."""
    return tuple(quota for quota in quotas if quota not in counted)


# --- A correction, or why there was none, in words and as the plain data that JSON answers are made of. ---


_STANDS = "the plan's choice stands"
_STAYS = {
    SpillReason.ROOM_HERE: "{}, which the plan chose, has a slot open",
    SpillReason.UNKNOWN_HERE: "nothing is known of free slots in {}, which the plan chose: " + _STANDS,
    SpillReason.NO_ROOM: "{}, and no other region that the request may go to is known to have one for this edge: "
    + _STANDS,
    SpillReason.NO_QUOTA: "{}; other regions have, but the tokens of the spillover quotas on the way there are used up: "
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
    known: Callable[[int], OpenSlots | None],
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
        now: by the clock of `OpenSlots.at`.
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
    view: View, group: RankingClass, ended: Option, known: Callable[[int], OpenSlots | None]
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
    lacking = correction.why in (SpillReason.NO_ROOM, SpillReason.NO_QUOTA)
    return _STAYS[correction.why].format(full if lacking else drawn.region)
