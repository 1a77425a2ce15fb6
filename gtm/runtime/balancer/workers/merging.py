"""What several workers say of themselves, as one balancer's: load reports, metrics, state.

Laws:
  1. A counter never falls because a worker has ended: what it had counted stays counted.
  2. Of every field of a load report, and of every gauge, it is said here how several become one. What nothing is said of is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from types import MappingProxyType
from typing import Any, cast

from gtm.balancer.decide.queueing import OTHER
from gtm.core.balance.health import State
from gtm.core.capacity.load import MAX_MODELS
from gtm.runtime.balancer.reporting import Report

Reports = Sequence[Mapping[str, Any]]


def _sum(name: str, reports: Reports) -> float:
    """Of what each has for itself, or has the part of that is its own to report."""
    total: float = sum(report[name] for report in reports)
    return total


def _weighted(name: str, reports: Reports) -> float:
    """Of a mean over requests: each report's by its requests."""
    weights = [float(report.get("requests_per_second", 1.0)) for report in reports]
    total: float = sum(report[name] * weight for report, weight in zip(reports, weights, strict=True))
    return total / (sum(weights) or 1.0)


def _mean(name: str, reports: Reports) -> float:
    """Of what all see of the same backends."""
    return _sum(name, reports) / len(reports)


def _joined(name: str, reports: Reports) -> list[str]:
    """All that are in a list of any, as many as a report may have."""
    return sorted({one for report in reports for one in report[name]})[:MAX_MODELS]


def _first(name: str, reports: Reports) -> Any:
    """Of what is the same in all."""
    return reports[0][name]


REPORT_FIELDS: Mapping[str, Callable[[str, Reports], Any]] = MappingProxyType(
    {
        "region": _first,
        "source": _first,
        "outstanding": _sum,
        "queue": _sum,
        "limit": _sum,
        "requests_per_second": _sum,
        "service_time_ms": _weighted,
        "queue_wait_ms": _weighted,
        "tokens_per_second": _sum,
        "input_tokens_per_second": _sum,
        "gpu_memory_used_bytes": _sum,
        "gpu_memory_total_bytes": _sum,
        "kv_cache_usage": _mean,
        "models": _joined,
    }
)
"""Every field of `gtm.runtime.balancer.reporting.Figures.report`, and how those of several workers become one."""

_CV = "gtm_balancer_utilization_cv"
GAUGES: Mapping[str, Callable[[float, float], float]] = MappingProxyType(
    {
        "gtm_balancer_pushed": float.__add__,
        "gtm_balancer_in_flight": float.__add__,
        "gtm_balancer_work_seconds": float.__add__,
        "gtm_balancer_utilization": float.__add__,
        "gtm_balancer_running": float.__add__,
        "gtm_balancer_waiting": float.__add__,
        "gtm_balancer_connections": float.__add__,
        "gtm_balancer_kept_bytes": float.__add__,
        "gtm_balancer_backend_up": max,
        "gtm_balancer_memory_usage": max,
        "gtm_balancer_tokens_per_second": max,
        _CV: max,  # and then of all together: what is even in sum may be odd in each
    }
)
"""Every gauge of `gtm.balancer.metrics`: a sum of what workers have, or, of what all see of the same backends, the largest."""
_GROWING = frozenset({"counter", "histogram"})
_BY_TENANT = "gtm_balancer_tenant_"
_OTHERS = f'{{tenant="{OTHER}",model="{OTHER}"}}'
_BACKEND = re.compile(r'backend="((?:[^"\\]|\\.)*)"')
MOST_ENDED = 20_000
"""Samples of ended workers that are kept apart: clients make names of models up, and each worker that ends leaves its own."""


def merged_report(reports: Sequence[Report]) -> Report:
    """The load of all."""
    found: dict[str, Any] = {}
    for name, merge in REPORT_FIELDS.items():
        having = [report for report in reports if name in report]
        if having:
            found[name] = merge(name, having)
    return cast("Report", found)


class MergedMetrics:
    """The metrics of workers that come and go, each Prometheus text of the same making."""

    def __init__(self) -> None:
        self._heads: dict[str, list[str]] = {}
        self._ended: dict[str, dict[str, float]] = {}
        self._kept = 0

    def ended(self, text: str) -> None:
        """A worker has ended, and last said this."""
        for name, head, kind, samples in _families(text):
            if kind not in _GROWING:
                continue
            self._heads[name] = head
            table = self._ended.setdefault(name, {})
            for own, value in samples:
                key = own
                if key not in table and self._kept >= MOST_ENDED and name.startswith(_BY_TENANT):
                    key = name + _OTHERS
                self._kept += key not in table
                table[key] = table.get(key, 0.0) + value

    def text(self, texts: Sequence[str]) -> bytes:
        """The metrics of all that live, with what the others had counted: of backends that none of these knows any more nothing is left."""
        if texts and self._ended:
            self._sweep({one for text in texts for one in _BACKEND.findall(text)})
        heads = dict(self._heads)
        found = {name: dict(table) for name, table in self._ended.items()}
        for text in texts:
            for name, head, kind, samples in _families(text):
                merge = float.__add__ if kind in _GROWING else GAUGES.get(name)
                if merge is None:
                    continue
                heads[name] = head
                table = found.setdefault(name, {})
                for key, value in samples:
                    had = table.get(key)
                    table[key] = value if had is None else merge(had, value)
        _even(found)
        lines = []
        for name, table in found.items():
            lines += [*heads[name], *(f"{key} {value:.10g}" for key, value in table.items())]
        return ("\n".join(lines) + "\n").encode()

    def _sweep(self, backends: Container[str]) -> None:
        """Forget what ended workers had counted of backends that no living one tells of."""
        for table in self._ended.values():
            for key in list(table):
                of = _BACKEND.search(key)
                if of is not None and of[1] and of[1] not in backends:
                    del table[key]
                    self._kept -= 1


def _even(found: dict[str, dict[str, float]]) -> None:
    """Work out anew, by what all have in flight together, how uneven usable backends are."""
    up, used = found.get("gtm_balancer_backend_up", {}), found.get("gtm_balancer_utilization", {})
    usable = [value for key, value in used.items() if up.get(f"gtm_balancer_backend_up{_labels(key)}")]
    if found.get(_CV) and sum(usable):
        found[_CV] = {_CV: pstdev(usable) / (sum(usable) / len(usable))}


def _labels(key: str) -> str:
    """The labels of a sample, in their braces."""
    return "".join(key.partition("{")[1:])


def _families(text: str) -> Iterator[tuple[str, list[str], str, list[tuple[str, float]]]]:
    """Of each family its name, its two lines of comment, its type, its samples."""
    head: list[str] = []
    samples: list[tuple[str, float]] = []
    # Not `splitlines`: names of models, which clients make up, may have whatever else ends lines in Unicode.
    for line in text.split("\n"):
        if line.startswith("# HELP"):
            if head:
                yield _family(head, samples)
            head, samples = [line], []
        elif line.startswith("#"):
            head.append(line)
        elif line:
            key, _, value = line.rpartition(" ")
            samples.append((key, float(value)))
    if head:
        yield _family(head, samples)


def _family(
    head: list[str], samples: list[tuple[str, float]]
) -> tuple[str, list[str], str, list[tuple[str, float]]]:
    _, _, name, kind = head[1].split(" ", 3)
    return name, head, kind, samples


STANDINGS = (
    *(State.DRAINING, State.DOWN, State.HELD, State.EJECTED),
    *(State.UNKNOWN, State.TRIAL, State.WARMING, State.UP),
)
"""From what is most against a backend to what is nothing against it. Of what one worker has not asked yet another knows more."""


def merged_state(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of all: counts are added up, what is known of backends is the least hopeful worker's, all else is the first's."""
    if not states:
        return {"backends": [], "tiers": {}, "workers": []}
    found = dict(states[0])
    found["draining"] = all(state["draining"] for state in states)
    waits = {one for state in states for one in state.get("waits_for_start", ())}
    if waits:  # a worker that was started since has what others wait for
        found["waits_for_start"] = sorted(waits)
    found["connections"] = sum(state["connections"] for state in states)
    shares = [state["share"] for state in states]
    found["share"] = None if None in shares else sum(shares)
    found["backends"] = [_backend(rows) for rows in _by(states, "backends", "url")]
    found["tiers"] = _summed(state["tiers"] for state in states)
    found["choices"] = _summed(state["choices"] for state in states)
    found["tenants"] = _summed(state["tenants"] for state in states)
    found["at_peers"] = _summed(state["at_peers"] for state in states)
    pushes: dict[tuple[str, str], int] = {}
    for state in states:
        for one in state["pushes"]:
            key = one["region"], one["why"]
            pushes[key] = pushes.get(key, 0) + one["requests"]
    found["pushes"] = [
        {"region": region, "why": why, "requests": count} for (region, why), count in sorted(pushes.items())
    ]
    return found


def _backend(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One backend: what each worker has there, and how the one stands to it that has most against it."""
    worst = min(rows, key=lambda row: STANDINGS.index(row["state"]))
    return {
        **worst,
        "in_flight": sum(row["in_flight"] for row in rows),
        "work_s": sum(row["work_s"] for row in rows),
        "outstanding": max(row["outstanding"] for row in rows),
    }


def _by(states: Sequence[Mapping[str, Any]], part: str, key: str) -> Iterable[list[Mapping[str, Any]]]:
    """The rows of a part of all states, by what tells them apart, in the order of the first."""
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for state in states:
        for row in state[part]:
            tables.setdefault(row[key], []).append(row)
    return tables.values()


def _summed(values: Iterable[Any]) -> Any:
    """Numbers added up, through mappings of mappings."""
    all_of_them = [value for value in values if value is not None]
    if all_of_them and isinstance(all_of_them[0], Mapping):
        names = dict.fromkeys(name for value in all_of_them for name in value)
        return {name: _summed(value.get(name) for value in all_of_them) for name in names}
    return sum(all_of_them)
