"""Lists for proxies: the regions that decisions could answer, and none beside them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isinf

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.decision.choice import choice
from gtm.core.decision.decide import decide, routed
from gtm.core.decision.fence import fence
from gtm.core.decision.lists import EVERYWHERE, listed
from gtm.core.decision.view import View, law_lasts, view_of
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import Member, OnUnusable, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from tests import worlds as made
from tests.core.reference import Reference
from tests.core.strategies import SHIPPED, World, questions, quick
from tests.core.strategies import worlds as random_worlds


def _names(view: View, request: Request) -> set[str]:
    return {one.region for one in listed(routed(view, request))}


@quick(300)
@given(questions())
def test_a_list_is_what_decisions_could_answer(question: tuple[World, list[Request]]) -> None:
    """It has the regions that the reference finds eligible, and those of a share are what some draw decides."""
    world, asked = question
    reference = Reference(world.policy, SHIPPED, world.state, world.window)
    for request in asked:
        alike = request._replace(affinity=None, location=request.location._replace(network=None))
        found = listed(routed(world.view, alike))
        event(f"{len(found)} regions")
        assert {one.region for one in found} == reference.eligible(alike)
        assert sum(one.share for one in found) == pytest.approx(1.0 if found else 0.0)
        chosen = choice(world.view, routed(world.view, alike).ranking.group)
        bounds = (0.0, *chosen.cumulative)
        draws = [(low + high) / 2 for low, high in pairwise(bounds) if high - low > 1e-9]
        decided = {decide(world.view, alike, draw).region for draw in draws}
        assert {one.region for one in found if one.share > 1e-9} == decided - {None}


@quick(200)
@given(questions(), st.sampled_from(["anywhere", "country"]), st.booleans())
def test_a_list_is_inside_of_the_fence_of_each_of_its_clients(
    question: tuple[World, list[Request]], where: str, stated: bool
) -> None:
    """One for all clients, or all of a country; of one data class, or all: whoever its clients are, and whatever their tenant."""
    world, asked = question
    for request in asked:
        client = request
        if where == "country":
            country = request.location.country
            surely = request.location._replace(anonymous=False, doubtful=False)
            client = request._replace(location=surely)
            place = EVERYWHERE._replace(spans=(), country=country, source="stated")
        else:
            place = EVERYWHERE
        data_class = client.data_class if stated else None
        names = _names(world.view, Request(client.service, place, data_class=data_class))
        service = world.view.snapshot.services[client.service]
        within = fence(world.view.rules[client.service], service.mask, client)
        assert names <= set(world.view.snapshot.names(within.allowed))


@quick(200)
@given(random_worlds(), st.floats(0, 1, exclude_max=True), st.sampled_from([30.0, 90.0, 250.0, 900.0]))
def test_a_list_holds_as_long_as_it_says(world: World, part: float, longest: float) -> None:
    """Nothing leaves the fence before, if control says nothing newer."""
    for service in world.policy.services:
        request = Request(service.name, EVERYWHERE)
        before = _names(world.view, request)
        holds = law_lasts(world.view.snapshot, service.name, world.window, endings=False)
        assert holds > 0 or isinf(holds) or not before
        passed = min(holds, longest) * part
        window = world.window
        later = window._replace(
            now=window.now + passed, latest=window.latest + passed, age=window.age + passed
        )
        after = view_of(world.view.snapshot, world.state, later)
        assert before <= _names(after, request)


def _holds(view: View) -> float:
    return law_lasts(view.snapshot, "chat", view.window, endings=False)


def test_a_rule_that_begins_and_one_that_wants_a_young_policy_bound_a_list() -> None:
    """The earlier of the two."""
    regions = made.regions("de us")
    begins = made.rule("begins", "EU", effective_from=made.SHIPPED[4].terms[1].effective_from)  # at 200
    law = made.policy(*regions, made.service("chat", "de us"), begins)
    assert _holds(made.view(law, now=50.0)) == 150.0
    young = made.rule("young", "EU", max_policy_age=60.0)
    law = made.policy(*regions, made.service("chat", "de us"), begins, young)
    assert _holds(made.view(law, now=50.0)) == 60.0
    law = made.policy(*regions, made.service("chat", "de us"))
    assert isinf(_holds(made.view(law)))


def test_shares_and_who_stands_in() -> None:
    """By weight: two share, one of weight 0 stands by."""
    service = made.service("chat", "de ie us", steering=Steering.WEIGHTED)
    members = (Member("de", 3.0), Member("ie", 1.0), Member("us", 0.0))
    law = made.policy(*made.regions("de ie us"), replace(service, members=members))
    found = listed(routed(made.view(law), Request("chat", EVERYWHERE)))
    assert [(one.region, one.share, one.standby) for one in found] == [
        ("de", 0.75, False),
        ("ie", 0.25, False),
        ("us", 0.0, True),
    ]


def test_by_latency_the_nearest_serves_and_others_stand_in() -> None:
    """They are the ones that a decision turns to when the first fails."""
    law = made.policy(*made.regions("us de ie"), made.service("chat", "us de ie"))
    place = EVERYWHERE._replace(spans=(), country="DE", source="stated", lat=52.0, lon=10.0)
    found = listed(routed(made.view(law), Request("chat", place)))
    assert [(one.region, one.share, one.standby) for one in found] == [
        ("de", 1.0, False),
        ("ie", 0.0, False),
        ("us", 0.0, False),
    ]


def test_what_is_down_is_not_listed() -> None:
    """Neither an endpoint nor an address; where the service ignores health for want of anything better, all are."""
    ends = (
        Endpoint("https://a.test", ("192.0.2.1", "192.0.2.2")),
        Endpoint("https://b.test", ("192.0.2.3",)),
    )
    service = made.service("chat", "de")
    region = made.region("de", *ends)
    law = made.policy(region, service)
    addresses = {
        "de": {
            "192.0.2.1 https://a.test": EndpointHealth(HealthStatus.DOWN),
            "192.0.2.2 https://a.test": EndpointHealth(HealthStatus.UP),
        }
    }
    state = State(1, health=made.health(law.regions, ["https://b.test"]), addresses={"ipv4": addresses})
    (only,) = listed(routed(made.view(law, state), Request("chat", EVERYWHERE)))
    assert only.endpoints == (Endpoint("https://a.test", ("192.0.2.2",)),)
    none = State(1, health=made.health(law.regions, ["de"]))
    assert listed(routed(made.view(law, none), Request("chat", EVERYWHERE))) == ()
    law = made.policy(region, replace(service, on_unusable=OnUnusable.IGNORE_HEALTH))
    decision = decide(made.view(law, none), Request("chat", EVERYWHERE), 0.0)
    assert (decision.outcome, decision.reason) == (Outcome.SERVED, Reason.HEALTH_IGNORED)
    (only,) = listed(routed(made.view(law, none), Request("chat", EVERYWHERE)))
    assert only.endpoints == ends
