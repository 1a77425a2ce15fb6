"""A small world whose verdicts hang on clients of unknown country and on requests that state nothing."""

from __future__ import annotations

from dataclasses import replace

from gtm.core.decision.ranking import classes_of, rank
from gtm.core.decision.view import View, Window, view_of
from gtm.core.model.policy import OnDoubtfulLocation, OnUnknownLocation, ResidencyRule, Tenant
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Zone
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.simulate.scenario import SimulatedWorld
from tests import worlds

POLICY = worlds.policy(
    *worlds.regions("de us"),
    worlds.service("chat", "de us", hostnames=("chat.test",)),
    *(Tenant("bank"), Tenant("shop")),
    Zone("test", "ns.test", "hostmaster.test"),
)
GERMANS = worlds.rule("germans", "de", client_countries="DE")
TRUSTING = replace(GERMANS, on_doubtful_location=OnDoubtfulLocation.TRUST)
BANK = worlds.rule("bank", "de", tenants="bank", client_countries="FR")
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
    worlds.rule("not-de", deny="de", client_countries="DE"),
    worlds.rule("bank-not-de", deny="de", tenants="bank", client_countries="FR"),
)
ALIKE = _ruled(
    replace(TRUSTING, name="located", on_unknown_location=OnUnknownLocation.IGNORE),
    TRUSTING,
)
"""Told apart by clients of unknown country alone."""
STATES = tuple(SimulatedWorld(_view(snapshot), {}) for snapshot in (FREE, RULED))


def allowed(request: Request) -> int:
    """The fence of a request, as its ranking has it."""
    return rank(_view(RULED).basis, request, classes_of(_view(RULED).basis.snapshot)).within.allowed
