"""The history of health against a small model of its laws, written from docs/operations.md, in random worlds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from gtm.core.health.history import (
    KEPT,
    MOST_CHANGES,
    MOST_TIMES,
    MOST_VANTAGES,
    STEP,
    TOGETHER,
    History,
    HistorySeries,
    HistoryStep,
    Probed,
    VerdictChange,
)
from gtm.core.model.state import EndpointHealth, HealthStatus
from tests.effort import examples

UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN
REGIONS = {"eu": ("https://a", "https://b"), "us": ("https://c",)}
NAMES = ("fra", "iad", "old")
"""`old` tells no outcomes."""


@dataclass
class Model:
    """What ought to be kept: everything that was said, as it was said, and the rules applied to all of it at the end."""

    said: list[tuple[float, str, str, str, HealthStatus, tuple[Probed, ...] | None]] = field(
        default_factory=list
    )

    def changes(
        self, last: dict[HistorySeries, HealthStatus]
    ) -> list[tuple[HistorySeries, HealthStatus, HealthStatus]]:
        """Two verdicts that follow each other in a series and differ; of a step ten, the first of a series not counted."""
        before: dict[HistorySeries, HealthStatus] = {}
        counts: dict[tuple[HistorySeries, float], int] = {}
        found = []
        for now, series, status, _ in self.said:
            if status is UNKNOWN:
                continue
            was = before.get(series)
            before[series] = status
            if was is status:
                continue
            if was is None:
                if last.get(series) is not status:
                    found.append((series, last.get(series, UNKNOWN), status))
                continue
            place = series, now // STEP
            counts[place] = counts.get(place, 0) + 1
            if counts[place] <= MOST_CHANGES:
                found.append((series, was, status))
        return found

    def step(self, series: HistorySeries, start: float) -> HistoryStep | None:
        """What a step ought to say; None: nothing was heard of it."""
        verdicts: list[HealthStatus] = []
        outcomes: list[Probed] = []
        changes, told, was = 0, True, None
        for now, of, status, probed in self.said:
            if of != series:
                continue
            within = start <= now < start + STEP
            if within and status is not UNKNOWN:
                verdicts += [status] if was is None or verdicts else [was, status]
                changes += was is not None and was is not status
            was = was if status is UNKNOWN else status
            told = told and probed is not None
            if within and was is not None:
                outcomes += [one for one in probed or () if (one.region, one.url) == series[:2]]
        if not verdicts:
            return None
        times = sorted(one.ms for one in outcomes if not one.failure and one.ms is not None)
        failures = [one.failure for one in outcomes if one.failure]
        return HistoryStep(
            start,
            DOWN if DOWN in verdicts else UP,
            len(outcomes) if told else None,
            len(failures),
            _rank(times, 50),
            _rank(times, 99),
            changes,
            failures[-1] if failures else "",
        )


def _rank(times: list[float], percent: int) -> float | None:
    """The least time that so many percent do not exceed."""
    return next((at for n, at in enumerate(times, 1) if 100 * n >= percent * len(times)), None)


ALL = [
    HistorySeries(region, url, name)
    for region, urls in REGIONS.items()
    for url in urls
    for name in (*NAMES, TOGETHER)
]


@dataclass
class World:
    """Two hours or so of edges that flap, fall silent and restart, of which one tells no outcomes."""

    chance: random.Random
    history: History = field(default_factory=History)
    model: Model = field(default_factory=Model)
    state: dict[HistorySeries, HealthStatus] = field(default_factory=dict)
    finished: list[tuple[HistorySeries, HistoryStep]] = field(default_factory=list)
    changes: list[VerdictChange] = field(default_factory=list)
    now: float = 0.0

    def live(self, last: dict[HistorySeries, HealthStatus]) -> None:
        """What is written down becomes known some time; edges report, mostly the same as before."""
        known_at, calm = self.chance.randrange(60), self.chance.choice((0.5, 0.9, 0.995))
        for turn in range(300):
            if turn == known_at:
                self.history.known(last)
            for name in (*NAMES, TOGETHER):
                if self.chance.random() < 0.8:
                    self.report(name, calm)
            self.finished += self.history.finished(self.now)
            self.changes += self.history.waiting()
            self.now += self.chance.random() * 30
        self.finished += self.history.finished(self.now // STEP * STEP)

    def report(self, name: str, calm: float) -> None:
        """One report of an edge, or one judgement of all together."""
        health: dict[str, dict[str, EndpointHealth]] = {}
        outcomes: list[Probed] = []
        mine = [series for series in ALL if series.vantage == name]
        for series in mine:
            if series not in self.state or self.chance.random() > calm:
                self.state[series] = self.chance.choice((UP, DOWN, UNKNOWN))
            health.setdefault(series.region, {})[series.url] = EndpointHealth(
                self.state[series], self.now - 1
            )
            outcomes += [self.outcome(series) for _ in range(self.chance.randrange(3))]
        probed = tuple(outcomes) if name in ("fra", "iad") else None
        self.model.said += [(self.now, series, self.state[series], probed) for series in mine]
        if name == TOGETHER:
            self.history.judged(health, self.now)
        else:
            self.history.heard("token", name, health, probed, self.now)

    def outcome(self, series: HistorySeries) -> Probed:
        """One probe's."""
        if self.chance.random() < 0.7:
            return Probed(series.region, series.url, float(self.chance.randrange(1, 500)), 200, "")
        return Probed(series.region, series.url, None, None, f"failure {self.chance.randrange(5)}")


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(40, 40)))
def test_random_worlds_are_as_the_model_says(seed: int) -> None:
    """What is kept of each series, step by step and change by change."""
    chance = random.Random(seed)
    began = 1_800_000_000.0 + chance.random() * STEP
    world = World(chance, now=began)
    last = {series: chance.choice((UP, DOWN)) for series in ALL if chance.random() < 0.5}
    world.live(last)
    assert len({one.number for one in world.changes}) == len(world.changes)
    told = [(one.series, one.before, one.after) for one in sorted(world.changes, key=lambda one: one.number)]
    wanted = world.model.changes(last)
    for series in ALL:
        assert [one for one in told if one[0] == series] == [one for one in wanted if one[0] == series]
    kept = {(series, step.start): step for series, step in world.finished}
    assert len(kept) == len(world.finished)
    end = world.now // STEP * STEP
    for number in range(round((end - began // STEP * STEP) / STEP)):
        start = began // STEP * STEP + number * STEP
        for series in ALL:
            assert kept.get((series, start)) == world.model.step(series, start), (series, start)
    here = {series: steps for region in REGIONS for series, steps in world.history.steps(region)}
    for series in ALL:
        done = [step for step in here.get(series, []) if step.start < end]
        assert done == [
            step
            for (one, start), step in sorted(kept.items(), key=lambda item: item[0][1])
            if one == series and start >= end - KEPT
        ]


def _health(status: HealthStatus, since: float = 1.0) -> dict[str, dict[str, EndpointHealth]]:
    return {
        "eu": {"https://a": EndpointHealth(status, since, "no answer within 2 s" if status is DOWN else "")}
    }


def test_times_are_those_of_hearing() -> None:
    """Two edges whose clocks are an hour apart: in the order in which control heard them, each with its own word of when."""
    history = History()
    history.known({})
    for name, now, clock in (("behind", 1000.0, -2600.0), ("ahead", 1001.0, 4600.0)):
        history.heard(name, name, _health(UP, clock), (), now)
    found = history.waiting()
    assert [(one.series.vantage, one.at, one.edge_at) for one in found] == [
        ("behind", 1000.0, -2600.0),
        ("ahead", 1001.0, 4600.0),
    ]


def test_a_clock_that_is_set_back_takes_nothing_back() -> None:
    """Numbers grow all the same, and no step is told twice."""
    history = History()
    history.known({})
    numbers = []
    for now, status in ((5000.0, UP), (4000.0, DOWN), (4000.0, UP), (5400.0, DOWN)):
        history.heard("t", "fra", _health(status), (), now)
        numbers += [one.number for one in history.waiting()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 4
    assert [step.start for _, step in history.finished(6000.0)] == [4800.0, 5400.0]


def test_evidence_is_of_the_probe_that_decided() -> None:
    """HTTP's status, the time and the failure of the last probe before the verdict."""
    history = History()
    history.known({})
    probed = (
        Probed("eu", "https://a", 4.0, 200, ""),
        Probed("eu", "https://a", 8.0, 503, "status 503, expected 200"),
    )
    health = {"eu": {"https://a": EndpointHealth(DOWN, 1.0, "status 503, expected 200", 4.0)}}
    history.heard("t", "fra", health, probed, 1000.0)
    (one,) = history.waiting()
    assert (one.before, one.after, one.status, one.ms) == (UNKNOWN, DOWN, 503, 8.0)
    assert one.detail == "status 503, expected 200"


def test_memory_is_bounded() -> None:
    """Names of one voter, changes of one step, times of one step; an hour after it was last heard of, a series is forgotten."""
    history = History()
    history.known({})
    for number in range(MOST_VANTAGES + 5):
        history.heard("stolen", f"edge-{number}", _health(UP), (), 1000.0)
    history.heard("honest", "fra", _health(UP), (), 1000.0)
    assert history.left_out == 5
    assert len(list(history.steps("eu"))) == MOST_VANTAGES + 1
    history.waiting()
    for turn in range(50):
        history.heard("honest", "fra", _health(DOWN if turn % 2 else UP), (), 1001.0)
    assert len(history.waiting()) == MOST_CHANGES
    times = tuple(Probed("eu", "https://a", float(n), 200, "") for n in range(3 * MOST_TIMES))
    history.heard("honest", "fra", _health(DOWN), times, 1002.0)
    (step,) = [step for series, step in history.finished(1300.0) if series.vantage == "fra"]
    assert (step.changes, step.probes) == (49, 3 * MOST_TIMES)
    assert step.p50_ms == 2.5 * MOST_TIMES - 1  # of the newest
    history.finished(1300.0 + 2 * KEPT)
    history.finished(1300.0 + 2 * KEPT + STEP)
    assert list(history.steps("eu")) == []
    assert len(history.recent) == 0
    history.heard("stolen", "edge-of-later", _health(UP), (), 1300.0 + 3 * KEPT)
    assert history.left_out == 5


def test_silence_is_no_change() -> None:
    """However long: who comes back with the verdict that was told last says nothing new; who comes back with another does."""
    history = History()
    history.known({HistorySeries("eu", "https://a", "iad"): UP})
    for edge in ("fra", "sin"):
        history.heard(edge, edge, _health(UP), (), 1000.0)
    history.heard("sin", "sin", _health(DOWN), (), 1001.0)
    history.waiting()
    later = 1000.0 + 5 * KEPT
    history.finished(later - STEP)
    history.finished(later)
    assert list(history.steps("eu")) == []
    for edge in ("fra", "sin", "iad"):
        history.heard(edge, edge, _health(UP), (), later)
    assert [(one.series.vantage, one.before, one.after) for one in history.waiting()] == [("sin", DOWN, UP)]
