"""What the process that follows control tells those that answer, besides what control said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gtm.core.decision.timekeeping import ClockTimes
from gtm.core.quota.leases import LeaseParts
from gtm.feed.wire import OF_VIEW, Lasting, RoomMessage, StateMessage


@dataclass(frozen=True, slots=True)
class TimesMessage:
    """What is known of the time, by the boot clock that all processes of a machine have in common."""

    times: ClockTimes


@dataclass(frozen=True, slots=True)
class PartsMessage:
    """To one process: its parts of the quotas' leases."""

    parts: LeaseParts


ViewMessage = Lasting | StateMessage | RoomMessage | TimesMessage
"""What a process needs to have the View of the one that follows control."""

TOLD: Mapping[str, type[ViewMessage | PartsMessage]] = MappingProxyType(
    {**OF_VIEW, "times": TimesMessage, "parts": PartsMessage}
)
"""What every line has to a process that answers, by name."""
