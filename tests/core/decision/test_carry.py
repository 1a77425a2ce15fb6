"""Edges that carry requests: what they do with each, against a model written from the documentation (`tests/core/reference.py`).

The drill of the fence (`tests/drills/fence.py`) asks the same of a whole edge, whose clock steps and which restarts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.decision.carry import carries, may_carry
from gtm.core.decision.decide import decide, routed
from gtm.core.decision.router import Router
from gtm.core.decision.view import View, Window, build_basis, view_of
from gtm.core.model.policy import EdgeScope, Places, Policy, ResidencyRule, RuleMode
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import HttpAnswer, OnUnusable
from gtm.core.model.state import HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.edges import EdgePlace
from gtm.geoip.client import ClientAddress
from gtm.http.answers.routes import CarriedRequest, RedirectRoute, Routes
from gtm.http.problems import Response
from gtm.http.requests.lookup import Lookup
from tests import worlds
from tests.core.decision.test_edges import AMERICAN, DE, GERMAN, STANDINGS, US, places
from tests.core.reference import EdgeReference, Reference
from tests.core.strategies import SHIPPED, World, questions, quick
from tests.drills.fence_edge import told

CLIENT = ClientAddress.plain("192.0.2.77")


def carrying(world: World, answers: list[HttpAnswer]) -> Policy:
    """A world's policy, with how each service's requests are answered."""
    services = tuple(
        replace(service, answer=answers[number % len(answers)])
        for number, service in enumerate(world.policy.services)
    )
    return replace(world.policy, services=services)


def ended(view: View, request: Request, draw: float, again: Random) -> Response | CarriedRequest:
    """How an edge ends a request: drawn once, and `again` after a failure."""
    draws = iter([draw])
    routes = Routes(Router(view), lambda _: request.location, draw=lambda: next(draws, again.random()))
    lookup = Lookup(
        request.service, None, request.tenant, request.data_class, request.model, request.affinity
    )
    return RedirectRoute(routes.resolve(lookup, CLIENT, "/r/x")).carried(b"/", b"")


@quick(500)
@given(
    questions(),
    places(),
    st.lists(st.sampled_from(HttpAnswer), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_an_edge_carries_what_the_model_lets_it(
    question: tuple[World, list[Request]], edge: EdgePlace, answers: list[HttpAnswer], random: Random
) -> None:
    """To a region that a redirect would lead to; what it may not carry it redirects or refuses. Whatever fails then, it goes nowhere else."""
    world, asked = question
    policy = carrying(world, answers)
    law = Reference(policy, SHIPPED, world.state, world.window)
    model = EdgeReference(law, edge)
    view = view_of(compile_policy(policy, SHIPPED, revision=7), world.state, world.window, edge=edge)
    assert view.basis.outside == model.against
    for request in (one._replace(family=None) for one in asked):  # which nobody asks for over HTTP
        expected, draw = model.answer(request), random.random()
        found = ended(view, request, draw, random)
        how, region = told(found)
        event(how)
        assert how == expected.how
        assert (region is not None) is bool(expected.regions)
        assert region is None or region in expected.regions
        decision = decide(view, request, draw)
        assert region == decision.region, "the same as of a redirect"
        if isinstance(found, CarriedRequest):
            _fails(law, request, found, random)


def _fails(law: Reference, request: Request, found: CarriedRequest, random: Random) -> None:
    """Endpoints fail, some before it is sent, and each that it is sent to, until there is none left inside the fence."""
    of = {one.url: region for region in law.policy.regions for one in region.endpoints}
    failed = {url for url in of if random.random() < 0.3}
    while True:
        able = _left(law, request, failed)
        endpoint = found.place(failed)
        assert (endpoint is not None) is bool(able), "it is given up only where nothing is left"
        if endpoint is None:
            return
        assert endpoint.url in able
        assert found.option.region == of[endpoint.url].name
        failed.add(endpoint.url)


def _left(law: Reference, request: Request, failed: set[str]) -> set[str]:
    """The endpoints that a request may be carried to when some have failed: those that are up, or where health is ignored, at last, those of regions that have none up."""
    fence = law.fence(request)
    every = {
        one.url: (name, _up(law.state, name, one))
        for name in fence & law.willing(request)
        for one in law.regions[name].endpoints
    }
    healthy = {name for name, up in every.values() if up}
    left = {url for url, (_, up) in every.items() if up} - failed
    if left or law.service(request).on_unusable is not OnUnusable.IGNORE_HEALTH:
        return left
    return {url for url, (name, _) in every.items() if name not in healthy} - failed


def _up(state: State, region: str, endpoint: Endpoint) -> bool:
    known = state.health.get(region, {}).get(endpoint.url)
    return known is not None and known.status is HealthStatus.UP


CARRIED = worlds.service("chat", "de us", answer=HttpAnswer.CARRY)
RULE = worlds.rule("gdpr", "EU", services="chat", client_jurisdictions="EU")
POLICY = worlds.policy(DE, US, CARRIED, RULE)


def _view(edge: EdgePlace | None, *rules: ResidencyRule, policy: Policy = POLICY, now: float = 0.0) -> View:
    snapshot = compile_policy(replace(policy, residency_rules=rules or (RULE,)), SHIPPED)
    state = State(health=worlds.health(policy.regions))
    return view_of(snapshot, state, Window(now, now), edge=edge)


def _carried(view: View, request: Request = GERMAN) -> bool:
    return carries(routed(view, request))


@pytest.mark.parametrize(("allow", "deny", "edge", "inside"), STANDINGS)
def test_who_may_carry(allow: Places, deny: Places, edge: EdgePlace, inside: bool) -> None:
    """The table of docs/residency.md, whatever a rule says of edges; one in monitor mode binds nobody."""
    rule = replace(RULE, allow=allow, deny=deny, acknowledge_empty_fence=True)
    for scope in EdgeScope:
        assert _carried(_view(edge, replace(rule, edges=scope))) is inside
        assert _carried(_view(edge, replace(rule, edges=scope, mode=RuleMode.MONITOR)))
    assert _carried(_view(edge, rule), AMERICAN), "the rule does not concern him"


def test_an_edge_stands_inside_each_rule() -> None:
    """Of several that concern a request, the one that it stands outside of counts, whichever it is."""
    wide = worlds.rule("wide", "EU US", services="chat")
    for rules in ((RULE, wide), (wide, RULE)):
        assert not _carried(_view(EdgePlace("US"), *rules))
        assert _carried(_view(EdgePlace("US"), *rules), AMERICAN)
        assert not _carried(_view(EdgePlace("BR"), *rules), AMERICAN)
        assert _carried(_view(EdgePlace("DE"), *rules))


def test_what_is_not_asked_for_is_not_carried() -> None:
    """Nor is anything at control, where no edge answers."""
    policy = replace(POLICY, services=(replace(CARRIED, answer=HttpAnswer.REDIRECT),))
    assert not _carried(_view(EdgePlace("DE"), policy=policy))
    view = _view(None)
    assert not _carried(view, AMERICAN)
    assert not may_carry(view.basis, routed(view, AMERICAN).ranking.within)


def test_a_membership_that_lapses_ends_carrying() -> None:
    """Where an edge is inside by a decision that ends, it carries nothing from that moment on, though the regions are the same."""
    rule = replace(RULE, allow=Places(jurisdictions=("ADEQUATE", "DE")))
    edge = EdgePlace("GB")
    view = _view(edge, rule, now=299.0)
    assert _carried(view)
    after = build_basis(view.snapshot, view.basis.estimator, Window(300.0, 300.0), view.basis, edge)
    assert after.uncarried == {"gdpr"}
    assert not _carried(_view(edge, rule, now=300.0))
    back = build_basis(view.snapshot, view.basis.estimator, Window(299.0, 300.0), view.basis, edge)
    assert back.uncarried == {"gdpr"}, "a clock that steps back lets nobody in again"


def _places_after(view: View, request: Request, failed: set[str]) -> Counter[str | None]:
    """Where requests go that were carried, when some endpoints have failed."""
    random, found = Random(1), Counter[str | None]()
    for _ in range(50):
        one = ended(view, request, random.random(), random)
        assert isinstance(one, CarriedRequest)
        found[None if one.place(failed) is None else one.option.region] += 1
    return found


def test_another_region_is_asked_inside_the_fence_alone() -> None:
    """A German's request whose region fails goes nowhere, though another is up; an American's goes there."""
    view = _view(EdgePlace("DE"))
    first = {one.url for one in DE.endpoints}
    assert _places_after(view, GERMAN, first) == {None: 50}
    assert _places_after(view, AMERICAN, first) == {"us": 50}
    assert _places_after(view, AMERICAN, first | {one.url for one in US.endpoints}) == {None: 50}


def test_where_health_is_ignored_what_has_failed_is_not_asked_again() -> None:
    """A region that probes say is down is asked when the only one that was up fails."""
    policy = replace(POLICY, services=(replace(CARRIED, on_unusable=OnUnusable.IGNORE_HEALTH),))
    view = _view(EdgePlace("DE"), policy=policy)
    down = replace(view.state, health=worlds.health(policy.regions, down=("us",)))
    view = view_of(view.snapshot, down, view.window, edge=EdgePlace("DE"))
    assert _places_after(view, AMERICAN, {one.url for one in DE.endpoints}) == {"us": 50}
