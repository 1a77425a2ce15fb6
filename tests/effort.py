"""How much of a check one run tries: a few examples in `make test`, some in `make drills`, all in `make test-all`, a hundred times as many in `make soak`."""

from __future__ import annotations

import os

from hypothesis import settings

_SIZE = os.environ.get("TEST_EXAMPLES", "few")
if _SIZE not in ("few", "some", "all", "soak"):
    raise ValueError(f"TEST_EXAMPLES={_SIZE!r}: it is few (the default), some, all or soak")
FEW = _SIZE == "few"
SOAK = _SIZE == "soak"
ALL = _SIZE in ("all", "soak")

# The same ones each time, as long as a test stays as it is: a run that fails by chance breaks whoever's change it comes to. New ones are
# looked for by `make test-all` and `make soak`.
settings.register_profile("few", max_examples=4, deadline=None, derandomize=True)
settings.register_profile("some", max_examples=8, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=100, deadline=None)
settings.register_profile("soak", max_examples=10_000, deadline=None)
settings.load_profile(
    _SIZE
)  # tests/conftest.py imports this first, so that it holds for tests that name no number


def examples(count: int, least: int = 6, few: int = 1) -> int:
    """How many of `count` random examples to try: some are a twelfth but no fewer than `least`, few a sixth of some but no fewer than `few`."""
    if SOAK:
        return 100 * count
    some = count if ALL else max(count // 12, min(count, least))
    return max(-(-some // 6), few) if FEW else some
