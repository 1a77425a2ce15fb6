"""What work leaves in memory, as a caller can see it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

_NOT_OURS = tuple(
    tracemalloc.Filter(inclusive=False, filename_pattern=one) for one in ("*/execnet/*", "*/xdist/*")
)
"""A thread of pytest-xdist takes in which tests come next, whenever they are handed out: hundreds of kilobytes at times."""


def held(work: Callable[[], object]) -> int:
    """Bytes that are in use after some work and were not before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        traces = tracemalloc.take_snapshot().filter_traces(_NOT_OURS)
        return sum(one.size for one in traces.statistics("filename"))
    finally:
        tracemalloc.stop()
