"""A process that has no descriptors left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def none_left(but: int = 0) -> Iterator[None]:
    """Let this process open no further descriptor meanwhile, `but` so many."""
    taken = [os.dup(0) for _ in range(but + 1)]
    lowest = max(taken)
    for descriptor in taken:
        os.close(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
