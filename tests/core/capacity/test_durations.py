"""Percentiles of what requests took: read from counts that add up, as near to the exact ones as the buckets are."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.plane.stats import BOUNDS as TOLD_BOUNDS
from gtm.balancer.plane.stats import Histogram
from gtm.core.capacity.durations import BOUNDS, OTHER, Counts, Took, TookBy, add, added, place, quantile

SECONDS = st.floats(0.0, 5000.0) | st.sampled_from(BOUNDS)
PARTS = st.lists(st.lists(SECONDS, max_size=40), min_size=1, max_size=5)


def counted(seconds: list[float]) -> Counts:
    """As a balancer counts."""
    found: Counts = {}
    for one in seconds:
        bucket = bisect_left(BOUNDS, one)
        found[bucket] = found.get(bucket, 0) + 1
    return found


def test_a_bucket_is_an_eighth_wider_than_the_one_before_at_most() -> None:
    """And each bound of the balancer's metrics is one of them: these are sums of whole buckets."""
    assert all(after / before <= 1.126 for before, after in pairwise(BOUNDS))
    assert (BOUNDS[0], BOUNDS[-1]) == (0.001, 4000.0)
    assert {*TOLD_BOUNDS} <= {*BOUNDS}


@given(PARTS, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentiles_of_parts_added_up_are_those_of_the_whole(parts: list[list[float]], share: float) -> None:
    """Within the bucket of the exact one, whatever the parts are: workers, balancers, minutes."""
    whole = sorted(one for part in parts for one in part)
    counts: Counts = {}
    for part in parts:
        added(counts, counted(part))
    found = quantile(counts, share)
    assert found == quantile(counted(whole), share)
    if not whole:
        assert found is None
        return
    exact = whole[ceil(share * len(whole)) - 1]
    bucket = bisect_left(BOUNDS, exact)
    if bucket == len(BOUNDS):
        assert found == BOUNDS[-1]
    else:
        assert found is not None
        assert (BOUNDS[bucket - 1] if bucket else 0.0) <= found <= BOUNDS[bucket]


@given(st.lists(SECONDS, max_size=40))
def test_metrics_are_sums_of_whole_buckets(seconds: list[float]) -> None:
    """What Prometheus is told is what it would be told if each request were counted there."""
    told, each = Histogram(), Histogram()
    told.take(counted(seconds), sum(seconds))
    for one in seconds:
        each.add(one)
    assert told.counts == each.counts
    assert told.total == pytest.approx(each.total)


def test_a_slow_region_with_few_requests_hides_no_other() -> None:
    """Percentiles are never averaged (scylladb/scylla-monitoring#1886): of 990 quick ones here and 10 slow ones there, the p99 is one of the quick."""
    quick, slow = counted([0.1] * 990), counted([60.0] * 10)
    counts: Counts = {}
    added(counts, quick)
    added(counts, slow)
    p99 = quantile(counts, 0.99)
    assert p99 is not None
    assert p99 <= 0.11
    assert quantile(slow, 0.99) == pytest.approx(60.0, rel=0.125)


def test_names_beyond_the_bound_share_a_row() -> None:
    """Models share their service's `other`; what has no place there is left out."""
    table: TookBy = {}
    for number in range(5):
        add(table, {("chat", f"m{number}"): Took({}, {3: 1})}, most=2)
    assert {key: took.ends for key, took in table.items()} == {
        ("chat", "m0"): {3: 1},
        ("chat", "m1"): {3: 1},
        ("chat", OTHER): {3: 3},
    }
    assert place(table, "search", "", most=2) is place(table, "search", OTHER, most=2)
    assert place(table, "third", "", most=2) is None


@pytest.mark.parametrize(
    ("seconds", "source"),
    [
        (0.0125, "knative/serving#4105: all percentiles were the first bucket's second"),
        (0.3, "coupergateway/couper#1010: buckets for milliseconds held seconds"),
        (1.02, "linkerd/linkerd2#13483: a bucket from 1 s to 10 s made 1.5 s of it"),
        (45.0, "kiali/kiali#1021: nothing was slower than 10 s"),
        (600.0, "ai-dynamo/dynamo#8087: inference that takes minutes was clamped"),
    ],
)
def test_what_all_requests_took_is_told_within_an_eighth(seconds: float, source: str) -> None:
    """Wherever it lies."""
    for share in (0.5, 0.99):
        assert quantile(counted([seconds] * 50), share) == pytest.approx(seconds, rel=0.125), source


def test_one_slow_request_of_a_thousand_is_no_p99() -> None:
    """Nor is the p99 the largest (statsite/statsite#180); of a hundred with two slow ones it is."""
    p99 = quantile(counted([0.001] * 1000 + [4000.0]), 0.99)
    assert p99 is not None
    assert p99 <= 0.001
    assert quantile(counted([0.001] * 98 + [4000.0] * 2), 0.99) == pytest.approx(4000.0, rel=0.125)


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_a_higher_percentile_is_not_lower(seconds: list[float]) -> None:
    """As cockroachdb/cockroach#120887 drew them."""
    found = [quantile(counted(seconds), share) or 0.0 for share in (0.01, 0.5, 0.9, 0.95, 0.99, 1.0)]
    assert found == sorted(found)


def test_of_no_request_nothing_is_told() -> None:
    """No zero, as cockroachdb/cockroach#12998 drew it."""
    assert quantile({}, 0.99) is None
