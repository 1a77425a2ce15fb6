"""Usable capacity, and how it comes about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.load import Freshness, Key, Load
from gtm.core.capacity.processing import SentRates, TimeSource
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, RegionCapacity, Supply, assess, assess_region
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState, Capacity, Endpoint, Region, SpillIn
from gtm.core.model.services import Member, Service
from gtm.core.model.state import EndpointHealth, HealthStatus
from tests import worlds
from tests.core.strategies import quick

T0 = 1_790_000_000.0
A, B = "https://a.test", "https://b.test"
UP, DOWN = EndpointHealth(HealthStatus.UP, T0 - 900), EndpointHealth(HealthStatus.DOWN, T0)
BACK = EndpointHealth(HealthStatus.UP, T0, recovered=True)
HEALTH = {"r": {A: UP, B: UP}, "q": {A: UP, B: UP}}
UNSTATED = Capacity()


def _world(service_time_ms: float | None = None, member: Capacity = UNSTATED, **region: Any) -> Policy:
    """Regions `q` and `r` of one service, `chat`; `r` as stated, without a reserve unless one is."""
    base = worlds.region("q", Endpoint(A), Endpoint(B), at="de")
    first = replace(base, **{"name": "r", "reserve": 0.0, "capacity": Capacity(100, 50.0), **region})
    chat = Service("chat", (Member("r", capacity=member), Member("q")), service_time_ms=service_time_ms)
    return worlds.policy(first, base, chat)


def _loads(age: float = 0.0, service: str = "", region: str = "r", **signals: Any) -> dict[Key, Load]:
    return {(region, service): Load(region, service, T0 - age, 1, **signals)}


def _assess(
    policy: Policy, loads: dict[Key, Load] | None = None, before: Assessment = NO_ASSESSMENT, **more: Any
) -> RegionCapacity:
    found = assess(policy, more.get("health", HEALTH), loads or {}, more.get("now", T0), before)
    return found.regions["r"]


def _bounds(*args: Any, **more: Any) -> tuple[float | None, float | None]:
    supply = _assess(*args, **more).supply
    return supply.slots, supply.rate


def test_without_reports_the_declared_capacity_counts() -> None:
    """Less the reserve. A region that declares nothing is bound by nothing."""
    assert _bounds(_world()) == (100.0, 50.0)
    assert _bounds(_world(reserve=0.1)) == (90.0, 45.0)
    assert _bounds(_world(capacity=Capacity())) == (None, None)
    assert _bounds(_world(capacity=Capacity(outstanding=0))) == (0.0, None)


@pytest.mark.parametrize(
    ("change", "health", "factor"),
    [
        ({}, {A: UP, B: DOWN}, 0.5),
        ({}, {A: UP}, 0.5),
        ({}, {}, 0.0),
        ({}, {A: DOWN, B: DOWN}, 0.0),
        ({"slow_start": 30.0}, {A: BACK, B: BACK}, 0.1),
        ({"slow_start": 30.0}, {A: BACK, B: UP}, 0.55),
        ({"slow_start": 30.0}, {A: BACK, B: DOWN}, 0.05),
        ({"slow_start": 0.0}, {A: BACK, B: BACK}, 1.0),
        ({"admin_state": AdminState.DRAINING, "draining_since": datetime.fromtimestamp(T0, UTC)}, None, 0.0),
        ({"admin_state": AdminState.DISABLED}, None, 0.0),
    ],
)
def test_health_slow_start_and_drain_take_their_share(
    change: dict[str, Any], health: dict[str, EndpointHealth] | None, factor: float
) -> None:
    """Endpoints that are not up count for nothing, and those that came back ramp up; a drain leaves new clients nothing."""
    health_of = HEALTH if health is None else {"r": health}
    slots, rate = _bounds(_world(**change), health=health_of)
    assert (slots, rate) == pytest.approx((100 * factor, 50 * factor))
    undeclared = _bounds(_world(**change, capacity=Capacity()), health=health_of)
    assert undeclared == ((0.0, 0.0) if factor == 0 else (None, None)), "down is a bound, unknown is none"


@pytest.mark.parametrize(
    ("age", "slots", "rate", "found"),
    [
        (0, 60, 50, Freshness.FRESH),
        (10, 60, 50, Freshness.STALE),
        (60, 30, 25, Freshness.LOST),
        (100_000, 100, 50, Freshness.NEVER),
    ],
)
def test_reports_count_by_their_age(age: float, slots: float, rate: float, found: Freshness) -> None:
    """The lesser of what is declared and reported; half of that once silent; what is declared once forgotten."""
    loads = _loads(age, limit=60.0)
    assert _bounds(_world(), loads) == (slots, rate)
    assert _assess(_world(), loads).parts[0].freshness is found
    above = _bounds(_world(), _loads(age, limit=600.0))[0]
    assert above == (50 if found is Freshness.LOST else 100), "a report adds nothing to what is declared"
    only = _bounds(_world(capacity=Capacity()), loads)
    assert only == (None if found is Freshness.NEVER else slots, None)


def test_stale_reports_add_nothing() -> None:
    """While reports are stale a region keeps at most what it had; a new report frees it."""
    half = {"r": {A: UP, B: DOWN}}
    before = assess(_world(), half, _loads(2, limit=60.0), T0)
    assert _bounds(_world(), _loads(8, limit=60.0), before) == (30.0, 25.0)
    assert _bounds(_world(), _loads(8, limit=60.0), before, health={"r": {}}) == (0.0, 0.0)
    assert _bounds(_world(), _loads(0, limit=60.0), before) == (60.0, 50.0)
    missing = assess(_world(capacity=Capacity()), HEALTH, _loads(2, limit=60.0), T0)
    assert _bounds(_world(capacity=Capacity()), _loads(8, queue=0.0), missing) == (60.0, None)


def test_a_silent_region_is_silent_for_all_its_services() -> None:
    """Reports by service stand for their region, and the region's for services that it does not tell apart."""
    world = _world(member=Capacity(40, 20.0))
    for service in ("", "chat"):
        supply = _assess(world, _loads(60, service, queue=3.0)).supply
        assert (supply.slots, supply.rate) == (50.0, 25.0)
        assert (supply.service_slots, supply.service_rate) == ({"chat": 20.0}, {"chat": 10.0})
    mixed = _loads(60, "chat", limit=30.0) | _loads(1, "", queue=0.0)
    supply = _assess(world, mixed).supply
    assert (supply.slots, supply.service_slots) == (100.0, {"chat": 15.0})


@pytest.mark.parametrize(
    ("signals", "backlog", "slots", "rate"),
    [
        ({"queue": 0.0}, 0, 100, 50),
        ({"queue": 40.0}, 40, 92, 46),
        ({"queue": 40.0, "outstanding": 110.0}, 50, 90, 45),
        ({"outstanding": 99.0}, 0, 100, 50),
        ({"queue": 9000.0}, 9000, 50, 25),
    ],
)
def test_a_backlog_takes_what_it_needs(
    signals: dict[str, float], backlog: float, slots: float, rate: float
) -> None:
    """A tenth of it a second, at 2 s each, comes off; never more than half, so that no region is cut off for being busy."""
    for service in ("", "chat"):
        found = _assess(_world(service_time_ms=2000.0), _loads(0, service, **signals))
        assert found.parts[0].backlog == backlog
        assert (found.supply.slots, found.supply.rate) == (slots, rate)
    assert _bounds(_world(service_time_ms=2000.0), _loads(60, **signals)) == (50.0, 25.0), "lost"


def test_a_service_is_bound_by_its_own() -> None:
    """Declared, reported and corrected by its own backlog, beside the region's bounds."""
    world = _world(service_time_ms=1000.0, member=Capacity(40, 20.0))
    supply = _assess(world, _loads(0, "chat", limit=30.0, queue=50.0)).supply
    assert (supply.service_slots, supply.service_rate) == ({"chat": 25.0}, {"chat": 15.0})
    assert (supply.slots, supply.rate) == (95.0, 45.0)


def test_service_times_come_from_the_nearest_source() -> None:
    """The region's reports, what the service declares, other regions' mean, nothing."""

    def time(policy: Policy, loads: dict[Key, Load]) -> tuple[float | None, TimeSource]:
        part = _assess(policy, loads).parts[1]
        return part.service_time_ms, part.service_time_source

    own, other = _loads(service_time_ms=300.0), _loads(0, "chat", "q", service_time_ms=500.0)
    assert time(_world(700.0), own | other) == (300.0, TimeSource.REPORTED)
    assert time(_world(700.0), other) == (700.0, TimeSource.DECLARED)
    assert time(_world(), other) == (500.0, TimeSource.OTHER_REGIONS)
    assert time(_world(), {}) == (None, TimeSource.UNKNOWN)
    assert time(_world(), _loads(60, service_time_ms=300.0)) == (None, TimeSource.UNKNOWN)
    assert _assess(_world(), own).supply.service_time_s == {"chat": 0.3}
    two = _world()
    two = replace(two, services=(*two.services, worlds.service("embed", "r")))
    assert time(two, own) == (None, TimeSource.UNKNOWN), "of which of its services it is, it does not say"


def test_service_times_are_smoothed() -> None:
    """A change arrives over some 30 s, whatever the ticks between."""
    for ticks in (1, 30):
        now = assess(_world(), HEALTH, _loads(0, "chat", service_time_ms=100.0), T0)
        for tick in range(1, ticks + 1):
            at = T0 + 30 * tick / ticks
            now = assess(_world(), HEALTH, _loads(T0 - at, "chat", service_time_ms=1100.0), at, now)
        assert now.supply["r"].service_time_s["chat"] == pytest.approx(0.732, abs=0.001)


def test_processing_is_the_wait_and_the_slower_service() -> None:
    """Against the other region; one that says nothing counts as the middle one of those that do, without a bound of its own."""
    world = _world(capacity=Capacity())
    slow = _loads(0, "chat", service_time_ms=460.0, queue_wait_ms=52.0)
    fast = _loads(0, "chat", "q", service_time_ms=300.0, queue=4.0, requests_per_second=100.0)
    found = assess(world, HEALTH, slow | fast, T0)
    assert (found.processing_ms("r", "chat"), found.processing_ms("q", "chat")) == (150.0, 40.0)
    alone = assess(world, HEALTH, slow, T0)
    assert (alone.processing_ms("r", "chat"), alone.processing_ms("q", "chat")) == (50.0, 50.0)
    assert assess(world, HEALTH, {}, T0).processing_ms("r", "chat") == 0.0
    assert found.processing_ms("r", "nothing") == 0.0
    reported = assess(world, HEALTH, slow | _loads(0, "", limit=10.0), T0)
    for bounded in (assess(_world(), HEALTH, slow, T0), reported):
        assert bounded.processing_ms("r", "chat") == 0.0


@given(st.lists(st.floats(0, 3.6e6), min_size=3, max_size=7), st.floats(0, 3.6e6))
def test_one_region_s_word_makes_no_other_look_slower_than_some_are(times: list[float], said: float) -> None:
    """However quick or slow one of three or more says that it is: another counts as slower by no more than it is than the quickest of the rest."""
    names = [f"r{number}" for number in range(len(times))]
    regions = tuple(Region(name, 0.0, 0.0, "DE", (Endpoint(f"http://{name}.test/"),)) for name in names)
    law = Policy(regions=regions, services=(Service("chat", tuple(map(Member, names))),))
    told = [said, *times[1:]]
    loads = {
        (name, "chat"): Load(name, "chat", T0, 1, service_time_ms=time)
        for name, time in zip(names, told, strict=True)
    }
    found = assess(law, {}, loads, T0)
    for name, time in zip(names[1:], times[1:], strict=True):
        most = max(0.0, time - 1.2 * min(times[1:]))
        assert found.processing_ms(name, "chat") <= most + 10.0


def test_processing_does_not_flap() -> None:
    """It stays until it is off by more than 10 ms and a fifth."""

    def processing(wait: float, before: Assessment, after: float) -> Assessment:
        loads = _loads(-after, "chat", queue_wait_ms=wait) | _loads(-after, "chat", "q", queue_wait_ms=0.0)
        return assess(_world(capacity=Capacity()), HEALTH, loads, T0 + after, before)

    first = processing(100.0, NO_ASSESSMENT, 0)
    near = processing(119.0, first, 1000)
    far = processing(131.0, near, 2000)
    gone = processing(0.0, far, 3000)
    assert [each.processing_ms("r", "chat") for each in (first, near, far, gone)] == [100, 100, 130, 0]


def test_cost_and_spill_in_are_the_policys() -> None:
    """1 more of cost weight counts 10 ms, relative to the cheapest region: no cost is negative."""
    world = _world(cost_weight=3.5, spill_in=SpillIn(0.25, 7.0))
    assert _assess(world).supply == Supply(100.0, 50.0, cost_ms=25.0, spill_in_rate=7.0, spill_in_share=0.25)
    assert assess(_world(cost_weight=0.0), HEALTH, {}, T0).supply["q"].cost_ms == 10.0


_amounts = st.none() | st.floats(0, 1000)


_signals = st.fixed_dictionaries(dict.fromkeys(("limit", "queue", "outstanding"), _amounts))
_times = st.none() | st.floats(1, 10_000)


@quick(200)
@given(st.floats(0, 200_000), _signals, _times, st.sampled_from([0.0, 0.1, 0.95]), st.booleans())
def test_capacity_is_never_negative_and_never_above_what_is_declared(
    age: float, signals: dict[str, float | None], time: float | None, reserve: float, stated: bool
) -> None:
    """Whatever is reported, whenever; and no region gains by falling silent."""
    world = _world(time, capacity=Capacity(100, 50.0) if stated else UNSTATED, reserve=reserve)
    health = {"r": {A: replace(BACK, since=T0 - 20), B: UP}}
    loads = _loads(age, **signals)
    supply = assess(world, health, loads, T0, assess(world, health, loads, T0 - 1)).supply["r"]
    for bound, declared in ((supply.slots, 100.0), (supply.rate, 50.0)):
        assert bound is not None or not stated
        assert bound is None or 0 <= bound <= (declared * (1 - reserve) if stated else 1000)
    whole = assess(world, health, loads, T0, assess(world, health, loads, T0))
    alone = assess_region(world, "r", health, loads, T0, before=whole)
    assert alone == replace(whole.regions["r"], supply=Supply()), "one region looked at alone is no other"
    quiet = assess(world, health, _loads(60, limit=signals["limit"]), T0).supply["r"]
    idle = assess(world, health, _loads(0, limit=signals["limit"], queue=0.0), T0).supply["r"]
    assert quiet.slots is None or idle.slots is None or quiet.slots <= idle.slots


def test_a_whole_regions_reports_are_shared_out_between_its_services() -> None:
    """In the proportions declared, weighted by what each was sent; alike where not all declare a time."""

    def inferred(times: tuple[float | None, float | None]) -> tuple[float | None, ...]:
        policy = _world()
        one = replace(policy.services[0], service_time_ms=times[0])
        policy = replace(policy, services=(one, replace(one, name="code", service_time_ms=times[1])))
        sent = SentRates({("r", "chat"): 10.0, ("r", "code"): 5.0}, 3.0)
        found = NO_ASSESSMENT
        for second in range(30):
            load = Load("r", "", T0 + second, 1, outstanding=40.0, limit=64.0)
            found = assess(policy, HEALTH, {("r", ""): load}, T0 + second, found, sent=sent)
        return tuple(part.service_time_ms for part in found.regions["r"].parts[1:])

    assert inferred((100.0, 200.0)) == (pytest.approx(2000.0), pytest.approx(4000.0))
    assert inferred((100.0, None)) == (pytest.approx(40_000 / 15), pytest.approx(40_000 / 15))


def test_parts_that_report_speak_for_their_region() -> None:
    """Beside a service's own report the region's as a whole infers nothing; silence infers nothing any more."""
    found, sent = NO_ASSESSMENT, SentRates({("r", "chat"): 10.0}, 3.0)
    for second in range(30):
        at = T0 + second
        loads = {
            (("r", name)): Load("r", name, at, 1, outstanding=inside)
            for name, inside in (("", 900.0), ("chat", 20.0))
        }
        found = assess(_world(), HEALTH, loads, at, found, sent=sent)
    assert found.times.inferred_ms == {("r", "chat"): pytest.approx(2000.0)}
    assert (
        assess(_world(), HEALTH, loads, T0 + 40, found, sent=sent).times.inferred_ms
        == found.times.inferred_ms
    )
    assert assess(_world(), HEALTH, loads, T0 + 70, found, sent=sent).times.inferred_ms == {}
    assert assess(_world(), HEALTH, loads, T0 + 70, found).times.inferred_ms == found.times.inferred_ms


def test_a_backlog_of_unknown_length_takes_slots_one_for_one() -> None:
    """Where no service time is known, each that waits takes a slot; half of them at most."""
    usable = [
        _assess(_world(), _loads(0, "chat", limit=60.0, queue=queue)).parts[1].slots.usable
        for queue in (0.0, 10.0, 500.0)
    ]
    assert usable == [60.0, 50.0, 30.0]


_reported = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "service": st.sampled_from(("", "chat", "web")),
            "limit": st.sampled_from((None, 0.0, 60.0)),
            "outstanding": st.sampled_from((None, 5.0, 90.0)),
            "queue": st.sampled_from((None, 0.0, 40.0)),
            "service_time_ms": st.sampled_from((None, 100.0, 900.0)),
        }
    ),
)
_second = st.fixed_dictionaries(
    {
        "passes": st.sampled_from((1.0, 4.0, 12.0, 70.0, 4000.0)),
        "report": _reported,
        "health": st.sampled_from(
            (HEALTH, {"r": {A: UP, B: DOWN}}, {"r": {A: BACK, B: UP}, "q": {A: UP}}, {})
        ),
        "state": st.sampled_from((AdminState.ACTIVE, AdminState.ACTIVE, AdminState.DRAINING)),
        "capacity": st.sampled_from((UNSTATED, Capacity(100, 50.0))),
    }
)


@given(seconds=st.lists(_second, min_size=2, max_size=8))
@quick(200)
def test_parts_that_are_as_they_were_need_no_second_look(seconds: list[dict[str, Any]]) -> None:
    """An assessment that goes on from the last is the one that looks at every part again."""
    now, loads = T0, dict[Key, Load]()
    short = long = NO_ASSESSMENT
    for one in seconds:
        now += one["passes"]
        if one["report"] is not None:
            said = dict(one["report"])
            service = said.pop("service")
            loads["r", service] = Load("r", service, now, 1, **said)
        policy = _world(capacity=one["capacity"], admin_state=one["state"])
        web = Service("web", (Member("q"), Member("r", capacity=one["capacity"])))
        policy = replace(policy, services=(*policy.services, web))
        # No region has such a reserve, so that nothing of these is taken over.
        looked = {name: replace(region, reserve=-1.0) for name, region in long.regions.items()}
        short = assess(policy, one["health"], loads, now, short)
        long = assess(policy, one["health"], loads, now, replace(long, regions=looked))
        assert short == long
