"""Whoever asks gets one decision: look-up, redirect, DNS, control's explanation, and `decide` itself, in every scene."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any
from urllib.parse import urlencode

import dns.message
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.choice import pick
from gtm.core.decision.decide import decide
from gtm.core.decision.options import serving
from gtm.core.model.requests import Request
from gtm.core.model.services import Priority
from tests.core.strategies import quick

from .answers import SCENES, World
from .questions import SERVICES, TENANTS, Call, Explanation, Packet

DRAW = 0.5
"""That of explanations."""
_HERE = [scene for scene in SCENES if not scene.silent and scene.name != "abroad"]
"""Control stands nowhere, and is not cut off from itself."""

ADDRESSES = st.one_of(
    # Loopback is the trusted proxies' here: such a peer is never the client (`gtm.geoip.client`), and a redirect has no other.
    st.integers(1 << 24, (224 << 24) - 1)
    .filter(lambda number: number >> 24 != 127)
    .map(lambda number: ".".join(str(part) for part in number.to_bytes(4))),
    st.sampled_from(["81.2.69.142", "10.9.8.7", "2600::1", "2a02:8109::5", "192.0.2.1"]),
)


@cache
def world(number: int) -> World:
    """One for all examples."""
    return World(_HERE[number])


def document(answer: bytes) -> dict[str, Any]:
    """The JSON of an answer over HTTP; of a refusal the decision alone."""
    found: dict[str, Any] = json.loads(answer.partition(b"\n\n")[2])
    return {
        name: value
        for name, value in found.items()
        if name not in ("type", "title", "status", "detail", "instance", "code")
    }


def call(path: bytes, query: bytes, headers: tuple[tuple[bytes, bytes], ...], peer: str) -> Call:
    """A request with a viewer's token."""
    return Call("GET", path, query, (*headers, (b"authorization", b"Bearer gtm_viewer")), b"", peer, 1)


@pytest.mark.endurance
@pytest.mark.parametrize("number", range(len(_HERE)), ids=[scene.name for scene in _HERE])
def test_all_callers_decide_alike(number: int) -> None:
    """The same region, endpoint and reasons, for each service, client, tenant, data class, model and affinity key."""
    asked = world(number)
    asked.draw = lambda: DRAW

    @quick(120)
    @given(
        st.sampled_from([name for name in SERVICES if name != "wild"]),
        ADDRESSES,
        st.sampled_from([None, *TENANTS]),
        st.sampled_from([None, None, "health"]),
        st.sampled_from([None, None, "small"]),
        st.sampled_from([None, "key-1", "key-2", "key-3"]),
        st.sampled_from([None, None, Priority.BATCH]),
    )
    def alike(  # noqa: PLR0917 - drawn one by one
        service: str,
        client: str,
        tenant: str | None,
        data_class: str | None,
        model: str | None,
        affinity: str | None,
        priority: Priority | None,
    ) -> None:
        said = {"tenant": tenant, "data_class": data_class, "model": model, "affinity": affinity}
        stated = {name: value for name, value in said.items() if value is not None}
        if priority is not None:
            stated["priority"] = priority.value
        about = {"service": service, "client_ip": client, **stated}
        explained = json.loads(asked.answer(Explanation(about)))
        del explained["lines"]

        query = urlencode({**about, "explain": "1"}).encode()
        looked_up = document(asked.answer(call(b"/v1/route", query, (), "10.9.8.7")))
        assert looked_up == explained

        headers = tuple(
            (b"x-gtm-" + name.replace("_", "-").encode(), value.encode()) for name, value in stated.items()
        )
        redirect = asked.answer(call(f"/r/{service}/x".encode(), b"", headers, client))
        if explained["endpoint"] is None:
            assert document(redirect)["reason"] == explained["reason"]
        else:
            url = explained["endpoint"]["url"].rstrip("/")
            assert f"\nlocation: {url}/x\n".encode() in redirect
            assert f"\nx-gtm-region: {explained['region']}\n".encode() in redirect

        location = asked.locate(client)
        request = Request(service, location, tenant, data_class, model, affinity, priority)
        decision = decide(asked.router.view, request, DRAW)
        assert (decision.region, decision.reason.value) == (explained["region"], explained["reason"])
        assert asked.router.decide(request, DRAW) == decision

    alike()


@pytest.mark.parametrize("number", range(len(_HERE)), ids=[scene.name for scene in _HERE])
def test_dns_decides_alike(number: int) -> None:
    """Addresses are those of the region that the same pick gives, but that DNS sheds nobody."""
    asked = world(number)
    router = asked.router
    generator = random.Random(number)
    hosts = {
        host: service
        for host, service in router.view.snapshot.hostnames.items()
        if host not in router.view.snapshot.stated and "*" not in host
    }
    for _ in range(300):
        host = generator.choice(sorted(hosts))
        client = ".".join(str(generator.randrange(1, 224)) for _ in range(4))
        draw = generator.random()
        packet = Packet(dns.message.make_query(host, "A").to_wire(), client, tcp=True, draw=draw)
        reply = dns.message.from_wire(asked.answer(packet))
        request = Request(hosts[host], asked.locate(client))
        ranking = router.ranker.ranking(request)
        option = pick(router.choices[ranking.group], request, draw, sheds=False)
        refusal = router.view.snapshot.services[hosts[host]].service.refusal
        usable = serving(router.view, option)
        lawful = (
            {address for endpoint in usable for address in endpoint.ipv4} if usable else set(refusal.ipv4)
        )
        aliases = {endpoint.cname for endpoint in usable} - {None}
        got = {item.to_text() for rrset in reply.answer if rrset.rdtype == 1 for item in rrset}
        assert got <= lawful
        assert got or aliases, (host, client, option)
