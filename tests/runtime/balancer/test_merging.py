"""Several workers' reports, metrics and states as one balancer's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from gtm.balancer import metrics
from gtm.core.balance.health import State
from gtm.core.capacity.load import MAX_MODELS
from gtm.runtime.balancer.reporting import Report
from gtm.runtime.balancer.workers import merging
from gtm.runtime.balancer.workers.merging import (
    GAUGES,
    REPORT_FIELDS,
    STANDINGS,
    MergedMetrics,
    merged_report,
    merged_state,
)

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


def test_backends_that_are_gone_leave_no_series() -> None:
    """Whatever their names are made of."""
    merged = MergedMetrics()
    for name in ("gone", r"gone \" \\"):
        merged.ended(_text(4).replace("x y", name))
    assert b"gone" in merged.text([])
    assert b"gone" not in merged.text([_text(3)])


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


def test_of_every_field_of_a_report_it_is_said_how_several_become_one() -> None:
    """A report has the fields that its type names (mypy sees to that), and each is in the list; what is not is left out."""
    assert set(Report.__annotations__) == set(REPORT_FIELDS)
    new = cast("Report", {"outstanding": 1, "gpu_temperature": 60.0})
    assert merged_report([new, new]) == {"outstanding": 2}


def test_of_every_gauge_it_is_said_how_several_become_one() -> None:
    """Of all names that a balancer's metrics have, counters end in `_total`, and these are histograms."""
    histograms = {f"gtm_balancer_{name}_seconds" for name in ("request", "first_byte", "inter_token")}
    names = set(re.findall(r'"(gtm_balancer_\w+)"', Path(metrics.__file__).read_text()))
    assert {name for name in names - histograms if not name.endswith("_total")} == set(GAUGES)
    text = "# HELP gtm_balancer_new New.\n# TYPE gtm_balancer_new gauge\ngtm_balancer_new 1\n"
    assert _values(MergedMetrics().text([text, text, _text(1)])) == _values(_text(1).encode())


def test_a_report_names_no_more_models_than_control_takes() -> None:
    """Workers may see a change one after the other: together they know more than any."""
    first = [f"a{number:04}" for number in range(MAX_MODELS)]
    second = [f"b{number:04}" for number in range(MAX_MODELS)]
    assert merged_report([{"models": second}, {"models": first}])["models"] == first


def test_what_is_even_in_sum_is_even() -> None:
    """Two workers have a request each, at another of two backends: a third, which is down, is not looked at."""

    def text(*used: float) -> str:
        rows = list(zip("xyz", used, (1, 1, 0), strict=True))
        values = {
            "gtm_balancer_backend_up": [f'{{backend="{name}"}} {up}' for name, _, up in rows],
            "gtm_balancer_utilization": [f'{{backend="{name}"}} {value}' for name, value, _ in rows],
            "gtm_balancer_utilization_cv": [" 1"],
        }
        return "".join(
            f"# HELP {name} Help.\n# TYPE {name} gauge\n" + "".join(f"{name}{line}\n" for line in lines)
            for name, lines in values.items()
        )

    assert (
        _values(MergedMetrics().text([text(0.5, 0, 0), text(0, 0.5, 0)]))["gtm_balancer_utilization_cv"] == 0
    )
    alone = _values(MergedMetrics().text([text(0.5, 0, 0.5)]))
    assert alone["gtm_balancer_utilization_cv"] == 1


def test_counters_of_those_that_ended_are_shown_where_nobody_counts() -> None:
    """As while all are begun anew."""
    merged = MergedMetrics()
    merged.ended(_text(4))
    assert _values(merged.text([]))["gtm_balancer_request_seconds_count"] == 4


def test_what_ended_workers_leave_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients make names of models up: beyond a number of these they are counted as others, and none is lost."""
    monkeypatch.setattr(merging, "MOST_ENDED", 3)
    merged, name = MergedMetrics(), "gtm_balancer_tenant_requests_total"
    for number in range(10):
        row = f'{name}{{tenant="",model="m{number}"}} 2'
        merged.ended(f"# HELP {name} Requests.\n# TYPE {name} counter\n{row}\n")
    found = _values(merged.text([]))
    assert len(found) == 4
    assert found[f'{name}{{tenant="other",model="other"}}'] == 14
    assert sum(found.values()) == 20


def test_a_backend_stands_as_whoever_says_that_has_most_against_it() -> None:
    """Whoever comes first; and what one has not asked yet, another knows."""
    assert {*STANDINGS} == {*State}
    for states in (["warming", "down", "up"], ["down", "unknown", "up"]):
        rows = [{"url": "x", "state": one, "in_flight": 0, "work_s": 0.0, "outstanding": 0} for one in states]
        parts: dict[str, Any] = {part: {} for part in ("tiers", "choices", "tenants", "at_peers")}
        known = [
            {"draining": False, "connections": 0, "share": 1, "backends": [row], "pushes": [], **parts}
            for row in rows
        ]
        assert merged_state(known)["backends"][0]["state"] == "down"
