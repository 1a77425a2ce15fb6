"""What several workers say of themselves, as one balancer's: load reports, metrics, state.

Law: a counter never falls because a worker has ended: what it had counted stays counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MEANS = {"service_time_ms": "requests_per_second", "queue_wait_ms": "requests_per_second"}
"""Of a load report: what is a mean, and what it is weighted by."""
_SHARED = frozenset({"kv_cache_usage"})
"""What all workers see of the same backends: a mean of them."""
_ANY = frozenset(
    {
        "gtm_balancer_backend_up",
        "gtm_balancer_memory_usage",
        "gtm_balancer_tokens_per_second",
        "gtm_balancer_utilization_cv",
    }
)
"""Gauges that are the largest of all workers', and no sum."""
_GROWING = frozenset({"counter", "histogram"})


def merged_report(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The load of all. What is a number is added up, but for means; lists are joined, and the rest is the first's."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for report in reports for name in report):
        having = [report for report in reports if name in report]
        values = [report[name] for report in having]
        if name in _MEANS or name in _SHARED:
            weights = [float(report.get(_MEANS.get(name, ""), 1.0)) for report in having]
            found[name] = sum(v * w for v, w in zip(values, weights, strict=True)) / (sum(weights) or 1.0)
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            found[name] = sum(values)
        elif all(isinstance(value, list) for value in values):
            found[name] = sorted({one for value in values for one in value})
        else:
            found[name] = values[0]
    return found


class MergedMetrics:
    """The metrics of workers that come and go, each Prometheus text of the same making."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def ended(self, text: str) -> None:
        """A worker has ended, and last said this."""
        for _, kind, samples in _families(text):
            if kind in _GROWING:
                for key, value in samples:
                    self._ended[key] = self._ended.get(key, 0.0) + value

    def text(self, texts: Sequence[str]) -> bytes:
        """The metrics of all that live, with what the others had counted."""
        heads: dict[str, list[str]] = {}
        found: dict[str, dict[str, float]] = {}
        for text in texts:
            for head, _, samples in _families(text):
                name = head[0].split(" ", 3)[2]
                heads.setdefault(name, head)
                table = found.setdefault(name, {})
                for key, value in samples:
                    had = table.get(key)
                    if had is None:
                        table[key] = value
                    else:
                        table[key] = max(had, value) if name in _ANY else had + value
        for key, value in self._ended.items():
            sample = key.partition("{")[0]
            name = sample if sample in found else sample.rpartition("_")[0]
            if name in found:
                found[name][key] = found[name].get(key, 0.0) + value
        lines = []
        for name, table in found.items():
            lines += [*heads[name], *(f"{key} {value:.10g}" for key, value in table.items())]
        return ("\n".join(lines) + "\n").encode()


def _families(text: str) -> Iterable[tuple[list[str], str, list[tuple[str, float]]]]:
    """Of each family its two lines of comment, its type, its samples."""
    head: list[str] = []
    samples: list[tuple[str, float]] = []
    for line in text.splitlines():
        if line.startswith("# HELP"):
            if head:
                yield head, head[1].rpartition(" ")[2], samples
            head, samples = [line], []
        elif line.startswith("#"):
            head.append(line)
        elif line:
            key, _, value = line.rpartition(" ")
            samples.append((key, float(value)))
    if head:
        yield head, head[1].rpartition(" ")[2], samples


def merged_state(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of all: counts are added up, what is known of backends is the least hopeful worker's, all else is the first's."""
    if not states:
        return {"backends": [], "tiers": {}, "workers": []}
    found = dict(states[0])
    found["draining"] = all(state["draining"] for state in states)
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
    worst = next((row for row in rows if row["state"] != "up"), rows[0])
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
