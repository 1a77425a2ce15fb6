"""gtm: a self-hosted global traffic manager."""

from __future__ import annotations

from typing import Any


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
