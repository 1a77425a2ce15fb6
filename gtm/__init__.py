"""gtm: a self-hosted global traffic manager."""

from __future__ import annotations

import sys
from typing import Any

# httpx loads the parts of its own command line if they are there, Pygments and much of Rich, for 40 ms of each process.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # so that they are not


def __getattr__(name: str) -> Any:
    """`__version__`, read where somebody asks: what reads it takes 30 ms to load, and most processes never say theirs."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("gtm-service")
    except PackageNotFoundError:  # run from a source tree that was never installed
        found = "0+unknown"
    globals()[name] = found
    return found
