"""What an edge remembers: at any moment a request is answered as an edge answers it that begins now.

Remembered are rankings and ways to end, look-ups, redirects, requests that are carried, proxies' questions, host names and queries. The
other edge has none of it, and is given what holds now: policy, health, round trips, keys, tokens, where addresses are, and the time.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_network
from random import Random
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.latency.table import LatencyTable
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.cors import Cors
from gtm.core.model.policy import Policy
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import Handoff, HostName, HttpAnswer, Steering
from gtm.core.policy.edges import EdgePlace
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    HandoffKeysMessage,
    LatencyMessage,
    Message,
    SnapshotMessage,
    StateMessage,
)
from gtm.handoff.jwt import made
from gtm.http.answers.routes import SPREAD, CarriedRequest, EdgeHandoffs
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.http.problems import Response
from gtm.http.requests.incoming import Incoming
from gtm.telemetry import Counts
from tests.core.strategies import quick
from tests.http.world import ALL_UP, NOW, health, policy

BERLIN, BOSTON, PROXY, STRANGER = "81.2.69.7", "198.51.100.7", "10.0.0.1", "203.0.113.9"
KEY = made()
TOKEN = "gtm_00_secret"
ASKS = TokenGrant(sha256(TOKEN.encode()).hexdigest(), Role.VIEWER)
PLACE = EdgePlace("DE", "DE")
OPTIONS = EdgeOptions(trusted_proxies=(ip_network("10.0.0.0/8"),))


def _with(name: str, **changed: Any) -> Policy:
    """The policy with a service that is otherwise."""
    law = policy()
    services = tuple(replace(one, **changed) if one.name == name else one for one in law.services)
    return replace(law, services=services)


def _until(moment: float) -> Policy:
    """The policy whose fences end then."""
    law = policy()
    return replace(
        law,
        residency_rules=tuple(
            replace(one, effective_until=datetime.fromtimestamp(moment, UTC)) for one in law.residency_rules
        ),
    )


_CHAT = next(one for one in policy().services if one.name == "chat")
LAW = _with(
    "records",
    hostnames=("records.demo.test", HostName("clinic.demo.test", tenant="clinic")),
    zone=_CHAT.zone,
    refusal=_CHAT.refusal,
)
LAWS = (
    LAW,
    replace(LAW, residency_rules=()),
    _until(NOW + 20.0),
    _with("web", steering=Steering.WEIGHTED),
    _with("web", handoff=Handoff.SIGN),
    _with("web", cors=Cors(("https://a.test",))),
    _with("chat", answer=HttpAnswer.CARRY, handoff=Handoff.SIGN),
    _with("web", hostnames=()),
    replace(LAW, tenants=LAW.tenants[:1], data_classes=()),
)
TABLES = (
    LatencyTable(),
    LatencyTable(1, countries={"DE": {"us-east": (-70.0, 30.0)}}),
    LatencyTable(2, countries={"US": {"eu-central": (-90.0, 30.0)}}),
)


class Moment:
    """All that an answer follows from, and edges that are asked: one that remembers, and others that begin now."""

    def __init__(self) -> None:
        self.now, self.revision, self.keys, self.draw = NOW, 0, 0, 0.5
        self.places = {BERLIN: "DE", BOSTON: "US", STRANGER: "US"}
        self.told: dict[type[Message], Message] = {}
        self.edge, self.view = self._edge()
        self.law(LAW)
        self.health(ALL_UP)
        self.tell(AccessMessage(Access((ASKS,))))

    def _edge(self) -> tuple[EdgeApp, CurrentView]:
        current = CurrentView(lambda: self.now, edge=PLACE, boot=lambda: self.now - NOW + 100.0)
        handoffs = EdgeHandoffs(current)
        handoffs.use("fra-1", KEY, (key_text(KEY.public),))
        app = EdgeApp(
            current,
            self.locate,
            OPTIONS,
            Counts(),
            str,
            clock=lambda: self.now,
            draw=lambda: self.draw,
            handoffs=handoffs,
        )
        return app, current

    def fresh(self) -> EdgeApp:
        """An edge that remembers nothing."""
        app, current = self._edge()
        for message in self.told.values():
            current.apply(message)
        return app

    def locate(self, packed: bytes) -> Location:
        """Where an address is by the data of now."""
        country = self.places.get(".".join(map(str, packed)))
        if country is None:
            return UNKNOWN_LOCATION
        lat, lon = {"DE": (52.5, 13.4), "US": (42.4, -71.1), "IE": (53.3, -6.3)}[country]
        return Location(country, lat=lat, lon=lon, source="geoip")

    def tell(self, message: Message) -> None:
        """Control says something."""
        self.told[type(message)] = message
        self.view.apply(message)

    def law(self, law: Policy) -> None:
        """Another revision is in force."""
        self.revision += 1
        self.tell(SnapshotMessage.of(self.revision, NOW, law, ()))

    def health(self, up: tuple[str, ...]) -> None:
        """These regions are up."""
        self.tell(StateMessage(health(up)))

    def publish(self, *, known: bool) -> None:
        """The edge's key is among those that are published, or not, and balancers have heard of it, too."""
        self.keys += 1
        keys = (PublicKey("fra-1", key_text(KEY.public)),) if known else ()
        self.tell(HandoffKeysMessage(PublicKeys(keys, self.keys)))
        if self.edge.handoffs is not None:
            self.edge.handoffs.hear()
        self.later(SPREAD)

    def moved(self, country: str) -> None:
        """The location data put Berlin into another country."""
        self.places = {**self.places, BERLIN: country}
        self.view.rebuild()

    def later(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.view.tick()


_HANDOFF = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+")
TARGETS = (
    *(b"/v1/route?service=%b" % name for name in (b"chat", b"web", b"split", b"records", b"none")),
    *(b"/v1/route?service=%b&client_ip=%b" % (name, BERLIN.encode()) for name in (b"chat", b"web")),
    b"/v1/route?service=records&tenant=clinic",
    b"/v1/route?host=chat.demo.test",
    b"/v1/route?service=web&explain=1",
    *(b"/r/%b/v1/models?a=1" % name for name in (b"chat", b"web", b"sticky")),
    b"/x",
    b"/v1/authorize?service=chat",
    b"/v1/authorize?service=web&deny=403",
    b"/v1/authorize/x",
)
_SHOWN = (b"authorization", b"Bearer " + TOKEN.encode())
PEERS = (BERLIN, BOSTON, STRANGER, PROXY, PROXY)
ITSELF = b"127.0.0.1:8081"
HOSTS = (b"records.demo.test", b"clinic.demo.test", b"chat.demo.test", b"web.demo.test", *[ITSELF] * 4)
MORE: tuple[list[tuple[bytes, bytes]], ...] = (
    [],
    [(b"x-gtm-tenant", b"clinic")],
    [(b"x-gtm-affinity", b"alice")],
    [(b"x-gtm-affinity", b"bob"), (b"x-gtm-priority", b"batch")],
    [(b"origin", b"https://a.test")],
    [(b"x-gtm-authorize", b"1")],
    [(b"x-gtm-authorize", b"1"), (b"x-gtm-service", b"chat"), (b"x-gtm-deny", b"403")],
    [_SHOWN],
)


class Asked(NamedTuple):
    """A request: `told` is what the proxy before the edge says of the client, `more` are fields of its own."""

    method: str
    target: bytes
    peer: str
    host: bytes
    told: str
    more: list[tuple[bytes, bytes]]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """All of its fields."""
        told = [(b"x-forwarded-for", self.told.encode())] if self.told else []
        return [(b"host", self.host), *told, *self.more]


def _asked(random: Random) -> Asked:
    return Asked(
        random.choice(("GET", "GET", "POST")),
        random.choice(TARGETS),
        random.choice(PEERS),
        random.choice(HOSTS),
        random.choice(("", BERLIN, BOSTON, "unknown")),
        random.choice(MORE),
    )


def _like(random: Random, asked: Asked) -> Asked:
    """A request that differs from another one in a single thing, if at all."""
    other: dict[str, Any] = random.choice(
        (
            {"peer": random.choice(PEERS)},
            {"told": random.choice((BERLIN, BOSTON))},
            {"host": random.choice(HOSTS)},
            {"more": random.choice(MORE)},
            {"more": []},
            {"target": asked.target.replace(b"deny=403", b"deny=401")},
        )
    )
    return asked._replace(**other)


def _said(token: str) -> str:
    """What a handoff says, without when it was made and its number."""
    middle = token.split(".")[1]
    claims = json.loads(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return str({name: value for name, value in claims.items() if name not in ("jti", "iat", "exp")})


def _shown(text: bytes) -> str:
    """Bytes in which handoffs stand as what they say."""
    return _HANDOFF.sub(lambda found: _said(found[0]), text.decode("latin-1"))


def _found(app: EdgeApp, asked: Asked) -> object:
    method, target, peer, lines = asked.method, asked.target, asked.peer, asked.fields
    ended: Response | CarriedRequest | None
    if app.carries(target, lines):
        incoming = Incoming(method, target, lines, peer, "1.1")
        incoming.read_headers()
        ended = app.carried(incoming)[0]
    else:
        ended = app.answer_head(method, target, lines, peer, "1.1")
    if isinstance(ended, CarriedRequest):
        at = ended.place(())
        request = ended.resolved.routing.request
        return ended.option.region, ended.counted_as, at and at.url, request, ended.route.allowed
    if ended is None:
        return None
    headers = [(name, _shown(value)) for name, value in ended.head.headers if name != b"content-length"]
    return ended.head.status, headers, _shown(ended.body), ended.counted_as


@quick(60)
@given(st.integers(0, 1 << 30))
def test_whatever_changes_counts_at_once(seed: int) -> None:
    """Policies, health, round trips, keys, tokens, location data and time change between requests of a few clients."""
    moment, random = Moment(), Random(seed)
    recent: list[Asked] = []
    for _ in range(100):
        change = random.randrange(16)
        if change == 0:
            moment.law(random.choice(LAWS))
        elif change == 1:
            moment.health(random.choice((ALL_UP, ALL_UP[:1], ALL_UP[1:], ())))
        elif change == 2:
            moment.tell(LatencyMessage(random.choice(TABLES)))
        elif change == 3:
            moment.publish(known=random.random() < 0.7)
        elif change == 4:
            moment.tell(
                AccessMessage(Access(random.choice(((), (ASKS,), (replace(ASKS, expires=NOW + 15.0),)))))
            )
        elif change == 5:
            moment.moved(random.choice(("DE", "US", "IE")))
        elif change == 6:
            moment.later(random.choice((1.0, 10.0, 40.0)))
        if not recent or random.random() < 0.3:
            recent = [_asked(random), *recent[:4]]
        asked = random.choice(recent)
        for _ in range(2):  # made, and marked as asked once
            _found(moment.edge, asked)
        for one in (_like(random, asked), asked):
            moment.draw = random.random()
            assert _found(moment.edge, one) == _found(moment.fresh(), one)


_OF_BERLIN = Asked("GET", TARGETS[5], BOSTON, ITSELF, "", [_SHOWN])
_DENIED = Asked("GET", b"/v1/authorize?service=web&deny=403", PROXY, ITSELF, BERLIN, [])


@pytest.mark.parametrize(
    ("asked", "other", "statuses"),
    [
        (_OF_BERLIN, _OF_BERLIN._replace(more=[]), (200, 401)),
        (_DENIED, _DENIED._replace(target=_DENIED.target.replace(b"403", b"401")), (403, 401)),
    ],
    ids=["a token that may ask", "how a refusal is told"],
)
def test_what_is_remembered_of_one_is_not_the_other_s(
    asked: Asked, other: Asked, statuses: tuple[int, int]
) -> None:
    """However often the one was asked before."""
    moment = Moment()
    moment.health(ALL_UP if asked is _OF_BERLIN else ())
    for _ in range(3):
        told = [_found(moment.edge, one) for one in (asked, other)]
        assert told == [_found(moment.fresh(), one) for one in (asked, other)]
    assert tuple(cast("tuple[int, object]", one)[0] for one in told) == statuses
