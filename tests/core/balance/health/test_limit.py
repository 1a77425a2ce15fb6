"""What a server takes at once, learned from when it says that it is full: the laws of docs/backend-health.md, "Full", and servers that keep to a limit."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.chooser import begin, pool_of
from gtm.core.balance.choosing.values import Candidate, WantedBackend
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.limit import FORGET, LATELY, LearnedLimit
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendLoad, BackendState, Check, Failure
from gtm.core.health.verdicts import ProbeResult
from tests.core.balance.choosing.worlds import choose
from tests.core.strategies import quick

events = st.lists(
    st.tuples(
        st.sampled_from(("full", "taken", "wait")),
        st.integers(0, 40),
        st.sampled_from("ab"),
        st.sampled_from((0.0, 0.1, 0.9, 3.0, 11.0, 61.0)),
    ),
    max_size=80,
)


@quick(300)
@given(events)
def test_the_laws(happen: list[tuple[str, int, str, float]]) -> None:
    """What was taken lately has room; nothing is limited for long; a rise is a tenth at most, or what was taken."""
    limit, now, fulls = LearnedLimit(), 0.0, [-FORGET]
    limit.tick(now)
    taken: list[tuple[float, int]] = []
    idle = False  # the last one said it while nothing was there
    said: list[tuple[float, str]] = []
    for what, met, who, later in happen:
        before = limit.limit
        if what == "full":
            limit.full(met, now, who)
            idle = not [at for at, _ in taken if now - at < LATELY] and (not met or idle)
            fulls.append(now)
            said.append((now, who))
            assert limit.limit is not None
            assert limit.limit >= 1
            assert limit.refuses_until <= now + 30
            least = max((count for at, count in taken if now - at <= 2 * LATELY), default=1)
            assert limit.limit <= max(met, least, 1)
            assert before is None or limit.limit <= max(before, least)
        elif what == "taken":
            changed = limit.taken(met, now, who)
            assert before is None or limit.refuses_until <= now
            assert changed is (limit.limit != before)
            if before is not None:
                taken.append((now, met + 1))
                assert limit.limit is not None
                assert (
                    before
                    <= limit.limit
                    <= max(met + 1, before * 2 if idle else before + max(1, before // 10))
                )
                others = {one for at, one in said if now - at < FORGET} - {said[-1][1]}
                if said[-1][1] == who or others:
                    assert met + 1 >= before or not changed
                else:
                    assert changed  # the word of one against what another's request shows
        now += later
        limit.tick(now)
        if now - fulls[-1] >= FORGET:
            assert limit.limit is None
        if limit.limit is not None:
            assert all(count <= limit.limit for at, count in taken if now - at < LATELY)


class Served:
    """A server with so many places, asked by as many requests at once as the limit lets through; each takes a second.

    They are those of `whose` clients, in turn. An attacker's are of one more.
    """

    def __init__(self, places: int, wanted: int, whose: int = 4) -> None:
        self.places, self.wanted, self.whose = places, wanted, whose
        self.limit = LearnedLimit()
        self.running: list[tuple[float, int, int]] = []
        self.now = 0.0
        self.refused = self.served = self.sent = 0

    def run(self, seconds: float, attack: float = 0.0) -> None:
        """Time passes in steps of 50 ms; `attack`: so many requests a second make it say "full" whether it is or not."""
        draw = Random(1)
        until = self.now + seconds
        while self.now < until:
            self.limit.tick(self.now)
            for end, met, who in [one for one in self.running if one[0] <= self.now]:
                self.running.remove((end, met, who))
                self.served += 1
                self.limit.taken(met, self.now, who)
            while len(self.running) < min(self.wanted, self.limit.limit or 10_000):
                met, self.sent = len(self.running), self.sent + 1
                if met >= self.places:
                    self.refused += 1
                    self.limit.full(met, self.now, self.sent % self.whose)
                    break
                self.running.append((self.now + draw.uniform(0.9, 1.1), met, self.sent % self.whose))
            if draw.random() < 0.05 * attack:
                self.limit.full(len(self.running), self.now, "attacker")
            self.now += 0.05


@pytest.mark.parametrize("whose", [1, 4])
@pytest.mark.parametrize("places", [1, 4, 64])
def test_a_server_that_is_overloaded_is_kept_full_and_seldom_asked_for_more(places: int, whose: int) -> None:
    """Twice as many requests as places, of one client or of several: what it can take it gets, and in a minute it refuses some, not one a second."""
    server = Served(places, 2 * places + 1, whose)
    server.run(20)
    server.refused = server.served = 0
    server.run(60)
    assert server.served >= 0.9 * 60 * places / 1.05
    assert server.refused <= 20


def test_a_server_that_has_more_room_again_is_found_out() -> None:
    """Others have filled it; when they are gone, what is learned grows to all of it."""
    server = Served(8, 200)
    server.run(30)
    server.places = 64
    server.run(90)
    server.served = 0
    server.run(10)
    assert server.served >= 0.8 * 10 * 64


def test_a_server_that_has_less_room_is_found_out() -> None:
    """Within what counts as lately."""
    server = Served(64, 200)
    server.run(20)
    server.places = 8
    server.run(2 * LATELY + 5)
    server.refused = 0
    server.run(30)
    assert server.refused <= 15
    assert server.limit.limit is not None
    assert server.limit.limit <= 9


@pytest.mark.parametrize("attack", [0.2, 2.0, 20.0])
def test_who_has_it_say_full_stops_nobody(attack: float) -> None:
    """Requests that make a server say "full" when it is not, as often as anybody can: what runs stays, and the others grow to all that they want."""
    server = Served(64, 16)
    server.run(10)
    assert len(server.running) == 16
    server.run(30, attack)
    assert len(server.running) >= 15
    server.wanted = 48  # more come
    server.run(120, attack)
    server.served = 0
    server.run(10, attack)
    assert server.served >= 0.8 * 10 * 48


def test_an_attack_from_the_beginning_stops_nobody() -> None:
    """Nothing was taken yet that would hold against it."""
    server = Served(64, 32)
    server.limit.full(0, 0.0)
    server.run(150, 5.0)
    server.served = 0
    server.run(10, 5.0)
    assert server.served >= 0.8 * 10 * 32


@pytest.mark.parametrize(("places", "refused"), [(1, 3), (5, 3), (200, 0)])
def test_a_server_that_was_full_of_others_alone_is_soon_asked_for_all(places: int, refused: int) -> None:
    """Seen: two servers said "full" for their first 2 s, and had room for 200 then: of 15 requests a second of 2 s each, half waited in vain for half a minute."""
    server = Served(places, 30, whose=1)
    for _ in range(3):
        server.limit.full(0, 0.0, 0)
        server.limit.full(1, 0.0, 0)  # sent at the same time
    assert server.limit.limit == 1
    server.run(6.5)
    assert len(server.running) == min(places, 30)
    assert server.refused <= refused


def test_what_was_taken_is_a_measure() -> None:
    """A limit that requests of ours have filled grows by a tenth, whatever is said later while nothing is there."""
    limit = LearnedLimit()
    limit.full(8, 0.0)
    assert limit.taken(7, 2.0)
    assert limit.limit == 9
    limit.full(0, 3.0)
    assert limit.limit == 8
    limit.taken(7, 5.0)
    assert limit.limit == 9


def test_a_rise_that_is_taken_is_followed_by_the_next_at_once() -> None:
    """However long it rested before, when rises led to the next "full"."""
    limit, now = LearnedLimit(), 0.0
    limit.full(4, now)
    for _ in range(10):  # as long as it is full of others
        while not limit.taken((limit.limit or 1) - 1, now):
            now += 0.5
        limit.full(4, now)
    began = now
    while (limit.limit or 99) < 8:
        now += 0.5
        limit.taken((limit.limit or 1) - 1, now)
    assert 16 <= now - began <= 16 + 4 * 1.5


GOOD = ProbeResult(True, 0.0)


def _health(names: str) -> BackendHealth:
    health = BackendHealth(HealthSettings(), [Backend(name) for name in names], 0.0)
    for name in names:
        health.checked(name, Check.HEALTH, GOOD, 0.0)
    return health


def test_full_is_no_fault() -> None:
    """However often, of one worker behind a balancer too (sgl-project/sglang#39464): it is up, and its slots are what it took."""
    health = _health("ab")
    for number in range(200):
        sending = health.begun("a", 1.0, health.asker("m", number))
        health.full(sending, 4 + number % 9, 1.0)
    health.tick(20.0)
    assert [one.state for one in health.snapshot(20.0)] == [BackendState.UP, BackendState.UP]
    assert health.condition("a", 20.0).slots == 4
    assert health.condition("b", 20.0).slots is None
    assert health.snapshot(20.0)[0].ended == {"full": 200}


def test_slots_that_the_file_says_count() -> None:
    """What is learned is for those of whom nothing is said."""
    health = _health("ab")
    for name in "ab":
        health.full(health.begun(name, 1.0, None), 3, 1.0)
    known = health.tick(1.0)
    pool = pool_of([Backend("a", slots=16), Backend("b")], known, Flights())
    assert [one.slots for one in pool.usable] == [16, 3]
    assert pool.updated({"b": health.condition("b", 1.0 + FORGET)}).usable[1].slots == 3
    health.tick(1.0 + FORGET)
    assert pool.updated({"b": health.condition("b", 1.0 + FORGET)}).usable[1].slots == 0


@pytest.mark.parametrize(
    ("running", "met", "ejected"), [(0.0, 0, True), (3.0, 0, False), (0.0, 1, False), (None, 0, False)]
)
def test_who_says_full_and_is_idle_by_its_own_metrics_is_ejected(
    running: float | None, met: int, ejected: bool
) -> None:
    """If that goes on: five in a row, while its peers serve. Not for one of a burst, nor where nobody knows."""
    health, now = _health("ab"), 1.0
    for number in range(5):
        assert health.snapshot(now)[0].state is BackendState.UP
        now += 0.5
        health.scraped("a", BackendLoad(running=running, waiting=None if running is None else 0.0), now)
        for name in "ab":
            sending = health.begun(name, now, health.asker("m", number))
            if name == "a":
                health.full(sending, met, now)
            else:
                health.answered(sending, 200, 0.1, now)
    assert (health.snapshot(now)[0].state is BackendState.EJECTED) is ejected


def test_a_trial_that_finds_it_full_is_given_back() -> None:
    """It has neither passed nor failed."""
    health = _health("abc")
    for _ in range(5):
        health.failed(health.begun("a", 1.0), Failure.RESET, 1.0)
    health.tick(12.0)
    for _ in range(10):
        assert not health.condition("a", 12.0).ejected
        health.full(health.begun("a", 12.0, health.asker(None)), 4, 12.0)
    assert health.snapshot(12.0)[0].state is BackendState.TRIAL


@pytest.mark.parametrize(("whose", "most"), [("a", 4.0), ("ab", 30.0)])
def test_who_says_full_while_nothing_is_there_is_asked_ever_less(whose: str, most: float) -> None:
    """From each second to each half minute; of what one has had it say, each four seconds. A good end ends it; one of those that are there does not begin it."""
    limit, now, pauses = LearnedLimit(), 0.0, []
    limit.full(1, now, "a")
    assert limit.refuses_until < now
    for number in range(8):
        limit.full(0, now, whose[number % len(whose)])
        until = limit.refuses_until
        limit.full(0, now + 0.1, "b" if "b" in whose else "a")  # it was sent before
        assert limit.refuses_until == until
        pauses.append(until - now)
        now = until
    assert pauses == [min(2.0**number, most) for number in range(8)]
    limit.full(0, now, "a")
    limit.taken(0, now + 0.1, "a")
    assert limit.refuses_until < now
    limit.full(0, now + 0.2, "a")
    assert limit.refuses_until == now + 0.2 + 1.0


@pytest.mark.parametrize("slots", [None, 64])
def test_a_server_that_says_full_to_everything_draws_no_requests(slots: int | None) -> None:
    """Seen: one of two was loading its model, said 503 at once, looked idle, and two thirds of all requests were refused for all 30 s."""
    health, backends, flights = (
        _health("ab"),
        [Backend("a", slots=slots), Backend("b", slots=slots)],
        Flights(),
    )
    pool = pool_of(backends, health.tick(0.0), flights)
    asked: list[float] = []
    for number in range(600):
        now = 1 + number / 10
        pool = pool.updated(health.tick(now))
        chosen = choose(pool, WantedBackend(), 0.5)
        assert isinstance(chosen, Candidate)
        if chosen.backend.name == "b":
            begin(pool, chosen, WantedBackend())  # it has room for all, and takes its time
            continue
        asked.append(now)
        ticket, sending = begin(pool, chosen, WantedBackend()), health.begun("a", now, health.asker(None))
        ticket.end()
        health.full(sending, ticket.met, now, number)
        pool = pool.updated(health.changes(now))
        other = choose(pool, WantedBackend(tried=frozenset("a")), 0.5)
        assert isinstance(other, Candidate)
        assert other.backend.name == "b"
    assert 4 <= len(asked) <= 8
    standing = health.snapshot(now)[0]
    assert standing.state is BackendState.UP
    assert "says that it is full" in standing.why
    alone = choose(pool, WantedBackend(tried=frozenset("b")), 0.5)  # before a request is refused
    assert isinstance(alone, Candidate)
    assert alone.backend.name == "a"


def test_where_all_say_full_all_are_asked() -> None:
    """As before: nobody is better than another."""
    health = _health("ab")
    for name in "ab":
        health.full(health.begun(name, 1.0), 0, 1.0)
    pool = pool_of([Backend("a"), Backend("b")], health.tick(1.0), Flights())
    found = {choose(pool, WantedBackend(tried=frozenset(tried)), 0.5) for tried in ("a", "b")}
    assert len({one.backend.name for one in found if isinstance(one, Candidate)}) == 2
