"""The simulated scheduler: it does as the readable model does, keeps its laws, and takes the time that the theory says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.demo.backend.profile import BLOCK, Profile, ProfileError
from gtm.demo.backend.scheduler import Phase, Scheduler, Sequence
from gtm.demo.backend.tokens import TOKEN_BYTES, Content
from tests.demo.backend.model import Request, Server
from tests.demo.backend.speeds import decode_rate, first_token_seconds
from tests.effort import examples


@dataclass(frozen=True)
class Arrive:
    """A request comes: of a family of prompts that begin alike, so many tokens of it."""

    family: int
    tokens: int
    answer: int
    priority: int


@dataclass(frozen=True)
class Cancel:
    """One that came is cancelled, in the middle of a step."""

    which: int


STEP = "step"
LONGEST = 8 * BLOCK
ACTIONS = st.one_of(
    st.builds(
        Arrive, st.integers(0, 2), st.integers(1, 96), st.integers(1, 32), st.sampled_from((0, 0, 0, 1, -1))
    ),
    st.builds(Cancel, st.integers(0, 30)),
    st.just(STEP),
    st.just(STEP),
)
PROFILES = st.builds(
    lambda seqs, tokens, blocks, kept: Profile(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(seqs, tokens),
        kv_blocks=blocks,
        cached_blocks=kept,
        max_model_len=LONGEST,
    ),
    st.integers(1, 6),
    st.integers(1, 80),
    st.integers(8, 14),
    st.sampled_from((None, None, 0, 3)),
)


def prompt(family: int, tokens: int) -> bytes:
    """The first tokens of a family's text, each different from all others."""
    return b"".join(b"%d%03d" % (family, number) for number in range(tokens))


class Worlds:
    """The scheduler and the model, side by side."""

    def __init__(self, profile: Profile) -> None:
        self.scheduler = Scheduler(profile)
        self.server = Server(profile)
        self.all: list[tuple[Sequence, Request]] = []
        self.done: set[int] = set()
        self.cancelled: set[int] = set()
        self.now = 0.0

    def arrive(self, one: Arrive) -> None:
        """In both."""
        content = Content(prompt(one.family, one.tokens), "m")
        sequence = Sequence(content, one.answer, one.priority, self.now)
        self.scheduler.arrive(sequence)
        request = Request(sequence.order, prompt(one.family, one.tokens), one.answer, one.priority, content)
        self.server.arrive(request)
        self.all.append((sequence, request))

    def cancel(self, which: int) -> None:
        """In both, if it is there."""
        if not self.all:
            return
        sequence, request = self.all[which % len(self.all)]
        was = request in self.server.running or request in self.server.waiting
        assert self.scheduler.cancel(sequence) == was
        if was:
            self.server.drop(request)
            self.cancelled.add(request.number)

    def begin(self) -> float | None:
        """A step in both; what it takes."""
        took = self.scheduler.begin(self.now)
        planned = self.server.begin()
        assert [(one.order, tokens) for one, tokens in self.scheduler.step.items()] == planned
        decoding = sum(one.generated > 0 and one.computed + 1 == one.length() for one, _ in self.server.doing)
        prefill = sum(tokens for _, tokens in planned) - decoding
        assert took == (self.scheduler.profile.step_seconds(decoding, prefill) if planned else None)
        return took

    def end(self) -> None:
        """The end of a step in both."""
        emitted = self.scheduler.end(self.now)
        told = [(one.order, one.phase is Phase.FINISHED) for one in emitted]
        assert told == self.server.end()
        self.done |= {number for number, done in told if done}

    def check(self) -> None:
        """The laws, and that both stand alike."""
        scheduler, server, profile = self.scheduler, self.server, self.scheduler.profile
        blocks = scheduler.blocks
        assert [one.order for one in scheduler.running.values()] == [one.number for one in server.running]
        assert [one.order for one in scheduler.queue()] == [one.number for one in server.waiting]
        assert blocks.used == server.used()
        assert blocks.kept == len(server.kept)
        assert all(blocks.known(one.content.key(0)) for one, request in self.all if request.prefix(1) in server.kept and len(request.prefix(1)) == BLOCK * TOKEN_BYTES)  # fmt: skip
        # Laws of the scheduler's page.
        assert len(scheduler.running) <= profile.max_num_seqs
        assert 0 <= blocks.used <= profile.kv_blocks
        assert blocks.used + blocks.kept <= profile.kv_blocks
        assert sum(scheduler.step.values()) <= profile.max_num_batched_tokens
        queue = [(one.priority, one.order) for one in scheduler.queue()]
        assert queue == sorted(queue)
        assert scheduler.arrived == len(self.all)
        assert scheduler.finished == len(self.done)
        assert scheduler.cancelled == len(self.cancelled)
        assert (
            scheduler.arrived
            == scheduler.finished + scheduler.cancelled + len(scheduler.running) + scheduler.waiting
        )
        assert all(one.blocks == 0 for one, _ in self.all if one.phase is not Phase.RUNNING)


@settings(max_examples=examples(1000), deadline=None)
@given(PROFILES, st.lists(ACTIONS, min_size=20, max_size=60))
def test_it_does_as_the_model_does(profile: Profile, actions: list[Arrive | Cancel | str]) -> None:
    """In every world: the same steps, tokens, queues and blocks; all who are not cancelled are served in full."""
    worlds = Worlds(profile)
    stepping = False
    for action in actions:
        if isinstance(action, Arrive):
            worlds.arrive(action)
        elif isinstance(action, Cancel):
            worlds.cancel(action.which)
        elif stepping:
            worlds.end()
            stepping = False
        else:
            stepping = worlds.begin() is not None
        worlds.now += 1.0
        worlds.check()
    for _ in range(20_000):
        if stepping:
            worlds.end()
        stepping = worlds.begin() is not None
        if not stepping:
            break
    worlds.check()
    assert not worlds.scheduler.running
    assert not worlds.scheduler.waiting
    assert worlds.scheduler.blocks.used == 0
    for sequence, request in worlds.all:
        if request.number not in worlds.cancelled:
            assert sequence.generated == sequence.answer_tokens


def run(scheduler: Scheduler, now: float = 0.0) -> list[tuple[float, Sequence]]:
    """All steps from a time on, each after the other: when which sequence got a token."""
    tokens = []
    while (took := scheduler.begin(now)) is not None:
        now += took
        tokens += [(now, one) for one in scheduler.end(now)]
    return tokens


@given(st.integers(1, 64), st.integers(2, 20))
def test_decode_rate_falls_with_the_batch(count: int, answer: int) -> None:
    """Sequences that decode together, n of them, get 1 / (step_s + n × step_per_sequence_s) tokens a second each."""
    profile = Profile()
    scheduler = Scheduler(profile)
    for number in range(count):
        scheduler.arrive(Sequence(Content(b"%4d" % number, "m"), answer, 0, 0.0))
    times = sorted({at for at, _ in run(scheduler)})
    assert len(times) == answer
    for before, after in pairwise(times):
        assert 1 / (after - before) == pytest.approx(decode_rate(profile, count))
    assert decode_rate(profile, count) < decode_rate(profile, count - 1)


@given(st.integers(1, 999), st.integers(0, 62))
def test_time_to_first_token(tokens: int, known: int) -> None:
    """An idle server takes as long as the theory says, less with a prefix that it knows."""
    profile = Profile(max_num_batched_tokens=128)
    scheduler = Scheduler(profile)
    scheduler.arrive(Sequence(Content(prompt(1, known * BLOCK + 1), "m"), 1, 0, 0.0))
    run(scheduler)
    hits = min(known, (tokens - 1) // BLOCK)
    scheduler.arrive(Sequence(Content(prompt(1, tokens), "m"), 1, 0, 0.0))
    ((at, one),) = run(scheduler)
    assert one.cached_tokens == hits * BLOCK
    assert at == pytest.approx(first_token_seconds(profile, tokens, hits * BLOCK))


def test_worked_example() -> None:
    """The figures of the package's page of theory."""
    profile = Profile()
    assert decode_rate(profile, 1) == pytest.approx(82, abs=0.5)
    assert decode_rate(profile, 64) == pytest.approx(40.3, abs=0.1)
    assert 64 * decode_rate(profile, 64) == pytest.approx(2580, abs=5)
    assert first_token_seconds(profile, 4000) == pytest.approx(0.424)
    assert first_token_seconds(profile, 4000, 3200) == pytest.approx(0.092)


def test_a_prefix_is_of_one_model() -> None:
    """What one model or adapter has cached is nothing to another."""
    assert Content(prompt(1, 32), "a").key(0) != Content(prompt(1, 32), "b").key(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_num_seqs": 0},
        {"step_s": 0.0},
        {"step_s": float("nan")},
        {"prefill_tokens_per_second": -1.0},
        {"model_load_s": float("inf")},
        {"max_num_batched_tokens": 10},
        {"kv_blocks": 100},
    ],
)
def test_impossible_profiles(wrong: dict[str, float]) -> None:
    """They are refused, by the field's name."""
    with pytest.raises(ProfileError, match="max_model_len" if "kv_blocks" in wrong else next(iter(wrong))):
        Profile(**wrong)  # type: ignore[arg-type]
