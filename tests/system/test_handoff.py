"""Handoffs of a running system: what an edge signs is verified by the keys that edge and control publish."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.keys import PublicKey, PublicKeys
from gtm.handoff import jwks
from gtm.handoff.carried import split
from gtm.handoff.verifier import Verifier
from tests.handoff.published import keys_in
from tests.system.harness import System, eventually

pytestmark = pytest.mark.system

LONDON = "81.2.69.142"


def test_redirects_and_look_ups_are_signed_by_a_published_key(shared_demo: System) -> None:
    """From the policy's field to the balancer's verification, over real processes; the key is the edge's own, on its disk."""
    running = shared_demo
    names = {edge["name"] for edge in running.api("GET", "/v1/edges").json()["items"]}
    service = running.api("GET", "/v1/services/web").json()
    before = {key: value for key, value in service.items() if key != "name"}
    answer = running.api("PUT", "/v1/services/web", json=before | {"handoff": "sign"})
    assert answer.status_code == 200, answer.text

    behind = {"X-Forwarded-For": LONDON}

    def token() -> bytes | None:
        found = httpx.get(f"{running.edge}/r/web/a", params={"x": "1"}, headers=behind, timeout=10)
        rest, tokens = split(urlsplit(found.headers["location"]).query.encode())
        assert rest == b"x=1"
        return tokens[0] if tokens else None

    eventually(token, "redirects are signed")
    published = keys_in(httpx.get(running.edge + jwks.PATH, timeout=10).content)
    eventually(
        lambda: (
            keys_in(httpx.get(f"{running.control}/v1/handoff/jwks.json", timeout=10).content) == published
        ),
        "control publishes the same keys, without a token",
    )
    keys = tuple(PublicKey(name, x) for name in names for x in published)
    verifier = Verifier(PublicKeys(keys, 1))
    signed = token()
    assert signed is not None
    claims = verifier.verify(signed)
    assert isinstance(claims, Claims)
    assert (claims.service, claims.once, claims.client) == ("web", True, "81.2.69.0/24")
    found = running.route(service="web", client_ip=LONDON).json()
    claims = verifier.verify(found["handoff"].encode())
    assert isinstance(claims, Claims)
    assert (claims.region, claims.client, claims.once) == (found["region"], "81.2.69.0/24", False)
    assert claims.expires - claims.issued <= found["ttl"]
    running.api("PUT", "/v1/services/web", json=before).raise_for_status()
    assert "handoff" not in running.route(service="chat", client_ip=LONDON).json()
    (kept,) = running.data_dir.rglob("edge-handoff-keys")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not any(text in running.process.output for text in published)
