"""An edge's correction of the plan's choice, for one request over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gtm.core.balance.spill.outcomes import Why
from gtm.core.balance.spill.senders import Sender
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
    why: Why


def correct(
    drawn: int, ways: Iterable[Way], sender: Sender, now: float, *, paid: tuple[QuotaText, ...] = ()
) -> Correction:
    """Send one request elsewhere if the region drawn has no room and another has, at the least latency.

    Args:
        drawn: the number of the region that the plan drew, or `REFUSED`.
        ways: where the request's class may go, the least latency first (`gtm.core.balance.spill.ways`).
        sender: the edge's worker; what it has sent is added to.
        now: by the clock of `Standing.at`.
        paid: the quotas of which tokens were taken for the request already.
    """
    if drawn != REFUSED:
        here = sender.known(drawn)
        if here is None:
            return Correction(None, Why.UNKNOWN_HERE)
        if here.open - sender.sent.since(drawn, here.at) >= 1:
            return Correction(None, Why.ROOM_HERE)
    why = Why.NO_ROOM
    for way in ways:
        if way.number == drawn or sender.room_at(way.number, way.key) is None:
            continue
        owed = tuple(quota for quota in way.quotas if quota not in paid)
        if owed and not sender.afford(owed):
            why = Why.NO_QUOTA
            continue
        sender.sent.add(way.number, now)
        return Correction(way, Why.MOVED)
    return Correction(None, why)
