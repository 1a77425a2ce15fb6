"""Plan, slow start, drain, exploration, quotas and shedding, as a choice and its picks have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gtm.core.decision.choice import Choice, choice, pick
from gtm.core.decision.ranking import ORDER_DEPTH, Ranking, classes_of, rank
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View, Window, build_basis, build_view
from gtm.core.demand.cells import Cell, cell_of
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.policy import ResidencyRule, SpilloverRule, Tenant
from gtm.core.model.regions import AdminState, Region, SpillIn
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Member, OnOverload, Priority, Service, Steering
from gtm.core.model.state import NO_PLAN, ClassPlan, EndpointHealth, Plan, State
from tests import worlds
from tests.core.strategies import World, draws, questions, quick, requests

BERLIN = Location("DE", lat=52.5, lon=13.4, network="192.0.2.0/24")
NOW = 1_000.0
DRAWS = [draw / 100 for draw in range(100)]


REGIONS = worlds.regions("de ie us")
SERVICE = worlds.service("chat", "de ie us")
_up = partial(worlds.health, REGIONS, since=NOW)


def _view(
    service: Service = SERVICE,
    *rules: SpilloverRule,
    regions: tuple[Region, ...] = REGIONS,
    plan: Plan = NO_PLAN,
    health: dict[str, dict[str, EndpointHealth]] | None = None,
    now: float = NOW,
    residency: tuple[ResidencyRule, ...] = (),
) -> View:
    policy = worlds.policy(*regions, service, *rules, *residency, Tenant("small"), Tenant("greedy"))
    return worlds.view(policy, State(1, health=_up() if health is None else health, plan=plan), now)


def _ranking(view: View, request: Request | None = None) -> Ranking:
    return rank(view.basis, request or Request("chat", BERLIN), classes_of(view.basis.snapshot))


def _choice(view: View, request: Request | None = None) -> Choice:
    return choice(view, _ranking(view, request).group)


def _plan(weights: dict[str, float], shed: float = 0.0, **changes: object) -> Plan:
    """A plan for clients in Berlin."""
    key = _ranking(_view()).group.key
    plan = Plan(NOW, {key: ClassPlan(weights, shed)}, dict.fromkeys(("de", "ie", "us"), 0.0))
    return replace(plan, **changes)  # type: ignore[arg-type]


def _odds(made: Choice) -> dict[str | None, float]:
    odds: dict[str | None, float] = {}
    for option, weight in zip(made.options, made.weights, strict=True):
        odds[option.region] = odds.get(option.region, 0.0) + weight
    return odds


def test_a_plan_shares_a_class_among_regions() -> None:
    """Requests follow the plan's weights; the region that ranks first keeps its own reason, the others say why."""
    made = _choice(_view(plan=_plan({"de": 0.7, "ie": 0.3})))
    assert _odds(made) == {"de": pytest.approx(0.7), "ie": pytest.approx(0.3)}
    assert [option.reason for option in made.options] == [Reason.LOWEST_LATENCY, Reason.SPILLOVER]
    drawn = Counter(pick(made, Request("chat", BERLIN), draw).region for draw in DRAWS)
    assert drawn == {"de": 70, "ie": 30}


def test_a_failed_region_leaves_a_plan_at_once() -> None:
    """What the plan gave a region that is down goes to the plan's others, and past them to the next in order."""
    plan = _plan({"de": 0.7, "ie": 0.3})
    assert _odds(_choice(_view(plan=plan, health=_up(down=("de",))))) == {"ie": 1.0}
    assert _odds(_choice(_view(plan=plan, health=_up(down=("de", "ie"))))) == {"us": 1.0}


def test_an_unknown_class_goes_where_latency_and_price_are_least() -> None:
    """A class that no demand was seen of goes past a region whose price says that it is full."""
    plan = Plan(NOW, {}, {"de": 500.0, "ie": 0.0, "us": 0.0})
    made = _choice(_view(plan=plan))
    assert _odds(made) == {"ie": 1.0}
    assert made.options[0].reason is Reason.SPILLOVER
    assert _odds(_choice(_view(plan=replace(plan, prices={"de": 0.0})))) == {"de": 1.0}


def test_an_unknown_class_spills_by_rule_only() -> None:
    """Where a region has spillover rules, prices send its clients along them and nowhere else."""
    plan = Plan(NOW, {}, {"de": 500.0, "ie": 0.0, "us": 0.0})
    made = _choice(_view(SERVICE, SpilloverRule("r", "de", ("us",)), plan=plan))
    assert _odds(made) == {"us": 1.0}
    assert made.options[0].quotas == ()
    most = SpilloverRule("r", "de", ("us",), max_share=0.5)
    assert _choice(_view(SERVICE, most, plan=plan)).options[0].quotas == ("share:r",)
    near = SpilloverRule("r", "de", ("us",), max_added_latency_ms=1.0)
    assert _odds(_choice(_view(SERVICE, near, plan=plan))) == {"de": 1.0}


@pytest.mark.parametrize("steering", [Steering.WEIGHTED, Steering.FAILOVER])
def test_the_operators_own_order_is_not_planned(steering: Steering) -> None:
    """A plan moves nothing of a service with weights or an order of failover."""
    service = replace(SERVICE, steering=steering)
    plan = _plan({"ie": 1.0}, prices={"de": 500.0})
    assert _odds(_choice(_view(service, plan=plan))) == _odds(_choice(_view(service)))


def test_a_recovered_region_starts_slowly() -> None:
    """Without a plan a region takes a tenth of its clients at first and all in the end; the next in order has the rest."""
    health = _up(recovered=("de",))
    first = _choice(_view(health=health, now=NOW))
    assert _odds(first) == {"de": pytest.approx(0.1), "ie": pytest.approx(0.9)}
    assert [option.reason for option in first.options] == [Reason.LOWEST_LATENCY, Reason.SLOW_START]
    assert first.home is None
    assert _odds(_choice(_view(health=health, now=NOW + 30.0))) == {"de": 1.0}
    alone = _up(recovered=("de", "ie", "us"))
    assert sum(_odds(_choice(_view(health=alone))).values()) == pytest.approx(1)
    planned = _choice(_view(plan=_plan({"de": 0.5, "us": 0.5}), health=health))
    assert _odds(planned) == {"de": 0.5, "us": 0.5}
    assert _odds(_choice(_view(plan=Plan(NOW, {}, {"de": 0.0}), health=health))) == {"de": 1.0}


def test_the_next_step_of_a_ramp_is_known() -> None:
    """A View says when a factor changes, so that whoever holds it can make the next in time."""
    view = _view(health=_up(recovered=("de",)))
    assert view.ramps == {0: pytest.approx(0.1)}
    assert 0 < view.left(view.window) < 30
    view = _view()
    assert view.left(view.window) == float("inf")


def test_draining_moves_clients_with_affinity_last() -> None:
    """New clients leave a draining region at once, sessions bit by bit until the deadline, and none comes back."""
    since = datetime.fromtimestamp(NOW, UTC)
    draining = replace(
        REGIONS[0], admin_state=AdminState.DRAINING, draining_since=since, drain_deadline=100.0
    )
    service = replace(SERVICE, affinity=Affinity.KEY)
    sessions = [
        Request("chat", BERLIN._replace(network=None), affinity=f"s{number}") for number in range(200)
    ]
    before: set[str | None] = {request.affinity for request in sessions}
    for passed in (0.0, 25.0, 50.0, 75.0, 100.0):
        view = _view(service, regions=(draining, *REGIONS[1:]), now=NOW + passed)
        made = _choice(view)
        assert pick(made, Request("chat", BERLIN._replace(network=None)), 0.5).region == "ie"
        stay = {item.affinity for item in sessions if pick(made, item, 0.5).region == "de"}
        assert stay <= before
        assert len(stay) == pytest.approx(200 * (1 - passed / 100), abs=25)
        before = stay
    assert not before
    alone = _choice(_view(service, regions=(draining, *REGIONS[1:]), health=_up(down=("ie", "us"))))
    assert pick(alone, sessions[0], 0.5).reason is Reason.DRAINING_SESSION
    assert pick(alone, Request("chat"), 0.5).reason is Reason.NONE_USABLE


def test_few_requests_explore() -> None:
    """The share set explores the other regions, of which none is full, in slow start or outside the fence."""
    service = replace(SERVICE, exploration=0.1)
    rule = worlds.rule("eu", "EU", client_countries="DE")
    made = _choice(_view(service, residency=(rule,)))
    assert _odds(made) == {"de": pytest.approx(0.9), "ie": pytest.approx(0.1)}
    assert [option.reason for option in made.options] == [Reason.LOWEST_LATENCY, Reason.EXPLORATION]
    full = Plan(NOW, {}, {"de": 0.0, "ie": 3.0, "us": 0.0})
    assert _odds(_choice(_view(service, plan=full))) == {"de": pytest.approx(0.9), "us": pytest.approx(0.1)}
    assert _odds(_choice(_view(service, health=_up(recovered=("ie",)), residency=(rule,)))) == {"de": 1.0}
    sticky = _choice(_view(replace(service, affinity=Affinity.KEY)))
    assert {pick(sticky, Request("chat", BERLIN, affinity="s"), draw).region for draw in DRAWS} == {"de"}
    unbound = Request("chat", BERLIN._replace(network=None))
    assert {pick(sticky, unbound, draw).region for draw in DRAWS} == {"de", "ie", "us"}


def test_a_quota_that_is_used_up_keeps_requests_at_home() -> None:
    """Spilling takes a token of each quota it counts against; without one the request goes to its home region."""
    regions = (REGIONS[0], replace(REGIONS[1], spill_in=SpillIn(max_share=0.5)), REGIONS[2])
    rule = SpilloverRule("frankfurt", "de", ("ie",), max_requests_per_second=10.0)
    view = _view(SERVICE, rule, regions=regions, plan=_plan({"de": 0.5, "ie": 0.5}))
    made = _choice(view)
    asked: list[tuple[str, ...]] = []

    def refuse(quotas: tuple[str, ...]) -> bool:
        asked.append(quotas)
        return False

    options = [pick(made, Request("chat", BERLIN), draw, refuse) for draw in DRAWS]
    assert {option.region for option in options} == {"de"}
    assert {option.reason for option in options} == {Reason.LOWEST_LATENCY, Reason.QUOTA_EXHAUSTED}
    assert set(asked) == {("frankfurt", "spill_in:ie")}
    assert {pick(made, Request("chat", BERLIN), draw, lambda _: True).region for draw in DRAWS} == {
        "de",
        "ie",
    }


def test_a_planned_spill_always_counts() -> None:
    """Clients a little farther than the planner's mean of their class count against the rule that it went by."""
    regions = (REGIONS[0], replace(REGIONS[1], spill_in=SpillIn(max_share=0.5)), REGIONS[2])
    rule = SpilloverRule("r", "de", ("ie",), max_requests_per_second=10.0, max_added_latency_ms=1.0)
    spills = _choice(_view(SERVICE, rule, regions=regions, plan=_plan({"de": 0.5, "ie": 0.5})))
    assert {option.region: option.quotas for option in spills.options} == {
        "de": (),
        "ie": ("r", "spill_in:ie"),
    }
    elsewhere = SpilloverRule("r", "de", ("us",), max_requests_per_second=10.0)
    unruled = _choice(_view(SERVICE, elsewhere, regions=regions, plan=_plan({"de": 0.5, "ie": 0.5})))
    assert {option.region: option.quotas for option in unruled.options} == {"de": (), "ie": ("spill_in:ie",)}


def test_overload_is_shed_by_plan() -> None:
    """The plan's share of requests is refused, more of a tenant beyond its fair share, and none over DNS."""
    plan = _plan({"de": 1.0})
    (key,) = plan.classes
    plan = replace(plan, classes={key: ClassPlan({"de": 1.0}, 0.2, {"greedy": 0.6, "small": 0.0})})
    view = _view(plan=plan)

    def refused(tenant: str | None, *, sheds: bool = True) -> Counter[Reason]:
        request = Request("chat", BERLIN, tenant)
        picks = [pick(_choice(view, request), request, draw, sheds=sheds) for draw in DRAWS]
        assert all(
            (option.region is None) is (option.outcome is Outcome.REFUSED_OVERLOAD) for option in picks
        )
        return Counter(option.reason for option in picks if option.region is None)

    assert refused(None) == {Reason.SHED: 20}
    assert refused("greedy") == {Reason.OVER_FAIR_SHARE: 60}
    assert refused("small") == {}
    assert refused("greedy", sheds=False) == {}
    assert _choice(view).shed_tenants is not None
    queued = _view(replace(SERVICE, on_overload=OnOverload.QUEUE), plan=plan)
    assert _choice(queued).shed_tenants is None


def test_a_class_is_named_alike_in_every_revision() -> None:
    """The order in which regions are written, and regions that a class cannot use, do not change its name."""
    name = _ranking(_view()).group.key
    assert _ranking(_view(regions=REGIONS[::-1])).group.key == name
    more = (worlds.region("jp"), *REGIONS)
    assert _ranking(_view(regions=more)).group.key == name
    assert name.startswith("chat|real_time|de>ie>us|")
    assert _ranking(_view(), Request("chat", BERLIN, priority=Priority.BATCH)).group.key != name
    many = tuple(worlds.region(f"r{number}", at="de", lon=float(number)) for number in range(9))
    service = replace(SERVICE, members=tuple(Member(region.name) for region in many))
    assert _ranking(_view(service, regions=many)).group.key.count(">") == ORDER_DEPTH - 1


def test_rankings_outlive_states() -> None:
    """A new state, and time that changes no rule, keep the basis; a rule that comes into force makes a new one."""
    rule = worlds.rule("eu", "EU", effective_from=datetime.fromtimestamp(NOW + 10, UTC))
    view = _view(residency=(rule,))
    basis, snapshot = view.basis, view.snapshot
    assert build_basis(snapshot, basis.estimator, Window(NOW + 5, NOW + 5), basis) is basis
    later = build_basis(snapshot, basis.estimator, Window(NOW + 10, NOW + 10), basis)
    assert later is not basis
    assert later.rules != basis.rules
    ranker = Ranker(basis)
    first = Router(view, ranker).ranker.ranking(Request("chat", BERLIN))
    second = Router(build_view(basis, State(2), view.window), ranker).ranker.ranking(Request("chat", BERLIN))
    assert first is second


@quick(150)
@given(questions(), draws, st.data())
def test_no_plan_leads_out_of_the_fence(
    question: tuple[World, list[Request]], draw: float, data: st.DataObject
) -> None:
    """Whatever a plan says, with quotas or without, every region picked is inside the fence; unhealthy ones are not."""
    world, asked = question
    names = [region.name for region in world.policy.regions] + ["gone"]
    weights = st.dictionaries(st.sampled_from(names), st.floats(0, 1), max_size=4)
    for request in asked:
        ranking = rank(world.view.basis, request, classes_of(world.view.basis.snapshot))
        plan = Plan(
            0.0,
            {
                ranking.group.key: ClassPlan(
                    data.draw(weights),
                    data.draw(st.floats(0, 1)),
                    data.draw(st.just({}) | st.just({"bank": 1.0})),
                )
            }
            if data.draw(st.booleans())
            else {},
            data.draw(weights),
        )
        view = build_view(world.view.basis, replace(world.state, plan=plan), world.window)
        made = choice(view, ranking.group)
        for afford in (None, lambda _: True, lambda _: False):
            option = pick(made, request, draw, afford, sheds=data.draw(st.booleans()))
            if option.region is not None:
                assert ranking.group.allowed >> option.number & 1
                assert view.snapshot.regions[option.number].name == option.region
                up = view.up >> option.number & 1
                assert up or option.reason is Reason.HEALTH_IGNORED
        if made.shares:
            assert sum(made.shares.values()) == pytest.approx(1)
            assert sum(made.weights) == pytest.approx(1)


def test_reserves_inside_the_fence_tell_classes_apart() -> None:
    """Two kinds of request that only differ in a member of weight 0 are planned apart: it counts once the others fail."""
    service = replace(SERVICE, members=(Member("de"), Member("ie", 0), Member("us", 0)))
    rule = worlds.rule("eu", "EU", client_countries="DE")
    free, fenced = (_ranking(_view(service, residency=rules)).group for rules in ((), (rule,)))
    assert free.key != fenced.key
    assert free.key.rpartition("|")[0] == fenced.key.rpartition("|")[0]


def test_a_cell_of_an_overridden_location_is_as_sure_as_that() -> None:
    """An operator's word for where a client is outdoes the database's doubts, in demand as in decisions."""
    location = BERLIN._replace(source="override", anonymous=True, accuracy_km=None)
    cell = Cell.parse(cell_of(Request("chat", location), Priority.REAL_TIME))
    assert (cell.anonymous, cell.accuracy_km) == (False, 10.0)


@quick(200)
@given(questions(), st.data())
def test_a_cell_reads_back_as_the_request_it_was(
    question: tuple[World, list[Request]], data: st.DataObject
) -> None:
    """A request and its demand cell meet the same rules, so that counts can be replayed against any policy."""
    world, _ = question
    request = data.draw(requests(world.policy))
    ranking = rank(world.view.basis, request, classes_of(world.view.basis.snapshot))
    cell = Cell.parse(ranking.cell)
    again = rank(world.view.basis, cell.request, classes_of(world.view.basis.snapshot))
    assert again.cell == ranking.cell
    assert again.within.allowed & ~ranking.within.allowed == 0
    if request.location.accuracy_km is None:
        assert again.within.allowed == ranking.within.allowed
    assert again.group.priority is ranking.group.priority
    if request.location.lat is not None:
        assert cell.lat is not None
        assert abs(cell.lat - request.location.lat) <= 2.5


@quick(300)
@given(
    st.text(max_size=60)
    | st.lists(st.text(alphabet="|-.0159naif", max_size=6), min_size=10, max_size=10).map("|".join)
)
def test_a_damaged_cell_is_a_value_error(text: str) -> None:
    """Whatever the text, a cell is read or rejected, and what was read can be written again."""
    try:
        cell = Cell.parse(text)
    except ValueError:
        return
    assume(cell.lat is not None)
    assert cell.lat is not None
    assert abs(cell.lat) <= 95
