"""Edges that stand outside of a rule: against a model written from the documentation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.decision.decide import Exclusion, decide
from gtm.core.decision.explain import answer
from gtm.core.decision.router import Router
from gtm.core.decision.view import View, Window, build_basis, view_of
from gtm.core.findings.report import findings
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.policy import EdgeScope, Match, Places, Policy, ResidencyRule, RuleMode
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import NameServer, Zone
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.edges import EdgePlace, place_of, rules_against, servers_inside, zones_elsewhere
from gtm.core.policy.snapshot import Snapshot
from tests import worlds
from tests.core.reference import Reference, edge_rules
from tests.core.strategies import COUNTRIES, SHIPPED, World, draws, questions, quick


@st.composite
def places(draw: st.DrawFn) -> EdgePlace:
    """An edge that says as much or as little of itself as it likes."""
    return EdgePlace(
        draw(st.sampled_from([None, *COUNTRIES])),
        draw(st.sampled_from([None, *COUNTRIES])),
        draw(st.sampled_from([None, None, "r0", "r1", "r2", "gone"])),
    )


@quick(500)
@given(questions(), places(), draws)
def test_an_edge_answers_what_the_model_lets_it(
    question: tuple[World, list], edge: EdgePlace, draw: float
) -> None:
    """It refuses if, and only if, a rule that it stands outside of concerns the request; else it answers as any other."""
    world, asked = question
    reference = Reference(world.policy, SHIPPED, world.state, world.window)
    against = edge_rules(reference, edge)
    view = view_of(world.view.snapshot, world.state, world.window, edge=edge)
    assert view.basis.outside == against
    router = Router(view)
    for request in asked:
        refused = against & {rule.name for rule in reference.matched(request)}
        event(f"refused by edge: {bool(refused)}")
        decision = decide(view, request, draw)
        if refused:
            assert (decision.outcome, decision.reason) == (Outcome.REFUSED_EDGE, Reason.EDGE_OUTSIDE)
            assert decision.region is None
            assert decision.shed == 0.0
        else:
            assert decision == decide(world.view, request, draw)
        assert router.decide(request, draw) == decision


DE, US = worlds.regions("de us", operator_country="US")
CHAT = worlds.service("chat", "de us", hostnames=("eu.api.test",), zone="eu.api.test")
EU = worlds.places("EU")
BOUND = worlds.rule("gdpr", "EU", services="chat", client_jurisdictions="EU", edges=EdgeScope.IN_FENCE)
OUTER = Zone(
    "api.test", "ns1.api.test", "hostmaster.api.test", (NameServer("ns1.api.test", ("192.0.2.53",)),)
)
INNER = Zone(
    "eu.api.test",
    "ns1.eu.api.test",
    "hostmaster.api.test",
    (
        NameServer("ns1.eu.api.test", ("192.0.2.54",), country="DE"),
        NameServer("ns2.eu.api.test", ("192.0.2.55",), country="IE"),
    ),
)
POLICY = Policy((DE, US), (OUTER, INNER), (CHAT,), (BOUND,))
GERMAN = Request("chat", Location("DE", source="override"))
AMERICAN = Request("chat", Location("US", source="override"))


def _snapshot(rule: ResidencyRule = BOUND, policy: Policy = POLICY) -> Snapshot:
    return compile_policy(replace(policy, residency_rules=(rule,)), SHIPPED)


def _view(edge: EdgePlace | None, rule: ResidencyRule = BOUND, now: float = 0.0) -> View:
    return view_of(_snapshot(rule), State(), Window(now, now), edge=edge)


STANDINGS = [
    (EU, Places(), EdgePlace("DE"), True),
    (EU, Places(), EdgePlace("US"), False),
    (EU, Places(), EdgePlace(), False),
    (EU, Places(), EdgePlace(region="de"), True),
    (EU, Places(), EdgePlace(region="us"), False),
    (EU, Places(), EdgePlace("US", region="de"), False),
    (EU, Places(), EdgePlace(region="gone"), False),
    (Places(regions=("de",)), Places(), EdgePlace("DE"), True),
    (Places(regions=("de",)), Places(), EdgePlace("FR"), False),
    (Places(), Places(jurisdictions=("US",)), EdgePlace("DE"), True),
    (Places(), Places(jurisdictions=("US",)), EdgePlace("US"), False),
    (Places(), Places(jurisdictions=("US",)), EdgePlace(), False),
    (Places(), Places(regions=("us",)), EdgePlace("US"), True),
    (Places(), Places(regions=("us",)), EdgePlace("DE", region="us"), False),
    (Places(operator_jurisdictions=("EU",)), Places(), EdgePlace("US", "DE"), True),
    (Places(operator_jurisdictions=("EU",)), Places(), EdgePlace("DE"), False),
    (Places(operator_jurisdictions=("US",)), Places(), EdgePlace("DE", region="de"), True),
    (EU, Places(operator_jurisdictions=("US",)), EdgePlace("DE", "FR"), True),
    (EU, Places(operator_jurisdictions=("US",)), EdgePlace("DE", "US"), False),
    (EU, Places(operator_jurisdictions=("US",)), EdgePlace("DE"), False),
    (EU, Places(operator_jurisdictions=("US",)), EdgePlace(region="de"), False),
]
"""What a rule allows, what it denies, where an edge stands, and whether that is inside: the table of docs/residency.md."""


@pytest.mark.parametrize(("allow", "deny", "edge", "inside"), STANDINGS)
def test_who_is_inside(allow: Places, deny: Places, edge: EdgePlace, inside: bool) -> None:
    """The table of docs/residency.md."""
    rule = replace(BOUND, allow=allow, deny=deny, acknowledge_empty_fence=True)
    assert (_view(edge, rule).basis.outside == frozenset()) is inside
    for loose in (replace(rule, edges=EdgeScope.ANYWHERE), replace(rule, mode=RuleMode.MONITOR)):
        assert _view(edge, loose).basis.outside == frozenset()


def test_no_edge_answers_at_control() -> None:
    """What control decides, plans and simulates is not decided at any edge."""
    assert _view(None).basis.outside == frozenset()
    assert decide(_view(None), GERMAN, 0.0).outcome is not Outcome.REFUSED_EDGE


def test_a_membership_that_lapses_moves_edges_out() -> None:
    """Where an edge is inside by a decision that ends, it is outside from that moment on, and the basis is a new one."""
    rule = replace(BOUND, allow=Places(jurisdictions=("ADEQUATE",)))
    edge = EdgePlace("GB")
    view = _view(edge, rule, 299.0)
    assert view.basis.outside == frozenset()
    after = build_basis(view.snapshot, view.basis.estimator, Window(300.0, 300.0), view.basis, edge)
    assert after.outside == {"gdpr"}
    assert after.edge == edge
    assert (
        build_basis(view.snapshot, view.basis.estimator, Window(299.5, 299.5), view.basis, edge) is view.basis
    )


def test_the_answer_says_where_to_go() -> None:
    """A refusal names the rules, the edge's place, and the name servers that stand inside."""
    view = _view(EdgePlace("US"))
    document = answer(view, GERMAN, decide(view, GERMAN, 0.0), client=None, endpoint=None)
    assert document["outcome"] == "refused_edge"
    assert document["reasons"][0].startswith("refused here: residency rules that bind edges")
    assert document["edge"]["country"] == "US"
    assert document["edge"]["rules"] == ["gdpr"]
    assert [server["name"] for server in document["edge"]["inside"]] == ["ns1.eu.api.test", "ns2.eu.api.test"]
    assert "edge" not in answer(view, AMERICAN, decide(view, AMERICAN, 0.0), client=None, endpoint=None)


def test_regions_are_told_as_they_are_where_the_edge_refuses() -> None:
    """What is up is not said to be down: the refusal is because of the edge."""
    view = view_of(_snapshot(), State(health=worlds.health((DE,))), Window(0.0, 0.0), edge=EdgePlace("US"))
    told = {item.region: item.excluded for item in decide(view, GERMAN, 0.0).candidates}
    assert told == {"de": None, "us": Exclusion.RESIDENCY}


def _elsewhere(snapshot: Snapshot, edge: EdgePlace) -> frozenset[str]:
    rules = snapshot.services["chat"].rules
    return zones_elsewhere(snapshot, rules, rules_against(rules, edge))


def test_which_zones_others_answer_for() -> None:
    """A zone inside another, concerned by a rule that all its name servers stand inside of, and this edge outside."""
    assert _elsewhere(_snapshot(), EdgePlace("US")) == {"eu.api.test"}
    assert _elsewhere(_snapshot(), EdgePlace("FR")) == frozenset()
    stray = replace(INNER, name_servers=(*INNER.name_servers, NameServer("ns3.eu.api.test", ("192.0.2.56",))))
    for zones in ((INNER,), (OUTER, stray), (OUTER, replace(INNER, name_servers=()))):
        policy = replace(POLICY, zones=zones)
        assert _elsewhere(_snapshot(policy=policy), EdgePlace("US")) == frozenset()
    other = replace(BOUND, match=Match(services=("other",)))
    policy = replace(POLICY, services=(CHAT, worlds.service("other", "de")))
    assert _elsewhere(_snapshot(other, policy), EdgePlace("US")) == frozenset()
    assert len(servers_inside((OUTER, INNER), _snapshot().services["chat"].rules)) == 2
    assert place_of(INNER.name_servers[0]) == EdgePlace("DE")


@pytest.mark.parametrize(
    ("countries", "found"),
    [
        (("DE", "IE"), None),
        (("DE", "US"), "ns2.eu.api.test (US)"),
        ((None, "US"), "ns1.eu.api.test (country not stated)"),
    ],
)
def test_name_servers_outside_are_found(countries: tuple[str | None, str], found: str | None) -> None:
    """`gtm check` tells of a zone whose name servers see what the rule keeps to edges inside."""
    servers = tuple(
        replace(server, country=country)
        for server, country in zip(INNER.name_servers, countries, strict=True)
    )
    policy = replace(POLICY, zones=(OUTER, replace(INNER, name_servers=servers)))
    for rule, told in product((BOUND, replace(BOUND, edges=EdgeScope.ANYWHERE)), (True, False)):
        wanted = found is not None and rule is BOUND
        messages = [
            item for item in findings(_snapshot(rule, policy), 0.0) if item.code == "name_server_outside"
        ]
        assert bool(messages) is wanted
        if wanted and told:
            assert messages[0].path == "zones.eu.api.test.name_servers"
            assert str(found) in messages[0].message
            assert "`gdpr`" in messages[0].message


def test_a_primary_stands_for_name_servers() -> None:
    """Without `name_servers` nobody knows where the primary stands."""
    policy = replace(POLICY, zones=(OUTER, replace(INNER, name_servers=())))
    (finding,) = [
        item for item in findings(_snapshot(policy=policy), 0.0) if item.code == "name_server_outside"
    ]
    assert "ns1.eu.api.test (country not stated)" in finding.message
