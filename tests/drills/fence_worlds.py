"""Random worlds for the drill of the fence: policies, addresses, clients and clocks, by plain `random`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import Random

import yaml

from gtm.core.model.policy import (
    DataClass,
    Jurisdiction,
    Match,
    OnAnonymous,
    OnDoubtfulLocation,
    OnUnknownLocation,
    Policy,
    ResidencyRule,
    RuleMode,
    Tenant,
    Term,
)
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import Member, OnUnusable, Service, Steering
from tests.core.reference import Atlas
from tests.core.strategies import COUNTRIES, DATA_CLASSES, OPERATORS, PLACES, SHIPPED, TENANTS, places_of
from tests.geoip.databases import write_mmdb

SPACE = IPv4Network("10.0.0.0/21")
"""Where all clients are."""
DAY = 100.0
"""Rules begin and end at few moments, so that clocks often meet them."""


def _some(rng: Random, values: tuple[str, ...], most: int = 2, none: float = 0.5) -> tuple[str, ...]:
    """None of the values, or a few."""
    return () if rng.random() < none else tuple(rng.sample(values, rng.randint(1, most)))


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _span(rng: Random) -> tuple[datetime | None, datetime | None]:
    """When something begins and ends."""
    first, second = sorted(rng.sample(range(1, 9), 2))
    begin, end = _moment(first * DAY), _moment(second * DAY)
    return rng.choice([(None, None), (None, None), (begin, None), (None, end), (begin, end)])


def _rule(rng: Random, name: str, regions: tuple[str, ...], services: tuple[str, ...]) -> ResidencyRule:
    dealt = rng.sample((*PLACES, *regions), rng.randint(2, 5))
    run = rng.choice([(), (), (), ("US",), ("EU", "ADEQUATE"), ("GB", "EEA")])
    allow, deny = rng.choice([(dealt, []), (dealt, []), ([], dealt), (dealt[::2], dealt[1::2])])
    begin, end = _span(rng)
    return ResidencyRule(
        name,
        Match(
            services=_some(rng, services, 1),
            client_countries=_some(rng, COUNTRIES),
            client_jurisdictions=_some(rng, PLACES),
            tenants=_some(rng, TENANTS, none=0.7),
            data_classes=_some(rng, DATA_CLASSES, none=0.7),
            tenant_jurisdictions=_some(rng, PLACES, none=0.8),
        ),
        places_of(allow, run[::2] if allow else ()),
        places_of(deny, run[1::2] if allow else run),
        mode=rng.choice([RuleMode.ENFORCE] * 4 + [RuleMode.MONITOR]),
        on_unknown_location=rng.choice(list(OnUnknownLocation)),
        on_anonymous=rng.choice(list(OnAnonymous)),
        on_doubtful_location=rng.choice(list(OnDoubtfulLocation)),
        max_accuracy_km=rng.choice([None, None, 100.0]),
        effective_from=begin,
        effective_until=end,
        max_policy_age=rng.choice([None, None, None, DAY, 2 * DAY]),
        acknowledge_empty_fence=True,
    )


def random_policy(rng: Random) -> Policy:
    """A policy that compiles against `SHIPPED`."""
    regions = tuple(
        Region(
            f"r{number}",
            rng.uniform(-60, 60),
            rng.uniform(-180, 180),
            rng.choice(COUNTRIES),
            (Endpoint(f"https://r{number}.test"),),
            operator_country=rng.choice((None, "US", "DE", *COUNTRIES)),
        )
        for number in range(rng.randint(2, 7))
    )
    names = tuple(region.name for region in regions)
    services = tuple(
        Service(
            f"s{number}",
            tuple(Member(name) for name in rng.sample(names, rng.randint(1, len(names)))),
            steering=rng.choice(list(Steering)),
            on_unusable=rng.choice(list(OnUnusable)),
        )
        for number in range(rng.randint(1, 3))
    )
    services += (replace(services[0], name="twin"),)  # of its family, unless rules name one of them
    offered = tuple(service.name for service in services)
    own = (*OPERATORS, _dated(rng))
    return Policy(
        regions=regions,
        services=services,
        residency_rules=tuple(_rule(rng, f"rule{n}", names, offered) for n in range(rng.randint(1, 4))),
        jurisdictions=own,
        tenants=tuple(Tenant(name, country=rng.choice((None, *COUNTRIES))) for name in TENANTS),
        data_classes=tuple(DataClass(name) for name in DATA_CLASSES),
    )


def _dated(rng: Random) -> Jurisdiction:
    """A jurisdiction of the operator's whose memberships begin and end."""
    members = tuple(rng.sample((*COUNTRIES, "EU", "ADEQUATE"), 3))
    return Jurisdiction("OWN", "", members, terms=tuple(Term(member, *_span(rng)) for member in members[:2]))


def random_atlas(rng: Random) -> Atlas:
    """What is said of the addresses in `SPACE`: coarse, or in some worlds so fine that it is too much to look at."""
    places: dict[IPv4Network, tuple[str, float | None]] = {}
    todo = list(SPACE.subnets(new_prefix=24))
    finest = rng.choice([27, 29, 32])
    while todo:
        network = todo.pop()
        if network.prefixlen < finest and rng.random() < 0.45:
            todo += network.subnets()
        elif rng.random() < 0.85:
            places[network] = rng.choice((*COUNTRIES, "JP")), rng.choice([None, 20.0, 20.0, 500.0])
    if rng.random() < 0.08:
        dense = IPv4Network((int(SPACE.network_address) + (rng.randrange(6) << 8), 23), strict=False)
        places = {network: said for network, said in places.items() if not network.overlaps(dense)}
        skip = rng.random() < 0.5  # 255 or fewer networks in a /24 and 256 beside, or all of them
        for number, network in enumerate(dense.subnets(new_prefix=32)):
            if not skip or number > 1:
                places[network] = ("US", "JP")[number % 2], 20.0
    hidden = tuple(_network(rng) for _ in range(rng.choice([0, 1, 3])))
    overrides = {_network(rng): rng.choice(COUNTRIES) for _ in range(rng.choice([0, 1, 4]))}
    return Atlas(places, tuple(net for net in hidden if not _inside(net, hidden)), overrides)


def write_atlas(atlas: Atlas, directory: Path) -> tuple[Path, Path, Path | None]:
    """An edge's files: places, anonymising networks, and what the operator says, if anything. The databases are never empty, for such are refused."""
    records = {
        str(network): {
            "country": {"iso_code": country},
            "location": {} if accuracy is None else {"accuracy_radius": accuracy},
        }
        for network, (country, accuracy) in atlas.places.items()
    }
    nowhere = {"192.0.2.0/24": {"country": {"iso_code": "AQ"}}}
    database = write_mmdb(directory / "places.mmdb", {**nowhere, **records})
    hidden = {str(network): {"is_anonymous": True} for network in atlas.hidden}
    anonymous = write_mmdb(directory / "hidden.mmdb", {"192.0.2.0/24": {"is_anonymous": True}, **hidden})
    overrides = directory / "overrides.yaml"
    said = [{"network": str(network), "country": country} for network, country in atlas.overrides.items()]
    overrides.write_text(yaml.safe_dump({"overrides": said}))
    return database, anonymous, overrides if said else None


def _inside(network: IPv4Network, others: tuple[IPv4Network, ...]) -> bool:
    return any(network != other and network.subnet_of(other) for other in others)


def _network(rng: Random) -> IPv4Network:
    """A network of any size somewhere in `SPACE`."""
    return IPv4Network((_address(rng), rng.choice([23, 24, 25, 26, 27, 28, 30, 31, 32])), strict=False)


def _address(rng: Random) -> int:
    return int(SPACE.network_address) + rng.randrange(SPACE.num_addresses)


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: an address, or a subnet as a resolver states it, in IPv6 as IPv4-mapped (RFC 4291 §2.5.5.2) or not."""

    subnet: IPv4Network
    mapped: bool = False

    def __str__(self) -> str:
        return f"{'::ffff:' if self.mapped else ''}{self.subnet}"


def random_clients(rng: Random, atlas: Atlas, count: int) -> list[Client]:
    """Addresses and subnets, many at the edges of what is said."""
    edges = [int(network.network_address) for network in (*atlas.places, *atlas.hidden, *atlas.overrides)]
    found = []
    for _ in range(count):
        at = rng.choice(edges) + rng.choice([-1, 0, 0, 1]) if edges and rng.random() < 0.6 else _address(rng)
        at = min(max(at, int(SPACE.network_address)), int(SPACE.broadcast_address))
        length = rng.choice([32, 32, 31, 30, 28, 26, 25, 24, 24, 24, 23, 22, 21])
        found.append(Client(IPv4Network((IPv4Address(at), length), strict=False), rng.random() < 0.1))
    return found


__all__ = ["DAY", "SHIPPED", "Client", "random_atlas", "random_clients", "random_policy", "write_atlas"]
