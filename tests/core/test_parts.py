"""The small parts: roles and tokens, distances, endpoints, time windows, the Router's memory, known names."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from math import inf, pi

import pytest

from gtm.core.decision import options
from gtm.core.decision.choice import choice
from gtm.core.decision.decide import decide
from gtm.core.decision.options import Maker
from gtm.core.decision.ranking import classes_of, rank
from gtm.core.decision.router import CANDIDATES, Ranker, Router
from gtm.core.decision.view import View, Window, view_of
from gtm.core.latency.doubt import Doubt
from gtm.core.latency.table import LatencyTable
from gtm.core.model.access import Access, Role, TokenGrant, matches, permits
from gtm.core.model.geometry import EARTH_RADIUS_KM, great_circle_km
from gtm.core.model.outcomes import FenceError, Reason, UnknownNameError
from gtm.core.model.policy import OnDoubtfulLocation, ResidencyRule
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Member, OnUnusable, Service, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from tests import worlds

BERLIN = Location("DE", lat=52.5, lon=13.4, network="192.0.2.0/24", prefix_length=24)
DE = worlds.region("de", Endpoint("https://de-a.test"), Endpoint("https://de-b.test"))
US = worlds.region("us")
UP = State(epoch=4, health=worlds.health((DE, US)))
_service = partial(worlds.service, "chat", "us de")


def _view(
    service: Service, *rules: ResidencyRule, state: State = UP, regions: tuple[Region, ...] = (DE, US)
) -> View:
    return worlds.view(worlds.policy(*regions, service, *rules), state)


def test_roles_include_one_another() -> None:
    """Viewer, operator and admin each include those before; edge stands alone."""
    ladder = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    for held in ladder:
        assert [permits(held, needed) for needed in ladder] == [
            ladder.index(held) >= ladder.index(needed) for needed in ladder
        ]
        assert not permits(held, Role.EDGE)
        assert not permits(Role.EDGE, held)
    assert permits(Role.EDGE, Role.EDGE)


def test_names_fit_patterns() -> None:
    """A name fits itself, and a pattern if text in place of each `*` makes it the name: of all short ones."""
    names = ["".join(text) for length in range(5) for text in product("ab", repeat=length)]
    for pattern in ("".join(text) for length in range(6) for text in product("ab*", repeat=length)):
        model = re.compile(pattern.replace("*", ".*")).fullmatch
        for name in names:
            assert matches(pattern, name) is (model(name) is not None), (pattern, name)


def test_a_token_is_known_until_it_expires() -> None:
    """By its hash, up to and without the second it expires; none for an unknown hash."""
    access = Access((TokenGrant("aa", Role.VIEWER), TokenGrant("bb", Role.ADMIN, expires=10.0)))
    viewer, admin = access.grants
    assert access.grant("aa", 1e12) is viewer
    assert access.grant("bb", 9.9) is admin
    assert access.grant("bb", 10.0) is None
    assert access.grant("cc", 0.0) is None


def test_distances_on_the_sphere() -> None:
    """Nothing to oneself, half the circumference to the antipode, and the same both ways over the date line."""
    assert great_circle_km(50.0, 8.0, 50.0, 8.0) == 0
    assert great_circle_km(90, 0, -90, 0) == pytest.approx(pi * EARTH_RADIUS_KM)
    assert great_circle_km(0, 179.5, 0, -179.5) == pytest.approx(pi * EARTH_RADIUS_KM / 180)
    assert great_circle_km(50.11, 8.68, 53.35, -6.26) == pytest.approx(1087, abs=5)


@pytest.mark.parametrize(
    ("request_", "kind", "name"),
    [
        (Request("mail"), "service", "mail"),
        (Request("chat", tenant="nobody"), "tenant", "nobody"),
        (Request("chat", data_class="secret"), "data class", "secret"),
    ],
)
def test_unknown_names_are_not_guessed(request_: Request, kind: str, name: str) -> None:
    """A service, tenant or data class that the policy does not know is an error, from memory too."""
    view = _view(_service())
    for answer in (lambda: decide(view, request_, 0.0), lambda: Router(view).decide(request_, 0.0)):
        with pytest.raises(UnknownNameError, match=f"there is no {kind} `{name}`") as caught:
            answer()
        assert (caught.value.kind, caught.value.name) == (kind, name)


@pytest.mark.parametrize(
    ("steering", "location", "region", "reason"),
    [
        (Steering.LATENCY, BERLIN, "de", Reason.LOWEST_LATENCY),
        (Steering.GEO, BERLIN, "de", Reason.NEAREST),
        (Steering.FAILOVER, BERLIN, "us", Reason.FAILOVER_ORDER),
        (Steering.LATENCY, Location("DE"), "us", Reason.LOCATION_UNKNOWN),
        (Steering.GEO, Location("DE"), "us", Reason.LOCATION_UNKNOWN),
    ],
)
def test_steering_names_what_decided(
    steering: Steering, location: Location, region: str, reason: Reason
) -> None:
    """Each method picks by its own measure, and without coordinates by the order written."""
    decision = decide(_view(_service(steering=steering)), Request("chat", location), 0.5)
    assert (decision.region, decision.reason) == (region, reason)


@pytest.mark.parametrize(
    ("affinity", "key", "network", "reason"),
    [
        (Affinity.NONE, "alice", "192.0.2.0/24", Reason.WEIGHTED),
        (Affinity.CLIENT_NETWORK, "alice", None, Reason.WEIGHTED),
        (Affinity.CLIENT_NETWORK, None, "192.0.2.0/24", Reason.AFFINITY),
        (Affinity.KEY, "alice", None, Reason.AFFINITY),
        (Affinity.KEY, None, "192.0.2.0/24", Reason.AFFINITY),
        (Affinity.KEY, None, None, Reason.WEIGHTED),
    ],
)
def test_the_reason_tells_sticky_from_drawn(
    affinity: Affinity, key: str | None, network: str | None, reason: Reason
) -> None:
    """A weighted answer says affinity exactly where the draw did not matter, from memory too."""
    view = _view(_service(steering=Steering.WEIGHTED, affinity=affinity))
    router = Router(view)
    router.ranker.ranking(Request("chat", BERLIN))
    request = Request("chat", BERLIN._replace(network=network), affinity=key)
    decisions = [router.decide(request, draw / 10) for draw in range(10)]
    assert {decision.reason for decision in decisions} == {reason}
    assert len({decision.region for decision in decisions}) == (1 if reason is Reason.AFFINITY else 2)


def test_a_share_too_small_for_a_float_is_none() -> None:
    """A weight that vanishes beside another takes no clients, instead of dividing by zero."""
    service = _service(
        steering=Steering.WEIGHTED, affinity=Affinity.KEY, members=(Member("us", 5e-324), Member("de", 1e6))
    )
    assert decide(_view(service), Request("chat", affinity="alice"), 0.0).region == "de"


def test_reserves_share_evenly() -> None:
    """Members of weight 0 serve only where no other can, and then each as much as the next."""
    service = _service(steering=Steering.WEIGHTED, members=(Member("us", 0.0), Member("de", 0.0)))
    view = _view(service)
    assert choice(view, rank(view.basis, Request("chat"), classes_of(view.basis.snapshot)).group).weights == (
        0.5,
        0.5,
    )
    service = _service(members=(Member("us", 1.0), Member("de", 0.0)))
    assert decide(_view(service), Request("chat", BERLIN), 0.0).region == "us"


def test_a_router_explains_an_option_once() -> None:
    """The second request that ends alike gets the same decision, not one judged anew."""
    router = Router(_view(_service()))
    assert router.decide(Request("chat", BERLIN), 0.1) is router.decide(Request("chat", BERLIN), 0.9)


def test_a_region_outside_the_fence_cannot_be_named() -> None:
    """Should the rest of gtm ever be wrong, the one place that names regions refuses."""
    view = _view(_service())
    group = rank(view.basis, Request("chat"), classes_of(view.basis.snapshot)).group
    maker = Maker(view, replace(group, allowed=0b01))
    with pytest.raises(FenceError, match="region us is outside the fence"):
        maker.served(1, Reason.NEAREST)


def test_a_country_code_that_is_none_counts_as_unknown() -> None:
    """`EU` and `A1`, as some databases have them, meet every location-scoped rule, and the answer says why."""
    rule = worlds.rule("eu", "EU")
    scoped = worlds.rule("eu", "EU", client_jurisdictions="EEA")
    view = _view(_service(), scoped)
    for country in ("EU", "A1", "de", None):
        decision = decide(view, Request("chat", Location(country)), 0.0)
        assert (decision.region, decision.rules[0].because) == ("de", ("client country unknown",))
    assert decide(view, Request("chat", Location("FR")), 0.0).rules[0].because == ("client country FR",)
    assert decide(view, Request("chat", Location("US")), 0.0).rules == ()
    assert decide(_view(_service(), rule), Request("chat"), 0.0).rules[0].because == ("every request",)


def test_a_router_forgets_when_full() -> None:
    """Its memory holds no more kinds of request than its limit, and answers stay the same objects meanwhile."""
    ranker = Ranker(_view(_service()).basis, limit=2)
    first = ranker.ranking(Request("chat", BERLIN))
    assert ranker.ranking(Request("chat", BERLIN)) is first
    for lat in range(5):
        ranker.ranking(Request("chat", Location(lat=float(lat), lon=0.0)))
    again = ranker.ranking(Request("chat", BERLIN))
    assert again is not first
    assert again.group.key == first.group.key


def test_a_memory_of_rankings_tells_doubtful_subnets_apart() -> None:
    """Two subnets at one place, of which one has a part that measurements contradict: each gets its own fence."""
    rule = worlds.rule("gdpr", "DE", client_countries="DE", on_doubtful_location=OnDoubtfulLocation.MATCH)
    claim = "US|40,-75"
    believed = Location(
        "US", lat=40.0, lon=-75.0, network="198.51.96.0/21", subnet="198.51.96.0/20", source="geoip"
    )
    doubted = believed._replace(parts=((believed.network or "", claim), ("198.51.104.0/24", claim)))
    table = LatencyTable(1, doubts={"198.51.104.0/24": Doubt(claim, doubtful=True, fastest={})})
    basis = view_of(_view(_service(), rule).snapshot, UP, Window(0.0, 0.0), table).basis
    for order in ((believed, doubted), (doubted, believed)):
        ranker = Ranker(basis)
        for location in order:
            request = Request("chat", location)
            found, fresh = ranker.ranking(request), rank(basis, request, classes_of(basis.snapshot))
            assert found.within.allowed == fresh.within.allowed
            assert [match.compiled.rule.name for match in found.within.matched] == ["gdpr"] * (
                location is doubted
            )


def test_a_router_remembers_less_where_services_are_large() -> None:
    """What it remembers is bounded by candidates too: a thousand members weigh more than one."""
    view = _view(_service())
    members = len(view.snapshot.services["chat"].members)
    assert Ranker(view.basis).limit * members <= CANDIDATES
    assert Ranker(view.basis, limit=CANDIDATES * 10).limit == CANDIDATES // members


def test_windows_bound_rules_on_both_sides() -> None:
    """A rule binds from the second it starts to, and without, the second it ends."""
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (100, 200))
    rule = worlds.rule("eu", "EU", effective_from=begin, effective_until=end)

    def binding(now: float, latest: float | None = None) -> bool:
        view = _view(_service(), rule)
        window = Window(now, now if latest is None else latest)
        return bool(view_of(view.snapshot, UP, window).rules["chat"])

    assert [binding(now) for now in (99.9, 100.0, 199.9, 200.0)] == [False, True, True, False]
    assert binding(50.0, latest=150.0)
    assert binding(150.0, latest=500.0)
    assert not binding(50.0, latest=99.0)
    snapshot = _view(_service(), rule).snapshot
    assert (snapshot.beginnings, snapshot.endings) == ((100.0,), (200.0,))
    view = _view(_service())
    assert view.left(view.window) == inf


def test_only_endpoints_that_are_up_are_handed_out() -> None:
    """One of the up endpoints by key; every endpoint where health is ignored; none for a refusal."""
    service = worlds.service("chat", "de", on_unusable=OnUnusable.IGNORE_HEALTH)
    view = _view(service)
    decision = decide(view, Request("chat"), 0.0)
    assert options.serving(view, decision) == DE.endpoints
    assert {options.endpoint_for(view, decision, f"key {n}") for n in range(50)} == set(DE.endpoints)
    half = State(health={"de": {"https://de-b.test": EndpointHealth(HealthStatus.UP)}})
    view = _view(service, state=half)
    assert options.endpoint_for(view, decide(view, Request("chat"), 0.0), "key") == DE.endpoints[1]
    view = _view(service, state=State())
    decision = decide(view, Request("chat"), 0.0)
    assert decision.reason is Reason.HEALTH_IGNORED
    assert options.serving(view, decision) == DE.endpoints
    view = _view(replace(service, on_unusable=OnUnusable.REFUSE), state=State())
    assert options.endpoint_for(view, decide(view, Request("chat"), 0.0), "key") is None


def test_an_unknown_model_is_an_error() -> None:
    """A model that no region serves is a mistake of the caller's, not a want of capacity."""
    region = worlds.region("de", models=("small",))
    view = _view(worlds.service("chat", "de"), state=State(), regions=(region,))
    with pytest.raises(UnknownNameError, match="there is no model `large`"):
        decide(view, Request("chat", model="large"), 0.5)
