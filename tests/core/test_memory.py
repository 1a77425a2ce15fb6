"""What is remembered is what would be computed now: of a memory, and of rankings, choices and decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import decide, routed
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View, Window, view_of
from gtm.core.latency.doubt import Doubt
from gtm.core.latency.table import LatencyTable
from gtm.core.memory import Memory
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Steering
from gtm.core.model.state import ClassPlan, Plan, State
from gtm.core.policy.compile import compile_policy
from tests import worlds
from tests.core.strategies import quick

REGIONS = worlds.regions("de ie us jp")
NETWORKS = ("192.0.2.0/24", "198.51.100.0/24")


@quick(200)
@given(st.lists(st.integers(-5, 30)), st.integers(1, 40))
def test_a_memory_gives_what_its_function_gives(asked: list[int], most: int) -> None:
    """Whatever is asked in whatever order; of what it raises nothing is remembered, and it never weighs more than it may."""

    def make(number: int) -> list[int]:
        if number < 0:
            raise ValueError(number)
        return [number] * number

    memory = Memory(make, most, lambda _, value: len(value))
    for number in asked:
        if number < 0:
            with pytest.raises(ValueError, match=str(number)):
                memory[number]
        else:
            assert memory[number] == make(number)
        assert sum(map(len, memory.values())) <= most
    assert not any(number < 0 for number in memory)


def test_a_flood_drives_out_nothing_that_is_in_use() -> None:
    """What nobody asks for again goes; what weighs more than there is room for is not remembered."""
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return f"made {number}"

    memory = Memory(make, 100, lambda number, _: 101 if number == -2 else 10)
    for number in range(5000):
        assert memory[number] == f"made {number}"
        assert memory[-1] == "made -1"
        assert len(memory) <= 10
    assert made.count(-1) == 1
    assert (memory[0], memory[-2], memory[-2]) == ("made 0", "made -2", "made -2")
    assert (made.count(0), made.count(-2)) == (2, 2)


places = st.builds(
    Location,
    country=st.sampled_from((None, "DE", "FR", "US")),
    lat=st.floats(44, 56),
    lon=st.floats(-8, 16),
    asn=st.sampled_from((None, 3320)),
    network=st.sampled_from((None, *NETWORKS, "203.0.113.7/32")),
    source=st.sampled_from(("geoip", "override", "none")),
    anonymous=st.booleans(),
    subnet=st.sampled_from((None, "192.0.0.0/20")),
    parts=st.sampled_from(((), ((NETWORKS[0], "DE|50,10"),))),
)
rows = st.dictionaries(st.sampled_from(("de", "ie", "us")), st.tuples(st.floats(-20, 90), st.floats(1, 99)))
tables = st.builds(
    LatencyTable,
    version=st.just(1),
    networks=st.dictionaries(st.sampled_from(NETWORKS), rows),
    asns=st.dictionaries(st.just("3320|DE"), rows),
    countries=st.dictionaries(st.sampled_from(("DE", "FR")), rows),
    processing_ms=st.dictionaries(
        st.sampled_from(("de", "us")), st.dictionaries(st.just(""), st.floats(0, 200), min_size=1)
    ),
    doubts=st.dictionaries(
        st.sampled_from(NETWORKS),
        st.builds(Doubt, st.just("DE|50,10"), doubtful=st.booleans(), fastest=st.just({"us": 3.0})),
    ),
)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Rules that bound the added latency, a plan with prices that knows some class or none, and all that a table can say."""
    rules = [
        SpilloverRule(
            f"from-{home}",
            home,
            tuple(name for name in ("de", "ie", "us", "jp") if name != home),
            max_share=draw(st.sampled_from((None, 0.5))) or (None if draw(st.booleans()) else 0.2),
            max_requests_per_second=10.0,
            max_added_latency_ms=draw(st.sampled_from((None, 3.0, 12.0, 30.0, 90.0))),
        )
        for home in draw(st.sets(st.sampled_from(("de", "ie", "us"))))
    ]
    steering = draw(st.sampled_from((Steering.LATENCY, Steering.GEO)))
    services = [replace(worlds.service(name, "de ie us jp"), steering=steering) for name in ("chat", "web")]
    snapshot = compile_policy(worlds.policy(*REGIONS, *services, *rules), ())
    health = worlds.health(REGIONS, down=tuple(draw(st.sets(st.sampled_from(("de", "ie", "us"))))))
    prices = draw(st.dictionaries(st.sampled_from(("de", "ie", "us")), st.floats(0, 120)))
    known = {"no class of today": ClassPlan({"de": 1.0}, 0.0)} if draw(st.booleans()) else {}
    plan = Plan(classes=known, prices=prices)
    return view_of(snapshot, State(1, health=health, plan=plan), Window(0.0, 0.0), draw(tables))


@quick(150)
@given(views(), st.lists(places, min_size=2, max_size=6), st.floats(0, 1, exclude_max=True), st.booleans())
def test_what_a_router_remembers_is_what_would_be_decided(
    view: View, clients: list[Location], draw: float, small: bool
) -> None:
    """Whoever comes first: clients of one class differ in their latencies, and none is answered by another's."""
    router = Router(view, Ranker(view.basis, limit=2 if small else 1000))
    for location in (*clients, *reversed(clients)):
        for service in ("chat", "web"):
            request = Request(service, location)
            assert router.decide(request, draw) == decide(view, request, draw)
            fresh, known = routed(view, request), router.routing(request)
            assert known.choice.weights == fresh.choice.weights
            assert [one.quotas for one in known.choice.options] == [
                one.quotas for one in fresh.choice.options
            ]
            assert known.ranking.group.near == fresh.ranking.group.near


def test_names_that_nobody_knows_are_not_remembered() -> None:
    """Made-up ones would fill the memory."""
    snapshot = compile_policy(worlds.policy(*REGIONS, worlds.service("chat", "de ie")), ())
    router = Router(view_of(snapshot, State(1, health=worlds.health(REGIONS)), Window(0.0, 0.0)))
    for number in range(3):
        with pytest.raises(UnknownNameError):
            router.decide(Request(f"no-{number}"), 0.5)
        with pytest.raises(UnknownNameError):
            router.decide(Request("chat", tenant=f"no-{number}"), 0.5)
    assert not router.choices
