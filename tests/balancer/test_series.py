"""What is counted of servers that come and go: it stays until it was scraped, and no longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gtm.balancer.metrics import Family, MergedMetrics, render
from gtm.balancer.plane.stats import KEPT, MOST_SERIES, Stats
from gtm.core.capacity.durations import BOUNDS, MOST_TOLD, OTHER
from gtm.core.handoff.verdict import Code, Verdict
from gtm.feed.reports import MAX_SHOWN_TEXT


def _end(stats: Stats, url: str, status: int = 200, model: str | None = None, service: str = "") -> None:
    answer = SimpleNamespace(events=True, pieces=3)
    routing: Any = SimpleNamespace(request=SimpleNamespace(service=service))
    exchange: Any = SimpleNamespace(
        status=status,
        waited=0.0,
        verdict=Verdict(Code.SERVE, routing=routing) if service else None,
        began=1.0,
        first_byte=2.0,
        answer=answer,
        fallback="",
        facts=SimpleNamespace(model=model),
    )
    stats.ended(exchange, url, "answered", 4.0)


def _known(stats: Stats) -> set[str]:
    stats.settle()
    tables: tuple[Any, ...] = (stats.durations, stats.first_bytes, stats.between, stats.failures, stats.full)
    return {url for url, _, _ in stats.requests} | {url for table in tables for url in table}


def test_a_server_that_is_gone_is_forgotten_a_while_later() -> None:
    """One that comes back before stays; what load reports go by does not fall. After digitalocean/ceph_exporter#102, where they stayed for ever."""
    stats = Stats()
    for url in ("a", "b", "c"):
        _end(stats, url)
        stats.failed(url)
        stats.full[url] += 1
    served = stats.served()
    assert stats.keep({"a", "b"}, 100.0) == []
    assert stats.keep({"a"}, 200.0) == []
    assert stats.keep({"a", "c"}, 300.0) == []
    assert _known(stats) == {"a", "b", "c"}
    assert stats.keep({"a", "c"}, 200.0 + KEPT) == ["b"]
    assert _known(stats) == {"a", "c"}
    assert stats.served() == served
    assert stats.keep({"a"}, 300.0 + KEPT) == []  # it is gone since now
    _end(stats, "b")
    assert stats.keep({"a", "c"}, 400.0 + KEPT) == []
    assert stats.keep({"a", "c"}, 400.0 + 2 * KEPT) == ["b"]  # a stream that went on for long


def test_what_is_told_apart_is_bounded_and_what_is_left_out_counted() -> None:
    """A server may say any status, and names may lead anywhere."""
    stats = Stats()
    for number in range(MOST_SERIES + 5):
        _end(stats, f"http://{number}")
    stats.settle()
    assert len(stats.requests) == len(stats.durations) == MOST_SERIES
    assert stats.left_out == 5
    assert stats.served()[0] == MOST_SERIES + 5


def _requests(backend: str, answered: float, refused: float) -> list[Family]:
    samples = [(f'{{backend="{backend}",status="200"}}', answered), ('{backend="",status="404"}', refused)]
    return [Family("gtm_balancer_requests_total", "counter", "Requests.", samples)]


def test_what_ended_workers_had_counted_goes_with_its_server() -> None:
    """As long as a living worker tells of it, it is there; afterwards it is not, and what was no server's stays."""
    merged = MergedMetrics()
    merged.ended(_requests("http://a", 5, 1))
    assert b'backend="http://a",status="200"} 6' in render(merged.merged([_requests("http://a", 1, 1)]))
    text = render(merged.merged([_requests("http://b", 2, 1)]))
    assert b"http://a" not in text
    assert b'backend="http://b",status="200"} 2' in text
    assert b'backend="",status="404"} 2' in text


def test_times_are_told_once_by_service_and_model() -> None:
    """Over all servers; what is asked for again is what has ended since. Metrics have all of it."""
    stats = Stats()
    stats.declared = {"m"}.__contains__
    for url in ("a", "b", "b"):
        _end(stats, url, model="m", service="chat")
    _end(stats, "a", service="search")
    _end(stats, "", model="m", service="chat")  # nobody had it
    found = stats.take_times()
    assert {key: sum(took.ends.values()) for key, took in found.items()} == {
        ("chat", "m"): 3,
        ("search", ""): 1,
    }
    (bucket,) = found["chat", "m"].ends
    assert (BOUNDS[bucket - 1], BOUNDS[bucket]) == (2.75, 3.0)
    (bucket,) = found["chat", "m"].first_bytes
    assert BOUNDS[bucket] == 1.0
    assert stats.take_times() == {}
    _end(stats, "a", model="m", service="chat")
    assert sum(stats.take_times()["chat", "m"].ends.values()) == 1
    assert {url: sum(one.counts) for url, one in stats.durations.items()} == {"a": 3, "b": 2}


def test_names_that_strangers_make_up_share_one() -> None:
    """However many, however long (BerriAI/litellm#39136, llm-d/llm-d-router#1625, apache/apisix#13637); and of what is declared no more than a report has place for."""
    stats = Stats()
    stats.declared = lambda name: not name.startswith("made-up")
    for number in range(1000):
        _end(stats, "a", model=f"made-up-{number}", service="chat")
    _end(stats, "a", model="m" * (MAX_SHOWN_TEXT + 1), service="chat")
    _end(stats, "a", model="two\nlines", service="chat")
    assert {key: sum(took.ends.values()) for key, took in stats.take_times().items()} == {
        ("chat", OTHER): 1002
    }
    for number in range(MOST_TOLD):
        _end(stats, "a", model=f"m{number}", service="chat")
    found = stats.take_times()
    assert len(found) <= MOST_TOLD
    assert sum(sum(took.ends.values()) for took in found.values()) == MOST_TOLD
