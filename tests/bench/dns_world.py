"""The worlds that the DNS benchmarks ask about, and which addresses each client network gets in them.

`demo` is the demo policy. `large` has 1,000 services of ten families (members and residency rules), and a plan that
splits every ranking class between its first two regions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench_view import current_view

from gtm.core.decision.router import Router
from gtm.core.model.policy import Match, Places, Policy, ResidencyRule
from gtm.core.model.requests import Location, Request
from gtm.core.model.state import ClassPlan, EndpointHealth, HealthStatus, Plan, State
from gtm.demo.policy import demo_policy
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import SnapshotMessage, StateMessage
from gtm.geoip.networks import locate_network
from gtm.geoip.reader import Locator

ZONE = "demo.test"
SERVICES = 1_000
PLANNED_SHARE = 0.9
"""Of a class's first region, where a plan splits it."""

_EVERYWHERE = ("eu-central", "eu-west", "us-east", "us-west", "ap-southeast", "ap-northeast", "sa-east")
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (_EVERYWHERE, ()),
    (_EVERYWHERE, (("EEA", "EEA"),)),
    (("eu-central", "eu-west", "us-east", "us-west"), (("EEA", "EEA"),)),
    (("us-east", "us-west", "ap-southeast", "ap-northeast"), (("US", "US"),)),
    (_EVERYWHERE, (("US", "US"),)),
    (("eu-central", "eu-west", "us-east", "us-west", "sa-east"), (("EEA", "EEA"), ("US", "US"))),
    (("us-west", "ap-southeast", "ap-northeast"), (("JP", "JP"),)),
    (("eu-central", "us-east", "ap-southeast"), ()),
    (("eu-west", "us-west", "ap-northeast", "sa-east"), (("BR", "BR"),)),
    (_EVERYWHERE, (("EEA", "EEA"), ("US", "US"), ("JP", "JP"))),
)
"""Members of a family's services, and its rules: clients in the first place are served in the second."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What every client network gets, for peers to be configured with.

    `cells` gives each network, a /24 as a number, the set of clients that it belongs to; `families` the families'
    names; `by_cell` for each family and cell the addresses with their weights in percent; `hostnames` the family of
    each host name. `classes` is the number of ranking classes over the families.
    """

    cells: dict[int, int]
    families: tuple[str, ...]
    by_cell: dict[tuple[str, int], tuple[tuple[str, int], ...]]
    hostnames: dict[str, str]
    ttl: int
    classes: int


def networks(count: int, generator: random.Random) -> list[int]:
    """So many different /24 networks outside private and loopback space, as the first three octets of each."""
    found: dict[int, None] = {}
    while len(found) < count:
        first = generator.randrange(1, 224)
        if first not in (10, 127):
            found[first << 16 | generator.getrandbits(16)] = None
    return list(found)


def world(name: str) -> CurrentView:
    """A current View of the world named."""
    return current_view() if name == "demo" else _large()


def hostnames(name: str) -> list[str]:
    """The host names asked for in a world."""
    return [f"chat.{ZONE}"] if name == "demo" else [f"s{number:04d}.{ZONE}" for number in range(SERVICES)]


def _large() -> CurrentView:
    made = CurrentView(time.time)
    policy = _large_policy()
    made.apply(SnapshotMessage.of(1, time.time(), policy, shipped_jurisdictions()))
    health = {
        region.name: {endpoint.url: EndpointHealth(HealthStatus.UP) for endpoint in region.endpoints}
        for region in policy.regions
    }
    made.apply(StateMessage(State(1, "", health)))
    return made


def _large_policy() -> Policy:
    demo = demo_policy()
    model = next(service for service in demo.services if service.name == "chat")
    members = {member.region: member for member in model.members}
    services = tuple(
        replace(
            model,
            name=name.partition(".")[0],
            hostnames=(name,),
            members=tuple(members[region] for region in _FAMILIES[number % len(_FAMILIES)][0]),
        )
        for number, name in enumerate(hostnames("large"))
    )
    rules = tuple(
        ResidencyRule(
            f"family-{family}-{place.lower()}",
            Match(
                services=tuple(item.name for item in services[family :: len(_FAMILIES)]),
                client_jurisdictions=(place,),
            ),
            allow=Places(jurisdictions=(allowed,)),
            legal_basis="benchmark",
            acknowledge_empty_fence=True,
        )
        for family, (_, pairs) in enumerate(_FAMILIES)
        for place, allowed in pairs
    )
    return replace(demo, services=services, residency_rules=rules, spillover_rules=())


def locations(nets: Sequence[int]) -> list[Location]:
    """Where client subnets of these networks are, as the name server finds it."""
    locate = Locator().locate
    return [locate_network(net.to_bytes(3) + b"\0", 24, locate) for net in nets]


def classes_of(router: Router, services: Sequence[str], places: Sequence[Location]) -> list[list[str]]:
    """The key of each service's ranking class at each place."""
    ranker = router.ranker
    ranked_by = [ranker.seen(place) for place in places]
    first = dict(zip(reversed(ranked_by), reversed(places), strict=True))
    found = []
    for service in services:
        keys = {key: ranker.ranking(Request(service, place)).group.key for key, place in first.items()}
        found.append([keys[key] for key in ranked_by])
    return found


def plan_of(name: str, nets: Sequence[int], share: float = PLANNED_SHARE, made: float = 1.0) -> Plan:
    """A plan that splits every class of the world's services at these networks: `share` to its first region."""
    router = world(name).router
    assert router is not None
    names = [host.partition(".")[0] for host in hostnames(name)]
    plans: dict[str, ClassPlan] = {}
    for family, keys in enumerate(classes_of(router, names[: len(_FAMILIES)], locations(nets))):
        for key in set(keys):
            service, rest = key.split("|", 1)
            assert service == names[family]
            first, *others = key.split("|")[2].split(">")
            if not first:
                continue
            weights = {first: share, others[0]: 1 - share} if others else {first: 1.0}
            for other in names[family :: len(_FAMILIES)]:
                plans[f"{other}|{rest}"] = ClassPlan(weights)
    return Plan(made, plans)


def answers_of(name: str, nets: Sequence[int]) -> Answers:
    """What every network gets in a world, for the peers' configuration."""
    router = world(name).router
    assert router is not None
    names = hostnames(name)
    policy = router.view.snapshot.policy
    address = {region.name: region.endpoints[0].ipv4[0] for region in policy.regions}
    families = tuple(f"f{number}" for number in range(min(len(_FAMILIES), len(names))))
    labels = [host.partition(".")[0] for host in names[: len(families)]]
    rows = list(zip(*classes_of(router, labels, locations(nets)), strict=True))
    numbers: dict[tuple[str, ...], int] = {}
    cells = {net: numbers.setdefault(row, len(numbers)) for net, row in zip(nets, rows, strict=True)}
    refusal = next(item for item in policy.services if item.name == labels[0]).refusal
    by_cell = {}
    for row, cell in numbers.items():
        for family, key in zip(families, row, strict=True):
            regions = [region for region in key.split("|")[2].split(">") if region]
            if not regions:
                by_cell[family, cell] = ((refusal.ipv4[0] if refusal else "192.0.2.250", 100),)
            elif name == "demo" or len(regions) == 1:
                by_cell[family, cell] = ((address[regions[0]], 100),)
            else:
                share = round(100 * PLANNED_SHARE)
                by_cell[family, cell] = ((address[regions[0]], share), (address[regions[1]], 100 - share))
    return Answers(
        cells,
        families,
        by_cell,
        {host: families[number % len(families)] for number, host in enumerate(names)},
        policy.services[0].ttl,
        len({(family, row[number]) for row in rows for number, family in enumerate(families)}),
    )
