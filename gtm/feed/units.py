"""The types of numbers in reports and messages, one for each unit: whoever decodes one refuses what is beyond (`gtm.core.model.units`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gtm.core.model.units import MOST_INTEGER, MOST_MOMENT, MOST_REQUESTS, MOST_SECONDS

Counter = Annotated[int, Meta(ge=0, le=MOST_INTEGER)]
"""What only grows: sequence numbers, requests since a start, microseconds of work."""
Requests = Annotated[int, Meta(ge=0, le=int(MOST_REQUESTS))]
"""Requests at once."""
Moment = Annotated[float, Meta(ge=0, le=MOST_MOMENT)]
"""POSIX seconds."""
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
"""An age or a duration."""
Followers = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Tokens, or whoever follows by one."""
