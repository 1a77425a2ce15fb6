"""The clock that leases and times are counted by: common to all processes of a machine, never set, on while it sleeps."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Seconds since the machine started."""
    return time.clock_gettime(_CLOCK)


def boot_id() -> str:
    """What tells this start of the machine from all others; empty where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
