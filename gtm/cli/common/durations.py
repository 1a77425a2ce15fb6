"""Durations as people type them: `90s`, `24h`, `7d`."""

from __future__ import annotations

import re

from gtm.cli.common.exits import CommandError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_LONGEST = 3660 * 86_400


def duration_seconds(option: str, text: str) -> float:
    """A duration in seconds.

    Raises:
        CommandError: it is none, or none that is longer than nothing and shorter than ten years.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST:
        raise CommandError(f"{option}: `{text}` is not a number with s, m, h, d or w, such as 24h")
    return float(seconds)
