"""An edge's time, as docs/architecture.md and docs/residency.md tell it: no clock lifts a rule, no answer outlives one.

The model below is written from these pages alone. It keeps every reading that any clock of the edge, or control's, has
ever shown, and knows neither windows nor Views.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.timekeeping import KEEP_EVERY, UNKEPT, ClockTimes, Kept
from gtm.core.model.policy import Policy, ResidencyRule
from gtm.core.model.state import State
from gtm.feed import clockfile, lastgood
from gtm.feed.current import CurrentView
from gtm.feed.wire import FeedError, HeartbeatMessage, Message, SnapshotMessage, StateMessage, decode, encode
from gtm.runtime.edge.line import TO_WORKER
from gtm.runtime.following.following import ClockKeeper
from gtm.runtime.following.told import TimesMessage
from tests import worlds
from tests.core.strategies import SHIPPED, quick

START = 10_000.0
REGION = worlds.region("de")


def rule(number: int, starts: float | None, ends: float | None) -> ResidencyRule:
    """A rule in force between two POSIX times."""
    begin, end = (None if at is None else datetime.fromtimestamp(at, UTC) for at in (starts, ends))
    return worlds.rule(f"r{number}", "EU", effective_from=begin, effective_until=end)


@dataclass
class Model:
    """What the pages promise, told slowly."""

    rules: tuple[ResidencyRule, ...]
    highest: float = -inf
    """The highest reading ever of any clock, and what has passed since."""
    begun: set[str] = field(default_factory=set)
    """The rules that had begun at some reading."""

    def read(self, reading: float) -> None:
        """A clock shows something."""
        self.highest = max(self.highest, reading)
        for one in self.rules:
            if one.effective_from is None or one.effective_from.timestamp() <= self.highest:
                self.begun.add(one.name)

    def reboot(self, kept: float) -> None:
        """The machine was off for a time that nobody knows, after a moment that was written down."""
        assert kept >= self.highest - KEEP_EVERY
        self.highest = kept

    def binding(self, local: float, control: float | None) -> set[str]:
        """Rules that must bind: begun at the highest reading, and not over by some clock that is heard."""
        lowest = local if control is None else min(local, control)
        return {
            one.name
            for one in self.rules
            if one.name in self.begun
            and (one.effective_until is None or lowest < one.effective_until.timestamp())
        }

    def longest(self, bound: set[str], local: float, control: float | None) -> float:
        """How long an answer may be kept that was made while these rules bound, whichever clock is right."""
        readings = [reading for reading in (local, control, self.highest) if reading is not None]
        left = inf
        for one in self.rules:
            begin, end = one.effective_from, one.effective_until
            for reading in readings:
                if begin is not None and one.name not in bound and begin.timestamp() > reading:
                    left = min(left, begin.timestamp() - reading)
            if end is not None and one.name in bound:
                left = min(left, end.timestamp() - min(local, local if control is None else control))
        return left


@dataclass
class Edge:
    """An agent and its workers as processes: clocks that are set, time that passes, and a disk that outlives them."""

    policy: Policy
    path: Path
    boot: float = 500.0
    boot_id: str = "a"
    local: float = START
    """What the machine's clock shows, less `boot`."""
    control: float | None = None
    disk: dict[str, Kept] = field(default_factory=dict)
    workers: list[CurrentView] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.message = SnapshotMessage.of(1, 0.0, self.policy, SHIPPED)
        self.start()

    def clock(self) -> float:
        return self.boot + self.local

    def start(self) -> None:
        """Start the agent from what is on disk, with new workers."""
        self.control = None
        self.agent = CurrentView(self.clock, boot=lambda: self.boot)
        self.keeper = ClockKeeper(self.path, self.agent, self.boot_id)
        self.keeper.load()
        if "clock" in self.disk and self.agent.times.control is not None:
            self.control = self.agent.times.control
        for message in (self.message, StateMessage(State(1))):
            self.agent.apply(message)
        self.workers = []
        self.tell()
        self.join()
        self.join()

    def join(self) -> None:
        """A new worker."""
        worker = CurrentView(self.clock, boot=lambda: self.boot)
        worker.follow(self.told)
        for message in (self.message, StateMessage(State(1))):
            worker.apply(message)
        self.workers.append(worker)

    def tell(self) -> None:
        """As the agent does each second, and when a clock stepped."""
        self.keeper.keep()
        told = TO_WORKER.decode(TO_WORKER.encode(TimesMessage(self.agent.times)))
        assert isinstance(told, TimesMessage)
        self.told = told.times
        for worker in self.workers:
            worker.follow(self.told)

    def tick(self) -> None:
        self.agent.tick()
        self.tell()

    def hear(self, reading: float) -> None:
        before = self.agent.times
        self.control = reading - self.boot
        self.agent.hear(HeartbeatMessage(reading))
        if self.agent.times.stepped(before):
            self.tell()

    def wait(self, seconds: float, *, punctual: bool) -> None:
        """Let time pass, with the ticks that fall into it; the threads beside the answer path may sleep through it."""
        while seconds > 0:
            beat = 1.0 - self.boot % 1.0
            step = min(seconds, beat, *(worker.pause() for worker in self.workers)) if punctual else seconds
            step = max(step, 0.001)
            self.boot += step
            seconds -= step
            if punctual:
                for worker in self.workers:
                    worker.tick()
                if step >= beat:
                    self.tick()

    def bound(self, worker: CurrentView) -> set[str]:
        """The rules that an answer of a worker is bound by, as the answer path looks at its View."""
        if self.boot >= worker.deadline:
            worker.tick()
        assert worker.router is not None
        return {one.rule.name for one in worker.router.view.rules["chat"]}


@contextmanager
def quick_disk() -> Iterator[dict[str, Kept]]:
    """A disk that keeps clock files without waiting."""
    kept: dict[str, Kept] = {}

    def load(_: Path) -> Kept:
        if "clock" not in kept:
            raise FileNotFoundError
        return kept["clock"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clockfile, "save", lambda _, found: kept.update(clock=found))
        patch.setattr(clockfile, "load", load)
        yield kept


def decoded(message: Message) -> Message:
    """A message as it arrives."""
    found = decode(encode(message))
    assert found is not None
    return found


MOMENTS = [START + 500 + 20 * number for number in range(12)]
moments = st.one_of(st.none(), st.sampled_from(MOMENTS))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """One service, and rules that begin and end within minutes."""
    rules = []
    for number in range(draw(st.integers(1, 3))):
        starts, ends = draw(moments), draw(moments)
        if starts is not None and ends is not None and starts >= ends:
            starts, ends = (ends, starts) if starts > ends else (starts, None)
        rules.append(rule(number, starts, ends))
    ttl = draw(st.sampled_from((1, 2, 30, 31, 86_400)))
    return worlds.policy(REGION, worlds.service("chat", "de", ttl=ttl), *rules)


readings = st.sampled_from(
    [shown + by for shown in (*MOMENTS, MOMENTS[0] - 300, MOMENTS[-1] + 900) for by in (-1.5, -0.3, 0.0, 7.3)]
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from((0.004, 0.3, 1.0, 7.7, 20.0, 61.0))),
        st.tuples(st.just("sleep"), st.sampled_from((0.3, 1.2, 30.0))),
        st.tuples(st.just("set"), readings),
        st.tuples(st.just("hear"), readings),
        st.tuples(st.just("tick"), st.just(0.0)),
        st.tuples(st.just("restart"), st.just(0.0)),
        st.tuples(st.just("reboot"), st.sampled_from((0.0, 40.0))),
        st.tuples(st.just("join"), st.just(0.0)),
    ),
    max_size=12,
)


@quick(250)
@given(policies(), events)
def test_no_clock_lifts_a_rule_and_no_answer_outlives_one(
    policy: Policy, events: list[tuple[str, float]]
) -> None:
    """Through any history of clocks, restarts and messages, every worker binds what the model says must bind.

    Answers end before the next boundary, whichever clock is right, and workers are equal to each other.
    """
    with quick_disk() as disk:
        run(disk, policy, events)


def run(disk: dict[str, Kept], policy: Policy, events: list[tuple[str, float]]) -> None:
    """Live through a history, and look at every worker after each of its events."""
    edge = Edge(policy, Path(), disk=disk)
    model = Model(policy.residency_rules)
    model.read(edge.clock())
    for what, value in (("tick", 0.0), *events):
        if what in ("wait", "sleep"):
            passed = edge.boot
            edge.wait(value, punctual=what == "wait")
            model.read(model.highest + edge.boot - passed)
            if what == "sleep":
                check(edge, model)  # a query was first to wake somebody
                edge.tick()
        elif what == "set":
            edge.local = value - edge.boot
            edge.tick()
        elif what == "hear":
            edge.hear(value)
            model.read(value)
        elif what == "tick":
            edge.tick()
        elif what == "restart":
            edge.start()
        elif what == "reboot":
            shown = edge.clock()
            model.reboot(disk["clock"].latest)
            edge.boot, edge.boot_id = 3.0, edge.boot_id + "a"
            edge.local = shown + value - edge.boot
            edge.start()
        else:
            edge.join()
        model.read(edge.agent.times.local + edge.boot)
        check(edge, model)


def check(edge: Edge, model: Model) -> None:
    """Hold the workers against the model."""
    local = edge.agent.times.local + edge.boot
    control = None if edge.control is None else edge.control + edge.boot
    seen = []
    for worker in edge.workers:
        bound = edge.bound(worker)
        assert bound >= model.binding(local, control)
        assert worker.router is not None
        view = worker.router.view
        ttl = view.ttl_of(view.snapshot.services["chat"])
        assert ttl <= model.longest(bound, local, control)
        worker.tick()  # whoever sleeps longer than others may lag behind them until a boundary is near
        seen.append((worker.window, worker.router.view.rules))
    assert all(one == seen[0] for one in seen)


def edge(*rules: ResidencyRule, disk: dict[str, Kept]) -> Edge:
    """An edge that starts with a right clock under a policy of these rules."""
    return Edge(worlds.policy(REGION, worlds.service("chat", "de"), *rules), Path(), disk=disk)


def test_a_restart_under_a_clock_that_is_behind_lifts_nothing() -> None:
    """In the same boot what passed since counts, after another what was written down last, and some seconds more."""
    with quick_disk() as disk:
        one = edge(rule(1, START + 600, None), disk=disk)
        one.wait(100.5, punctual=True)
        assert [one.bound(worker) for worker in one.workers] == [{"r1"}] * 2
        one.local -= 5_000
        one.start()
        assert [one.bound(worker) for worker in one.workers] == [{"r1"}] * 2
        one.boot, one.boot_id, one.local = 1.0, "b", START - 5_000
        one.start()
        assert [one.bound(worker) for worker in one.workers] == [{"r1"}] * 2
        # Written down up to ten seconds before the rule began, and the machine fell right after.
        disk["clock"] = Kept("b", 1.0, START + 600 - 9.9)
        one.boot, one.boot_id = 1.0, "c"
        one.start()
        assert [one.bound(worker) for worker in one.workers] == [{"r1"}] * 2


def test_rules_begin_on_time_under_a_clock_that_is_behind() -> None:
    """Time goes on from the highest reading, through a restart too: nothing waits until the clock has caught up."""
    with quick_disk() as disk:
        one = edge(rule(1, START + 600, None), disk=disk)
        one.wait(2.0, punctual=True)
        one.local -= 5_000
        one.tick()
        one.wait(50.0, punctual=True)
        one.boot += 40.0  # nobody runs
        one.start()
        one.wait(6.5, punctual=True)
        assert one.bound(one.workers[0]) == set()
        one.wait(1.5, punctual=True)
        assert one.bound(one.workers[0]) == {"r1"}


def test_a_clock_that_is_ahead_ends_no_rule_while_control_says_otherwise() -> None:
    """A rule ends by the slower of the two clocks; its beginning is by the faster."""
    with quick_disk() as disk:
        one = edge(rule(1, None, START + 900), rule(2, START + 2_000, None), disk=disk)
        one.hear(one.clock())
        one.local += 3_000
        one.tick()
        assert one.bound(one.workers[0]) == {"r1", "r2"}
        one.start()  # control is not heard any more, and its clock goes on by the boot clock
        assert one.bound(one.workers[0]) == {"r1", "r2"}
        one.wait(401.0, punctual=True)
        assert one.bound(one.workers[0]) == {"r2"}


def test_a_process_that_slept_answers_nothing_from_before() -> None:
    """Where no thread was woken for seconds, the query that comes first finds the rules of its time."""
    with quick_disk() as disk:
        one = edge(rule(1, START + 600, None), disk=disk)
        worker = one.workers[0]
        one.wait(98.95, punctual=True)
        assert one.bound(worker) == set()
        one.boot = 600.0
        assert one.bound(worker) == {"r1"}


def test_a_restart_makes_no_policy_younger() -> None:
    """When control was heard last is kept on disk; what passed since counts, by the boot clock if it can be."""
    with quick_disk() as disk:
        one = edge(disk=disk)
        assert one.workers[0].window.age == inf
        one.hear(one.clock())
        one.wait(11.0, punctual=True)
        assert one.workers[0].window.age == pytest.approx(12.0)
        one.local -= 5_000
        one.boot += 30.0
        one.start()
        assert one.workers[0].window.age == pytest.approx(42.0)
        one.boot, one.boot_id = 3.0, "b"
        one.start()
        assert 42.0 <= one.workers[0].window.age <= 43.0 + UNKEPT, "what was not written any more counts, too"


def test_a_policy_that_the_disk_refuses_ages_although_control_is_heard() -> None:
    """What lies on disk is another one, and a restart would follow it: rules count from then on, before a restart and after it."""
    strict = worlds.rule("strict", "EU", max_policy_age=30)
    with quick_disk() as disk:
        one = edge(strict, disk=disk)

        def refusing() -> bool:
            (bound,) = one.workers[0].router.view.rules["chat"] if one.workers[0].router else ()
            return bound.outdated

        one.hear(one.clock())
        one.tick()
        assert not refusing()
        assert one.agent.saving(refused=True)
        assert not one.agent.saving(refused=True), "that is no news"
        for _ in range(28):
            one.wait(1.0, punctual=True)
            one.hear(one.clock())
        assert not refusing()
        one.wait(2.0, punctual=True)
        one.hear(one.clock())
        assert refusing()
        window = one.workers[0].window
        assert (window.age, window.silence) == (pytest.approx(31.0), pytest.approx(3.0, abs=1.0)), (
            "tokens go by the latter"
        )
        one.wait(11.0, punctual=True)
        one.start()
        assert one.workers[0].window.age == pytest.approx(42.0), (
            "the older policy was heard of until it was another one"
        )
        one.hear(one.clock())
        one.tick()
        assert not refusing()
        assert one.agent.saving(refused=True)
        one.wait(31.0, punctual=True)
        one.hear(one.clock())
        assert one.agent.saving(refused=False)
        one.tell()
        assert not refusing(), "at once"


def test_a_reboot_under_a_wrong_clock_makes_no_policy_younger() -> None:
    """What was not written down before the machine went off counts as passed; a clock that is right needs no such margin."""
    before = ClockTimes.of(1_000.0, 50_000.0).heard_at(1_000.0)
    kept = before.kept(1_000.0, "a")
    age = before.window(1_000.0 + KEEP_EVERY).age
    for clock in (49_000.0, 50_000.0, 50_000.0 + KEEP_EVERY):
        assert ClockTimes.of(5.0, clock).resumed(kept, 5.0, "b").window(5.0).age >= age
    right = ClockTimes.of(5.0, 50_100.0).resumed(kept, 5.0, "b")
    assert right.window(5.0).age == pytest.approx(101.0)
    assert right.heard_at(5.0).window(5.0).age == pytest.approx(1.0)


def test_a_worker_without_an_agent_looks_at_the_clock_itself() -> None:
    """While it is told the time its own clock says nothing; when nobody tells it any more, a step adds restrictions."""
    with quick_disk() as disk:
        one = edge(rule(1, START + 2_000, None), disk=disk)
        worker = one.workers[0]
        one.local += 3_000
        worker.tick()
        assert one.bound(worker) == set()
        one.boot += 5.0
        worker.tick()
        assert one.bound(worker) == {"r1"}


def test_what_an_orphan_saw_stays_when_an_agent_takes_it_over() -> None:
    """Nobody told it the time, and its clock showed a later one: a new agent that missed that lifts nothing."""
    with quick_disk() as disk:
        one = edge(rule(1, START + 2_000, None), disk=disk)
        orphan = one.workers[0]
        one.boot += 5.0
        one.local += 3_000
        orphan.tick()
        one.local -= 3_000
        one.start()
        orphan.follow(one.told)
        assert one.bound(orphan) == {"r1"}
        assert one.bound(one.workers[0]) == set()


def test_a_small_step_back_brings_a_rule_back() -> None:
    """A rule ends by the clock as it is now, however small the step across its end; and answers last longer again."""
    with quick_disk() as disk:
        one = edge(rule(1, None, START + 600), disk=disk)
        one.wait(100.1, punctual=True)
        worker = one.workers[0]
        assert one.bound(worker) == set()
        one.local -= 0.2
        one.tick()
        assert one.bound(worker) == {"r1"}
        assert worker.router is not None
        view = worker.router.view
        assert view.ttl_of(view.snapshot.services["chat"]) == 0
        one.local -= 500.0
        one.tick()
        view = worker.router.view
        assert view.ttl_of(view.snapshot.services["chat"]) == 30


@pytest.mark.parametrize(
    "damage", ["", "nonsense", '{"boot_id":"a","boot":1,"latest":1e300}', '{"boot":1}', "[" * 99_999]
)
def test_a_damaged_clock_file_is_said_and_left(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The edge goes by its clocks then, and writes the file anew."""
    lastgood.write(tmp_path / clockfile.FILE, b"gtm-clock 1 ", damage.encode())
    current = CurrentView(lambda: START, boot=lambda: 5.0)
    keeper = ClockKeeper(tmp_path, current, "a")
    keeper.load()
    assert "cannot use the times kept on disk" in caplog.text
    keeper.keep()
    assert clockfile.load(tmp_path / clockfile.FILE) == Kept("a", 5.0, START)
    (tmp_path / clockfile.FILE).write_bytes(b"gtm-clock 1 00")
    with pytest.raises(FeedError, match="clock file"):
        clockfile.load(tmp_path / clockfile.FILE)


def test_the_file_is_written_when_a_clock_steps_and_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not each second; and a disk that refuses is spoken of once."""
    caplog.set_level("INFO")
    shown = {"boot": 5.0, "ahead": START}
    current = CurrentView(lambda: shown["boot"] + shown["ahead"], boot=lambda: shown["boot"])
    keeper = ClockKeeper(tmp_path, current, "a")
    path = tmp_path / clockfile.FILE
    written = []
    for boot, step in ((5.0, 0.0), (6.0, 0.0), (7.0, 9_000.0), (8.0, 0.0), (16.9, 0.0), (17.0, 0.0)):
        shown |= {"boot": boot, "ahead": START + step}
        current.tick()
        keeper.keep()
        written.append(clockfile.load(path).boot)
    assert written == [5.0, 5.0, 7.0, 7.0, 7.0, 17.0]
    assert clockfile.load(path).latest == 17.0 + START + 9_000
    assert caplog.text.count("some clock showed a time 9000 s beyond what is shown now") == 1
    missing = ClockKeeper(tmp_path / "missing", current, "a")
    for shown["boot"] in (30.0, 31.0, 45.0):
        missing.keep()
    assert caplog.text.count("cannot keep the time on disk") == 1
    (tmp_path / "missing").mkdir()
    shown["boot"] = 60.0
    missing.keep()
    assert "kept the time on disk after all" in caplog.text


def test_an_older_time_never_follows_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of an agent keep times, each on a thread of its own, and a disk may be slow."""
    shown = {"ahead": START}
    current = CurrentView(lambda: 5.0 + shown["ahead"], boot=lambda: 5.0)
    keeper = ClockKeeper(tmp_path, current, "a")
    begun, go_on = threading.Event(), threading.Event()
    save = clockfile.save

    def slow(path: Path, kept: Kept) -> None:
        if not begun.is_set():
            begun.set()
            go_on.wait(20)
        save(path, kept)

    monkeypatch.setattr(clockfile, "save", slow)
    threads = [threading.Thread(target=keeper.keep) for _ in range(2)]
    threads[0].start()
    assert begun.wait(20)
    shown["ahead"] += 9_000
    current.tick()
    threads[1].start()
    threads[1].join(0.3)  # it must wait
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert clockfile.load(tmp_path / clockfile.FILE).latest == 5.0 + START + 9_000


@quick(60)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_clock_file_or_damage(content: bytes) -> None:
    """Never another error, and never times that no clock shows."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "clock"
        lastgood.write(path, b"gtm-clock 1 ", content)
        with suppress(FeedError):
            clockfile.load(path)


def test_a_machine_that_begins_in_1970_keeps_its_times(tmp_path: Path) -> None:
    """One without a battery, rebooted again and again: what is kept can be read, and the policy looks no younger than it is."""
    file = tmp_path / clockfile.FILE
    times = ClockTimes.of(0.0, 4.0).heard_at(0.0)
    for boot in ("a", "b", "c"):
        clockfile.save(file, times.kept(0.0, boot))
        kept = clockfile.load(file)
        assert kept.heard is not None
        assert 0.0 <= kept.heard <= 4.0
        times = ClockTimes.of(0.0, 5.0).resumed(kept, 0.0, f"after {boot}")
