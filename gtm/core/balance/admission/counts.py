"""What admission counts, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gtm.core.model.services import Priority


class TierCounts(NamedTuple):
    """One tier. `admitted`, `queued`, `withdrawn` (while waiting) and `refused` (by code) count since the start."""

    running: int
    waiting: int
    waiting_bytes: int
    admitted: int
    queued: int
    withdrawn: int
    waited_s: float
    """The sum of the waits of those that waited and were admitted."""
    refused: Mapping[str, int]


class TenantCounts(NamedTuple):
    """One tenant, now."""

    running: int
    waiting: int


class Snapshot(NamedTuple):
    """What admission holds. Tenants: those with anything running or waiting; `None` those without a name, "" too many others."""

    limit: int | None
    tiers: Mapping[Priority, TierCounts]
    tenants: Mapping[str | None, TenantCounts]
    models: Mapping[str, int]


class Totals:
    """What happened in one tier since the start."""

    __slots__ = ("admitted", "queued", "refused", "waited", "withdrawn")

    def __init__(self) -> None:
        self.admitted = 0
        self.queued = 0
        self.withdrawn = 0
        self.waited = 0.0
        self.refused: Counter[str] = Counter()
