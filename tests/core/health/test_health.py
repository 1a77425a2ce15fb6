"""The health state machine, and how vantages agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.health.verdicts import (
    ProbeResult,
    Track,
    VantageReport,
    advance,
    combine,
    endpoint_factor,
    fill,
    overruled,
)
from gtm.core.model.regions import Probe
from gtm.core.model.state import EndpointHealth, HealthStatus
from tests.core.strategies import quick

UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN
PROBE = Probe(up_threshold=2, down_threshold=3)


def _run(results: str, probe: Probe = PROBE) -> list[Track]:
    """The memory after each result; `+` passes, `-` fails, one a second from 1 on."""
    track, tracks = Track(), []
    for at, result in enumerate(results, 1):
        track = advance(track, ProbeResult(result == "+", float(at), f"failure {at}", at * 10.0), probe)
        tracks.append(track)
    return tracks


def _statuses(results: str) -> str:
    return "".join("+" if track.health.status is UP else "-" for track in _run(results))


@pytest.mark.parametrize(
    ("results", "statuses"),
    [
        ("+", "+"),
        ("-", "-"),
        ("+--", "+++"),
        ("+---", "+++-"),
        ("+--+--+--", "+++++++++"),
        ("-+", "--"),
        ("-++", "--+"),
        ("-+-+-+", "------"),
        ("+---++", "+++--+"),
    ],
)
def test_verdicts_follow_the_thresholds(results: str, statuses: str) -> None:
    """The first result decides; later a change takes as many in a row as its threshold, and flapping changes nothing."""
    assert _statuses(results) == statuses


@quick(200)
@given(st.text("+-", min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_no_status_changes_without_its_threshold(results: str, up: int, down: int) -> None:
    """After the first, each change of status ends a run of contradicting results as long as the threshold."""
    tracks = _run(results, Probe(up_threshold=up, down_threshold=down))
    for index in range(1, len(tracks)):
        before, after = tracks[index - 1].health, tracks[index].health
        needed, sign = (up, "+") if before.status is DOWN else (down, "-")
        run = len(results[: index + 1]) - len(results[: index + 1].rstrip(sign))
        changed = before.status is not after.status
        since_change = index + 1 - round(before.since)
        assert changed is (min(run, since_change) >= needed)
        assert after.since == (index + 1 if changed else before.since)


def test_a_track_keeps_the_latest_failure_in_words() -> None:
    """The detail is that of the newest failure while it matters, and goes when all is well."""
    details = [track.health.detail for track in _run("+-+---++")]
    assert details == ["", "failure 2", "", "failure 4", "failure 5", "failure 6", "failure 6", ""]
    assert _run("+-")[-1].health.latency_ms == 20.0


def test_only_an_endpoint_that_was_down_recovers() -> None:
    """It has recovered from the change to up until it is down again; a first verdict of up is no recovery."""
    recovered = "".join("r" if track.health.recovered else "." for track in _run("+---+++--+---++"))
    assert recovered == ".....rrrrrrr..r"


def _report(vantage: str, status: HealthStatus, received: float = 100.0, **more: object) -> VantageReport:
    return VantageReport(vantage, received, {"r": {"u": EndpointHealth(status, **more)}})  # type: ignore[arg-type]


def _combined(*statuses: HealthStatus) -> HealthStatus:
    reports = [_report(str(number), status) for number, status in enumerate(statuses)]
    return combine(reports, 100.0, 5.0).get("r", {}).get("u", EndpointHealth()).status


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((UP,), UP),
        ((UP, UP, DOWN), UP),
        ((UP, DOWN, DOWN), DOWN),
        ((UP, DOWN), UNKNOWN),
        ((UP, UP, DOWN, DOWN), UNKNOWN),
        ((UP, UNKNOWN, UNKNOWN), UP),
        ((UNKNOWN,), UNKNOWN),
        ((), UNKNOWN),
    ],
)
def test_more_than_half_of_those_that_know_decide(
    statuses: tuple[HealthStatus, ...], verdict: HealthStatus
) -> None:
    """A majority of the vantages with a verdict says up; a tie decides nothing; nobody's verdict is unknown."""
    assert _combined(*statuses) is verdict


@pytest.mark.parametrize("was", [UP, DOWN])
def test_a_tie_leaves_what_was(was: HealthStatus) -> None:
    """With its time and detail, marked as tied, for as long as the tie lasts."""
    before = {"r": {"u": EndpointHealth(was, 7.0, "before", 5.0)}}
    reports = [_report("a", UP, since=50.0), _report("b", DOWN, since=60.0)]
    tied = combine(reports, 100.0, 5.0, before)
    assert tied == {"r": {"u": EndpointHealth(was, 7.0, "before", 5.0, tied=True)}}
    assert combine(reports, 101.0, 5.0, tied) == tied
    assert combine([*reports, _report("c", DOWN)], 101.0, 5.0, tied)["r"]["u"] == EndpointHealth(DOWN, 60.0)
    for own in (EndpointHealth(UP), EndpointHealth(DOWN)):
        assert fill(tied, {"r": {"u": own}})["r"]["u"] is own, "each vantage goes by its own probes"
    assert fill(tied, {"r": {"u": EndpointHealth(UNKNOWN)}}) == fill(tied, {}) == tied


def test_a_stale_report_has_no_vote() -> None:
    """A report older than the greatest age is silent; one from a clock that has since stepped back still counts."""
    stale, fresh = _report("a", UP, 94.9), _report("b", DOWN, 95.0)
    assert combine([stale], 100.0, 5.0) == {}
    assert combine([stale, fresh], 100.0, 5.0)["r"]["u"].status is DOWN
    assert combine([_report("a", UP, 300.0)], 100.0, 5.0)["r"]["u"].status is UP


def test_a_combined_verdict_speaks_for_its_side() -> None:
    """Time, detail and latency come from the vantages that the verdict agrees with."""
    reports = [
        _report("a", DOWN, since=10.0, latency_ms=7.0),
        _report("b", DOWN, since=20.0, detail="refused", latency_ms=9.0),
        _report("c", DOWN, since=15.0, detail="timed out", latency_ms=8.0),
        _report("d", UP, since=30.0, latency_ms=1.0),
    ]
    assert combine(reports, 100.0, 5.0) == {"r": {"u": EndpointHealth(DOWN, 20.0, "refused", 8.0)}}
    assert combine([*reports[3:], _report("e", UP)], 100.0, 5.0)["r"]["u"].latency_ms == 1.0
    assert combine([_report("e", UP)], 100.0, 5.0)["r"]["u"].latency_ms is None


@pytest.mark.parametrize(
    ("votes", "recovered", "since"),
    [
        ("r10", True, 10),
        ("r10 r12 r11", True, 11),
        ("r10 r12 -11", True, 12),
        ("u1 u2 r90", False, 2),
        ("u95 r10 r12", True, 10),
        ("u1 r90", False, 1),
        ("u1 u3", False, 1),
    ],
)
def test_a_recovery_counts_from_when_most_vantages_saw_it(votes: str, recovered: bool, since: int) -> None:
    """A vantage that flapped alone starts no ramp, and one that has just started neither ends nor renews one."""
    statuses = {"u": UP, "r": UP, "-": DOWN}
    reports = [
        _report(str(number), statuses[vote[0]], since=float(vote[1:]), recovered=vote[0] == "r")
        for number, vote in enumerate(votes.split())
    ]
    found = combine(reports, 100.0, 5.0)["r"]["u"]
    assert (found.status, found.recovered, found.since) == (UP, recovered, float(since))
    assert fill({"r": {"u": found}}, {"r": {"u": EndpointHealth(UP)}})["r"]["u"] == found


@pytest.mark.parametrize("honest", [1, 2, 3])
@pytest.mark.parametrize("was", [UP, UNKNOWN])
def test_who_says_again_and_again_that_it_has_just_come_back_moves_no_ramp(
    honest: int, was: HealthStatus
) -> None:
    """It stays up since when the honest ones saw it up, whatever one other says; in slow start it would have a tenth of its capacity."""
    before = {"r": {"u": EndpointHealth(was)}}
    for second in range(100, 160):
        reports = [_report(str(number), UP, received=second, since=1.0) for number in range(honest)]
        reports.append(_report("liar", UP, received=second, since=float(second), recovered=True))
        before = combine(reports, second, 5.0, before)
        found = before["r"]["u"]
        assert endpoint_factor(found, 30.0, second) == 1.0


def test_a_ramp_goes_on_when_half_saw_it_up_before_the_others() -> None:
    """What was down comes back when more than half see it up, and its ramp is counted from then as long as it lasts."""
    reports = [_report("a", UP, since=90.0, recovered=True), _report("b", UP, since=100.0, recovered=True)]
    found = {"r": {"u": EndpointHealth(DOWN, 50.0)}}
    for second in (100.0, 101.0, 102.0):
        found = combine(reports, second, 50.0, found)
        assert found["r"]["u"].since == 100.0
    assert endpoint_factor(found["r"]["u"], 30.0, 100.0) == 0.1


def test_own_verdicts_fill_what_the_vantages_do_not_know() -> None:
    """The common verdict wins where there is one; missing or unknown, the edge's own stays. Neither table changes."""
    up, down, unknown = EndpointHealth(UP), EndpointHealth(DOWN), EndpointHealth(UNKNOWN)
    agreed = {"r": {"a": down, "b": unknown}, "s": {"c": up}}
    own = {"r": {"a": up, "b": up}, "t": {"d": down}}
    assert fill(agreed, own) == {"r": {"a": down, "b": up}, "s": {"c": up}, "t": {"d": down}}
    assert own == {"r": {"a": up, "b": up}, "t": {"d": down}}


@pytest.mark.parametrize(("lost", "kept"), [("a", ""), ("ab", ""), ("abc", "abc"), ("abcd", "abcd")])
def test_an_edge_goes_by_its_own_probes_where_votes_take_more_than_half(lost: str, kept: str) -> None:
    """Of four regions that it sees up, votes may take two; where they take three, all three stay."""
    own = {region: {"u": EndpointHealth(HealthStatus.UP)} for region in "abcd"}
    agreed = {region: {"u": EndpointHealth(HealthStatus.DOWN)} for region in lost}
    assert overruled(agreed, own) == set(kept)
