"""A small world, and an edge that answers for it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Any

import httpx

from gtm.core.decision.options import Afford
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.policy import DataClass, Match, Places, Policy, ResidencyRule, RuleMode, Tenant
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import Affinity, Member, RefusalAddress, Service, Steering, Zone
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.edges import EdgePlace
from gtm.core.quota.earned import Earn
from gtm.feed.current import CurrentView
from gtm.feed.wire import AccessMessage, SnapshotMessage, StateMessage
from gtm.http.answers.corrections import Corrections
from gtm.http.answers.handoffs import Handoffs
from gtm.http.answers.routes import Locate
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.telemetry import Counts

NOW = 1_800_000_000.0
TOKENS = {role: f"gtm_{role.value}_secret" for role in Role}

_PLACES = (
    ("eu-central", 50.1, 8.7, "DE", 2),
    ("eu-west", 53.3, -6.2, "IE", 1),
    ("us-east", 39.0, -77.5, "US", 1),
)
NETWORKS = {
    ip_network("81.2.69.0/24"): Location("DE", None, "EU", 52.5, 13.4, 3320, "81.2.69.0/24", 24, "geoip"),
    ip_network("127.0.0.0/8"): Location("US", None, "NA", 40.7, -74.0, None, "127.0.0.0/8", 8, "override"),
    ip_network("198.51.100.0/24"): Location(
        "US", None, "NA", 34.0, -118.2, None, "198.51.100.0/24", 24, "geoip"
    ),
    ip_network("2001:db8::/32"): Location("FR", None, "EU", 48.8, 2.3, None, "2001:db8::/32", 32, "geoip"),
}


def locate(packed: bytes) -> Location:
    """Where the test world's clients are."""
    address = ip_address(packed)
    return next((place for network, place in NETWORKS.items() if address in network), UNKNOWN_LOCATION)


def regions() -> tuple[Region, ...]:
    """Three regions, of which the first has two endpoints."""
    return tuple(
        Region(
            name,
            lat,
            lon,
            country,
            tuple(
                Endpoint(f"http://{name}-{n}.test:9000/base", (f"192.0.2.{n}",)) for n in range(1, count + 1)
            ),
            models=("llama",) if country == "US" else (),
        )
        for name, lat, lon, country, count in _PLACES
    )


def policy() -> Policy:
    """Services that are fenced, free, weighted and sticky."""
    everywhere = tuple(Member(name) for name, *_ in _PLACES)
    split = (Member("eu-central", 1.0), Member("us-east", 1.0))
    refusal = RefusalAddress(("192.0.2.99",))
    return Policy(
        regions=regions(),
        zones=(Zone("demo.test", "ns.demo.test", "hostmaster.demo.test"),),
        services=(
            Service("chat", everywhere, hostnames=("chat.demo.test",), zone="demo.test", refusal=refusal),
            Service("web", everywhere, hostnames=("web.demo.test",), zone="demo.test", refusal=refusal),
            Service("split", split, steering=Steering.WEIGHTED),
            Service("sticky", split, steering=Steering.WEIGHTED, affinity=Affinity.KEY),
            Service("records", everywhere),
            Service("nowhere", (Member("us-east"),)),
        ),
        residency_rules=(
            ResidencyRule(
                "gdpr",
                Match(services=("chat",), client_countries=("DE", "FR")),
                Places(jurisdictions=("DE", "IE")),
                legal_basis="GDPR Art. 44",
            ),
            ResidencyRule(
                "clinic", Match(services=("records",), tenants=("clinic",)), Places(jurisdictions=("DE",))
            ),
            ResidencyRule(
                "watch",
                Match(services=("web",)),
                Places(jurisdictions=("DE",)),
                mode=RuleMode.MONITOR,
            ),
            ResidencyRule(
                "ban",
                Match(services=("nowhere",)),
                Places(jurisdictions=("DE",)),
                acknowledge_empty_fence=True,
            ),
        ),
        tenants=(Tenant("clinic"), Tenant("shop")),
        data_classes=(DataClass("health"),),
    )


def health(up: Iterable[str]) -> State:
    """A state in which the regions named are up and the others down."""
    names = set(up)
    table = {
        region.name: {
            endpoint.url: EndpointHealth(HealthStatus.UP if region.name in names else HealthStatus.DOWN, 1.0)
            for endpoint in region.endpoints
        }
        for region in regions()
    }
    return State(epoch=1, health=table)


ALL_UP = tuple(name for name, *_ in _PLACES)


class Edge:
    """An edge's HTTP tier, with or without a server in front of it.

    Args:
        options: how it behaves.
        place: where it stands.
        boot: its clock, by which reports of free slots age.
        siblings: how many HTTP processes it has.
        afford: asked before a spillover quota is used.
        earn: keeps what requests earn of shares.
        find: where an address is.

    `draw` is what requests are drawn by, uniform in [0, 1).
    """

    def __init__(
        self,
        options: EdgeOptions,
        place: EdgePlace | None = None,
        *,
        boot: Callable[[], float] = time.monotonic,
        siblings: int = 1,
        afford: Afford | None = None,
        earn: Earn | None = None,
        find: Locate = locate,
    ) -> None:
        self.current = CurrentView(lambda: NOW, edge=place, boot=boot)
        self.counts = Counts()
        self.draw: Callable[[], float] = random.random
        self.silent: tuple[str, ...] = ()
        self.handoffs = Handoffs(
            lambda: self.current.window, lambda: (key.x for key in self.current.handoff_keys.keys)
        )
        self.app = EdgeApp(
            self.current,
            find,
            options,
            self.counts,
            lambda: "# HELP gtm_test A test.\n",
            silent=lambda: self.silent,
            clock=lambda: NOW,
            draw=lambda: self.draw(),  # noqa: PLW0108 - a test gives another later
            handoffs=self.handoffs,
            afford=afford,
            earn=earn,
            corrections=Corrections(
                self.current, self.counts, name="edge-1", siblings=siblings, afford=afford
            ),
        )
        self.port = 0

    def load(
        self, up: Iterable[str] = ALL_UP, change: Callable[[Policy], Policy] = lambda same: same
    ) -> None:
        """Give it the policy (changed), a state, and tokens of each role (a balancer's is for eu-central), and one that has expired."""
        self.current.apply(SnapshotMessage.of(7, NOW, change(policy()), ()))
        self.current.apply(StateMessage(health(up)))
        bound = {Role.BALANCER: "eu-central"}
        grants = [
            TokenGrant(sha256(text.encode()).hexdigest(), role, regions=bound.get(role))
            for role, text in TOKENS.items()
        ]
        grants.append(TokenGrant(sha256(b"gtm_old_secret").hexdigest(), Role.ADMIN, NOW - 1))
        self.current.apply(AccessMessage(Access(tuple(grants))))

    def client(self, **options: Any) -> httpx.Client:
        """A client of the running server; it follows no redirects."""
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=20, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """One GET on a connection of its own."""
        with self.client() as client:
            return client.get(path, **options)

    def route(self, **parameters: str) -> httpx.Response:
        """One look-up."""
        return self.get("/v1/route", params=parameters)

    def raw(self, request: bytes) -> bytes:
        """Send bytes, and read until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
            return received


def replace_service(name: str, **changes: Any) -> Callable[[Policy], Policy]:
    """A change of one service of a policy."""

    def change(before: Policy) -> Policy:
        return replace(
            before,
            services=tuple(replace(s, **changes) if s.name == name else s for s in before.services),
        )

    return change
