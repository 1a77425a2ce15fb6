"""Demand as the edges report it: smoothed rates by ranking class and demand cell, and what became of it.

Laws:
  1. Silence is not zero: an edge that stops reporting keeps its last rates for `KEPT` seconds (its clients are still
     there, on it or on its way to others), and is forgotten after.
  2. DNS answers are not requests. How many requests one stands for follows from what the regions report; without
     reports it counts as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

TIME_CONSTANT = 3.0
"""Seconds over which rates are smoothed: a burst shows within a few plans, and no plan chases single requests."""
KEPT = 30.0
"""Seconds for which an edge's last rates count when it stops reporting."""
FORGET_BELOW = 0.01
"""Requests per second under which a rate is dropped, once nothing was counted."""
MAX_ROWS = 50_000
"""Rows that one edge may report at a time."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is counted apart: service, region (empty: refused), outcome, tier (`via`), ranking class, demand cell."""

    service: str
    region: str
    outcome: str
    via: str
    ranking_class: str
    cell: str


def read_row(text: str) -> Row:
    """A row from an edge's report.

    Raises:
        ValueError: it is none.
    """
    parts = text.split("\t")
    if len(parts) != 6 or len(text) > 2_000:
        raise ValueError(f"`{text[:100]}` is not a row of demand")
    return Row(*parts)


def row_text(row: Row) -> str:
    """A row as edges report it; the inverse of `read_row`."""
    return f"{row.service}\t{row.region}\t{row.outcome}\t{row.via}\t{row.ranking_class}\t{row.cell}"


@dataclass(slots=True)
class _Edge:
    heard: float
    rates: dict[str, float] = field(default_factory=dict)


class DemandBook:
    """The rates of all edges. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edge] = {}
        self._rows: dict[str, Row] = {}

    def take(self, edge: str, counts: Mapping[str, float], seconds: float, now: float) -> None:
        """Take in what an edge counted in the last seconds. Rows that cannot be read are left out."""
        known = self._edges.setdefault(edge, _Edge(now))
        known.heard = now
        kept = exp(-max(seconds, 0.0) / TIME_CONSTANT)
        gained = (1 - kept) / max(seconds, 1e-3)
        rates = {text: rate * kept for text, rate in known.rates.items() if rate * kept > FORGET_BELOW}
        for text, count in list(counts.items())[:MAX_ROWS]:
            if text not in self._rows:
                try:
                    self._rows[text] = read_row(text)
                except ValueError:
                    continue
            rates[text] = rates.get(text, 0.0) + count * gained
        known.rates = rates

    def rates(self, now: float) -> dict[Row, float]:
        """Requests (or DNS answers) per second of every row, over all edges that count."""
        self._edges = {name: edge for name, edge in self._edges.items() if now - edge.heard <= KEPT}
        total: dict[str, float] = defaultdict(float)
        for edge in self._edges.values():
            for text, rate in edge.rates.items():
                total[text] += rate
        self._rows = {text: row for text, row in self._rows.items() if text in total}
        return {self._rows[text]: rate for text, rate in total.items() if rate > 0}


def requests_per_answer(
    rates: Mapping[Row, float], served: Mapping[str, float], before: Mapping[str, float]
) -> dict[str, float]:
    """How many requests one DNS answer stands for, by service: smoothed from tick to tick.

    Args:
        rates: of the rows.
        served: service → requests per second that regions report to serve, where any does.
        before: the result of the last tick.
    """
    http: dict[str, float] = defaultdict(float)
    dns: dict[str, float] = defaultdict(float)
    for row, rate in rates.items():
        if row.region:
            (dns if row.via == "dns" else http)[row.service] += rate
    found: dict[str, float] = {}
    for service, answers in dns.items():
        old = before.get(service, 1.0)
        if service in served and answers > FORGET_BELOW:
            now = min(max((served[service] - http[service]) / answers, 0.01), 1e4)
            found[service] = old + 0.2 * (now - old)
        else:
            found[service] = old
    return found
