"""The clock that leases are counted by: common to all processes of a machine, never set, and on while it sleeps."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Seconds since the machine started."""
    return time.clock_gettime(_CLOCK)
