"""Several workers' reports, metrics and states as one balancer's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gtm.balancer import metrics
from gtm.balancer.metrics import Family, MergedMetrics, render
from gtm.core.balance.health.values import BackendState
from gtm.core.capacity.load import MAX_MODELS
from gtm.runtime.balancer.reporting import Report, merged_report
from gtm.runtime.balancer.workers.pool import STANDINGS, merged_state


def _families(answered: float, up: float = 1, connections: float = 1, *, name: str = "x y") -> list[Family]:
    buckets = [('_bucket{le="+Inf"}', answered), ("_sum", 2.5), ("_count", answered)]
    return [
        Family(
            "gtm_balancer_requests_total",
            "counter",
            "Requests.",
            [(f'{{backend="{name}",how="answered"}}', answered)],
        ),
        Family("gtm_balancer_request_seconds", "histogram", "Seconds.", buckets),
        Family("gtm_balancer_backend_up", "gauge", "Up.", [(f'{{backend="{name}"}}', up)], shared=True),
        Family("gtm_balancer_connections", "gauge", "Connections.", [("", connections)]),
    ]


TEXT = """# HELP gtm_balancer_requests_total Requests.
# TYPE gtm_balancer_requests_total counter
gtm_balancer_requests_total{backend="x y",how="answered"} 3
# HELP gtm_balancer_request_seconds Seconds.
# TYPE gtm_balancer_request_seconds histogram
gtm_balancer_request_seconds_bucket{le="+Inf"} 3
gtm_balancer_request_seconds_sum 2.5
gtm_balancer_request_seconds_count 3
# HELP gtm_balancer_backend_up Up.
# TYPE gtm_balancer_backend_up gauge
gtm_balancer_backend_up{backend="x y"} 1
# HELP gtm_balancer_connections Connections.
# TYPE gtm_balancer_connections gauge
gtm_balancer_connections 1
"""


def _values(families: list[Family]) -> dict[str, float]:
    lines = [line for line in render(families).decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_counters_never_fall_and_gauges_are_those_that_live() -> None:
    """What an ended worker counted stays; its gauges do not; nor does it matter that nobody has counted such a thing since."""
    merged = MergedMetrics()
    before = _values(merged.merged([_families(3), _families(4, up=0, connections=5)]))
    assert before['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 7
    assert before['gtm_balancer_backend_up{backend="x y"}'] == 1
    assert before["gtm_balancer_connections"] == 6
    merged.ended(_families(4, connections=5))
    after = _values(merged.merged([_families(3)]))
    assert after['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 7
    assert after['gtm_balancer_request_seconds_bucket{le="+Inf"}'] == 7
    assert after["gtm_balancer_request_seconds_sum"] == 5
    assert after["gtm_balancer_request_seconds_count"] == 7
    assert after["gtm_balancer_connections"] == 1
    fresh = [one for one in _families(0) if not one.name.startswith("gtm_balancer_request")]
    assert _values(merged.merged([fresh]))['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 4
    assert render(MergedMetrics().merged([_families(3)])).decode() == TEXT


def test_backends_that_are_gone_leave_no_series() -> None:
    """Whatever their names are made of."""
    merged = MergedMetrics()
    for name in ("gone", r"gone \" \\"):
        merged.ended(_families(4, name=name))
    assert b"gone" in render(merged.merged([]))
    assert b"gone" not in render(merged.merged([_families(3)]))


def test_reports_add_up_to_the_regions() -> None:
    """Counts are sums; means are weighted by what they are means of; models are joined."""
    one: Report = {
        "region": "fra",
        "source": "b",
        "outstanding": 3,
        "queue": 0,
        "requests_per_second": 30.0,
        "limit": 5,
    }
    two: Report = {**one, "outstanding": 1, "queue": 2, "requests_per_second": 10.0, "limit": 4}
    found = merged_report(
        [
            {**one, "service_time_ms": 100.0, "models": ["a", "b"], "kv_cache_usage": 0.4},
            {**two, "service_time_ms": 500.0, "models": ["b", "c"], "kv_cache_usage": 0.2},
        ]
    )
    assert (found["outstanding"], found["queue"], found["limit"]) == (4, 2, 9)
    assert (found["requests_per_second"], found["service_time_ms"]) == (40.0, 200.0)
    assert found["kv_cache_usage"] == pytest.approx(0.3)
    assert (found["region"], found["models"]) == ("fra", ["a", "b", "c"])
    assert merged_report([one | {"service_time_ms": 7.0}, two])["service_time_ms"] == 7.0
    assert merged_report([]) == {}


def test_states_show_what_is_worst() -> None:
    """In flight is added up; a backend stands as the worker says that has most against it."""

    def state(**more: Any) -> dict[str, Any]:
        row = {"url": "x", "state": "up", "in_flight": 2, "work_s": 1.0, "outstanding": 5.0, "ejections": 1}
        return {
            "draining": False,
            "connections": 3,
            "choices": {},
            "limit": 8,
            "share": 5,
            "backends": [{**row, **more}],
            "tiers": {"batch": {"running": 1, "waiting": 2, "refused": {"queue_full": 1}}},
            "groups": {},
            "tenants": {"acme": {"weight": 2.0, "running": 1, "waiting": 0}},
            "at_peers": {},
            "pushes": [{"region": "iad", "why": "moved", "requests": 2}],
        }

    found = merged_state([state(), state(state="down", outstanding=7.0, ejections=3)])
    assert found["backends"] == [
        {"url": "x", "state": "down", "in_flight": 4, "work_s": 2.0, "outstanding": 7.0, "ejections": 3}
    ]
    assert found["tiers"] == {"batch": {"running": 2, "waiting": 4, "refused": {"queue_full": 2}}}
    assert (found["tenants"], found["connections"], found["limit"], found["share"]) == (
        {"acme": {"weight": 2.0, "running": 2, "waiting": 0}},
        6,
        8,
        10,
    )
    assert found["pushes"] == [{"region": "iad", "why": "moved", "requests": 4}]
    assert merged_state([])["backends"] == []


def test_a_field_that_no_report_has_is_left_out() -> None:
    """It is said of each field, in the type itself, how several become one."""
    new = cast("Report", {"outstanding": 1, "gpu_temperature": 60.0})
    assert merged_report([new, new]) == {"outstanding": 2}


def test_a_report_names_no_more_models_than_control_takes() -> None:
    """Workers may see a change one after the other: together they know more than any."""
    first = [f"a{number:04}" for number in range(MAX_MODELS)]
    second = [f"b{number:04}" for number in range(MAX_MODELS)]
    assert merged_report([{"models": second}, {"models": first}])["models"] == first


def test_what_is_even_in_sum_is_even() -> None:
    """Two workers have a request each, at another of two backends: a third, which is down, is not looked at."""

    def told(*used: float) -> list[Family]:
        up = [(f'{{backend="{name}"}}', value) for name, value in zip("xyz", (1.0, 1.0, 0.0), strict=True)]
        each = [(f'{{backend="{name}"}}', value) for name, value in zip("xyz", used, strict=True)]
        return [
            Family("gtm_balancer_backend_up", "gauge", "Help.", up, shared=True),
            Family("gtm_balancer_utilization", "gauge", "Help.", each),
            Family("gtm_balancer_utilization_cv", "gauge", "Help.", [("", 1.0)], shared=True),
        ]

    both = _values(MergedMetrics().merged([told(0.5, 0, 0), told(0, 0.5, 0)]))
    assert both["gtm_balancer_utilization_cv"] == 0
    alone = _values(MergedMetrics().merged([told(0.5, 0, 0.5)]))
    assert alone["gtm_balancer_utilization_cv"] == 1


def test_counters_of_those_that_ended_are_shown_where_nobody_counts() -> None:
    """As while all are begun anew."""
    merged = MergedMetrics()
    merged.ended(_families(4))
    assert _values(merged.merged([]))["gtm_balancer_request_seconds_count"] == 4


def test_what_ended_workers_leave_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients make names of models up: beyond a number of these they are counted as others, and none is lost."""
    monkeypatch.setattr(metrics, "MOST_ENDED", 3)
    merged, name = MergedMetrics(), "gtm_balancer_tenant_requests_total"
    for number in range(10):
        samples = [(f'{{tenant="",model="m{number}"}}', 2.0)]
        merged.ended([Family(name, "counter", "Requests.", samples)])
    found = _values(merged.merged([]))
    assert len(found) == 4
    assert found[f'{name}{{tenant="other",model="other"}}'] == 14
    assert sum(found.values()) == 20


def test_a_backend_stands_as_whoever_says_that_has_most_against_it() -> None:
    """Whoever comes first; and what one has not asked yet, another knows."""
    assert {*STANDINGS} == {*BackendState}
    for states in (["warming", "down", "up"], ["down", "unknown", "up"]):
        counts = {"in_flight": 0, "work_s": 0.0, "outstanding": 0, "ejections": 0}
        rows = [{"url": "x", "state": one, **counts} for one in states]
        parts: dict[str, Any] = {part: {} for part in ("tiers", "groups", "choices", "tenants", "at_peers")}
        known = [
            {"draining": False, "connections": 0, "share": 1, "backends": [row], "pushes": [], **parts}
            for row in rows
        ]
        assert merged_state(known)["backends"][0]["state"] == "down"
