"""From demand cells to the planner's question."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gtm.core.capacity.supply import Supply
from gtm.core.decision.router import Ranker
from gtm.core.decision.view import View
from gtm.core.demand.cells import Cell, cell_of
from gtm.core.demand.rows import ClassKey
from gtm.core.health.addresses import address_key
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Families, OnOverload, Priority, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.plan.build import problem_of, ranking_of
from gtm.core.plan.problem import PlanProblem
from gtm.core.plan.solve import solve
from gtm.core.quota.names import QuotaName
from tests import worlds
from tests.core.decision.test_choice import BERLIN, REGIONS, SERVICE, _choice, _ranking, _up, _view
from tests.core.plan.violations import BrokenPromise, violations

SUPPLY = {"de": Supply(rate=10.0)}


def _ask(
    view: View, demand: dict[tuple[str, str], float], fixed: dict[tuple[str, str], float] | None = None
) -> PlanProblem:
    return problem_of(view, partial(ranking_of, Ranker(view.basis)), demand, fixed or {}, SUPPLY)


def _counted(view: View, request: Request) -> tuple[str, str]:
    ranking = _ranking(view, request)
    return ranking.group.key, ranking.cell


def test_cells_of_a_class_are_asked_for_together() -> None:
    """A class's demand is the sum of its cells, by tenant, with the latency of each region averaged over them."""
    view = _view()
    near, far = Request("chat", BERLIN), Request("chat", BERLIN._replace(lat=57.5, lon=25.0), "small")
    demand = {_counted(view, near): 3.0, _counted(view, far): 1.0}
    assert len({key for key, _ in demand}) == 1
    (one,) = _ask(view, demand).classes
    assert one.regions == ("de", "ie", "us")
    assert one.tenants == {"": 3.0, "small": 1.0}
    assert one.rate == 4.0
    alone = [_ask(view, {item: 1.0}).classes[0].latency_ms for item in demand]
    assert one.latency_ms == pytest.approx([(3 * a + b) / 4 for a, b in zip(*alone, strict=True)])
    assert list(one.latency_ms) == sorted(one.latency_ms)


def test_pools_of_a_family_each_are_planned_by_themselves() -> None:
    """Both families have the same members, and one of them loses an address: the plan of the other is not made without that region."""
    regions = tuple(
        replace(one, endpoints=(replace(one.endpoints[0], ipv6=(f"2001:db8::{at}",)),))
        for at, one in enumerate(REGIONS)
    )
    key = address_key(regions[0].endpoints[0].url, "2001:db8::0")
    gone = {"ipv6": {"de": {key: EndpointHealth(HealthStatus.DOWN)}}}
    policy = worlds.policy(*regions, replace(SERVICE, families=Families.SEPARATE))
    view = worlds.view(policy, State(1, health=_up(), addresses=gone))
    four, six = (Request("chat", BERLIN, family=family) for family in AddressFamily)
    demand = {
        _counted(view, four): 1.0,
        _counted(view, six): 5.0,
        _counted(view, Request("chat", BERLIN)): 1.0,
    }
    found = [(one.rate, one.regions[0]) for one in _ask(view, demand).classes]
    assert sorted(found) == [(1.0, "de"), (1.0, "de"), (5.0, "ie")]


def test_the_name_of_a_class_orders_its_regions() -> None:
    """Clients near a border keep their own order, though their cell's centre lies on the other side of it."""
    view = _view()
    key, cell = _counted(view, Request("chat", BERLIN))
    key = ClassKey.parse(key)._replace(order=("ie", "de", "us")).text
    (one,) = _ask(view, {(key, cell): 1.0}).classes
    assert one.key == key
    assert one.regions == ("ie", "de", "us")
    assert one.latency_ms[1] >= one.latency_ms[0]


def test_cells_that_are_of_another_class_decide_nothing() -> None:
    """However many a lying edge counts under a class's name: they count with those who may go where they may, and others get what they would without them."""
    view = _view(residency=(worlds.rule("eu", "EU", client_countries="DE"),))
    (mine, near), (theirs, fenced) = (
        _counted(view, Request("chat", place)) for place in (Location("FR", lat=48.9, lon=2.4), BERLIN)
    )
    urgent = cell_of(Cell.parse(near).request, Priority.BATCH)
    batch, _ = _counted(view, Cell.parse(urgent).request)
    (honest,) = _ask(view, {(mine, near): 1.0}).classes
    found = _ask(view, {(mine, near): 1.0, (mine, fenced): 1e6, (mine, urgent): 1e6}).classes
    assert honest in found
    assert {one.key: one.rate for one in found} == {mine: 1.0, theirs: 1e6, batch: 1e6}


def test_names_by_a_policy_of_before_decide_nothing() -> None:
    """A rule fences Berlin's clients, and what was counted of them before lasts: whoever has their class's name now is not planned as they are."""
    before, now = _view(), _view(residency=(worlds.rule("ie", "IE", client_countries="DE"),))
    name, cell = _counted(before, Request("chat", BERLIN))
    fenced, _ = _counted(now, Request("chat", BERLIN))
    (one,) = _ask(now, {(name, cell): 3.0}).classes
    assert name != fenced
    assert (one.key, one.regions, one.rate) == (fenced, ("ie",), 3.0)


def test_only_usable_regions_inside_the_fence_are_asked_for() -> None:
    """A region that is down or outside the fence is in no list; a class without any is left to refusals."""
    rule = worlds.rule("eu", "EU", client_countries="DE")
    request = Request("chat", BERLIN)
    view = _view(residency=(rule,), health=_up(down=("de",)))
    (one,) = _ask(view, {_counted(view, request): 1.0}).classes
    assert one.regions == ("ie",)
    view = _view(residency=(rule,), health=_up(down=("de", "ie")))
    assert _ask(view, {_counted(view, request): 1.0}).classes == ()


def test_a_share_is_of_what_earns_it() -> None:
    """Demand that no plan moves earns nothing where it is seen: a plan that counted on it would be bent back for want of tokens."""
    rule = SpilloverRule("out", "de", ("ie",), max_share=0.3)
    view = _view(SERVICE, rule)
    failover = _view(replace(SERVICE, steering=Steering.FAILOVER), rule)
    request = Request("chat", BERLIN)
    asked = _ask(view, {_counted(view, request): 10.0}, {("chat", "de"): 90.0})
    problem = replace(asked, supply={"de": Supply(rate=1.0), "us": Supply(rate=0.0)})
    earned = 10.0 * dict(_choice(view, request).earns)[QuotaName("out", share=True).text]
    assert (earned, _choice(failover, request).earns) == (pytest.approx(3.0), ())
    assert [one.key for one in problem.classes if one.fixed] == ["chat@de"]
    found = solve(problem)
    assert found.flow[_counted(view, request)[0]]["ie"] == pytest.approx(earned)
    assert not violations(problem, found)
    more = {**found.flow, _counted(view, request)[0]: {"de": 6.9, "ie": 3.1}}
    assert [one.breach for one in violations(problem, replace(found, flow=more))][-1:] == [
        BrokenPromise.QUOTA
    ]


def test_clients_of_unknown_whereabouts_keep_the_order_written() -> None:
    """Without a location the members stand in their order, each a little further than the last."""
    view = _view()
    (one,) = _ask(view, {_counted(view, Request("chat", Location("DE"))): 1.0}).classes
    assert one.regions == ("de", "ie", "us")
    assert one.latency_ms == (0.0, 1.0, 2.0)


def test_what_the_policy_does_not_know_is_left_out() -> None:
    """Cells of services, tenants and models that are gone, and damaged ones, ask for nothing."""
    view = _view()
    ranker = Ranker(view.basis)
    assert ranking_of(ranker, "chat|DE|52.5|12.5||||real_time||") is not None
    for cell in ("gone|DE|52.5|12.5||||real_time||", "chat|DE|52.5|12.5|gone|||real_time||", "chat|DE", ""):
        assert ranking_of(ranker, cell) is None
        assert _ask(view, {("x", cell): 1.0}).classes == ()


def test_demand_that_cannot_be_planned_takes_up_capacity() -> None:
    """What a service with weights serves stays in its region, is never shed, and counts there."""
    service = replace(SERVICE, steering=Steering.WEIGHTED)
    view = _view(service)
    counted = _counted(view, Request("chat", BERLIN))
    problem = _ask(view, {counted: 5.0}, {("chat", "ie"): 2.0, ("gone", "ie"): 1.0, ("chat", "gone"): 1.0})
    (one,) = problem.classes
    assert (one.regions, one.rate, one.on_overload) == (("ie",), 2.0, OnOverload.QUEUE)
    assert problem.supply is SUPPLY


def test_rules_priorities_and_weights_go_along() -> None:
    """Spillover rules become quotas, a request's priority its class's, and tenants' weights the tier's."""
    rule = SpilloverRule("r", "de", ("ie",), 0.4, 10.0, 40.0)
    view = _view(SERVICE, rule)
    batch = Request("chat", BERLIN, priority=Priority.BATCH)
    problem = _ask(view, {_counted(view, batch): 1.0})
    assert problem.quotas == (SpilloverRule("r", "de", ("ie",), 0.4, 10.0, 40.0),)
    assert problem.classes[0].priority is Priority.BATCH
    assert problem.tenant_weights == {}
