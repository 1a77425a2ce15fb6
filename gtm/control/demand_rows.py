"""Rows of demand as the API tells them: narrowed down, summed up, and the largest of them one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from typing import Any

from gtm.control.lead.demand import PerAnswer, requests_of
from gtm.core.demand.cells import Cell
from gtm.core.demand.rows import ClassKey, Row
from gtm.storage.history.demand import MinuteSums, Wanted

_KNOWN = 65_536
"""Cells that are read once: as many as the rows of one edge."""


_Told = tuple[Row, float | None, float]
"""A row, its rate as edges count, and the requests per second that it stands for."""


class Which(Wanted):
    """The rows that are asked for, of those of now."""

    def of(self, rates: Mapping[Row, float]) -> Iterator[tuple[Row, float]]:
        """Those rows."""
        stated = {
            name: value
            for name in ("tenant", "data_class", "priority")
            if (value := getattr(self, name)) is not None
        }
        looks_inside = bool(stated) or self.countries is not None
        for row, rate in rates.items():
            if (self.region is None or row.region == self.region) and (
                self.service is None or row.service == self.service
            ):
                if looks_inside and not self._holds(row, stated):
                    continue
                yield row, rate

    def _holds(self, row: Row, stated: Mapping[str, Any]) -> bool:
        cell = cell_of_text(row.cell)
        return (
            cell is not None
            and all(getattr(cell, name) == value for name, value in stated.items())
            and (self.countries is None or cell.country in self.countries)
        )


@lru_cache(_KNOWN)
def cell_of_text(text: str) -> Cell | None:
    """A cell; None if it is damaged."""
    try:
        return Cell.parse(text)
    except ValueError:
        return None


@lru_cache(_KNOWN)
def _preferred(ranking_class: str) -> str | None:
    try:
        order = ClassKey.parse(ranking_class).order
    except ValueError:
        return None
    return order[0] if order else None


def demand_now(rates: Mapping[Row, float], per_answer: PerAnswer, which: Which, limit: int) -> dict[str, Any]:
    """What is asked for now, as `DemandView` without its times.

    Args:
        rates: requests or DNS answers per second of each row.
        per_answer: how many requests a DNS answer stands for.
        which: rows are wanted.
        limit: how many of them are told apart at most, those first that edges count most of.
    """
    found = [(row, rate, requests_of(row, rate, per_answer)) for row, rate in which.of(rates)]
    served: dict[str, float] = defaultdict(float)
    refused: dict[str, float] = defaultdict(float)
    for row, _, requests in found:
        if row.region:
            served[row.region] += requests
        else:
            refused[row.outcome] += requests
    largest = nlargest(limit, found, key=itemgetter(1))
    return _document(served, refused, largest, len(found))


def demand_then(found: MinuteSums) -> dict[str, Any]:
    """The same of a recorded minute: per second of those that somebody watched."""
    seconds = found.seconds
    served: dict[str, float] = defaultdict(float)
    refused: dict[str, float] = defaultdict(float)
    for (region, outcome), count in found.sums.items():
        if region:
            served[region] += count / seconds
        else:
            refused[outcome] += count / seconds
    rows = [(row, None, count / seconds) for row, count in found.rows.items()]
    return _document(served, refused, rows, found.number)


def _document(
    served: Mapping[str, float], refused: Mapping[str, float], rows: Sequence[_Told], number: int
) -> dict[str, Any]:
    return {
        "rate": sum(served.values()) + sum(refused.values()),
        "served": served,
        "refused": refused,
        "rows": list(_told(rows)),
        "left_out": max(0, number - len(rows)),
    }


def _told(rows: Iterable[_Told]) -> Iterator[dict[str, Any]]:
    """Rows as `DemandRow`; those whose cell is damaged are left out."""
    for row, rate, requests in rows:
        cell = cell_of_text(row.cell)
        if cell is not None:
            yield {
                "region": row.region or None,
                "outcome": row.outcome,
                "via": row.via,
                "ranking_class": row.ranking_class,
                "preferred": _preferred(row.ranking_class),
                "cell": cell,
                "rate": rate,
                "requests_per_second": requests,
            }
