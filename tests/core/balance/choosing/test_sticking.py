"""What sticks: sessions on a ring with bounded loads, versions, and where adapters are loaded."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
from itertools import islice
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing import affinity, versions
from gtm.core.balance.choosing.chooser import begin, pool_of
from gtm.core.balance.choosing.filters import Kind
from gtm.core.balance.choosing.placement import Placements
from gtm.core.balance.choosing.values import Candidate, ChoosingSettings, Pick, WantedBackend
from gtm.core.balance.flights import Flights
from gtm.core.model.affinity import key_hash
from tests.core.balance.choosing.worlds import choose, loaded_pool, servers
from tests.core.strategies import quick

KEYS = [f"session {number}" for number in range(400)]


def _chosen(found: object) -> Candidate:
    assert isinstance(found, Candidate)
    return found


@quick(60)
@given(servers(least=1))
def test_the_ring_is_walked_clockwise(backends: tuple[Backend, ...]) -> None:
    """The model: servers by the distance from the key to their nearest point; each is met once."""
    ring = affinity.ring(backends)
    for key in KEYS[:10]:
        distance: dict[int, int] = {}
        for point, owner in zip(ring.points, ring.owners, strict=True):
            away = (point - key_hash(key) - 1) % 2**64
            distance[owner] = min(away, distance.get(owner, 2**64))
        assert list(ring.after(key)) == sorted(distance, key=distance.__getitem__)
        assert len(distance) == len(backends)


def test_sessions_spread_by_weight_and_only_a_leavers_move() -> None:
    """A third of the weight has about a third of the sessions; of the others' sessions none moves."""
    backends = [Backend("a", 2.0), Backend("b", 1.0), Backend("c", 2.0), Backend("d", 1.0)]
    well = {backend.name: Condition(healthy=True) for backend in backends}
    pool = pool_of(backends, well, Flights())
    before = {key: _chosen(choose(pool, WantedBackend(key=key), 0.9)).backend.name for key in KEYS}
    again = {key: _chosen(choose(pool, WantedBackend(key=key), 0.1)).backend.name for key in KEYS}
    assert before == again
    shares = Counter(before.values())
    for backend in backends:
        assert shares[backend.name] / len(KEYS) == pytest.approx(backend.weight / 6, abs=0.08)
    for fewer in (pool.updated({"a": Condition()}), pool_of(backends[1:], well, Flights())):
        after = {key: _chosen(choose(fewer, WantedBackend(key=key), 0.9)).backend.name for key in KEYS}
        assert all(after[key] == before[key] for key in KEYS if before[key] != "a")
        assert "a" not in after.values()


def test_a_leavers_sessions_alone_move_among_many() -> None:
    """While their number stays between the same powers of two: all have as many points as before."""
    backends = [Backend(f"{number}") for number in range(150)]
    before, after = affinity.ring(backends), affinity.ring(backends[:-1])
    for key in KEYS:
        first, second = list(islice(before.after(key), 2))
        assert next(after.after(key)) == (second if first == 149 else first)


@quick(200)
@given(
    st.lists(st.tuples(st.sampled_from((0.3, 1.0, 4.0)), st.integers(0, 12)), min_size=1, max_size=8),
    st.sampled_from((1.01, 1.25, 2.0)),
    st.sampled_from(KEYS),
)
def test_loads_are_bounded(loads: list[tuple[float, int]], bound: float, key: str) -> None:
    """The first on the ring with less than its capacity, and there always is one."""
    weights, requests = [weight for weight, _ in loads], [count for _, count in loads]
    pool = loaded_pool(weights, requests, ChoosingSettings(bound=bound))
    flying = sum(requests) + 1
    room = [
        number
        for number in pool.ring.after(key)
        if requests[number] < ceil(bound * flying / sum(weights) * weights[number])
    ]
    assert _chosen(choose(pool, WantedBackend(key=key), 0.5)).number == room[0]


def test_one_hot_session_is_spread() -> None:
    """A thousand requests of one key at once: no server has more than 1.25 times its share."""
    pool = loaded_pool((1.0,) * 8)
    wanted = WantedBackend(key="hot")
    for number in range(1000):
        begin(pool, _chosen(choose(pool, wanted, number / 1000)), wanted)
    assert max(one.flight.requests for one in pool.candidates) <= ceil(1.25 * 1000 / 8)


def test_versions_have_their_shares() -> None:
    """Of draws exactly, and what is left of a draw is uniform again; of clients nearly."""
    shares = (("blue", 0.25), ("green", 0.25))
    drawn: dict[str, list[float]] = {}
    for number in range(1000):
        name, left = versions.assigned(shares, None, (number + 0.5) / 1000)
        drawn.setdefault(name, []).append(left)
    assert {name: len(left) for name, left in drawn.items()} == {
        versions.OTHERS: 500,
        "blue": 250,
        "green": 250,
    }
    for some in drawn.values():
        assert some == pytest.approx([(place + 0.5) / len(some) for place in range(len(some))], abs=1e-6)
    of_clients = Counter(versions.assigned(shares, key, 0.5)[0] for key in KEYS)
    assert of_clients[versions.OTHERS] / len(KEYS) == pytest.approx(0.5, abs=0.08)
    assert of_clients["blue"] / len(KEYS) == pytest.approx(0.25, abs=0.08)


def test_from_blue_to_green_each_client_moves_once() -> None:
    """Shares move by tenths; nobody who has moved moves back."""
    moved: set[str] = set()
    for step in range(11):
        shares = (("blue", 1 - step / 10), ("green", step / 10))
        green = {key for key in KEYS if versions.assigned(shares, key, 0.5)[0] == "green"}
        assert moved <= green
        assert len(green) / len(KEYS) == pytest.approx(step / 10, abs=0.08)
        moved = green
    assert len(moved) == len(KEYS)


def test_stand_ins_have_shares() -> None:
    """By size; a version without one never stands in."""
    shares = (("blue", 0.2), ("green", 0.0), ("red", 0.5))
    assert versions.otherwise(shares, "blue") == ["red", versions.OTHERS]
    assert versions.otherwise((("green", 1.0),), "green") == []


@quick(200)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz")), max_size=20))
def test_placements_are_caches_of_the_least_recently_used(uses: list[tuple[str, str]]) -> None:
    """The model: for each server the last three different things that it was used for."""
    placements = Placements()
    caches: dict[str, OrderedDict[str, int]] = {"a": OrderedDict(), "b": OrderedDict()}
    for count, (server, item) in enumerate(uses, start=1):
        placements.used(server, item, 3)
        caches[server].pop(item, None)
        caches[server][item] = count
        if len(caches[server]) > 3:
            caches[server].popitem(last=False)
    for server, cache in caches.items():
        assert {item for item in "uvwxyz" if placements.has(server, item)} == set(cache)
        assert placements.victim(server, 3) == (next(iter(cache.values())) if len(cache) == 3 else 0)
    placements.keep(frozenset("a"))
    assert not any(placements.has("b", item) for item in "uvwxyz")


def test_an_adapter_that_nobody_has_goes_where_the_coldest_is() -> None:
    """First to a place that is free, then to the least recently used; while it loads, its requests follow it."""
    backends = [Backend(name, max_loaded=1) for name in "ab"]
    nothing = Condition(healthy=True, models=frozenset(), adapters=frozenset())
    pool = pool_of(backends, {"a": nothing, "b": nothing}, Flights())

    def sent(adapter: str) -> str:
        wanted = WantedBackend(model=adapter)
        found = _chosen(choose(pool, wanted, 0.0))
        begin(pool, found, wanted)
        return found.backend.name

    first = sent("law")
    second = sent("medicine")
    assert {first, second} == {"a", "b"}
    assert [sent("law"), sent("law"), sent("medicine")] == [first, first, second]
    assert sent("art") == first
    loaded = pool.updated({second: replace(nothing, adapters=frozenset({"art"}))})
    assert _chosen(choose(loaded, WantedBackend(model="art"), 0.0)).backend.name == second


def test_choosing_changes_nothing() -> None:
    """The same pool, counts and draw give the same server, as often as one asks (round robin has turns)."""
    backends = [Backend(f"{number}", 1.0 + number) for number in range(20)]
    well = {backend.name: Condition(healthy=True, models=frozenset()) for backend in backends}
    for pick in (Pick.P2C, Pick.SCAN, Pick.PREQUAL, Pick.RANDOM):
        pool = pool_of(backends, well, Flights(), ChoosingSettings(pick=pick))
        wanted = WantedBackend(model="m", cost=2.0)
        assert len({_chosen(choose(pool, wanted, 0.4)).number for _ in range(5)}) == 1
        assert pool.eligible(Kind("m", None)).missing
