"""Why a correction or a push was made, or was not: codes that counters, explanations and logs share."""

from __future__ import annotations

from enum import StrEnum

FAILED = "failed"
"""Stands beside these codes, too: a peer did not answer, or did not take the request."""
CAME = "came"
"""Stands beside these codes for requests that were served here, and that a balancer of another region had first."""


class Why(StrEnum):
    """What decided."""

    MOVED = "moved"
    """Another region has room, and the request goes there."""
    ROOM_HERE = "room_here"
    """There is room where the request was sent."""
    UNKNOWN_HERE = "unknown_here"
    """Nothing is known of the region that the plan drew: the plan stands."""
    NO_ROOM = "no_room"
    """No other region is known to have room for this sender."""
    NO_QUOTA = "no_quota"
    """Others have room, but the tokens of a spillover quota are used up."""
    NOTHING_GAINED = "nothing_gained"
    """The request starts here before it could elsewhere."""
    ONE_HOP = "one_hop"
    """It came by a push already."""
