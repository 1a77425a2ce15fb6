"""How much of a check one run tries: a part in `make test`, all in `make drills`. CI runs both."""

from __future__ import annotations

import os

ALL = os.environ.get("TEST_EXAMPLES") == "all"


def examples(count: int, least: int = 12) -> int:
    """How many of `count` random examples to try: all of them, or a sixth, but no fewer than `least`."""
    return count if ALL else max(count // 6, min(count, least))
