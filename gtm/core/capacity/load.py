"""What regions report of their load: the newest report of each reporter, summed, and how long it counts.

Laws (missing never means idle, silence is not zero):
  1. A signal that a report does not have is not known; it is never taken for 0.
  2. A report is fresh for 5 s and stale for 30 s. Stale values still count, but the region gains nothing by them.
  3. A region that has reported and is silent for longer is lost: it counts as half of what it declared and last
     reported, for a day. Only a region that never reported counts as what it declared.
  4. A reporter that lags more than 30 s behind the region's newest report is gone, and with it what it reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gtm.core.model.access import matches
from gtm.core.model.problems import Problem

FRESH = 5.0
"""Seconds for which a report is the present."""
STALE = 30.0
"""Seconds after which a reporter is gone, and a region without any other is lost."""
FORGOTTEN = 86_400.0
"""Seconds of silence after which a region counts as one that never reported."""
MAX_SOURCES = 1_000
"""Reporters of one region and service."""

Key = tuple[str, str]
"""A region's and a service's name; the service is empty for the region as a whole."""


class Freshness(StrEnum):
    """How far a load can be relied on."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    NEVER = "never"
    """Nothing was ever reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signals:
    """What can be said of a load. None: nobody says it.

    `outstanding` requests are being served, `queue` requests wait; `limit` is how many can be served at once. Service time
    (how long a request is served), wait and rates are of the last seconds; `tokens_per_second` are generated,
    `input_tokens_per_second` read in prompts. `kv_cache_usage` and `utilization` are shares (0–1, the latter may be more).
    """

    outstanding: float | None = None
    queue: float | None = None
    limit: float | None = None
    service_time_ms: float | None = None
    queue_wait_ms: float | None = None
    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    input_tokens_per_second: float | None = None
    gpu_memory_used_bytes: float | None = None
    gpu_memory_total_bytes: float | None = None
    kv_cache_usage: float | None = None
    utilization: float | None = None
    models: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LoadReport(_Signals):
    """What one reporter (a balancer, a server) says of its part of a region.

    `at` is when it was received: POSIX seconds by the receiver's clock.
    """

    region: str
    service: str = ""
    source: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Load(_Signals):
    """What all reporters of a region and service (empty: the region as a whole) say together.

    `at` is the newest report's time, `sources` how many reporters count. Amounts and rates are sums over those that
    state them, times and shares are means (of times, weighted by requests per second where all state them).
    """

    region: str
    service: str
    at: float
    sources: int
    """The number of reporters."""

    def age(self, now: float) -> float:
        """Seconds since the newest report; 0 for one from a clock that has since stepped back."""
        return max(0.0, now - self.at)


def freshness(load: Load | None, now: float) -> Freshness:
    """How far a load can be relied on at a POSIX time; None: nothing was reported."""
    if load is None or load.age(now) > FORGOTTEN:
        return Freshness.NEVER
    if load.age(now) > STALE:
        return Freshness.LOST
    return Freshness.STALE if load.age(now) > FRESH else Freshness.FRESH


class LoadBook:
    """The newest report of every reporter. Not safe to share between threads."""

    def __init__(self) -> None:
        self._reports: dict[Key, dict[str, LoadReport]] = {}
        self._loads: dict[Key, Load] = {}

    def take(self, report: LoadReport) -> bool:
        """Take in a report; an older one of its reporter's is replaced.

        Returns:
            False if the region and service have `MAX_SOURCES` other reporters that count.
        """
        key = (report.region, report.service)
        held = self._reports.setdefault(key, {})
        if len(held) >= MAX_SOURCES and report.source not in held:
            held = self._reports[key] = {item.source: item for item in _counting(held.values())}
            if len(held) >= MAX_SOURCES:
                return False
        known = held.get(report.source)
        if known is None or known.at <= report.at:
            held[report.source] = report
            self._loads.pop(key, None)
        return True

    def retain(self, wanted: Callable[[Key], bool]) -> None:
        """Forget all regions and services but those wanted."""
        self._reports = {key: held for key, held in self._reports.items() if wanted(key)}
        self._loads = {key: load for key, load in self._loads.items() if key in self._reports}

    def loads(self) -> dict[Key, Load]:
        """The load of every region and service that has reported. How far it counts is for `freshness` to say."""
        for key, held in self._reports.items():
            if key not in self._loads:
                self._loads[key] = summed(*key, list(held.values()))
        return dict(self._loads)


def summed(region: str, service: str, reports: Sequence[LoadReport]) -> Load:
    """One load from the reports, at least one, of a region and service."""
    counting = _counting(reports)
    models = [report.models for report in counting if report.models is not None]
    return Load(
        region,
        service,
        at=max(report.at for report in counting),
        sources=len(counting),
        service_time_ms=mean([(item.service_time_ms, item.requests_per_second) for item in counting]),
        queue_wait_ms=mean([(item.queue_wait_ms, item.requests_per_second) for item in counting]),
        kv_cache_usage=mean([(report.kv_cache_usage, None) for report in counting]),
        utilization=mean([(report.utilization, None) for report in counting]),
        models=tuple(sorted({model for each in models for model in each})) if models else None,
        **_totals(counting, *_AMOUNTS, "limit", "gpu_memory_used_bytes", "gpu_memory_total_bytes"),
    )


def whole(region: str, loads: Iterable[Load]) -> Load | None:
    """What the loads of a region's services say of the region: amounts and throughput, but no limit.

    Whether their slots are the same or others' is not known. None if there are no loads.
    """
    held = list(loads)
    if not held:
        return None
    newest = max(load.at for load in held)
    counting = [load for load in held if newest - load.at <= STALE]
    return Load(
        region,
        "",
        at=newest,
        sources=max(load.sources for load in counting),
        **_totals(counting, *_AMOUNTS),
    )


def _counting(reports: Iterable[LoadReport]) -> list[LoadReport]:
    """The reports of those that have not fallen silent while others went on."""
    held = list(reports)
    newest = max(report.at for report in held)
    return [report for report in held if newest - report.at <= STALE]


_AMOUNTS = ("outstanding", "queue", "requests_per_second", "tokens_per_second", "input_tokens_per_second")


def _totals(said: Sequence[_Signals], *names: str) -> dict[str, Any]:
    """The sums of those that state each signal; None where none does."""
    stated = {name: [value for one in said if (value := getattr(one, name)) is not None] for name in names}
    return {name: sum(values) if values else None for name, values in stated.items()}


def mean(values: Iterable[tuple[float | None, float | None]]) -> float | None:
    """The mean of those values, with their weights, that are known; unweighted unless all weights are above 0."""
    stated = [(value, weight or 0.0) for value, weight in values if value is not None]
    if not stated:
        return None
    if not all(weight > 0 for _, weight in stated):
        return sum(value for value, _ in stated) / len(stated)
    return sum(value * weight for value, weight in stated) / sum(weight for _, weight in stated)


# --- Load reports as they arrive: JSON objects with gtm's own names or those of ORCA, judged field by field.
#
# Law: a malformed signal is dropped and said to be so; the others of its report count. A report that does not say whose
# load it is, or has no signal left, is dropped whole.
#
# ORCA is the Open Request Cost Aggregation of xDS (`xds.data.orca.v3.OrcaLoadReport`), whose reports Envoy, gRPC, vLLM and
# Triton know. Field names are read as they stand in the .proto file and as the protobuf JSON mapping writes them.


MAX_REPORTS = 1_000
"""Reports in one request."""
MAX_PROBLEMS = 100
"""Problems listed of one request."""
SOURCE_PATTERN = r"^[!-~]{1,253}$"
"""A reporter's name: printable ASCII without spaces, such as a host and port."""
MAX_MODELS = 1_000
MODEL_PATTERN = r"^[!-~]{1,200}$"
_SHOWN = 80
_SUGGESTED = 20

_COUNT = 1e9
SIGNALS: Mapping[str, float] = MappingProxyType(
    {
        "outstanding": _COUNT,
        "queue": _COUNT,
        "limit": _COUNT,
        "service_time_ms": 3.6e6,
        "queue_wait_ms": 3.6e6,
        "requests_per_second": _COUNT,
        "tokens_per_second": 1e12,
        "input_tokens_per_second": 1e12,
        "gpu_memory_used_bytes": 1e18,
        "gpu_memory_total_bytes": 1e18,
        "kv_cache_usage": 1.0,
    }
)
"""gtm's own signals, and the most each can be, whoever says it: metrics, headers of answers, reports. The least is 0."""
MOST_CACHE_TOKENS = 1e12
"""The most tokens that a server's cache can hold, by its metrics. (What answers say of tokens is bounded by `gtm.balancer.wire.usage`.)"""
ORCA_SIGNALS: Mapping[str, float] = MappingProxyType(
    {
        "rps_fractional": _COUNT,
        "application_utilization": 1e6,
        "cpu_utilization": 1e6,
        "mem_utilization": 1e6,
        "eps": _COUNT,
    }
)
"""ORCA's numbers, and the most each can be. The last two are accepted and not used."""
ORCA_MAPS = ("named_metrics", "utilization", "request_cost")
"""ORCA's maps of names to numbers. Only the first is used, and of it only what `NAMED_METRICS` knows."""
NAMED_METRICS: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in SIGNALS},
        "num_requests_running": "outstanding",
        "num_requests_waiting": "queue",
        "kv_cache_usage_perc": "kv_cache_usage",
        "gpu_cache_usage_perc": "kv_cache_usage",
        "kv_cache_utilization": "kv_cache_usage",
    }
)
"""Names in `named_metrics` → signals. vLLM's may carry its prefix `vllm:`."""
_NAMES = ("region", "service", "source", "models")
FIELDS = frozenset({*_NAMES, *SIGNALS, *ORCA_SIGNALS, *ORCA_MAPS})

Members = Mapping[str, Container[str]]
"""Region → the services it is a member of."""


def read_reports(
    body: Any,
    members: Members,
    services: Container[str],
    reporter: str,
    at: float,
    *,
    bound: str | None = None,
) -> tuple[list[LoadReport], list[Problem]]:
    """The reports in a decoded JSON body, one by itself or several as `{"reports": [...]}`.

    Args:
        body: what was sent.
        members: the policy's regions, each with the services it is a member of.
        services: all services of the policy.
        reporter: the source of reports that name none.
        at: when they were received, POSIX seconds.
        bound: the region that the reporter may speak of, or a pattern of names; None: any. Reports of others are dropped.

    Returns:
        What can be used, and what is wrong (at most `MAX_PROBLEMS`).
    """
    reader = _Reader(members, services, reporter, at, bound)
    if not isinstance(body, dict):
        reader.problem(
            "body", "wrong_type", "must be an object: a load report, or `reports` with a list of them"
        )
    elif "reports" not in body:
        reader.read("", body)
    else:
        reader.read_list(body)
    return reader.reports, reader.problems


class _Reader:
    """Reads reports one after the other, and notes what is wrong with them."""

    def __init__(
        self, members: Members, services: Container[str], reporter: str, at: float, bound: str | None
    ) -> None:
        self.reports: list[LoadReport] = []
        self.problems: list[Problem] = []
        self._found = 0
        self._members = members
        self._services = services
        self._reporter = reporter
        self._at = at
        self._bound = bound
        self._suggested = 0

    def problem(self, path: str, code: str, message: str) -> None:
        self._found += 1
        if self._found <= MAX_PROBLEMS:
            self.problems.append(Problem(path, code, message))

    def read_list(self, body: Mapping[str, Any]) -> None:
        """Take in the reports of a body `{"reports": [...]}`; what is wrong with one keeps no other from being read."""
        for name in body.keys() - {"reports"}:
            self.problem(_shown(name), "unknown_field", "unknown field: `reports` stands alone")
        items = body["reports"]
        if not isinstance(items, list):
            self.problem("reports", "wrong_type", "must be a list")
        elif not 1 <= len(items) <= MAX_REPORTS:
            message = f"needs 1 to {MAX_REPORTS} reports, not {len(items)}; send the others apart"
            self.problem("reports", "out_of_range", message)
        else:
            for index, item in enumerate(items):
                self.read(f"reports[{index}]", item)

    def read(self, path: str, item: Any) -> None:
        """Take in the report at a path of the body, or note every problem that it has there."""
        if not isinstance(item, dict):
            self.problem(path, "wrong_type", "must be an object")
            return
        where = f"{path}." if path else ""
        fields = self._fields(where, item)
        names = self._names(where, fields)
        signals = self._signals(where, fields)
        models = self._models(where, fields.get("models"))
        if not signals and models is None:
            message = f"no load in it: give at least one of {', '.join(SIGNALS)}"
            self.problem(path or "body", "missing", message)
        elif names is not None:
            region, service, source = names
            self.reports.append(LoadReport(region, service, source, self._at, models=models, **signals))

    def _fields(self, where: str, item: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that have a value, by the names of the .proto file."""
        found: dict[str, Any] = {}
        twice = set()
        for given, value in item.items():
            name = given if given in FIELDS else _PROTO_NAMES.get(given)
            if name is None:
                message = f"unknown field: remove it, or check its spelling{self._meant(given, FIELDS)}"
                self.problem(f"{where}{_shown(given)}", "unknown_field", message)
            elif value is None:
                continue
            elif name in found:
                twice.add(name)
            else:
                found[name] = value
        for name in sorted(twice):
            self.problem(f"{where}{name}", "overlap", f"is given twice, also as `{_camel(name)}`")
            del found[name]
        return found

    def _names(self, where: str, fields: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """Region, service and source; None if they do not say whose load it is."""
        before = self._found
        region, service = fields.get("region", ""), fields.get("service", "")
        source = fields.get("source", self._reporter)
        if "region" not in fields:
            self.problem(f"{where}region", "missing", "is required")
        elif not isinstance(region, str):
            self.problem(f"{where}region", "wrong_type", "must be text")
        elif region not in self._members:
            self._unknown(f"{where}region", "region", region, self._members)
        elif self._bound is not None and not matches(self._bound, region):
            message = (
                f"the token `{_shown(self._reporter)}` is for `{self._bound}`, not for region `{region}`: report that with a token of "
                f"its own (gtm token create NAME --role reporter --regions {region})"
            )
            self.problem(f"{where}region", "not_allowed", message)
        if not isinstance(service, str):
            self.problem(f"{where}service", "wrong_type", "must be text")
        elif service and service not in self._services:
            self._unknown(f"{where}service", "service", service, self._services)
        elif service and isinstance(region, str) and service not in self._members.get(region, (service,)):
            message = f"region `{region}` is not a member of service `{service}`"
            self.problem(f"{where}service", "unknown_reference", message)
        if not isinstance(source, str) or not re.fullmatch(SOURCE_PATTERN, source):
            message = "must be 1 to 253 printable ASCII characters without spaces"
            self.problem(f"{where}source", "invalid_format", message)
        return (region, service, source) if self._found == before else None

    def _signals(self, where: str, fields: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a report. What is said directly goes before what ORCA's fields say."""
        given = {
            name: value
            for name, most in {**SIGNALS, **ORCA_SIGNALS}.items()
            if name in fields
            for value in self._number(f"{where}{name}", fields[name], most)
        }
        found = {name: value for name, value in given.items() if name in SIGNALS}
        if "rps_fractional" in given:
            found.setdefault("requests_per_second", given["rps_fractional"])
        # gRFC A51: 0 is protobuf's way to say nothing, and then the processor stands for the application.
        utilization = given.get("application_utilization") or given.get("cpu_utilization")
        if utilization is not None:
            found["utilization"] = utilization
        for name in ORCA_MAPS:
            entries = self._map(f"{where}{name}", fields.get(name))
            if name == "named_metrics":
                for metric, value in entries.items():
                    signal = NAMED_METRICS.get(metric.removeprefix("vllm:"))
                    if signal is not None:
                        for checked in self._number(f"{where}{name}.{metric}", value, SIGNALS[signal]):
                            found.setdefault(signal, checked)
        return found

    def _map(self, path: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problem(path, "wrong_type", "must be an object of names and numbers")
            return {}
        numbers = {
            name: number
            for name, number in value.items()
            if isinstance(number, (int, float)) and not isinstance(number, bool)
        }
        for name in value.keys() - numbers.keys():
            self.problem(f"{path}.{_shown(name)}", "wrong_type", "must be a number")
        return numbers

    def _number(self, path: str, value: Any, most: float) -> tuple[float, ...]:
        """The number, or nothing if it is none or out of range."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.problem(path, "wrong_type", "must be a number")
        elif not 0 <= value <= most:  # NaN is in no range
            self.problem(path, "out_of_range", f"must be between 0 and {most:g}")
        else:
            return (float(value),)
        return ()

    def _models(self, where: str, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MAX_MODELS:
            self.problem(f"{where}models", "wrong_type", f"must be a list of at most {MAX_MODELS} names")
            return None
        for index, name in enumerate(value):
            if not isinstance(name, str) or not re.fullmatch(MODEL_PATTERN, name):
                message = "must be 1 to 200 printable ASCII characters without spaces"
                self.problem(f"{where}models[{index}]", "invalid_format", message)
                return None
        return tuple(value)

    def _unknown(self, path: str, what: str, name: str, known: Container[str]) -> None:
        message = f"there is no {what} `{_shown(name)}`{self._meant(name, known)}"
        self.problem(path, "unknown_reference", message)

    def _meant(self, name: str, known: Container[str]) -> str:
        """The known name that is most like an unknown one, as a question; or nothing."""
        if self._suggested >= _SUGGESTED or not isinstance(known, Iterable):
            return ""
        self._suggested += 1  # each comparison looks at every name there is
        close = get_close_matches(name[:_SHOWN], list(known), n=1)
        return f"; did you mean `{close[0]}`?" if close else ""


def _camel(name: str) -> str:
    """A field's name in protobuf's JSON mapping."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


_PROTO_NAMES = {_camel(name): name for name in FIELDS}


def _shown(name: str) -> str:
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def json_names() -> Sequence[tuple[str, str]]:
    """Every field's name, and the one it has in protobuf's JSON mapping."""
    return [(name, _camel(name)) for name in sorted(FIELDS)]
