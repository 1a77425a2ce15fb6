"""docs/spill-back.md, as plainly as it can be written: slow, and made from that page alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, inf


@dataclass
class Said:
    """A balancer's report: slots free, their number, and requests waiting, of all and of parts; when it was measured."""

    started: float
    number: int
    at: float
    whole: tuple[float, float, float]
    parts: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass
class World:
    """What one sender knows: the reports of each region's balancers in the order heard, what it sent, and tokens left."""

    heard: dict[int, dict[str, list[Said]]]
    sent: list[tuple[int, float]]
    tokens: dict[str, int]

    def counting(self, region: int, now: float) -> list[Said]:
        """The newest report of each balancer, where it is not older than 2 s nor from the future."""
        newest = [
            max(said, key=lambda one: (one.started, one.number))
            for said in self.heard.get(region, {}).values()
        ]
        return [one for one in newest if one.at <= now <= one.at + 2.0]

    def open(self, region: int, part: str, now: float) -> float | None:
        """Slots that a request which comes now could have; None: unknown."""
        counting = self.counting(region, now)
        if not counting:
            return None
        total = 0.0
        for one in counting:
            free, _, waiting = one.whole
            left = max(0.0, free - waiting)
            if part in one.parts:
                free, _, waiting = one.parts[part]
                left = max(0.0, min(free, left) - waiting)
            total += left
        return total

    def limit(self, region: int, part: str, now: float) -> float:
        """All slots of a service or model."""
        return sum(one.parts.get(part, one.whole)[1] for one in self.counting(region, now))

    def sent_since_report(self, region: int, now: float, travel: float = 0.0) -> int:
        """What this sender has sent since the oldest report that counts was measured."""
        oldest = min(one.at for one in self.counting(region, now))
        return sum(1 for to, at in self.sent if to == region and at >= oldest - travel)

    def may_send(self, region: int, part: str, now: float, share: float, travel: float = 0.0) -> set[bool]:
        """Whether it may send one more: yes, no, or as the rounding falls."""
        slots = self.open(region, part, now)
        if slots is None or slots < 1:
            return {False}
        sent = self.sent_since_report(region, now, travel)
        return {floor(slots * share) - sent >= 1, ceil(slots * share) - sent >= 1}

    def affordable(self, quotas: tuple[str, ...]) -> bool:
        """Whether there is a token of each."""
        return all(self.tokens.get(quota, 0) >= 1 for quota in quotas)


Ending = tuple[int | None, str]
"""The region that a request is moved to (None: it stays), and why."""


def corrections(  # noqa: PLR0917 - what the page names
    world: World,
    drawn: int | None,
    ways: list[tuple[int, tuple[str, ...]]],
    paid: tuple[str, ...],
    part: str,
    now: float,
    share: float,
) -> set[Ending]:
    """How an edge's decision may end. `drawn` None: the plan sheds the request. Ways come nearest first."""
    if drawn is not None:
        slots = world.open(drawn, part, now)
        if slots is None:
            return {(None, "unknown_here")}
        if slots - world.sent_since_report(drawn, now) >= 1:
            return {(None, "room_here")}
    endings: set[Ending] = set()
    reasons = {"no_room"}  # of staying, by how the roundings so far may have fallen
    for region, quotas in ways:
        if region == drawn:
            continue
        room = world.may_send(region, part, now, share)
        payable = world.affordable(tuple(quota for quota in quotas if quota not in paid))
        if True in room and payable:
            endings.add((region, "moved"))
            if room == {True}:
                return endings
        if True in room and not payable:
            reasons = reasons | {"no_quota"} if False in room else {"no_quota"}
    return endings | {(None, reason) for reason in reasons}


def wait(free: float, limit: float, waiting: float, service: float) -> float:
    """Seconds that a request which comes now is expected to wait."""
    if free - waiting >= 1:
        return 0.0
    return inf if limit == 0 else (waiting + 1) * service / limit


def pushes(  # noqa: PLR0917 - what the page names
    world: World,
    wait_here: float,
    hops: int,
    peers: list[tuple[int, float, tuple[str, ...]]],
    part: str,
    now: float,
    share: float,
) -> set[Ending]:
    """How a balancer's decision may end, whatever is drawn. Peers come with their extra round trip (s) and what is owed."""
    if wait_here == 0:
        return {(None, "room_here")}
    if hops:
        return {(None, "one_hop")}
    gaining = [peer for peer in peers if peer[1] < wait_here]
    if peers and not gaining:
        return {(None, "nothing_gained")}
    room = {peer[0]: world.may_send(peer[0], part, now, share, peer[1]) for peer in gaining}
    able = [peer for peer in gaining if True in room[peer[0]]]
    endings: set[Ending] = set()
    sure = [peer for peer in able if room[peer[0]] == {True}]
    if not sure:
        endings.add((None, "no_room"))
    if able and not any(world.affordable(owed) for _, _, owed in sure):
        unpayable = [peer for peer in able if not world.affordable(peer[2])]
        if unpayable or sure:
            endings.add((None, "no_quota"))
    emptiness = {
        peer[0]: (world.open(peer[0], part, now) or 0.0) / world.limit(peer[0], part, now) for peer in able
    }
    for region, _, owed in able:
        others = [peer for peer in able if peer[0] != region]
        # Of two that are drawn the emptier takes it: a request never goes to the fullest of all, if all are sure to be asked for.
        beaten = bool(others) and all(
            room[peer[0]] == {True} and world.affordable(peer[2]) and emptiness[peer[0]] > emptiness[region]
            for peer in others
        )
        if world.affordable(owed) and not beaten:
            endings.add((region, "moved"))
    return endings
