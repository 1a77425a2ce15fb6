"""Short pauses: what Python does beside answering (threads, garbage collection) must not hold it up for long."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = 0.0005
"""Seconds after which a thread that prepares a View lets the answering one go on. CPython's 5 ms would show in answers."""
COLLECT_EVERY = 1800
_NEVER = 1 << 30
"""Collections of the younger generations between those of the oldest."""


@contextmanager
def loading() -> Iterator[None]:
    """Look for no garbage while modules are loaded, nor ever among what they hold: all of it stays.

    That was an eighth of what a server's start takes, and would be done anew at each full collection.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def shorten() -> None:
    """Let the interpreter change threads more often. To be called once, when a worker starts."""
    sys.setswitchinterval(_SWITCH)


def spare_collector(beats: int) -> None:
    """Keep what is remembered of clients out of garbage collections, which would hold up answers for 100 ms and more.

    Replaced Views leave no cycles behind. What little the rest leaves is collected now and then: but among what was there at the start,
    modules above all, never. To look at an object is to write to it, and the memory that a forked worker has not written to is its
    siblings' too.

    Args:
        beats: seconds since the start, from 1; to be called each second.
    """
    if beats == 1:
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
    elif beats % COLLECT_EVERY == 0:
        gc.collect()
