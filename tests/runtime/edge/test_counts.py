"""What workers count, and hand on while they go on counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gtm.telemetry import KEPT_KEYS, MAX_CLIENTS, Counts, EdgeMetrics, top_client_key


def test_each_increment_is_told_once() -> None:
    """What was told is not told again, and nothing new is nothing."""
    counts = Counts()
    counts.add("a")
    counts.add("b", 2)
    assert counts.take() == {"a": 1, "b": 2}
    counts.add("b")
    assert counts.take() == {"b": 1}
    assert counts.take() == {}


@given(st.lists(st.booleans(), max_size=30))
def test_a_take_amid_an_increment_loses_nothing(taken: list[bool]) -> None:
    """An answering thread may be interrupted between reading a sum and writing the next: each counts once all the same."""
    counts, told = Counts(), 0.0
    for now in taken:
        read = counts.get("a", 0)
        if now:
            told += counts.take().get("a", 0)
        counts["a"] = read + 1
    assert told + counts.take().get("a", 0) == len(taken)


def test_counters_that_stand_still_are_dropped_beyond_a_limit() -> None:
    """Traffic that names ever new counters does not grow the memory for ever, and what comes back counts anew."""
    counts = Counts()
    for start in range(0, 3 * KEPT_KEYS, KEPT_KEYS):
        for number in range(start, start + KEPT_KEYS):
            counts.add(str(number))
        assert len(counts.take()) == KEPT_KEYS
    assert len(counts) <= 2 * KEPT_KEYS
    counts.add("0")
    assert counts.take() == {"0": 1}


def test_top_clients_are_those_since_the_last_time() -> None:
    """The metrics name the ten prefixes that got the most from all workers, and forget them with the next text."""
    metrics = EdgeMetrics()
    for _worker in range(2):
        metrics.add({top_client_key(f"198.51.{number}.0/24"): number + 1 for number in range(20)})
    lines = [line for line in metrics.text().splitlines() if line.startswith("gtm_dns_top_clients{")]
    assert len(lines) == 10
    assert 'gtm_dns_top_clients{prefix="198.51.19.0/24"} 40.0' in lines
    assert "gtm_dns_top_clients{" not in metrics.text()


def test_corrections_are_handed_over_by_the_regions_between_which_requests_moved() -> None:
    """Of all workers, once; what stayed is in the metrics alone."""
    metrics = EdgeMetrics()
    moved, stayed = "gtm_edge_corrections_total\tus\tie\tmoved", "gtm_edge_corrections_total\tus\t\tno_room"
    metrics.add({moved: 2, stayed: 5, "gtm_edge_corrections_total\t\tie\tmoved": 1})
    metrics.add({moved: 1})
    assert metrics.take_corrections() == {"us\tie": 3, "\tie": 1}
    assert metrics.take_corrections() == {}
    lines = metrics.text().splitlines()
    assert 'gtm_edge_corrections_total{from="us",to="ie",why="moved"} 3.0' in lines
    assert 'gtm_edge_corrections_total{from="us",to="",why="no_room"} 5.0' in lines


def test_what_dns_does_is_handed_over_without_the_names_that_were_asked_for() -> None:
    """Of all workers, once; hosts of the policy add up, and the metrics have each."""
    metrics = EdgeMetrics()
    answered = "gtm_dns_queries_total\t{}\tA\tNOERROR\tudp"
    metrics.add(
        {answered.format("a.test"): 2, answered.format("b.test"): 1, "gtm_dns_limited_total\tslipped": 4}
    )
    metrics.add(
        {answered.format("a.test"): 1, "gtm_dns_dropped_total\tshort": 1, "gtm_dns_full_way_total\tudp": 9}
    )
    assert metrics.take_dns() == {"answered\tA\tNOERROR\tudp": 4, "limited\tslipped": 4, "dropped\tshort": 1}
    assert metrics.take_dns() == {}
    assert (
        'gtm_dns_queries_total{name="a.test",rcode="NOERROR",transport="udp",type="A"} 3.0' in metrics.text()
    )


def test_top_clients_that_nobody_writes_down_are_bounded() -> None:
    """A DNS worker that is left alone for days counts on, and serves no metrics."""
    metrics = EdgeMetrics()
    for number in range(3 * MAX_CLIENTS):
        metrics.add({top_client_key(f"prefix {number}"): 1})
    metrics.add({top_client_key("latecomer"): 1000, top_client_key("prefix 0"): 7})
    text = metrics.text()
    assert 'gtm_dns_top_clients{prefix="prefix 0"} 8.0' in text
    assert "latecomer" not in text
    metrics.add({top_client_key("latecomer"): 1000})
    assert "latecomer" in metrics.text()  # what was written down is forgotten
