"""A small world, and an edge that answers for it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Any

import httpx

from gtm.core.decision.options import Afford
from gtm.core.handoff.keys import OwnKey, PublicKey, PublicKeys, key_text
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.policy import DataClass, Policy, RuleMode, Tenant
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import Affinity, Steering, Zone
from gtm.core.model.state import State
from gtm.core.policy.edges import EdgePlace
from gtm.core.quota.earned import Earn
from gtm.feed.current import CurrentView
from gtm.feed.wire import AccessMessage, HandoffKeysMessage, SnapshotMessage, StateMessage
from gtm.handoff.jwt import made
from gtm.http.answers.corrections import Corrections
from gtm.http.answers.routes import EdgeHandoffs, Locate
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.telemetry import Counts
from tests import worlds

NOW = 1_800_000_000.0
TOKENS = {role: f"gtm_{role.value}_secret" for role in Role}

ALL_UP = tuple(worlds.THREE.split())
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
        worlds.region(
            name,
            *(Endpoint(f"http://{name}-{n}.test:9000/base", (f"192.0.2.{n}",)) for n in range(1, count + 1)),
            models=("llama",) if name == "us-east" else (),
        )
        for name, count in zip(ALL_UP, (2, 1, 1), strict=True)
    )


def policy() -> Policy:
    """Services that are fenced, free, weighted and sticky."""
    split = "eu-central us-east"
    gdpr = {"services": "chat", "client_countries": "DE FR", "legal_basis": "GDPR Art. 44"}
    return worlds.policy(
        *regions(),
        Zone("demo.test", "ns.demo.test", "hostmaster.demo.test"),
        worlds.service("chat", worlds.THREE, hostnames=("chat.demo.test",)),
        worlds.service("web", worlds.THREE, hostnames=("web.demo.test",)),
        worlds.service("split", split, steering=Steering.WEIGHTED),
        worlds.service("sticky", split, steering=Steering.WEIGHTED, affinity=Affinity.KEY),
        worlds.service("records", worlds.THREE),
        worlds.service("nowhere", "us-east"),
        worlds.rule("gdpr", "DE IE", **gdpr),
        worlds.rule("clinic", "DE", services="records", tenants="clinic"),
        worlds.rule("watch", "DE", services="web", mode=RuleMode.MONITOR),
        worlds.rule("ban", "DE", services="nowhere", acknowledge_empty_fence=True),
        *(Tenant("clinic"), Tenant("shop"), DataClass("health")),
    )


def health(up: Iterable[str], known: Iterable[Region] | None = None) -> State:
    """A state in which the regions named are up and the others down."""
    return State(epoch=1, health=worlds.health(known or regions(), {*ALL_UP} - {*up}, since=1.0))


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
        self.handoffs = EdgeHandoffs(self.current)
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
        self.stop: Callable[[], None] = lambda: None

    def sign(self, key: OwnKey | None = None) -> str:
        """Give it a key that is published, by which it signs as `fra-1`; the public part."""
        key = key or made()
        text = key_text(key.public)
        self.handoffs.use("fra-1", key, (text,))
        self.current.apply(HandoffKeysMessage(PublicKeys((PublicKey("fra-1", text),), 1)))
        return text

    def load(
        self, up: Iterable[str] = ALL_UP, change: Callable[[Policy], Policy] = lambda same: same
    ) -> None:
        """Give it the policy (changed), a state, and tokens of each role (a balancer's is for eu-central), and one that has expired."""
        law = change(policy())
        self.current.apply(SnapshotMessage.of(7, NOW, law, ()))
        known = [one for one in law.regions if one.name in ALL_UP]  # of others nothing is known
        self.current.apply(StateMessage(health(up, known)))
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
