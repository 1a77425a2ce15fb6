"""A balancer without room: whether a peer takes a request, and which."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from gtm.core.balance.spill.room import Sender, Slots, SpillReason
from gtm.core.quota.names import QuotaText


class PushPeer(NamedTuple):
    """Another region inside the request's fence, what the way there adds, and the quotas still to be paid for it.

    `extra_s` is the round trip between the two regions in seconds, `key` the hash of this balancer's and the region's names.
    """

    number: int
    extra_s: float
    quotas: tuple[QuotaText, ...]
    key: int


class PushDecision(NamedTuple):
    """The peer that takes a request; None: it stays. And why."""

    peer: PushPeer | None
    why: SpillReason


def expected_wait(slots: Slots, service_s: float) -> float:
    """Seconds until a request that comes now begins, in the mean: 0 if a slot is open.

    `limit` slots of mean service time S finish limit / S requests per second, and those that wait go first. Infinite
    where nothing is ever served.

    Args:
        slots: of the balancer itself.
        service_s: mean time that a request holds a slot, in seconds.
    """
    if slots.open >= 1:
        return 0.0
    return (slots.waiting + 1) * service_s / slots.limit if slots.limit > 0 else inf


def push(
    wait_s: float,
    hops: int,
    peers: Sequence[PushPeer],
    sender: Sender,
    now: float,
    *,
    draws: tuple[float, float],
) -> PushDecision:
    """Hand one request to a peer, if it starts sooner there.

    Of the peers with room (where the wait is nothing) that are nearer than the wait here is long, two are drawn and the one
    with the larger part of its slots open is asked first. Where a quota has no token the others follow.

    Args:
        wait_s: the wait expected here, in seconds (`expected_wait`), infinite if the queue is full.
        hops: how often the request was pushed before.
        peers: where it may go, without this region.
        sender: this balancer; what it has sent is added to.
        now: by the clock of `Standing.at`.
        draws: two uniform numbers in [0, 1).
    """
    if wait_s <= 0:
        return PushDecision(None, SpillReason.ROOM_HERE)
    if hops > 0:
        return PushDecision(None, SpillReason.ONE_HOP)
    near = [peer for peer in peers if peer.extra_s < wait_s]
    if peers and not near:
        return PushDecision(None, SpillReason.NOTHING_GAINED)
    able = [
        (peer, standing.open / standing.limit)
        for peer in near
        if (standing := sender.room_at(peer.number, peer.key, peer.extra_s)) is not None
    ]
    if not able:
        return PushDecision(None, SpillReason.NO_ROOM)
    for peer in _by_power_of_two(able, draws):
        if not peer.quotas or sender.afford(peer.quotas):
            sender.sent.add(peer.number, now)
            return PushDecision(peer, SpillReason.MOVED)
    return PushDecision(None, SpillReason.NO_QUOTA)


def _by_power_of_two(able: Sequence[tuple[PushPeer, float]], draws: tuple[float, float]) -> list[PushPeer]:
    """Two drawn at random without replacement, the emptier of them first; then the others."""
    left = list(able)
    pair = [left.pop(int(draw * len(left))) for draw in draws if left]
    pair.sort(key=lambda one: -one[1])
    return [peer for peer, _ in (*pair, *left)]
