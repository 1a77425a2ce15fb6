"""What is known of the time, on disk: so that no restart under a wrong clock lifts a rule that was in force.

One line of JSON (`gtm.core.decision.timekeeping.Kept`) under a header as the last-good file has. It is a file of its own because
it is written every few seconds, and the last-good file may have megabytes.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import msgspec

from gtm.core.decision.timekeeping import END_OF_TIME, Kept
from gtm.feed import lastgood
from gtm.feed.wire import FeedError
from gtm.nesting import shallow

FILE = "edge-clock"
"""Its name in the data directory."""
MAGIC = b"gtm-clock 1 "
"""The bytes that a clock's file begins with."""


def save(path: Path, kept: Kept) -> None:
    """Replace the file atomically.

    Raises:
        OSError: the disk refuses; the old file is untouched.
    """
    lastgood.write(path, MAGIC, msgspec.json.encode(kept) + b"\n")


def load(path: Path) -> Kept:
    """Read it back.

    Raises:
        FileNotFoundError: there is none yet.
        OSError: it cannot be read.
        FeedError: the file is damaged or not such a file.
    """
    try:
        kept = msgspec.json.decode(shallow(lastgood.read(path, MAGIC, "clock")), type=Kept)
    except ValueError as error:
        raise FeedError(f"`{path}` is damaged: {error}") from error
    moments = (moment for moment in (kept.latest, kept.heard, kept.control) if moment is not None)
    if not isfinite(kept.boot) or not all(0 <= moment <= END_OF_TIME for moment in moments):
        raise FeedError(f"`{path}` is damaged: it holds a time that no clock shows")
    return kept
