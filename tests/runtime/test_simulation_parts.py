"""The simulations of tests/bench: their queue is a queue, their day is a day, and they print what they promise."""

from __future__ import annotations

import json
from math import factorial, inf
from pathlib import Path

import numpy as np
import pytest

from tests.bench import dns_quota_sim, sim_traces, spillover_sim
from tests.bench.sim_queue import SlotQueue
from tests.bench.sim_run import Finished
from tests.bench.sim_traces import SHAPES, half_of, make_trace
from tests.bench.sim_world import AREAS, Rates, Windows, make_day, peak_erlangs, read_trace, round_trips, zipf

pytestmark = pytest.mark.drill
"""They hold what measures gtm, not gtm."""

FIGURES = {
    "mean_ttft_ms",
    "p99_ttft_ms",
    "rejected",
    "slots_needed",
    "quota_violations",
    "weight_movement",
    "outside_fence",
}


def _erlang_c(servers: int, load: float) -> float:
    """The probability of waiting in M/M/c (Erlang 1917)."""
    blocked = load**servers / factorial(servers) * servers / (servers - load)
    return blocked / (sum(load**number / factorial(number) for number in range(servers)) + blocked)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten minutes of synthetic requests, one every half second on average."""
    generator = np.random.default_rng(3)
    at = np.cumsum(generator.exponential(0.5, 1200))
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for second in at:
        minutes, rest = divmod(float(second), 60)
        context, generated = generator.integers(50, 2000), generator.integers(5, 60)
        lines.append(f"2024-01-01 00:{int(minutes):02d}:{rest:09.6f}0,{context},{generated}")
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 3.0), (20, 17.0)])
def test_waits_are_those_of_m_m_c(servers: int, load: float) -> None:
    """Poisson arrivals and exponential service: the share that waits and the mean wait follow Erlang's C formula."""
    generator = np.random.default_rng(1)
    count = 200_000
    queue = SlotQueue(servers, waiting=count)
    at = np.cumsum(generator.exponential(1.0, count))
    wait = np.array([queue.offer(*one) for one in zip(at, generator.exponential(load, count), strict=True)])
    delayed = _erlang_c(servers, load)
    assert (wait > 0).mean() == pytest.approx(delayed, rel=0.05)
    assert wait.mean() == pytest.approx(delayed * load / (servers - load), rel=0.1)


def test_little_s_law_holds() -> None:
    """Requests present on average are arrivals per second × the time that each is present (Little 1961)."""
    generator = np.random.default_rng(2)
    queue, rate, seconds = SlotQueue(8, waiting=50), 5.0, 4000
    at = np.sort(generator.uniform(0, seconds, int(rate * seconds)))
    hold = generator.gamma(2.0, 0.75, len(at))
    present, stays, second = [], [], 0
    for now, length in zip(at.tolist(), hold.tolist(), strict=True):
        while second <= now:
            present.append(sum(queue.load(second)))
            second += 1
        wait = queue.offer(now, length)
        if wait < inf:
            stays.append(wait + length)
    assert np.mean(present) == pytest.approx(sum(stays) / seconds, rel=0.02)


def test_a_full_queue_refuses() -> None:
    """With every slot and place taken a request is refused, and leaves no trace; places free up as others start."""
    queue = SlotQueue(1, waiting=1)
    assert [queue.delay(0.0), queue.offer(0.0, 10.0)] == [0.0, 0.0]
    assert [queue.delay(1.0), queue.offer(1.0, 10.0)] == [9.0, 9.0]
    assert [queue.delay(2.0), queue.offer(2.0, 10.0)] == [inf, inf]
    assert queue.load(2.0) == (1, 1)
    assert queue.offer(10.0, 1.0) == 10.0


def test_windows_peak_by_time_zone_and_keep_the_trace_s_requests(trace: Path) -> None:
    """Demand peaks in the local afternoon, in the ratio asked for, and service times are the trace's."""
    read = read_trace(trace)
    windows = Windows(count=24, seconds=100, warm_up=40)
    day = make_day(
        AREAS,
        read,
        Rates(),
        windows,
        peak_to_trough=5.0,
        dns_share=0.5,
        caches=50,
        generator=np.random.default_rng(1),
    )
    assert (np.diff(day.at) >= 0).all()
    assert day.hold.mean() == pytest.approx(
        peak_erlangs(AREAS, read, Rates())[0] / AREAS[0].copies * 0.5, rel=0.05
    )
    assert (day.cache >= 0).mean() == pytest.approx(0.5, abs=0.02)
    assert day.measured.mean() == pytest.approx(0.6, abs=0.02)
    assert set((day.at[~day.measured] % 100 < 40).tolist()) == {True}
    for number, area in enumerate(AREAS):
        hours = day.at[day.area == number] / 100
        by_hour = np.bincount(((hours + area.utc_offset) % 24).astype(int), minlength=24)
        afternoon, night = by_hour[14:16].sum(), by_hour[2:4].sum()
        assert afternoon / night == pytest.approx(5.0, rel=0.35)


def test_a_window_s_rate_is_constant_in_the_mean(trace: Path) -> None:
    """Nothing of the day's curve is left inside a window, also where it takes a part of a copy."""
    windows = Windows(count=2, seconds=2000, warm_up=0)
    day = make_day(
        AREAS,
        read_trace(trace),
        Rates(),
        windows,
        peak_to_trough=7.0,
        dns_share=0.0,
        caches=1,
        generator=np.random.default_rng(2),
    )
    for window in range(2):
        first, second = np.bincount((day.at // 1000).astype(int))[2 * window : 2 * window + 2]
        assert first == pytest.approx(second, rel=0.05)


def test_a_region_reports_what_it_finished_lately() -> None:
    """The mean service time of the last seconds, and nothing of what is still to come."""
    finished = Finished(2, 100)
    for at, hold in ((0.5, 1.0), (20.5, 3.0), (21.5, 5.0), (40.0, 9.0), (500.0, 9.0)):
        finished.add(1, at, hold)
    assert finished.service_time(22).tolist() == [1.0, 4.0]
    assert finished.service_time(60).tolist() == [1.0, 1.0]


def test_every_area_is_nearest_to_its_own_region() -> None:
    """Clients of area n prefer region n, and those of the fence stay inside it."""
    trips = round_trips(AREAS)
    for fenced in (False, True):
        order = spillover_sim.preference(AREAS, trips, fenced=fenced)
        assert [preferred[0] for preferred in order] == list(range(len(AREAS)))
    assert all(
        AREAS[region].fenced
        for area, preferred in zip(AREAS, order, strict=True)
        if area.fenced
        for region in preferred
    )


def test_zipf_shares_sum_to_one() -> None:
    """The k-th population is a k-th of the first."""
    assert zipf(4) == pytest.approx(np.array([12, 6, 4, 3]) / 25)


def test_the_spillover_simulation_prints_what_it_promises(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line has each strategy's figures with and without the fence, and the fence holds."""
    spillover_sim.main(
        f"--trace {trace} --quick --regions 3 --windows 2 --window-seconds 20 --warm-up 10 --tolerance 0.5".split()
    )
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in spillover_sim.STRATEGIES:
        assert set(result[name]) >= FIGURES
        assert set(result["without_fence"][name]) >= FIGURES
        assert result[name]["outside_fence"] == 0
    for name in ("gtm+edge", "gtm+push", "gtm+edge+push"):
        tight = result[name]["at_oracle_slots"]
        assert tight["quota_violations"] == tight["outside_fence"] == 0


@pytest.mark.parametrize("quotas", ["leases", "earned"])
def test_spill_back_keeps_fence_and_quotas_where_all_is_tight(
    trace: Path, capsys: pytest.CaptureFixture[str], quotas: str
) -> None:
    """With old figures and many edges too; a pushed request is counted once, with its extra round trip."""
    spillover_sim.main(
        f"--trace {trace} --quick --regions 4 --windows 1 --window-seconds 25 --warm-up 15 --tolerance 0.5 --fence-only "
        f"--strategies gtm+edge+push --quotas {quotas} --state-age 0.5 --edges 3".split()
    )
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "without_fence" not in result
    tight = result["gtm+edge+push"]["at_oracle_slots"]
    assert tight["quota_violations"] == tight["outside_fence"] == 0
    assert tight["pushed_share"] > 0
    assert tight["edge_moved"] > 0
    assert tight["mean_ttft_ms"] > 0


def test_an_unknown_strategy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names it, and those that there are."""
    with pytest.raises(SystemExit):
        spillover_sim.arguments(["--shape", "short", "--strategies", "gtm,best"])
    assert "best: no such strategy; there are nearest," in capsys.readouterr().err


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_made_up_trace_has_its_shape(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same by seed, in the order of time, of the sizes that it says, and read back as written."""
    made, again, other = make_trace(shape, 5), make_trace(shape, 5), make_trace(shape, 6)
    assert (made.arrival == again.arrival).all()
    assert len(made.arrival) != len(other.arrival) or (made.arrival != other.arrival).any()
    assert (np.diff(made.arrival) >= 0).all()
    assert 0 == made.arrival[0] < made.arrival[-1] < 1.1 * 3600
    _, context, generated = SHAPES[shape]
    assert made.context.mean() == pytest.approx(context, rel=0.1)
    assert made.generated.mean() == pytest.approx(generated, rel=0.1)
    sim_traces.main([shape, "--seed", "5"])
    path = tmp_path / "made.csv"
    path.write_text(capsys.readouterr().out)
    read = read_trace(path)
    assert read.arrival == pytest.approx(made.arrival, abs=1e-3)
    assert (read.context == made.context).all()


def test_made_up_traces_are_as_bursty_as_they_say() -> None:
    """Variance of the count in 4 s ÷ its mean: 1 for a Poisson process, much more for bursts and crowds."""
    spread = {}
    for shape in SHAPES:
        counts = np.bincount((make_trace(shape, 5).arrival // 4).astype(int))
        spread[shape] = counts.var() / counts.mean()
    assert spread["long"] == pytest.approx(1, abs=0.2)
    assert min(spread["short"], spread["flash"]) > spread["diurnal"] > 3


def test_halves_of_a_trace_have_nothing_in_common() -> None:
    """Each begins at 0; together they are all of it."""
    whole = make_trace("long", 5)
    halves = [half_of(whole, second=second) for second in (False, True)]
    assert [half.arrival[0] for half in halves] == [0, 0]
    assert np.concatenate([half.context for half in halves]).tolist() == whole.context.tolist()


def test_a_trace_that_is_none_is_refused_by_line(tmp_path: Path) -> None:
    """The error names the file and the line."""
    path = tmp_path / "bad.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.0000000,1,1\nsoon,1,1\n")
    with pytest.raises(SystemExit, match=r"bad\.csv, line 3: not a request"):
        read_trace(path)


def test_the_share_simulation_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """Its last line has a row for each combination; shares hold, and short TTLs converge sooner."""
    dns_quota_sim.main(["--seconds", "60", "--resolvers", "50", "--networks", "50", "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    rows = {(row["population"], row["ttl"], row["weights"], row["affinity"]): row for row in found}
    assert len(rows) == 3 * 4 * 3 * 2 + 3 * 2
    assert rows["http", 0, "70/30", "none"]["mean"] == pytest.approx(0.7, abs=0.03)
    assert rows["http", 0, "70/30", "none"]["converge_s"] == 0
    assert rows["isp", 5, "70/30", "none"]["converge_s"] < rows["isp", 300, "70/30", "none"]["converge_s"]
