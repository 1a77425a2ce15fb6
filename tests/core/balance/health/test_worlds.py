"""The health of backends held to docs/backend-health.md, in random worlds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.filters import well
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings, Thresholds
from gtm.core.balance.health.values import (
    ANY_CALL,
    BackendLoad,
    BackendState,
    CallKind,
    Check,
    Failure,
    Sending,
)
from gtm.core.health.verdicts import ProbeResult
from tests.core.balance.health.model import Page, Sent, most_terms
from tests.effort import examples

NAMES = "abcdefgh"
FAILURES = tuple(Failure)


def _settings(draw: Random) -> HealthSettings:
    checks = draw.choice(([Check.HEALTH], [Check.HEALTH, Check.COMPLETION], list(Check)))
    return HealthSettings(
        checks=MappingProxyType(
            {check: Thresholds(draw.randint(1, 3), draw.randint(1, 3)) for check in checks}
        ),
        consecutive=draw.choice((2, 5, 1000)),
        stalls=draw.choice((1, 2, 1000)),
        window=draw.choice((3.0, 10.0)),
        requests=draw.choice((1, 4, 10)),
        failure_share=draw.choice((0.3, 0.5, 1.0)),
        peers=draw.randint(2, 5),
        deviations=draw.choice((0.5, 0.97, 1.9)),
        success_margin=draw.choice((0.0, 0.0973)),
        latency_peers=draw.randint(2, 4),
        latency_factor=draw.choice((None, 1.5, 5.0)),
        latency_margin=draw.choice((0.0, 0.1, 1.0)),
        most_ejected=draw.choice((0.0, 0.5, 0.5, 1.0)),
        base=draw.choice((1.0, 2.0, 10.0)),
        longest=draw.choice((20.0, 300.0)),
        forget=draw.choice((15.0, 40.0, 300.0)),
        trials=draw.randint(1, 3),
        trial_timeout=draw.choice((2.0, 60.0)),
        slow_start=draw.choice((0.0, 6.0, 30.0)),
        lasts=draw.choice((1.0, 5.0)),
        lists_last=draw.choice((2.0, 30.0)),
    )


class World:
    """The code and the page, told the same."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.now = draw.uniform(0, 1e6)
        self.settings = _settings(draw)
        self.names = list(NAMES[: draw.randint(1, len(NAMES))])
        self.weights = {name: draw.choice((1.0, 1.0, 0.25, 4.0)) for name in NAMES}
        self.health = BackendHealth(self.settings, self.backends, self.now)
        self.page = Page(self.settings, self.names, self.now, self.weights)
        self.told: dict[str, Condition] = {}
        self.flying: list[tuple[Sending, Sent]] = []
        # Some servers pass their checks mostly, some flap; likewise with requests.
        self.passes = {name: draw.choice((1.0, 1.0, 0.9, 0.7, 0.7)) for name in NAMES}
        self.serves = {name: draw.choice((1.0, 0.9, 0.7, 0.7, 0.3)) for name in NAMES}
        self.mixed = draw.choice((0.0, 0.0, 0.5))  # the part of requests that are of another kind
        self.pace = draw.choice((1.0, 3.0))
        self.slow = {name: draw.choice((0.1, 0.1, 0.1, 0.3, 3.0)) for name in NAMES}
        self.long = draw.choice((0.0, 0.2, 0.6))  # the part of requests that lasts

    @property
    def backends(self) -> list[Backend]:
        return [Backend(name, self.weights[name]) for name in self.names]

    def run(self, steps: int) -> None:
        """Let things happen, and compare."""
        for check in self.settings.checks:
            for name in self.names:
                self.check(name, check)
        for _ in range(steps):
            if self.draw.random() < 0.3:
                self.now += self.pace * self.draw.choice((0.0, 0.1, 0.25, 1.0, 1.0, 3.0))
            for action, weight in (
                (self.request, 12),
                (self.end, 12),
                (self.any_check, 6),
                (self.say, 1),
                (self.rare, 0.25),
            ):
                if self.draw.random() < weight / 12:
                    action()
            if self.draw.random() < 0.3:
                self.told.update(self.health.tick(self.now))
                self.page.tick(self.now)
                self.compare(self.names)
            elif self.draw.random() < 0.5:
                self.changes()

    def changes(self) -> None:
        """What checks and requests changed is told at once, the rest by ticks."""
        touched = self.health.pending
        found = self.health.changes(self.now)
        assert touched or not found
        assert not self.health.pending
        before = dict(self.told)
        self.told.update(found)
        for name in self.names:
            new = self.page.condition(name, self.now)
            assert self.health.condition(name, self.now) == new
            if name in found:
                assert found[name] == new
            elif name in before:
                assert (before[name].ejected, before[name].draining) == (new.ejected, new.draining)

    def compare(self, names: list[str]) -> None:
        """All that was told is what the page says now."""
        for name in names:
            assert self.told[name] == self.page.condition(name, self.now), name
        out = [one for one in self.page.servers.values() if one.state != "closed"]
        standing = {one.name: one.state for one in self.health.snapshot(self.now)}
        for name, state in standing.items():
            condition = self.told[name]
            usable = condition.healthy and not condition.held and not condition.draining
            assert (state is BackendState.DRAINING) is condition.draining
            if state in (BackendState.UP, BackendState.WARMING):
                assert usable
                assert not condition.ejected
            if usable and self.page.servers[name] in out:
                assert state in (BackendState.EJECTED, BackendState.TRIAL)
            assert (state is BackendState.WARMING) is (
                usable and self.page.servers[name] not in out and condition.warmth < 1
            )

    def any_check(self) -> None:
        self.check(self.draw.choice(self.names), self.draw.choice(list(self.settings.checks)))

    def check(self, name: str, check: Check) -> None:
        ok = self.draw.random() < self.passes[name]
        self.health.checked(name, check, ProbeResult(ok, 0.0, "" if ok else "status 503"), self.now)
        self.page.checked(name, check, ok, self.now)

    def request(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            name = self.draw.choice(self.names)
            condition = self.health.condition(name, self.now)
            if not well(condition) and self.draw.random() < 0.9:
                continue  # panic sends some
            self.flying.append((self.health.begun(name, self.now), self.page.begun(name, self.now)))

    def end(self) -> None:
        for _ in range(min(len(self.flying), self.draw.randint(0, 3))):
            lasts = self.draw.random() < self.long
            index = self.draw.randrange(0 if lasts else max(0, len(self.flying) - 6), len(self.flying))
            sending, sent = self.flying.pop(index)
            if self.draw.random() < 0.1:
                self.health.cancelled(sending)
                self.page.ended(sent, "gone", None, self.now)
            elif self.draw.random() < self.serves[sending.name]:
                latency = (
                    None if self.draw.random() < 0.1 else self.slow[sending.name] * self.draw.uniform(0.5, 2)
                )
                status = self.draw.choice((200, 200, 404, 429, 501, 101, 505))
                call = (
                    CallKind("llama", b"/v1/chat/completions")
                    if self.draw.random() < self.mixed
                    else ANY_CALL
                )
                tokens = self.draw.choice((None, None, 1, 7, 100))
                self.health.answered(sending, status, latency, self.now, call, tokens=tokens)
                self.page.ended(sent, "good", latency, self.now, call=call, tokens=tokens)
            else:
                failure = self.draw.choice(FAILURES)
                if failure is Failure.STATUS:
                    self.health.answered(sending, self.draw.choice((500, 502, 503, 504)), 0.1, self.now)
                elif failure is Failure.STALL:
                    self.health.stalled(sending, self.now)
                else:
                    self.health.failed(sending, failure, self.now)
                self.page.ended(sent, failure, None, self.now)

    def say(self) -> None:
        draw, name = self.draw, self.draw.choice(self.names)
        load = BackendLoad(
            draw.choice((None, draw.random())),
            draw.choice((None, draw.random())),
            draw.choice((None, draw.random())),
            draw.choice((None, frozenset(draw.sample("xyz", draw.randint(0, 3))))),
            draw.choice((None, frozenset(draw.sample("xyz", draw.randint(0, 3))))),
        )
        which = draw.randrange(3)
        if which == 0:
            self.health.scraped(name, load, self.now)
            self.page.said(name, load, self.now, whole=True)
        elif which == 1:
            self.health.reported(name, load, self.now)
            self.page.said(name, load, self.now, whole=False)
        else:
            models, adapters = load.models or frozenset(), load.adapters or frozenset()
            self.health.listed(name, models, adapters, self.now)
            self.page.listed(name, models, adapters, self.now)

    def rare(self) -> None:
        draw, name = self.draw, self.draw.choice(self.names)
        which = draw.randrange(4)
        if which == 0:
            self.health.drain(name, self.now)
            self.page.servers[name].drained_by = self.now
        elif which == 1:
            self.health.undrain(name)
            self.page.servers[name].drained_by = None
        elif which == 2:
            self.now += draw.choice((15.0, 20.0, 60.0, 400.0))
        else:
            before = self.settings  # times that are counted back from the logs stay
            kept = {one: getattr(before, one) for one in ("checks", "base", "longest", "forget")}
            self.settings = replace(_settings(draw), **kept)
            self.names = sorted(draw.sample(NAMES, draw.randint(1, len(NAMES))))
            self.health.update(self.settings, self.backends)
            self.page.update(self.settings, self.names)
            self.told = {one: told for one, told in self.told.items() if one in self.names}
            self.told.update(self.health.tick(self.now))
            self.page.tick(self.now)
            self.compare(self.names)


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(4))
def test_conditions_are_those_of_the_page(part: int) -> None:
    """Whatever happens, in whatever order."""
    for number in range(examples(400) // 4):
        World(Random(f"{part}/{number}")).run(250)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(60)))
def test_flapping_is_bounded(seed: int) -> None:
    """However checks and requests go, a backend leaves the usable ones only so many times in any `forget` seconds."""
    draw = Random(f"flapping/{seed}")
    settings = replace(
        HealthSettings(),
        base=draw.choice((2.0, 10.0)),
        longest=draw.choice((20.0, 300.0)),
        forget=draw.choice((60.0, 300.0)),
        trials=draw.randint(1, 2),
        checks=MappingProxyType({Check.HEALTH: Thresholds(1, 1)}),
    )
    bound = most_terms(settings)
    health = BackendHealth(settings, [Backend(name) for name in "ab"], 0.0)
    for name in "ab":
        health.checked(name, Check.HEALTH, ProbeResult(True, 0.0), 0.0)
    falls: list[float] = []
    ejections: list[float] = []
    worst = draw.random() < 0.7  # as soon as it may, it fails
    now, counted = 0.0, (0, 0)
    while now < 4 * settings.forget:
        now += draw.choice((0.25, 0.5)) if worst or draw.random() < 0.99 else settings.forget
        health.tick(now)
        condition = health.condition("a", now)
        if draw.random() < 0.8:
            ok = not (condition.healthy and not condition.held) if worst else draw.random() < 0.5
            health.checked("a", Check.HEALTH, ProbeResult(ok, now), now)
        condition = health.condition("a", now)
        while well(condition) and draw.random() < 0.7:
            sending = health.begun("a", now)
            trial = {one.name: one.state for one in health.snapshot(now)}["a"] is BackendState.TRIAL
            health.answered(sending, 200 if trial else 503, 0.1, now)
            condition = health.condition("a", now)
        standing = health.snapshot(now)[0]
        falls += [now] * (standing.falls - counted[0])
        ejections += [now] * (standing.ejections - counted[1])
        counted = (standing.falls, standing.ejections)
    for times, most in ((falls, 1 + bound), (ejections, bound)):
        for first in times:
            assert sum(first <= at < first + settings.forget for at in times) <= most


def test_the_bounds_of_the_page() -> None:
    """The numbers that the page gives for the defaults, and that they are reached."""
    assert most_terms(HealthSettings()) == 5
    health = BackendHealth(HealthSettings(), [Backend("a"), Backend("b")], 0.0)
    now, falls = 0.0, 0
    health.checked("a", Check.HEALTH, ProbeResult(True, 0.0), now)
    while now < 300.0:
        good = well(health.condition("a", now))
        for _ in range(2):
            health.checked("a", Check.HEALTH, ProbeResult(not good, 0.0), now)
        now += 0.25
    falls = health.snapshot(now)[0].falls
    assert falls == 6
    health = BackendHealth(HealthSettings(), [Backend("a"), Backend("b")], 0.0)
    now = 0.0
    while now < 300.0:
        health.tick(now)
        while not health.condition("a", now).ejected:
            health.stalled(health.begun("a", now), now)
        now += 0.25
    assert health.snapshot(now)[0].ejections == 5
