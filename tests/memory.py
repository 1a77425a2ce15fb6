"""What work leaves in memory, as a caller can see it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def held(work: Callable[[], object]) -> int:
    """Bytes that are in use after some work and were not before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
