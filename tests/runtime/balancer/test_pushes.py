"""What a balancer tells control of requests that found no slot."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.durations import Took, TookBy
from gtm.core.latency.samples import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.current import CurrentView
from gtm.feed.reports import MAX_PUSHES, BalancerReport, TimesTold
from gtm.runtime.balancer.balancer import Pushes


class _Carriers:
    """Those that pushed so many, by service, region and why."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def pushes(self) -> dict[str, int]:
        return self.counts

    def times(self) -> TookBy:
        return {("chat", "m"): Took({3: 1}, {4: 2})}

    async def state(self) -> dict[str, Any]:
        return {}

    def tiers(self) -> dict[str, tuple[int, int]]:
        return {}

    def round_trips(self) -> Interval:
        return Interval([], [])

    def spent(self) -> tuple[()]:
        return ()


def _reporting(carriers: _Carriers, home: Path) -> Pushes:
    return Pushes(
        cast("Any", SimpleNamespace(region="fra")),
        CurrentView(lambda: 0.0),
        cast("Any", SimpleNamespace(home=home)),
        kept=cast("Any", None),
        carriers=cast("Any", carriers),
        leases=LeaseHolder("b", 1),
    )


def _told(pushes: Pushes) -> BalancerReport:
    return pushes._report()  # noqa: SLF001 - what is sent


def test_of_too_many_kinds_the_largest_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Control refuses a report with more, whole: the rest is said in the log, added to, and told of later."""
    carriers = _Carriers()
    carriers.counts = {f"s{number}\tiad\tmoved": 1 + number for number in range(MAX_PUSHES + 300)}
    pushes = _reporting(carriers, tmp_path)
    first = _told(pushes).pushes
    assert len(first) == MAX_PUSHES
    assert min(first.values()) == 301
    assert pushes.untold == sum(range(1, 301))
    assert "300 more ways" in caplog.text
    carriers.counts = {key: count + (key == "s0\tiad\tmoved") for key, count in carriers.counts.items()}
    second = _told(pushes).pushes
    assert len(second) == 300
    assert second["s0\tiad\tmoved"] == 2
    assert not _told(pushes).pushes
    assert pushes.untold == sum(range(1, 301))
    assert len(caplog.records) == 1


def test_what_is_left_out_again_is_counted_once(tmp_path: Path) -> None:
    """By the requests that came since the last report."""
    carriers = _Carriers()
    pushes = _reporting(carriers, tmp_path)
    small = {f"s{number}": 1 for number in range(2)}
    carriers.counts = {f"l{number}": 10 for number in range(MAX_PUSHES)} | small
    _told(pushes)
    assert pushes.untold == 2
    carriers.counts = {key: 2 * count for key, count in carriers.counts.items()} | {"s1": 1}
    assert not small.keys() & _told(pushes).pushes.keys()
    assert pushes.untold == 3
    assert _told(pushes).pushes == {"s0": 2, "s1": 1}
    assert pushes.untold == 3


@given(st.lists(st.dictionaries(st.integers(0, 1200), st.integers(1, 5), max_size=30), max_size=8))
def test_everything_is_told_once(rounds: list[dict[int, int]]) -> None:
    """Whatever is pushed when: what reports tell of in all is what was pushed; what the report of its second left out is counted once."""
    carriers = _Carriers()
    pushes = _reporting(carriers, Path("unused"))
    told: dict[str, float] = {}
    untold = 0
    many = {f"{number}": 1 for number in range(MAX_PUSHES + 200)}
    for more in ({}, *rounds):
        grown = {f"{number}": carriers.counts.get(f"{number}", 0) + count for number, count in more.items()}
        new = {
            key: grown.get(key, count) - carriers.counts.get(key, 0)
            for key, count in (carriers.counts or many).items()
        }
        carriers.counts = {**(carriers.counts or many), **grown}
        report = _told(pushes).pushes
        untold += sum(count for key, count in new.items() if key not in report)
        assert pushes.untold == untold
        assert len(report) <= MAX_PUSHES
        for key, count in report.items():
            told[key] = told.get(key, 0) + count
    for _ in range(2):
        for key, count in _told(pushes).pushes.items():
            told[key] = told.get(key, 0) + count
    assert told == carriers.counts


def test_reports_have_numbers_and_times(tmp_path: Path) -> None:
    """Numbers grow within a run, so that control counts none of them twice; another start is another run."""
    first, second = _reporting(_Carriers(), tmp_path), _reporting(_Carriers(), tmp_path)
    told = [_told(first), _told(first), _told(second)]
    assert [one.number for one in told] == [1, 2, 1]
    assert told[0].run == told[1].run != told[2].run
    assert told[0].times == (TimesTold("chat", "m", ((3, 1),), ((4, 2),)),)
