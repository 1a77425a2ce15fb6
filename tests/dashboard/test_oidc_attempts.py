"""Signing in by a provider, tried in vain: what of it reaches the provider, and who else waits."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest

from gtm.dashboard.sign_in import provider as pages
from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.sign_in.oidc import CALLBACK
from gtm.options import grants
from tests.api.conftest import Server
from tests.dashboard.conftest import HTML
from tests.dashboard.test_oidc_tokens import CLAIMS, Fake, signed


@pytest.fixture
def fake() -> Fake:
    """A provider, which knows everybody as one admin."""
    return Fake()


@pytest.fixture
def server(fake: Fake, prepared_url: str) -> Iterator[Server]:
    """Control, whose people it knows."""
    identity = Identity(fake.provider(), grants(["admin=group:a"]))
    with Server(prepared_url, identity=lambda _: identity) as found:
        yield found


def begun(server: Server, client: httpx.Client) -> dict[str, str]:
    """What the provider is asked on behalf of somebody who begins."""
    answer = client.get("/sign-in/oidc")
    assert answer.status_code == 303, answer.text
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def browser(server: Server) -> httpx.Client:
    """Somebody's, that follows nothing by itself."""
    return httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=HTML)


def exchanged(fake: Fake) -> int:
    """How many codes the provider was asked about."""
    return fake.asked.count("/token")


def test_what_control_did_not_begin_goes_nowhere(server: Server, fake: Fake) -> None:
    """A cookie that somebody made up is no attempt, however well it is made."""
    content = {"state": "s", "nonce": "n", "verifier": "v", "to": "/", "until": 1e12}
    made_up = [
        msgspec.json.encode(content).hex(),
        (bytes(32) + msgspec.json.encode(content)).hex(),
        "[" * 2999,
        ("[" * 1000).encode().hex(),
        "",
    ]
    with browser(server) as client:
        for _ in range(60):
            for cookie in made_up:
                answer = client.get(
                    CALLBACK, params={"code": "c", "state": "s"}, headers={"cookie": f"gtm-oidc={cookie}"}
                )
                assert answer.status_code == 403
    assert exchanged(fake) == 0


def test_attempts_in_vain_are_counted(server: Server, fake: Fake) -> None:
    """Ten of an address reach the provider; those that succeed do not count."""
    with browser(server) as client:
        for _ in range(15):
            asked = begun(server, client)
            fake.token = signed({**CLAIMS, "nonce": asked["nonce"], "iat": CLAIMS["iat"]})
            answer = client.get(CALLBACK, params={"code": "c", "state": asked["state"]})
            assert answer.status_code == 303, answer.text
        assert exchanged(fake) == 15
        statuses = []
        for _ in range(30):
            state = begun(server, client)["state"]
            statuses.append(client.get(CALLBACK, params={"code": "junk", "state": state}).status_code)
    assert set(statuses[:10]) == {403}
    assert statuses.count(429) >= 18
    assert exchanged(fake) <= 15 + 12


def test_an_attempt_ends(server: Server, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie that is kept for longer than an attempt may last is worth nothing."""
    monkeypatch.setattr(pages, "_LASTS", -1)
    with browser(server) as client:
        answer = client.get("/sign-in/oidc")
        kept = answer.headers["set-cookie"].partition("gtm-oidc=")[2].partition(";")[0]
        state = parse_qs(urlsplit(answer.headers["location"]).query)["state"][0]
        answer = client.get(
            CALLBACK, params={"code": "c", "state": state}, headers={"cookie": f"gtm-oidc={kept}"}
        )
        assert answer.status_code == 403
    assert exchanged(fake) == 0


def test_controls_of_a_database_go_on_with_each_other_s(
    server: Server, fake: Fake, prepared_url: str
) -> None:
    """An attempt that one control began may come back to another."""
    other = Identity(fake.provider(), grants(["admin=group:a"]))
    with Server(prepared_url, identity=lambda _: other) as second, browser(server) as client:
        asked = begun(server, client)
        fake.token = signed({**CLAIMS, "nonce": asked["nonce"]})
        with browser(second) as there:
            there.cookies = client.cookies
            answer = there.get(CALLBACK, params={"code": "c", "state": asked["state"]})
    assert answer.status_code == 303, answer.text
