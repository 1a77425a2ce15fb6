"""Load reports: what they say, how they add up, and how long they count."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.load import (
    FIELDS,
    MAX_PROBLEMS,
    MAX_SOURCES,
    SIGNALS,
    Freshness,
    Load,
    LoadBook,
    LoadReport,
    freshness,
    json_names,
    read_reports,
    summed,
    whole,
)
from tests.core.strategies import quick

MEMBERS = {"eu-central": {"chat", "embed"}, "us-east": {"chat"}}
SERVICES = {"chat", "embed"}
REPORT = {"region": "eu-central", "outstanding": 4}


bindings = st.sampled_from([None, "*", "eu-*", "*-east", "eu-central", "us-eas", "x", ""])


@given(bindings, st.lists(st.sampled_from(["eu-central", "us-east", "eu-wst"]), min_size=1, max_size=8))
@quick(300)
def test_reports_count_where_the_token_may_speak(bound: str | None, regions: list[str]) -> None:
    """A report is taken in exactly if its region is known, and the token is bound to nothing or to that region."""
    body = {"reports": [{"region": name, "outstanding": 1} for name in regions]}
    found, problems = read_reports(body, MEMBERS, SERVICES, "lb", 100.0, bound=bound)
    fits = re.compile(".*" if bound is None else bound.replace("*", ".*")).fullmatch
    assert [one.region for one in found] == [name for name in regions if name in MEMBERS and fits(name)]
    assert [(one.path, one.code) for one in problems] == [
        (f"reports[{number}].region", "not_allowed" if name in MEMBERS else "unknown_reference")
        for number, name in enumerate(regions)
        if name not in MEMBERS or not fits(name)
    ]


def _read(body: Any) -> tuple[list[LoadReport], list[str]]:
    reports, problems = read_reports(body, MEMBERS, SERVICES, "reporter-1", 100.0)
    return reports, [f"{problem.code} {problem}" for problem in problems]


def test_a_report_is_read_with_its_own_names() -> None:
    """All signals arrive; the source is the token's name where none is given."""
    signals = dict.fromkeys(SIGNALS, 0.5)
    (report,), problems = _read({"region": "us-east", "service": "chat", "models": ["a"], **signals})
    assert problems == []
    assert report == LoadReport("us-east", "chat", "reporter-1", 100.0, models=("a",), **signals)
    (first, second), _ = _read({"reports": [REPORT, {**REPORT, "source": "lb-2:80", "queue": None}]})
    assert (first.source, second.source, second.queue) == ("reporter-1", "lb-2:80", None)


@pytest.mark.parametrize(
    ("fields", "signal", "value"),
    [
        ({"rps_fractional": 7.5}, "requests_per_second", 7.5),
        ({"rpsFractional": 7.5}, "requests_per_second", 7.5),
        ({"rps_fractional": 7.5, "requests_per_second": 3}, "requests_per_second", 3.0),
        ({"application_utilization": 0.4, "cpu_utilization": 0.9}, "utilization", 0.4),
        ({"applicationUtilization": 0, "cpuUtilization": 0.9}, "utilization", 0.9),
        ({"cpu_utilization": 0}, "utilization", 0.0),
        ({"serviceTimeMs": 12}, "service_time_ms", 12.0),
        ({"named_metrics": {"outstanding": 3}}, "outstanding", 3.0),
        ({"namedMetrics": {"queue": 3, "tokens": 1}}, "queue", 3.0),
        ({"named_metrics": {"vllm:num_requests_running": 5}}, "outstanding", 5.0),
        ({"named_metrics": {"num_requests_waiting": 2}, "queue": 1}, "queue", 1.0),
        ({"named_metrics": {"kv_cache_usage_perc": 0.25}}, "kv_cache_usage", 0.25),
    ],
)
def test_a_report_is_read_with_orcas_names(fields: dict[str, Any], signal: str, value: float) -> None:
    """Names of the .proto and of its JSON mapping are the same; what gtm's own names say goes first."""
    (report,), problems = _read({"region": "us-east", **fields})
    assert problems == []
    assert getattr(report, signal) == value


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"region": None}, "missing region: is required"),
        ({"region": "eu-centra"}, "there is no region `eu-centra`; did you mean `eu-central`?"),
        ({"region": 7}, "wrong_type region: must be text"),
        ({"service": "chatt"}, "there is no service `chatt`; did you mean `chat`?"),
        ({"service": []}, "wrong_type service: must be text"),
        (
            {"region": "us-east", "service": "embed"},
            "unknown_reference service: region `us-east` is not a member of service `embed`",
        ),
        ({"source": "two words"}, "invalid_format source: must be 1 to 253 printable ASCII"),
        ({"outstanding": None}, "missing body: no load in it: give at least one of outstanding, queue"),
        ({"outstanding": "4"}, "wrong_type outstanding: must be a number"),
        ({"outstanding": 10**400}, "out_of_range outstanding: must be between 0 and 1e+09"),
    ],
)
def test_a_report_about_nothing_is_dropped(change: dict[str, Any], problem: str) -> None:
    """Without a known place, or any signal, a report says nothing; the sender learns what is wrong and what is meant."""
    reports, problems = _read({**REPORT, **change})
    assert reports == []
    assert any(problem in found for found in problems), problems


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"queue": -1}, "out_of_range queue: must be between 0 and 1e+09"),
        ({"queue": True}, "wrong_type queue: must be a number"),
        ({"kv_cache_usage": 1.5}, "out_of_range kv_cache_usage: must be between 0 and 1"),
        ({"queue": float("nan")}, "out_of_range queue"),
        (
            {"quue": 1},
            "unknown_field quue: unknown field: remove it, or check its spelling; did you mean `queue`?",
        ),
        ({"queue_wait_ms": 1, "queueWaitMs": 2}, "overlap queue_wait_ms: is given twice"),
        ({"models": ["a", ""]}, "invalid_format models[1]"),
        ({"models": "a"}, "wrong_type models: must be a list"),
        ({"named_metrics": [1]}, "wrong_type named_metrics: must be an object"),
        ({"utilization": {"a": "b"}}, "wrong_type utilization.a: must be a number"),
        ({"named_metrics": {"queue": -1}}, "out_of_range named_metrics.queue"),
    ],
)
def test_a_malformed_signal_takes_only_itself_away(change: dict[str, Any], problem: str) -> None:
    """The rest of its report counts, and so do other reports; the sender is told."""
    (alone,), problems = _read({**REPORT, **change})
    assert any(problem in found for found in problems), problems
    assert alone == LoadReport("eu-central", "", "reporter-1", 100.0, outstanding=4.0)
    reports, problems = _read({"reports": [{**REPORT, **change}, REPORT]})
    assert reports == [alone, alone]
    assert all("reports[0]." in found for found in problems)


@pytest.mark.parametrize(
    "body", [None, [], "x", {"reports": {}}, {"reports": []}, {"reports": [REPORT] * 1001}]
)
def test_bodies_of_another_shape_say_nothing(body: Any) -> None:
    """One report, or a list of 1 to 1,000: everything else is refused."""
    reports, problems = _read(body)
    assert reports == []
    assert len(problems) == 1


def test_what_stands_beside_a_list_is_unknown() -> None:
    """A list of reports has no common fields; the list itself is read."""
    reports, problems = _read({"reports": [REPORT], "region": "us-east"})
    assert len(reports) == 1
    assert problems == ["unknown_field region: unknown field: `reports` stands alone"]
    assert len(_read({"reports": [{str(number): 1 for number in range(999)}]})[1]) == MAX_PROBLEMS


_names = st.sampled_from([*FIELDS, *(camel for _, camel in json_names()), "reports", "nonsense"])
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["eu-central", "us-east", "chat", "embed", "lb-1"])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_names | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=10,
)


@quick(150)
@given(
    _values
    | st.fixed_dictionaries(
        {"region": st.just("us-east")}, optional=dict.fromkeys(FIELDS - {"region"}, _values)
    )
)
def test_whatever_arrives_is_read_or_named(body: Any) -> None:
    """No JSON value breaks the reader, nothing out of range gets through, and nothing is dropped in silence."""
    reports, problems = _read(body)
    assert reports or problems
    for report in reports:
        assert report.region in MEMBERS
        assert not report.service or report.service in MEMBERS[report.region]
        stated = [getattr(report, name) for name in SIGNALS if getattr(report, name) is not None]
        assert all(0 <= value <= SIGNALS["gpu_memory_used_bytes"] for value in stated)
        assert stated or report.models is not None or report.utilization is not None


LOAD = Load("r", "", 100.0, 1)


@pytest.mark.parametrize(
    ("age", "found"),
    [
        (-9, Freshness.FRESH),
        (5, Freshness.FRESH),
        (5.1, Freshness.STALE),
        (30, Freshness.STALE),
        (30.1, Freshness.LOST),
        (86_400, Freshness.LOST),
        (86_401, Freshness.NEVER),
    ],
)
def test_a_load_ages(age: float, found: Freshness) -> None:
    """Fresh to 5 s, stale to 30 s, lost for a day; a clock that stepped back ages nothing."""
    assert freshness(LOAD, 100.0 + age) is found
    assert freshness(None, 100.0) is Freshness.NEVER


def _report(source: str, at: float = 100.0, **signals: Any) -> LoadReport:
    return LoadReport("r", "s", source, at, **signals)


def test_reporters_add_up() -> None:
    """Amounts and rates are sums over those that state them, times are means by rate; nothing stated is not 0."""
    found = summed(
        "r",
        "s",
        [
            _report(
                "a", limit=10.0, queue=1.0, service_time_ms=100.0, requests_per_second=3.0, models=("m", "n")
            ),
            _report(
                "b", 101.0, limit=20.0, service_time_ms=500.0, requests_per_second=1.0, models=("l", "m")
            ),
        ],
    )
    assert found == Load(
        *("r", "s", 101.0, 2),
        limit=30.0,
        queue=1.0,
        service_time_ms=200.0,
        requests_per_second=4.0,
        models=("l", "m", "n"),
    )
    plain = summed("r", "s", [_report("a", queue_wait_ms=10.0), _report("b", queue_wait_ms=30.0)])
    assert plain.queue_wait_ms == 20.0


def test_a_reporter_that_falls_behind_is_gone() -> None:
    """While others go on, the silent one's part is no longer there after 30 s; silent together they all still count."""
    old, new = _report("a", 69.0, limit=10.0), _report("b", 100.0, limit=20.0)
    assert summed("r", "s", [old, new]).limit == 20.0
    assert summed("r", "s", [replace(old, at=70.0), new]).limit == 30.0


def test_the_book_keeps_the_newest_of_each_reporter() -> None:
    """Reports replace older ones of the same reporter only, whatever order they come in."""
    book = LoadBook()
    for report in (
        _report("a", 10.0, queue=1.0),
        _report("a", 12.0, queue=2.0),
        _report("a", 11.0, queue=3.0),
    ):
        assert book.take(report)
    assert book.loads()["r", "s"].queue == 2.0
    assert book.take(_report("b", 12.0, queue=5.0))
    assert book.take(replace(_report("a", 12.0, queue=1.0), service=""))
    assert {key: load.queue for key, load in book.loads().items()} == {("r", "s"): 7.0, ("r", ""): 1.0}
    book.retain(lambda key: key != ("r", "s"))
    assert list(book.loads()) == [("r", "")]


def test_the_book_is_bounded() -> None:
    """More reporters than fit are refused, until some have fallen silent."""
    book = LoadBook()
    assert all(book.take(_report(str(number), 10.0, queue=1.0)) for number in range(MAX_SOURCES))
    assert not book.take(_report("late", 10.0, queue=1.0))
    assert book.take(_report("0", 50.0, queue=1.0))
    assert book.take(_report("late", 50.0, queue=1.0))
    assert book.loads()["r", "s"].sources == 2


def test_a_regions_services_speak_for_it() -> None:
    """Queues and rates of its services add up; their limits do not, since they may be the same slots."""
    chat = Load("r", "chat", 100.0, 2, queue=1.0, limit=10.0, outstanding=5.0)
    embed = Load("r", "embed", 90.0, 1, queue=2.0, limit=10.0)
    gone = Load("r", "gone", 60.0, 1, queue=50.0)
    assert whole("r", [chat, embed, gone]) == Load("r", "", 100.0, 2, queue=3.0, outstanding=5.0)
    assert whole("r", []) is None


@quick(200)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 90), st.none() | st.integers(0, 9)), min_size=1)
)
def test_the_order_of_reports_does_not_matter(given_: list[tuple[str, int, int | None]]) -> None:
    """The book says the same, whatever way reports of different times arrive."""
    unique = {(source, at): queue for source, at, queue in given_}
    reports = [_report(source, float(at), queue=queue) for (source, at), queue in unique.items()]
    books = [LoadBook(), LoadBook()]
    for book, ordered in zip(books, (reports, reports[::-1]), strict=True):
        for report in ordered:
            book.take(report)
            book.loads()
    assert books[0].loads() == books[1].loads()
