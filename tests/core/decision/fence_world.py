"""A small world whose verdicts hang on clients of unknown country and on requests that state nothing."""

from __future__ import annotations

from dataclasses import replace

from gtm.core.decision.ranking import rank
from gtm.core.decision.view import View, Window, view_of
from gtm.core.model.policy import (
    Match,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Places,
    Policy,
    ResidencyRule,
    Tenant,
)
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Member, RefusalAddress, Service, Zone
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.simulate.world import World

DE = Region("de", 50.1, 8.7, "DE", (Endpoint("https://de.test", ("192.0.2.1",)),))
US = Region("us", 39.0, -77.5, "US", (Endpoint("https://us.test", ("192.0.2.2",)),))
POLICY = Policy(
    regions=(DE, US),
    services=(
        Service(
            "chat",
            (Member("de"), Member("us")),
            hostnames=("chat.test",),
            zone="test",
            refusal=RefusalAddress(("192.0.2.9",)),
        ),
    ),
    tenants=(Tenant("bank"), Tenant("shop")),
    zones=(Zone("test", "ns.test", "hostmaster.test"),),
)
GERMANS = ResidencyRule("germans", Match(client_countries=("DE",)), allow=Places(regions=("de",)))
TRUSTING = replace(GERMANS, on_doubtful_location=OnDoubtfulLocation.TRUST)
BANK = ResidencyRule(
    "bank", Match(tenants=("bank",), client_countries=("FR",)), allow=Places(regions=("de",))
)
UNSURE = (
    Request("chat", Location(None), tenant="shop"),
    Request("chat", Location("FR", source="override")),
)
"""The first says nothing of where it is from, the second nothing of its tenant."""


def _ruled(*rules: ResidencyRule) -> Snapshot:
    return compile_policy(replace(POLICY, residency_rules=rules), ())


def _view(snapshot: Snapshot) -> View:
    up = {"us": {"https://us.test": EndpointHealth(HealthStatus.UP)}}
    return view_of(snapshot, State(1, health=up), Window(0.0, 0.0))


FREE = _ruled()
RULED = _ruled(GERMANS, BANK)
CONTRADICTORY = _ruled(
    GERMANS,
    BANK,
    replace(GERMANS, name="not-de", allow=Places(), deny=Places(regions=("de",))),
    replace(BANK, name="bank-not-de", allow=Places(), deny=Places(regions=("de",))),
)
ALIKE = _ruled(
    replace(TRUSTING, name="located", on_unknown_location=OnUnknownLocation.IGNORE),
    TRUSTING,
)
"""Told apart by clients of unknown country alone."""
STATES = tuple(World(_view(snapshot), {}) for snapshot in (FREE, RULED))


def allowed(request: Request) -> int:
    """The fence of a request, as its ranking has it."""
    return rank(_view(RULED).basis, request, {}).within.allowed
