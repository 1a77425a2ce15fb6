"""What the process that follows control tells those that answer, besides what control said."""

from __future__ import annotations

from dataclasses import dataclass

from gtm.core.decision.timekeeping import Times
from gtm.core.quota.leases import Parts


@dataclass(frozen=True, slots=True)
class TimesMessage:
    """What is known of the time, by the boot clock that all processes of a machine have in common."""

    times: Times


@dataclass(frozen=True, slots=True)
class PartsMessage:
    """To one process: its parts of the quotas' leases."""

    parts: Parts
