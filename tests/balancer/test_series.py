"""What is counted of servers that come and go: it stays until it was scraped, and no longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gtm.balancer.metrics import Family, MergedMetrics, render
from gtm.balancer.plane.stats import KEPT, MOST_SERIES, Stats


def _end(stats: Stats, url: str, status: int = 200) -> None:
    answer = SimpleNamespace(events=True, pieces=3)
    exchange: Any = SimpleNamespace(
        status=status, waited=0.0, verdict=None, began=1.0, first_byte=2.0, answer=answer
    )
    stats.ended(exchange, url, "answered", 4.0)


def _known(stats: Stats) -> set[str]:
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
