"""Decisions in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given

from gtm.core.decision.decide import decide
from gtm.core.decision.explain import MAX_REASONS, answer, lines, reasons
from gtm.core.decision.options import endpoint_for, serving
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, UnknownNameError
from gtm.core.model.policy import Places, ResidencyRule, RuleMode, Tenant
from gtm.core.model.regions import AdminState, Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, OnUnusable, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from tests import worlds
from tests.core.strategies import World, draws, questions, quick

BERLIN = Location("DE", None, "EU", 52.5, 13.4, None, "81.2.69.0/24", 24, "geoip")
REQUEST = Request("chat", BERLIN)
REGIONS = (
    worlds.region("eu-central", Endpoint("http://a"), Endpoint("http://b")),
    worlds.region("eu-west", Endpoint("http://c")),
    worlds.region("us-east", Endpoint("http://d"), models=("llama",)),
)
GDPR = worlds.rule("gdpr", "DE IE", client_countries="DE")
CLINIC = worlds.rule("clinic", "DE", tenants="clinic")


def view(
    *rules: ResidencyRule,
    up: Iterable[str] = "abcd",
    regions: tuple[Region, ...] = REGIONS,
    **service: object,
) -> View:
    """A View with one service over all regions, where the endpoints named are up, `x` unknown, the others down."""
    chat = worlds.service("chat", " ".join(region.name for region in regions), **service)
    policy = worlds.policy(*regions, chat, *rules, Tenant("clinic"))
    table = {
        region.name: {
            endpoint.url: EndpointHealth(
                HealthStatus.UP if endpoint.url[-1] in up else HealthStatus.DOWN, 1.0, "refused"
            )
            for endpoint in region.endpoints
            if endpoint.url[-1] != "x"
        }
        for region in regions
    }
    return worlds.view(policy, State(health=table), shipped=())


def told(seen: View, request: Request = REQUEST) -> list[str]:
    """Every sentence about a request."""
    return lines(seen, request, decide(seen, request, 0.0))


def test_the_nearest_inside_the_fence() -> None:
    """What was chosen and why, what else would do, and what the law excludes."""
    assert told(view(GDPR)) == [
        "eu-central: chosen, lowest estimated round trip of the usable regions inside the fence (26 ms)",
        "eu-west: usable, ranked 2 (40 ms)",
        "us-east: excluded by residency rule gdpr (client country DE)",
    ]
    assert told(view())[0] == "eu-central: chosen, lowest estimated round trip of the usable regions (26 ms)"


def test_several_rules_and_unstated_facts() -> None:
    """Each rule that excludes is named, with what made it match."""
    assert told(view(GDPR, CLINIC))[1:] == [
        "eu-west: excluded by residency rule clinic (tenant not stated)",
        "us-east: excluded by residency rules gdpr (client country DE) and clinic (tenant not stated)",
    ]


def test_a_rule_about_operators_says_who_runs_the_region() -> None:
    """A full explanation has each region's operator, and says it where a rule that looks at operators excludes it."""
    regions = (
        replace(REGIONS[0], operator_country="DE"),
        replace(REGIONS[1], operator_country="US"),
        REGIONS[2],
    )
    own = ResidencyRule("own", allow=Places(operator_jurisdictions=("DE",)))
    seen = view(GDPR, own, regions=regions)
    decision = decide(seen, REQUEST, 0.0)
    full = answer(seen, REQUEST, decision, client=None, endpoint=None, full=True)
    assert [(item["operator_country"], item["why"].partition("; ")[2]) for item in full["candidates"]] == [
        ("DE", ""),
        ("US", "it is run from US"),
        (None, "who runs it is unknown"),
    ]
    assert full["rules"][1]["because"] == ["every request"]


def test_states() -> None:
    """Admin state, health and models in words."""
    regions = (
        replace(REGIONS[0], admin_state=AdminState.DRAINING, models=("gpt",)),
        replace(REGIONS[1], admin_state=AdminState.DISABLED),
        REGIONS[2],
        Region("sa-east", -23.5, -46.6, "BR", (Endpoint("http://x"),), models=("llama",)),
        Region("ap", 1.3, 103.8, "SG", (Endpoint("http://e"),), models=("llama",)),
        Region("far", -37.0, 174.0, "NZ", (Endpoint("http://d"),)),
    )
    both = told(view(regions=regions, model="llama"), REQUEST._replace(model="gpt"))
    assert both[0] == "refused: no region of the service is usable"
    assert set(both[1:]) == {
        "eu-central: draining, takes no new clients",
        "eu-west: disabled by its operator",
        "us-east: does not serve the model `gpt`",
        "sa-east: does not serve the model `gpt`",
        "ap: does not serve the model `gpt`",
        "far: does not serve the models `gpt` and `llama`",
    }
    sentences = told(view(regions=regions, model="llama"))
    assert "us-east: chosen, lowest estimated round trip of the usable regions (125 ms)" in sentences
    assert "sa-east: health unknown, no probe has answered yet" in sentences
    assert "ap: no endpoint is up" in sentences


def test_what_a_dead_region_met() -> None:
    """Why a dead region is passed over has its last failure where the endpoints' health is shown, and only there."""
    seen = view(up="cd")
    decision = decide(seen, REQUEST, 0.0)
    full = answer(seen, REQUEST, decision, client=None, endpoint=None, full=True)
    why = {item["region"]: item["why"] for item in full["candidates"]}
    assert why["eu-central"] == "eu-central: no endpoint is up (refused)"
    assert "eu-central: no endpoint is up" in reasons(seen, REQUEST, decision)


@pytest.mark.parametrize(
    ("service", "location", "first"),
    [
        ({"steering": Steering.GEO}, BERLIN, "eu-central: chosen, nearest of the usable regions (422 km)"),
        (
            {"steering": Steering.FAILOVER},
            BERLIN,
            "eu-central: chosen, first of the usable regions in failover order",
        ),
        ({"steering": Steering.WEIGHTED}, BERLIN, "eu-central: chosen, by weight, takes 33% of such clients"),
        (
            {},
            Location(),
            "eu-central: chosen, first of the usable regions in the order written, the client's location is unknown",
        ),
    ],
)
def test_each_steering_says_what_decided(service: dict[str, object], location: Location, first: str) -> None:
    """One phrase for each way to choose."""
    assert told(view(**service), Request("chat", location))[0] == first


def test_affinity_and_shares() -> None:
    """A sticky client is told so; the other regions' shares are named."""
    seen = view(steering=Steering.WEIGHTED, affinity=Affinity.CLIENT_NETWORK)
    sentences = told(seen)
    assert (
        sum("chosen, this client stays on it (by weight 33% of such clients)" in text for text in sentences)
        == 1
    )
    assert sum(text.endswith(": usable, takes 33% of such clients") for text in sentences) == 2


def test_health_ignored_hands_out_what_is_down() -> None:
    """Said plainly, and with all the region's endpoints."""
    seen = view(GDPR, up="d", on_unusable=OnUnusable.IGNORE_HEALTH)
    decision = decide(seen, REQUEST, 0.0)
    assert lines(seen, REQUEST, decision)[0].startswith("eu-central: chosen, although it is not healthy")
    assert serving(seen, decision) == REGIONS[0].endpoints


@pytest.mark.parametrize(
    ("rules", "up", "first"),
    [
        (
            (GDPR,),
            "d",
            "refused: no region inside the fence is usable, and the residency rules forbid the others",
        ),
        ((GDPR,), "", "refused: no region of the service is usable"),
        (
            (replace(GDPR, allow=Places(jurisdictions=("FR",)), acknowledge_empty_fence=True),),
            "abcd",
            "refused: the residency rules leave none of the service's regions",
        ),
    ],
)
def test_refusals(rules: tuple[ResidencyRule, ...], up: str, first: str) -> None:
    """What a refusal rests on comes first, then a sentence for every member."""
    sentences = told(view(*rules, up=up))
    assert sentences[0] == first
    assert len(sentences) == 4


def test_monitored_rules_are_added() -> None:
    """What would have been excluded is said of the chosen region too."""
    watch = replace(CLINIC, name="watch", mode=RuleMode.MONITOR, allow=Places(jurisdictions=("US",)))
    assert told(view(watch))[0] == (
        "eu-central: chosen, lowest estimated round trip of the usable regions (26 ms)"
        "; would be excluded by residency rule watch (tenant not stated) if enforced"
    )


def test_only_up_endpoints_serve_and_keys_spread_over_them() -> None:
    """A key keeps its endpoint while it is up; many keys use all; a refusal has none."""
    seen = view()
    decision = decide(seen, REQUEST, 0.0)
    chosen = {str(key): endpoint_for(seen, decision, str(key)) for key in range(50)}
    assert set(chosen.values()) == set(REGIONS[0].endpoints)
    assert chosen == {key: endpoint_for(seen, decision, key) for key in chosen}
    half = view(up="bcd")
    assert endpoint_for(half, decide(half, REQUEST, 0.0), "1") == REGIONS[0].endpoints[1]
    none = view(up="")
    assert endpoint_for(none, decide(none, REQUEST, 0.0), "1") is None
    assert serving(none, decide(none, REQUEST, 0.0)) == ()


@quick(200)
@given(questions(), draws)
def test_every_decision_can_be_explained(question: tuple[World, list[Request]], draw: float) -> None:
    """Whatever the policy and state: a sentence per member, a short list that starts alike, and only own endpoints."""
    world, asked = question
    for request in asked:
        try:
            decision = decide(world.view, request, draw)
        except UnknownNameError:
            continue
        brief, full = reasons(world.view, request, decision), lines(world.view, request, decision)
        assert len(full) == len(decision.candidates) + (decision.outcome is not Outcome.SERVED)
        assert 1 <= len(brief) <= MAX_REASONS
        assert brief[0] in full
        endpoint = endpoint_for(world.view, decision, "key")
        document = answer(world.view, request, decision, client=None, endpoint=endpoint, full=True)
        assert len(document["candidates"]) == len(decision.candidates)
        assert (document["endpoint"] is None) == (decision.outcome is not Outcome.SERVED)
        assert endpoint is None or endpoint in world.view.snapshot.regions[decision.number].endpoints
