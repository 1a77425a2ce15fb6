"""What numbers that others report can be: the most of each unit, so that no sum or product of them overflows.

Whoever reads a report checks them where it reads: values of the core as they are made, messages by the types of `gtm.feed.wire`.
"""

from __future__ import annotations

from math import isfinite

MOST_INTEGER = 2**53 - 1
"""Counters, sequence numbers: what every JSON reader has exactly (RFC 8259 §6)."""
MOST_REQUESTS = 1e9
"""Requests at once."""
MOST_SLOTS = 1e6
"""Slots of one balancer, of which several together stay far from any bound of floats."""
MOST_RATE = 1e9
"""Requests per second."""
MOST_MOMENT = 1e11
"""POSIX seconds: the year 5138."""
MOST_SECONDS = 1e9
"""Ages and durations: thirty years."""


def within(value: float, most: float) -> bool:
    """Whether a number is finite, at least 0, and no more than the most of its unit."""
    return isfinite(value) and 0 <= value <= most
