"""Random worlds: policies that compile, states, windows and requests, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gtm.core.decision.view import View, Window, view_of
from gtm.core.model.policy import (
    DataClass,
    EdgeScope,
    Jurisdiction,
    Match,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
    Term,
)
from gtm.core.model.regions import AddressFamily, AdminState, Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Families, Handoff, Member, OnUnusable, Push, Service, Steering
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.jurisdictions import countries_at, resolve
from tests.effort import examples
from tests.worlds import SHIPPED, places

COUNTRIES = ("DE", "FR", "NO", "GB", "US", "SG", "BR")
PLACES = ("EU", "EEA", "UK", "ATLANTIC", "ADEQUATE", "ALLIES", "NOWHERE", *COUNTRIES)
OPERATORS = (
    Jurisdiction("ATLANTIC", "", ("EEA", "UK", "US")),
    Jurisdiction(
        "ALLIES",
        "",
        ("ADEQUATE", "SG"),
        terms=(Term("ADEQUATE", datetime.fromtimestamp(100, UTC), datetime.fromtimestamp(400, UTC)),),
    ),
)
TENANTS = ("clinic", "bank")
DATA_CLASSES = ("health", "payment")
MODELS = ("small", "large")
MOMENTS = tuple(float(second) for second in range(0, 700, 100))
"""Rules begin and end, and clocks point, at few moments, so that they often meet."""


def quick(count: int) -> settings:
    """Settings for property tests on a shared machine: no test fails for being slow. `make drills` tries `count` examples."""
    return settings(
        max_examples=examples(count),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@dataclass(frozen=True, slots=True)
class World:
    """A View, and what it was made from."""

    policy: Policy
    state: State
    window: Window
    view: View


def _subset(values: tuple[str, ...], most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=most).map(tuple)


ADDRESSES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("192.0.2.1",), ("2001:db8::1",)),
    (("192.0.2.1",), ()),
    ((), ("2001:db8::1",)),
    ((), ()),
)
"""What endpoints have of each family."""
latitudes = st.integers(-90, 90).map(float)
longitudes = st.integers(-180, 180).map(float)


@st.composite
def regions(draw: st.DrawFn, name: str) -> Region:
    """A region with one or two endpoints, mostly active."""
    endpoints = draw(st.integers(1, 2))
    return Region(
        name=name,
        lat=draw(latitudes),
        lon=draw(longitudes),
        country=draw(st.sampled_from(COUNTRIES)),
        operator_country=draw(st.sampled_from([None, "US", "DE", *COUNTRIES])),
        endpoints=tuple(
            Endpoint(f"https://{name}-{index}.test", *draw(st.sampled_from(ADDRESSES)))
            for index in range(endpoints)
        ),
        models=draw(_subset(MODELS)),
        admin_state=draw(
            st.sampled_from([AdminState.ACTIVE] * 4 + [AdminState.DRAINING, AdminState.DISABLED])
        ),
    )


@st.composite
def services(draw: st.DrawFn, name: str, known: tuple[Region, ...]) -> Service:
    """A service over some of the regions, with any steering; weights are often 0."""
    members = draw(st.lists(st.sampled_from(known), unique=True, min_size=1))
    served = sorted({model for region in members for model in region.models})
    canary = members[-1] if len(members) > 1 and draw(st.integers(0, 3)) == 0 else None
    return Service(
        name=name,
        members=tuple(
            Member(m.name, share=0.3)
            if m is canary
            else Member(m.name, draw(st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.0])))
            for m in members
        ),
        steering=draw(st.sampled_from(Steering)),
        affinity=draw(st.sampled_from(Affinity)),
        on_unusable=draw(st.sampled_from(OnUnusable)),
        families=draw(st.sampled_from(Families)),
        model=draw(st.sampled_from([None, None, None, *served])),
        handoff=draw(st.sampled_from(Handoff)),
        push=draw(st.sampled_from(Push)),
    )


@st.composite
def rules(draw: st.DrawFn, name: str, known: tuple[Region, ...], offered: tuple[str, ...]) -> ResidencyRule:
    """A residency rule over any dimensions, with allow, deny or both, in any mode, at times within a window."""
    names = tuple(region.name for region in known)
    kind = draw(st.sampled_from(["allow", "allow", "deny", "both"]))
    # A place is never both allowed and denied, so each name is dealt to one side.
    dealt = draw(st.lists(st.sampled_from((*PLACES, *names)), unique=True, min_size=2, max_size=5))
    run = draw(st.sampled_from([(), (), ("US",), ("EU", "ADEQUATE"), ("GB", "EEA")]))
    if run and draw(st.booleans()):
        dealt = []
    allow, deny = {
        "allow": (places_of(dealt, run), Places()),
        "deny": (Places(), places_of(dealt, run)),
        "both": (places_of(dealt[::2], run[::2]), places_of(dealt[1::2], run[1::2])),
    }[kind]
    since, until = draw(
        st.sampled_from([(None, None)] * 3 + [(0, None), (200, None), (None, 400), (200, 400)])
    )
    return ResidencyRule(
        name=name,
        match=Match(
            services=draw(_subset(offered)),
            client_countries=draw(_subset(COUNTRIES)),
            client_jurisdictions=draw(_subset(PLACES)),
            tenants=draw(_subset(TENANTS)),
            data_classes=draw(_subset(DATA_CLASSES)),
            tenant_jurisdictions=draw(
                st.sampled_from([(), (), (), ("EU",), ("ALLIES",), ("US", "ADEQUATE")])
            ),
        ),
        allow=allow,
        deny=deny,
        mode=draw(st.sampled_from([RuleMode.ENFORCE, RuleMode.ENFORCE, RuleMode.MONITOR])),
        on_unknown_location=draw(st.sampled_from(["match", "match", "ignore"]).map(OnUnknownLocation)),
        on_anonymous=draw(st.sampled_from(OnAnonymous)),
        on_doubtful_location=draw(st.sampled_from(OnDoubtfulLocation)),
        max_accuracy_km=draw(st.sampled_from([None, None, 100.0])),
        edges=draw(st.sampled_from(EdgeScope)),
        max_policy_age=draw(st.sampled_from([None, None, 60.0, 600.0])),
        legal_basis=draw(st.sampled_from(["", "GDPR Art. 44"])),
        effective_from=None if since is None else datetime.fromtimestamp(since, UTC),
        effective_until=None if until is None else datetime.fromtimestamp(until, UTC),
        acknowledge_empty_fence=True,
    )


def places_of(names: list[str], run: tuple[str, ...]) -> Places:
    """Regions, and the jurisdictions of PLACES; regions' operators are in `run`."""
    return replace(places(" ".join(names)), operator_jurisdictions=run)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A policy that compiles against SHIPPED."""
    known = tuple(draw(regions(f"r{number}")) for number in range(draw(st.integers(2, 8))))
    offered = tuple(draw(services(f"s{number}", known)) for number in range(draw(st.integers(1, 4))))
    if draw(st.booleans()):
        # Of its family, unless rules name one of them.
        offered += (replace(offered[0], name="twin", affinity=draw(st.sampled_from(Affinity))),)
    names = tuple(service.name for service in offered)
    return Policy(
        regions=known,
        services=offered,
        residency_rules=tuple(
            draw(rules(f"rule{number}", known, names)) for number in range(draw(st.integers(0, 4)))
        ),
        jurisdictions=OPERATORS,
        tenants=tuple(
            Tenant(name, country=draw(st.sampled_from([None, "DE", "GB", "US"]))) for name in TENANTS
        ),
        data_classes=tuple(DataClass(name) for name in DATA_CLASSES),
    )


@st.composite
def states(draw: st.DrawFn, policy: Policy) -> State:
    """The health of some regions and endpoints; others are missing altogether."""
    verdicts = st.sampled_from(
        [HealthStatus.UP] * 3 + [HealthStatus.DOWN, HealthStatus.DOWN, HealthStatus.UNKNOWN, None]
    )
    health: dict[str, dict[str, EndpointHealth]] = {}
    for region in policy.regions:
        for endpoint in region.endpoints:
            verdict = draw(verdicts)
            if verdict is not None:
                health.setdefault(region.name, {})[endpoint.url] = EndpointHealth(verdict)
    return State(epoch=draw(st.integers(0, 9)), health=health)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """A window whose clock may have stepped back."""
    first, second = draw(st.sampled_from(MOMENTS)), draw(st.sampled_from(MOMENTS))
    return Window(min(first, second), max(first, second))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A policy, a state and a window, joined."""
    policy = draw(policies())
    state = draw(states(policy))
    window = draw(windows())
    return World(policy, state, window, view_of(compile_policy(policy, SHIPPED, revision=7), state, window))


@st.composite
def locations(draw: st.DrawFn) -> Location:
    """Known, country only, coordinates only, or unknown, more or less surely; the country may be a code that is none."""
    country = draw(st.sampled_from([None, *COUNTRIES, "IE", "JP", "EU", "UK", "A1"]))
    known = draw(st.booleans())
    return Location(
        country=country,
        lat=draw(latitudes) if known else None,
        lon=draw(longitudes) if known else None,
        network=draw(st.sampled_from([None, "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/48"])),
        prefix_length=24,
        source=draw(st.sampled_from(["geoip", "geoip", "override"])),
        anonymous=draw(st.booleans()),
        doubtful=draw(st.booleans()),
        accuracy_km=draw(st.sampled_from([None, 20.0, 500.0])),
    )


@st.composite
def requests(draw: st.DrawFn, policy: Policy) -> Request:
    """A request to one of a policy's services, stating as much or as little as it likes."""
    return Request(
        service=draw(st.sampled_from(policy.services)).name,
        location=draw(locations()),
        tenant=draw(st.sampled_from([None, *TENANTS])),
        data_class=draw(st.sampled_from([None, *DATA_CLASSES])),
        model=draw(
            st.sampled_from(
                [None, None, None, *sorted({model for region in policy.regions for model in region.models})]
            )
        ),
        affinity=draw(st.sampled_from([None, "alice", "bob"])),
        family=draw(st.sampled_from([None, *AddressFamily])),
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[World, list[Request]]:
    """A world and several requests to it (worlds are dear to make, requests cheap)."""
    world = draw(worlds())
    return world, draw(st.lists(requests(world.policy), min_size=8, max_size=8))


draws = st.floats(0, 1, exclude_max=True)


def membership() -> dict[str, frozenset[str]]:
    """What the names in PLACES cover."""
    return {name: countries_at(periods, 0.0) for name, periods in resolve(SHIPPED, OPERATORS)[0].items()}
