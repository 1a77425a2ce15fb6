"""Leased quotas: what edges admit together, whatever happens to them and to their messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import SpillIn
from gtm.core.quota.buckets import WINDOW, TokenBucket, depth
from gtm.core.quota.leases import DURATION, Lease, LeaseGrant, LeaseHolder, LeaseUse, split
from gtm.core.quota.ledger import LEAST, MOST_INSTANCES, PROOF, LeaseLedger, parts_of, shares
from gtm.core.quota.names import concerning
from tests import worlds
from tests.bench.quota_world import CALM, STORM, Scene, play
from tests.core.strategies import quick
from tests.effort import examples

CLOCKS = 1.0011
"""What clocks 0.1 % fast may add to ten seconds, and rounding; the promise is 1.01."""


def worst_window(admitted: Iterable[float]) -> int:
    """The most admitted in any window of 10 s."""
    times = sorted(admitted)
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - WINDOW:
            first += 1
        most = max(most, last - first + 1)
    return most


# Buckets


def _saturate(bucket: TokenBucket, begin: float, end: float, step: float = 0.01) -> list[float]:
    times = (begin + number * step for number in range(int((end - begin) / step)))
    return [now for now in times if bucket.take(now)]


def test_a_bucket_admits_its_rate() -> None:
    """A saturated bucket starts empty, and admits its rate to within a percent, and never more."""
    bucket = TokenBucket()
    bucket.lease(100.0, 50.0, 1000.0)
    admitted = _saturate(bucket, 100.0, 160.0, 0.001)
    assert admitted[0] >= 100.0 + 1 / 50 - 1e-3
    assert 0.99 * 3000 <= len(admitted) <= 3000
    assert worst_window(admitted) <= 500


def test_an_unused_bucket_saves_no_more_than_its_depth() -> None:
    """After a long pause a bucket admits its depth at once, not what it could have admitted meanwhile."""
    bucket = TokenBucket()
    bucket.lease(0.0, 50.0, 1000.0)
    assert sum(bucket.take(500.0) for _ in range(500)) == int(depth(50.0))


def test_a_bucket_without_a_lease_admits_nothing() -> None:
    """Neither before its first lease, nor from the moment the last one ends, nor with what it saved before that."""
    bucket = TokenBucket()
    assert not bucket.take(5.0)
    bucket.lease(10.0, 20.0, 13.0)
    assert bucket.take(12.999)
    assert not bucket.take(13.0)
    bucket.lease(14.0, 20.0, 17.0)
    assert not bucket.take(14.0)
    assert bucket.take(14.051)


def test_a_change_of_rate_gains_no_tokens() -> None:
    """More rate earns only from now on; less rate empties the bucket."""
    bucket = TokenBucket()
    bucket.lease(0.0, 1.0, 100.0)
    bucket.lease(0.5, 100.0, 100.0)
    assert not bucket.take(0.5)
    assert bucket.take(0.51)
    bucket.lease(5.0, 50.0, 100.0)
    assert not bucket.take(5.0)


def test_a_successor_pays_its_predecessors_savings() -> None:
    """A process that takes over a running lease admits nothing until what the last one may have saved is earned."""
    bucket = TokenBucket.successor(0.0, 100.0, 100.0)
    first = next(now / 1000 for now in range(100_000) if bucket.take(now / 1000))
    assert first == pytest.approx((depth(100.0) + 1) / 100.0, abs=2e-3)


@quick(300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lease", "ask", "wait"]),
            st.floats(0.0, 4.0),
            st.floats(0.0, 40.0),
            st.integers(1, 60),
        ),
        max_size=60,
    )
)
def test_no_admission_exceeds_what_the_window_earned(steps: list[tuple[str, float, float, int]]) -> None:
    """At every admission, the last ten seconds admitted no more than the rates of those seconds allowed."""
    bucket, now = TokenBucket(), 0.0
    rates: list[tuple[float, float, float]] = []  # begin, end, rate
    admitted: list[float] = []
    for kind, wait, rate, requests in steps:
        now += wait
        if kind == "lease":
            if rates:
                begin, end, old = rates.pop()
                rates.append((begin, min(end, now), old))
            rates.append((now, now + 3.0, rate))
            bucket.lease(now, rate, now + 3.0)
        for _ in range(requests if kind == "ask" else 0):
            if bucket.take(now):
                admitted.append(now)
                earned = sum(
                    rate * max(0.0, min(end, now) - max(begin, now - WINDOW)) for begin, end, rate in rates
                )
                assert sum(at > now - WINDOW for at in admitted) <= earned + 1e-3


# Values


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Lease, '{"quota": "q", "rate": 0}'),
        (Lease, '{"quota": "q", "rate": -1}'),
        (Lease, '{"quota": "q", "rate": 1, "parts": 0}'),
        (LeaseUse, '{"instance": "", "report": 1}'),
        (LeaseUse, '{"instance": "i", "report": 1, "workers": 0}'),
        (LeaseUse, '{"instance": "i", "report": 1, "used": {"q": -1}}'),
        (LeaseUse, '{"instance": "i", "report": 1, "denied": {"q": 9007199254740992}}'),
        (LeaseUse, '{"instance": "i", "report": 1, "sequence": 18446744073709551615}'),
        (LeaseUse, '{"instance": "i", "report": 1, "held": [{"quota": "q", "rate": 1e300}]}'),
        (LeaseUse, '{"instance": "i", "report": 1, "held": [{"quota": "q", "rate": 1, "parts": 99999}]}'),
    ],
)
def test_values_that_make_no_sense_are_refused(kind: type, text: str) -> None:
    """A message with impossible numbers is no message."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=kind)


def test_values_travel() -> None:
    """Reports and grants survive JSON."""
    use = LeaseUse("i", 3, 2, 4, {"q": 5}, {"q": 1}, (Lease("q", 1.5, 2),))
    grant = LeaseGrant(3, 7, DURATION, (Lease("q", 2.0, 4),))
    assert msgspec.json.decode(msgspec.json.encode(use), type=LeaseUse) == use
    assert msgspec.json.decode(msgspec.json.encode(grant), type=LeaseGrant) == grant


@given(
    st.lists(st.tuples(st.floats(0.1, 1e6), st.integers(1, 40)), max_size=5),
    st.integers(1, 32),
)
def test_a_split_hands_out_the_lease(leases: list[tuple[float, int]], workers: int) -> None:
    """The parts of a lease are equal, sum to it, and go to as many workers as it says."""
    given_out = tuple(Lease(f"q{number}", rate, parts) for number, (rate, parts) in enumerate(leases))
    rates = split(given_out, workers)
    for lease in given_out:
        parts = [part[lease.quota] for part in rates if lease.quota in part]
        assert len(parts) == min(lease.parts, workers)
        assert sum(parts) == pytest.approx(lease.rate)
        assert len(set(parts)) == 1


@quick(300)
@given(st.lists(st.floats(0.1, 200.0), min_size=1, max_size=12), st.integers(1, 16))
def test_no_rate_moves_between_an_edges_workers(rates: list[float], workers: int) -> None:
    """When an edge's rate grows, no worker's part falls; when it falls, none grows and no worker joins."""
    held, parts = 0.0, 1
    for rate in rates:
        new = parts_of(rate, workers, held, parts)
        assert 1 <= new <= workers
        if held > 0 and rate >= held:
            assert new >= parts
            assert rate / new >= held / parts * (1 - 1e-9)
        elif held > 0:
            assert new <= parts
            assert rate / new <= held / parts * (1 + 1e-9)
        held, parts = rate, new


# Shares


@quick(300)
@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e5), max_size=12), st.floats(0, 1e5), st.data())
def test_shares_fit_into_the_quota(demand: dict[str, float], total: float, data: st.DataObject) -> None:
    """Shares sum to no more than the quota, and none is too small to be worth having."""
    holding = data.draw(st.sets(st.sampled_from(sorted(demand)))) if demand else set()
    parts = shares(demand, total, holding)
    assert sum(parts.values()) <= total * (1 + 1e-9)
    assert all(part >= min(LEAST, total) * (1 - 1e-9) for part in parts.values())


@pytest.mark.parametrize("total", [0.0, 5e-324, 1e-300, 1e-10])
def test_of_nothing_there_are_no_parts(total: float) -> None:
    """A share of a demand that fades away is less than any request."""
    assert shares({"a": 229.0, "b": 339.0}, total, {"a"}) == {}


def test_shares_follow_demand() -> None:
    """Where demand exceeds the quota, who wants little has it, the others as much as any, and the whole quota is shared."""
    parts = shares({"a": 300.0, "b": 20.0, "c": 0.0}, 100.0)
    assert parts["a"] - parts["c"] == pytest.approx(0.98 * 80.0)
    assert parts["b"] - parts["c"] == pytest.approx(0.98 * 20.0)
    assert sum(parts.values()) == pytest.approx(100.0)
    assert parts["c"] == pytest.approx(100 * 0.02 / 3)


@quick(300)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e3)), min_size=1, max_size=12),
    st.floats(1e3, 1e9),
    st.integers(1, 40),
    st.floats(1.0, 1e3),
)
def test_a_lie_costs_no_token_its_equal_part(
    honest: list[tuple[str, float]], lie: float, names: int, total: float
) -> None:
    """Whatever one token claims to want, under however many names: others get what they want, or an equal part, less what is spread."""
    demand = {f"{owner}{number}": rate for number, (owner, rate) in enumerate(honest)}
    owners = {name: name[0] for name in demand}
    demand |= {f"liar{number}": lie for number in range(names)}
    owners |= {f"liar{number}": "liar" for number in range(names)}
    parts = shares(demand, total, (), owners)
    count = len(set(owners.values()))
    for owner in set(owners.values()) - {"liar"}:
        own = [name for name in demand if owners[name] == owner]
        wants = sum(demand[name] for name in own)
        part = sum(parts.get(name, 0.0) for name in own)
        # Parts below the least that is worth having go to those that want most.
        assert part >= min(wants, total / count) * 0.98 * (1 - 1e-9) - LEAST * (len(own) + 1)
    assert sum(parts.values()) <= total * (1 + 1e-9)


def test_what_nobody_needs_stays_free() -> None:
    """Where the quota exceeds demand, an edge gets ample for its demand, and new demand finds something free."""
    parts = shares({"a": 10.0, "b": 0.0}, 100.0)
    assert parts["a"] >= 20.0
    assert sum(parts.values()) <= 75.0


def test_a_small_quota_goes_to_few_edges() -> None:
    """Where not every edge can have a part worth having, those get one that want most, and keep it against a draw."""
    demand = {f"e{number}": 1.0 + number / 100 for number in range(20)}
    assert len(shares(demand, 1.0)) == 3
    assert "e19" in shares(demand, 0.1)
    assert "e0" in shares(demand, 0.1, {"e0"})


# The edge's side


def test_only_the_awaited_reply_counts() -> None:
    """A reply to an older report, a second reply and an older grant change nothing."""
    holder = LeaseHolder("i", 1)
    first, second = holder.use(10.0), holder.use(11.0)
    assert not holder.take(LeaseGrant(first.report, 5, 3.0, (Lease("q", 1.0),)))
    assert holder.take(LeaseGrant(second.report, 6, 3.0, (Lease("q", 2.0),)))
    assert not holder.take(LeaseGrant(second.report, 7, 3.0, (Lease("q", 9.0),)))
    (parts,) = holder.parts()
    assert (parts.rates, parts.until) == ({"q": 2.0}, 14.0)


def test_an_edge_has_taken_what_all_its_workers_have() -> None:
    """The sequence reported is that of the slowest worker; one whose process is gone does not hold it back."""
    holder = LeaseHolder("i", 2)
    for worker in range(2):
        assert holder.started(worker).rates == {}
    assert holder.take(LeaseGrant(holder.use(1.0).report, 5, 3.0))
    holder.taken(0, 5)
    assert holder.use(2.0).sequence == 0
    holder.ended(1)
    assert holder.use(3.0).sequence == 5


def test_what_was_given_up_is_reported_at_once() -> None:
    """A report is overdue as soon as all workers have taken a lower lease, until it is made."""
    holder = LeaseHolder("i", 1)
    holder.started(0)
    for sequence, rate in ((1, 5.0), (2, 4.0)):
        assert holder.take(LeaseGrant(holder.use(sequence).report, sequence, 3.0, (Lease("q", rate),)))
        assert not holder.overdue
        holder.taken(0, sequence)
    assert holder.overdue
    holder.use(3.0)
    assert not holder.overdue


# Control's books


class _Edge:
    """An edge of one worker whose messages arrive at once, or not at all."""

    def __init__(self, name: str, ledger: LeaseLedger) -> None:
        self.name, self.ledger = name, ledger
        self.start()

    def start(self) -> None:
        self.holder = LeaseHolder(f"{id(self)}-{id(object())}", 1)
        self.holder.started(0)
        self.bucket = TokenBucket()
        self.counts = [0, 0]

    def report(self, now: float, *, up: bool = True, down: bool = True) -> None:
        used, denied = self.counts
        self.holder.count({"q": used}, {"q": denied})
        self.counts = [0, 0]
        use = self.holder.use(now)
        if not up:
            return
        grant = self.ledger.answer(self.name, use, now)
        if down and self.holder.take(grant):
            (parts,) = self.holder.parts()
            self.bucket.lease(now, parts.rates.get("q", 0.0), parts.until)
            self.holder.taken(0, parts.sequence)

    def ask(self, now: float, requests: int) -> int:
        admitted = sum(self.bucket.take(now) for _ in range(requests))
        self.counts[0] += admitted
        self.counts[1] += requests - admitted
        return admitted

    @property
    def rate(self) -> float:
        return sum(lease.rate for lease in self.holder.use(0.0).held)


def _rate(edge: _Edge) -> float:
    """What its workers may spend together, without a look at the clock."""
    return sum(rate for part in edge.holder.parts() for rate in part.rates.values())


def _played(ledger: LeaseLedger, edges: list[_Edge], seconds: range, wants: list[int], quota: float) -> None:
    """Whole seconds in which every edge asks evenly and reports."""
    for second in seconds:
        for edge, want in zip(edges, wants, strict=True):
            for part in range(want):
                edge.ask(second + part / want, 1)
        ledger.apportion({"q": quota}, second + 0.99)
        for edge in edges:
            edge.report(second + 0.999)


def test_a_new_ledger_waits_for_the_leases_of_another() -> None:
    """A ledger that has just started grants nothing new until every lease of another has ended and rested."""
    ledger = LeaseLedger(0.0)
    edge = _Edge("a", ledger)
    _played(ledger, [edge], range(13), [50], 100.0)
    assert ledger.in_force("q", 13.0) == 0
    _played(ledger, [edge], range(13, 16), [50], 100.0)
    assert ledger.in_force("q", 16.0) >= 50


def test_a_new_ledger_goes_on_with_what_edges_hold() -> None:
    """When control moves, edges keep their leases, and nobody gets more until the others' have ended."""
    old = LeaseLedger(-100.0)
    edges = [_Edge(name, old) for name in "ab"]
    _played(old, edges, range(8), [60, 60], 100.0)
    before = old.in_force("q", 8.0)
    new = LeaseLedger(8.0, first_sequence=10**6)
    for edge in edges:
        edge.ledger = new
    _played(new, edges, range(8, 12), [60, 60], 100.0)
    assert before * 0.8 <= new.in_force("q", 12.0) <= 100.0


def test_a_vanished_edge_keeps_its_part_until_it_ends() -> None:
    """What a cut-off edge may still spend is leased to nobody else, and afterwards to whoever wants it."""
    ledger = LeaseLedger(-100.0)
    edges = [_Edge(name, ledger) for name in "ab"]
    _played(ledger, edges, range(8), [100, 100], 100.0)
    held = ledger.in_force("q", 8.0)
    _played(ledger, edges[1:], range(8, 10), [100], 100.0)
    assert held <= ledger.in_force("q", 10.0) <= 100.0
    _played(ledger, edges[1:], range(10, 16), [100], 100.0)
    assert _rate(edges[1]) >= 95


def test_an_offer_counts_before_it_is_proven() -> None:
    """A lease whose reply was lost may have arrived: it is kept as it was offered, and nobody else gets it."""
    ledger = LeaseLedger(-100.0)
    edges = [_Edge(name, ledger) for name in "ab"]
    edges[0].report(0.0)
    edges[0].ask(0.9, 200)
    edges[0].report(1.0)
    ledger.apportion({"q": 100.0}, 1.5)
    edges[0].report(2.0, down=False)
    edges[1].report(2.0)
    edges[1].ask(2.9, 200)
    edges[1].report(3.0)
    ledger.apportion({"q": 100.0}, 3.5)
    edges[1].report(4.0)
    edges[0].report(4.0)
    assert 99.0 <= sum(map(_rate, edges)) <= 100.0


def test_a_quota_that_falls_takes_its_leases_back() -> None:
    """One report after a quota falls, edges that can be reached hold no more than the new one."""
    ledger = LeaseLedger(-100.0)
    edges = [_Edge(name, ledger) for name in "ab"]
    _played(ledger, edges, range(8), [100, 100], 100.0)
    _played(ledger, edges, range(8, 9), [100, 100], 20.0)
    assert sum(map(_rate, edges)) <= 20.0 + 1e-9
    _played(ledger, edges, range(9, 10), [100, 100], 0.0)
    assert not any(map(_rate, edges))


@pytest.mark.parametrize("fate", ["connected", "reply lost", "cut off"])
def test_a_part_changes_hands_without_a_gap_to_spend_twice(fate: str) -> None:
    """An edge spends all it saved, and loses its part to another that takes all it can get: ten seconds still fit."""
    ledger, quota = LeaseLedger(-100.0), 100.0
    giver, taker = _Edge("giver", ledger), _Edge("taker", ledger)
    _played(ledger, [giver, taker], range(15), [200, 10], quota)
    assert _rate(giver) > 75
    taker.ask(15.5, 150)
    taker.report(15.6)
    ledger.apportion({"q": quota}, 15.7)
    admitted = [15.8] * giver.ask(15.8, 100)
    giver.counts = [0, 0]  # its demand seems to have ended
    admitted += [15.8] * taker.ask(15.8, 100)
    for step in range(1400):
        now = 15.8 + step / 100
        if (step % 100 == 0 or giver.holder.overdue) and fate != "cut off":
            giver.counts = [0, 0]
            giver.report(now, down=fate == "connected" or step > 200)
        if step % 10 == 0:
            ledger.apportion({"q": quota}, now)
            taker.report(now)
        for edge in (giver, taker):
            admitted += [now] * edge.ask(now, 5)
    assert worst_window(admitted) <= quota * WINDOW
    assert sum(now >= 25.0 for now in admitted) >= 0.9 * quota * 4.8


_STEP = st.tuples(
    st.sampled_from(["wait", "ask", "report", "report", "no report", "no reply", "replace", "second"]),
    st.integers(0, 2),
    st.floats(0.0, 2.0),
    st.integers(1, 80),
)


@quick(300)
@given(st.sampled_from([1.0, 4.0, 25.0]), st.lists(_STEP, max_size=80))
def test_together_edges_never_exceed_the_quota(
    quota: float, steps: list[tuple[str, int, float, int]]
) -> None:
    """Whatever is asked, lost and replaced: no ten seconds admit more than the quota, to the request."""
    ledger = LeaseLedger(-100.0)
    edges = [_Edge(name, ledger) for name in "abc"]
    old: list[_Edge] = []
    now, admitted = 0.0, []
    for kind, number, wait, requests in steps:
        edge = edges[number]
        if kind == "wait":
            now += wait
        elif kind == "ask":
            admitted += [now] * edge.ask(now, requests)
        elif kind == "replace":  # a new instance starts while the old one's worker lives on
            old.append(edge)
            edges[number] = _Edge(edge.name, ledger)
        elif kind == "second":
            now += 1.0
            ledger.apportion({"q": quota}, now)
            for other in (*edges, *old):
                admitted += [now] * other.ask(now, requests if other is edge else 1)
            for other in edges:
                other.report(now)
        else:
            edge.report(now, up=kind != "no report", down=kind != "no reply")
        assert ledger.in_force("q", now) <= quota * (1 + 1e-9)
    assert worst_window(admitted) <= quota * WINDOW + 1e-6


# Everything together, in simulated time


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(6, 6)))
@pytest.mark.parametrize(("quota", "edges", "workers"), [(1, 3, 2), (10, 5, 4), (100, 5, 2), (300, 8, 4)])
def test_no_ten_seconds_exceed_the_quota_in_a_storm(
    quota: float, edges: int, workers: int, seed: int
) -> None:
    """Edges join, die, are cut off; messages get lost, doubled, late; clocks err; demand jumps: the quota holds."""
    played = play(Scene(quota, edges, workers, 3.0, 40.0, 4.0, STORM, skew=5.0), seed)
    assert played.worst(quota) <= CLOCKS


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(3, 3)))
def test_a_steady_demand_gets_the_quota(seed: int) -> None:
    """It is not exact by refusing: steady demand beyond the quota uses at least 95 % of it."""
    scene = Scene(500, 4, 2, 1.5, 35.0, weather=CALM)
    played = play(scene, seed)
    assert played.utilisation(500, 15, 35) >= 0.95
    assert played.worst(500) <= CLOCKS


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(3, 3)))
def test_shifted_demand_gets_the_quota_again(seed: int) -> None:
    """Within four seconds of demand moving between edges, the quota is in use again."""
    scene = Scene(500, 4, 2, 2.0, 30.0, weather=CALM, skew=8.0)
    played = play(scene, seed, upheaval=15.0)
    assert played.utilisation(500, 19, 30) >= 0.9


# Liars


class _Liar:
    """Whoever has one token: claims to want much, under several names and instances, and proves only what is more."""

    def __init__(self, ledger: LeaseLedger, random: Random, concerned: frozenset[str] | None = None) -> None:
        self.ledger, self.random, self.concerned = ledger, random, concerned
        self.holders = [[f"liar/{number % 4}", f"i{number}", 0, 0, 0.0, 0] for number in range(12)]

    def act(self, now: float) -> None:
        """Some of its holders report."""
        for holder in self.holders:
            if self.random.random() < 0.1:  # another start
                holder[1:] = f"{self.random.random()}", 0, 0, 0.0, 0
            if self.random.random() < 0.3:
                continue
            name, instance, number, sequence, held, denied = holder
            denied += self.random.choice((0, 10**6))
            use = LeaseUse(str(instance), int(number) + 1, int(sequence), denied={"q": int(denied)})
            grant = self.ledger.answer(str(name), use, now, owner="liar", concerned=self.concerned)
            rate = sum(lease.rate for lease in grant.leases)
            if rate >= float(held) or self.random.random() < 0.2:
                sequence, held = grant.sequence, rate
            holder[2:] = number + 1, sequence, held, denied


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(8, 8)))
def test_a_liar_takes_no_more_than_its_part(seed: int) -> None:
    """Whatever one token claims, and never proves: another soon has its equal part, and keeps it."""
    ledger, random = LeaseLedger(-100.0), Random(seed)
    honest, liar = _Edge("honest", ledger), _Liar(ledger, random)
    for second in range(80):
        wants = 0 if second < 20 else 60  # the liar has all when it begins
        for part in range(wants):
            honest.ask(second + part / wants, 1)
        ledger.apportion({"q": 100.0}, second + 0.9)
        liar.act(second + 0.95)
        honest.report(second + 0.99)
        assert ledger.in_force("q", second + 0.99) <= 100.0 * (1 + 1e-9)
        if second >= 20 + PROOF + DURATION + WINDOW + 5:
            assert _rate(honest) >= 0.9 * 50.0


def test_an_offer_that_is_not_proven_ends_in_time() -> None:
    """Within `PROOF` and the lease's own time its holder has nothing; one that proves is never withdrawn; it may begin anew."""
    ledger = LeaseLedger(-100.0)
    stuck, other = _Edge("stuck", ledger), _Edge("other", ledger)
    _played(ledger, [stuck], range(8), [100], 100.0)
    assert _rate(stuck) > 90
    stuck.holder.taken = lambda *_: None  # type: ignore[method-assign] # its worker takes nothing any more
    _played(ledger, [stuck, other], range(8, 20), [100, 100], 100.0)
    assert ledger.withdrawn == {"stuck": 1}
    assert _rate(other) >= 49
    stuck.start()
    _played(ledger, [stuck, other], range(20, 28), [100, 100], 100.0)
    assert ledger.withdrawn == {"stuck": 1}
    assert _rate(stuck) >= 45


def test_nobody_holds_what_does_not_concern_it() -> None:
    """Neither from the books, nor by saying that another control leased it; and what it wants takes nothing from others."""
    for before in (-100.0, 0.0):
        ledger = LeaseLedger(before)
        held = (Lease("q", 90.0),)
        for second in range(8):
            ledger.apportion({"q": 100.0, "other": 5.0}, second)
            use = LeaseUse("i", second + 1, 0, denied={"q": 10**6 * second}, held=held)
            grant = ledger.answer(
                "bal-us/1", use, second + 0.1, owner="bal-us", concerned=frozenset({"other"})
            )
            assert all(lease.quota == "other" for lease in grant.leases)
        assert ledger.in_force("q", 8.0) == 0.0


def test_instances_of_one_name_are_bounded() -> None:
    """One that starts again and again holds something in `MOST_INSTANCES` of its lives at once; when they have ended it may again."""
    ledger = LeaseLedger(-100.0)
    for begin in (0.0, 60.0):
        holding = 0
        for number in range(3):
            ledger.apportion({"q": 1000.0}, begin + number * 0.1)
            for instance in range(100):
                grant = ledger.answer("bal-us/1", LeaseUse(f"{instance}", number + 1), begin + number * 0.1)
                holding += bool(grant.leases) and number == 2
        assert holding == MOST_INSTANCES


def test_lives_that_end_early_count_as_their_token_s() -> None:
    """One that takes its part, vanishes and begins anew would have all of a quota resting: it waits for what it left behind."""
    ledger = LeaseLedger(-100.0)
    honest = _Edge("honest", ledger)
    for step in range(500):
        now = step * 0.1
        ledger.apportion({"q": 100.0}, now)
        for number, age in enumerate((0, 6, 7, 8, 9, 10)):  # a life begins at each step
            life = step - age
            use = LeaseUse(f"{life}", number + 1, 10**9, denied={"q": 10**6 * number})
            ledger.answer(f"liar/{life % 40}", use, now + 0.01, owner="liar")
        if step >= 200:
            honest.ask(now + 0.02, 8)
            if step % 10 == 0:
                honest.report(now + 0.03)
    assert _rate(honest) >= 49


@quick(300)
@given(st.data())
def test_what_concerns_a_region_is_what_its_pushes_may_owe(data: st.DataObject) -> None:
    """By `quotas_of` and `owed` of every home whose requests can be in the region, and of every peer."""
    names = ("de", "fr", "us", "jp")
    rules = []
    for number in range(data.draw(st.integers(0, 5))):
        home = data.draw(st.sampled_from(names))
        others = [name for name in names if name != home]
        targets = data.draw(st.lists(st.sampled_from(others), min_size=1, unique=True))
        rules.append(SpilloverRule(f"r{number}", home, tuple(targets), max_requests_per_second=1.0))
    bounded = data.draw(st.sets(st.sampled_from(names)))
    regions = tuple(
        replace(one, spill_in=SpillIn(max_requests_per_second=1.0)) if one.name in bounded else one
        for one in worlds.regions(" ".join(names))
    )
    policy = replace(worlds.policy(*regions), spillover_rules=tuple(rules))

    def way(home: str, to: str) -> set[str] | None:
        leading = [rule for rule in rules if rule.from_region == home and to in rule.to_regions]
        if not leading and any(rule.from_region == home for rule in rules):
            return None
        return {rule.name for rule in leading} | ({f"spill_in:{to}"} if to in bounded else set())

    for here in names:
        owed: set[str] = set()
        for home in names:
            there = set() if home == here else way(home, here)
            if there is None:
                continue
            for to in names:
                if to not in (home, here):
                    owed |= (way(home, to) or set()) - there
        allowed = concerning(policy, here)
        assert owed <= allowed
        assert {name for name in allowed if not name.startswith("spill_in:")} <= owed
    assert concerning(policy, "nowhere") == frozenset()
