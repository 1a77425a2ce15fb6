"""Several workers' reports, metrics and states as one balancer's."""

from __future__ import annotations

from typing import Any

import pytest

from gtm.runtime.balancer.workers.merging import MergedMetrics, merged_report, merged_state

TEXT = """# HELP gtm_balancer_requests_total Requests.
# TYPE gtm_balancer_requests_total counter
gtm_balancer_requests_total{{backend="x y",how="answered"}} {answered}
# HELP gtm_balancer_request_seconds Seconds.
# TYPE gtm_balancer_request_seconds histogram
gtm_balancer_request_seconds_bucket{{le="+Inf"}} {answered}
gtm_balancer_request_seconds_sum 2.5
gtm_balancer_request_seconds_count {answered}
# HELP gtm_balancer_backend_up Up.
# TYPE gtm_balancer_backend_up gauge
gtm_balancer_backend_up{{backend="x y"}} {up}
# HELP gtm_balancer_connections Connections.
# TYPE gtm_balancer_connections gauge
gtm_balancer_connections {connections}
"""


def _text(answered: int, up: int = 1, connections: int = 1) -> str:
    return TEXT.format(answered=answered, up=up, connections=connections)


def _values(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_counters_never_fall_and_gauges_are_those_that_live() -> None:
    """What an ended worker counted stays; its gauges do not; nor does it matter that nobody has counted such a thing since."""
    merged = MergedMetrics()
    before = _values(merged.text([_text(3), _text(4, up=0, connections=5)]))
    assert before['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 7
    assert before['gtm_balancer_backend_up{backend="x y"}'] == 1
    assert before["gtm_balancer_connections"] == 6
    merged.ended(_text(4, connections=5))
    after = _values(merged.text([_text(3)]))
    assert after['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 7
    assert after['gtm_balancer_request_seconds_bucket{le="+Inf"}'] == 7
    assert after["gtm_balancer_request_seconds_sum"] == 5
    assert after["gtm_balancer_request_seconds_count"] == 7
    assert after["gtm_balancer_connections"] == 1
    fresh = "\n".join(line for line in _text(0).splitlines() if not line.startswith("gtm_balancer_request"))
    assert _values(merged.text([fresh]))['gtm_balancer_requests_total{backend="x y",how="answered"}'] == 4
    assert _text(3).encode() == MergedMetrics().text([_text(3)])


def test_reports_add_up_to_the_regions() -> None:
    """Counts are sums; means are weighted by what they are means of; models are joined."""
    one = {
        "region": "fra",
        "source": "b",
        "outstanding": 3,
        "queue": 0,
        "requests_per_second": 30.0,
        "limit": 5,
    }
    two = {**one, "outstanding": 1, "queue": 2, "requests_per_second": 10.0, "limit": 4}
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
        row = {"url": "x", "state": "up", "in_flight": 2, "work_s": 1.0, "outstanding": 5.0, "slots": 8}
        return {
            "draining": False,
            "connections": 3,
            "choices": {},
            "limit": 8,
            "share": 5,
            "backends": [{**row, **more}],
            "tiers": {"batch": {"running": 1, "waiting": 2, "refused": {"queue_full": 1}}},
            "tenants": {"acme": {"running": 1, "waiting": 0}},
            "at_peers": {},
            "pushes": [{"region": "iad", "why": "moved", "requests": 2}],
        }

    found = merged_state([state(), state(state="down", outstanding=7.0)])
    assert found["backends"] == [
        {"url": "x", "state": "down", "in_flight": 4, "work_s": 2.0, "outstanding": 7.0, "slots": 8}
    ]
    assert found["tiers"] == {"batch": {"running": 2, "waiting": 4, "refused": {"queue_full": 2}}}
    assert (found["tenants"], found["connections"], found["limit"], found["share"]) == (
        {"acme": {"running": 2, "waiting": 0}},
        6,
        8,
        10,
    )
    assert found["pushes"] == [{"region": "iad", "why": "moved", "requests": 4}]
    assert merged_state([])["backends"] == []
