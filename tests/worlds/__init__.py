"""The world that most tests need: a few regions, services over them, laws about them, and what of it is up.

Builders give values of `gtm.core.model`, with changes as keywords; `document` gives such a value as the API takes it.
Names in a row are one text: `regions("de ie us")`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from gtm.core.decision.view import View, Window, view_of
from gtm.core.model.kinds import KINDS, Resource
from gtm.core.model.policy import Jurisdiction, Match, Places, Policy, ResidencyRule, Term
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import Member, RefusalAddress, Service
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.edges import EdgePlace
from gtm.documents.schema import concise_policy

SHIPPED = (
    Jurisdiction("EU", "European Union", ("DE", "FR", "IE")),
    Jurisdiction("EEA", "European Economic Area", ("EU", "NO")),
    Jurisdiction("UK", "United Kingdom", ("GB",)),
    Jurisdiction("NOWHERE", "A treaty that nobody has signed"),
    Jurisdiction(
        "ADEQUATE",
        "Decisions that begin and lapse",
        ("EEA", "GB", "BR"),
        terms=(
            Term("GB", effective_until=datetime.fromtimestamp(300, UTC)),
            Term("BR", datetime.fromtimestamp(200, UTC), datetime.fromtimestamp(400, UTC)),
            Term("BR", datetime.fromtimestamp(500, UTC)),
        ),
    ),
)
"""Jurisdictions to compile against, in place of those that come with gtm."""
PLACES = {
    name: place
    for names, place in (
        ("de fra eu-central", (50.1109, 8.6821, "DE")),
        ("us iad us-east", (39.0438, -77.4874, "US")),
        ("ie dub eu-west", (53.3498, -6.2603, "IE")),
        ("fr", (48.9, 2.4, "FR")),
        ("gb", (51.5, -0.1, "GB")),
        ("jp", (35.7, 139.7, "JP")),
    )
    for name in names.split()
}
"""Where regions are, by their usual names: latitude, longitude and country (ISO 3166-1 alpha-2)."""
THREE = "eu-central eu-west us-east"
"""The usual names, where a test does not need short ones."""
_KINDS = {core: kind for kind, core in KINDS.items()}
_NUMBERS = {
    country: number for number, country in enumerate(dict.fromkeys(at[2] for at in PLACES.values()), 1)
}
_WHOM = [field.name for field in fields(Match)]


def region(name: str, *endpoints: Endpoint, at: str = "", **changes: Any) -> Region:
    """A region where its name says, or where `at` is; it has one endpoint unless others are given."""
    lat, lon, country = PLACES[at or name]
    usual = Endpoint(f"https://{name}.test", (f"192.0.2.{_NUMBERS[country]}",))
    return replace(Region(name, lat, lon, country, endpoints or (usual,)), **changes)


def regions(names: str, **changes: Any) -> tuple[Region, ...]:
    """Several regions, all with the same changes."""
    return tuple(region(name, **changes) for name in names.split())


def service(name: str, members: str, /, **changes: Any) -> Service:
    """A service of these regions. With `hostnames` it has a refusal address, and the zone above the first of them."""
    made = Service(name, tuple(map(Member, members.split())))
    if hosts := changes.get("hostnames"):
        zone = str(hosts[0]).partition(".")[2]
        made = replace(made, zone=zone, refusal=RefusalAddress(("192.0.2.9",)))
    return replace(made, **changes)


def places(names: str) -> Places:
    """Jurisdictions, which are in capitals, and regions."""
    found = names.split()
    return Places(
        tuple(name for name in found if name.isupper()), tuple(name for name in found if not name.isupper())
    )


def rule(name: str, allow: str = "", *, deny: str = "", **changes: Any) -> ResidencyRule:
    """A residency rule; the fields of its `match` are keywords, too: `rule("gdpr", "EEA", services="chat")`."""
    match = Match(**{key: tuple(changes.pop(key).split()) for key in _WHOM if key in changes})
    return replace(ResidencyRule(name, match, places(allow), places(deny)), **changes)


def policy(*parts: Resource) -> Policy:
    """A policy of these regions, services, rules and so on."""
    found: dict[str, Any] = dict.fromkeys(KINDS, ())
    for part in parts:
        found[_KINDS[type(part)]] += (part,)
    return Policy(**found)


def changed(before: Policy, kind: str, name: str, **changes: Any) -> Policy:
    """The policy with one of its resources changed."""
    known = getattr(before, kind)
    assert name in {one.name for one in known}, name
    found: Any = {kind: tuple(replace(one, **changes) if one.name == name else one for one in known)}
    return replace(before, **found)


def health(
    known: Iterable[Region], down: Iterable[str] = (), recovered: Iterable[str] = (), *, since: float = 0.0
) -> dict[str, dict[str, EndpointHealth]]:
    """All endpoints up, but for those that are named in `down`, or whose region is."""
    gone, back = set(down), set(recovered)
    return {
        one.name: {
            end.url: EndpointHealth(
                HealthStatus.DOWN if gone & {one.name, end.url} else HealthStatus.UP,
                since,
                recovered=one.name in back,
            )
            for end in one.endpoints
        }
        for one in known
    }


def view(
    law: Policy,
    state: State | None = None,
    now: float = 0.0,
    latest: float | None = None,
    *,
    shipped: tuple[Jurisdiction, ...] = SHIPPED,
    edge: EdgePlace | None = None,
) -> View:
    """The View of a policy between two moments, which are one unless `latest` is given; all is up unless a state is given."""
    snapshot = compile_policy(law, shipped, revision=7)
    window = Window(now, now if latest is None else latest)
    state = State(1, health=health(law.regions)) if state is None else state
    return view_of(snapshot, state, window, edge=edge)


def document(value: Resource) -> dict[str, Any]:
    """A value as the API takes it: without its name, which is in the path, and without what is the default anyway."""
    (found,) = concise_policy(policy(value))[_KINDS[type(value)]]
    del found["name"]
    return found
