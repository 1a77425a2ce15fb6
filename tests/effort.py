"""How much of a check one run tries: few examples in `make test`, all in `make test-all`, a hundred times as many in `make soak`."""

from __future__ import annotations

import os

from hypothesis import settings

_SIZE = os.environ.get("TEST_EXAMPLES", "few")
if _SIZE not in ("few", "all", "soak"):
    raise ValueError(f"TEST_EXAMPLES={_SIZE!r}: it is few (the default), all or soak")
ALL = _SIZE != "few"
SOAK = _SIZE == "soak"

settings.register_profile("few", max_examples=16, deadline=None)
settings.register_profile("all", max_examples=100, deadline=None)
settings.register_profile("soak", max_examples=10_000, deadline=None)
settings.load_profile(
    _SIZE
)  # tests/conftest.py imports this first, so that it holds for tests that name no number


def examples(count: int, least: int = 12) -> int:
    """How many of `count` random examples to try: a sixth but no fewer than `least`, all of them, or a hundred times as many."""
    if SOAK:
        return 100 * count
    return count if ALL else max(count // 6, min(count, least))
