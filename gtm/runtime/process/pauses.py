"""Short pauses: what Python does beside answering (threads, garbage collection) must not hold it up for long."""

from __future__ import annotations

import gc
import sys

_SWITCH = 0.0005
"""Seconds after which a thread that prepares a View lets the answering one go on. CPython's 5 ms would show in answers."""
_COLLECT_EVERY = 1800


def shorten() -> None:
    """Let the interpreter change threads more often. To be called once, when a worker starts."""
    sys.setswitchinterval(_SWITCH)


def spare_collector(beats: int) -> None:
    """Keep what is remembered of clients out of garbage collections, which would hold up answers for 100 ms and more.

    Replaced Views leave no cycles behind. What little the rest leaves is collected now and then.

    Args:
        beats: seconds since the start; to be called each second.
    """
    if beats % _COLLECT_EVERY == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
