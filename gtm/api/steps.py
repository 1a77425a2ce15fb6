"""Steps of time that answers about a past are told in."""

from __future__ import annotations

from datetime import datetime, timedelta

from gtm.control.errors import BadRequest

LONGEST = timedelta(days=3660)
_STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 360, 1440, 10_080))


def step_of(since: datetime, until: datetime, most: int) -> timedelta:
    """The shortest step of which there are so many at most.

    Raises:
        BadRequest: the time is none, or longer than ten years.
    """
    if not timedelta(0) < until - since <= LONGEST:
        raise BadRequest("`until` must be later than `since`, by ten years at most")
    return next((one for one in _STEPS if (until - since) / one <= most), _STEPS[-1])
