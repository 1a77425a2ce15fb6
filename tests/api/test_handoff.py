"""The keys of handoffs: told by edges, published to everybody, withdrawn when nobody vouches for them any more."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
import psycopg
import pytest

from gtm.core.handoff.keys import PublicKey, key_text
from gtm.core.model.access import Role
from gtm.feed.reports import EdgeReport
from gtm.feed.wire import HandoffKeysMessage, Message
from gtm.handoff.jwt import made
from tests.api.conftest import TOKENS, Api, Server
from tests.api.test_edges import _eventually
from tests.api.test_feed import follow, until
from tests.handoff.published import keys_in


def _client(api: Api, name: str, **more: str) -> tuple[httpx.Client, str]:
    """A client with a new token of role `edge`, and the token's name."""
    answer = api.admin.post("/v1/tokens", json={"name": name, "role": "edge", **more})
    assert answer.status_code == 201, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    return httpx.Client(base_url=api.url, headers=headers, trust_env=False), name


def _key() -> str:
    return key_text(made().public)


def _tell(client: httpx.Client, edge: str, *keys: str) -> httpx.Response:
    body = msgspec.json.encode(EdgeReport("1.0", 2, 1, {}, handoff_keys=keys))
    return client.post(f"/v1/edges/{edge}/report", content=body, headers={"Content-Type": "application/json"})


def _published(*expected: tuple[str, str]) -> Callable[[Message], bool]:
    """What tells the message that has just these keys, as issuer and key."""
    wanted = tuple(sorted(PublicKey(*one) for one in expected))

    def found(message: Message) -> bool:
        return isinstance(message, HandoffKeysMessage) and message.keys.keys == wanted

    return found


def test_keys_go_from_an_edge_to_everybody(world: Api) -> None:
    """Under the name that the token is bound to, to all followers, and without names to whoever asks."""
    one, _ = _client(world, "fra-1")
    two, _ = _client(world, "london", edges="lon-*")
    first, second, third = _key(), _key(), _key()
    with one, two, follow(world) as messages:
        assert _tell(one, "fra-1", first).status_code == 200
        until(messages, _published(("fra-1", first)))
        assert _tell(two, "lon-7", second, third).status_code == 200
        until(messages, _published(("fra-1", first), ("lon-7", second), ("lon-7", third)))
        answer = world.anonymous.get("/v1/handoff/jwks.json")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/jwk-set+json"
        assert answer.headers["cache-control"] == "public, max-age=60"
        assert set(keys_in(answer.content)) == {first, second, third}
        assert "fra" not in answer.text
        # Another edge's key told under one's own name is one's own claim, and changes nothing of the other's.
        assert _tell(two, "lon-7", first).status_code == 200
        until(messages, _published(("fra-1", first), ("lon-7", first)))


def test_nobody_tells_keys_of_another_edge(world: Api) -> None:
    """One credential cannot speak for another edge."""
    one, _ = _client(world, "fra-1")
    with one:
        assert _tell(one, "fra-2", _key()).status_code == 403
        assert _tell(world.anonymous, "fra-1", _key()).status_code == 401
        assert _tell(world.viewer, "fra-1", _key()).status_code == 403


def test_keys_end_with_their_token(world: Api) -> None:
    """At once for followers, and one that is made anew under the same name does not bring them back."""
    one, name = _client(world, "fra-1")
    two, _ = _client(world, "fra-2")
    first, second, third = _key(), _key(), _key()
    with one, two, follow(world) as messages:
        _tell(one, "fra-1", first)
        _tell(two, "fra-2", second)
        until(messages, _published(("fra-1", first), ("fra-2", second)))
        assert world.admin.delete(f"/v1/tokens/{name}").status_code == 200
        until(messages, _published(("fra-2", second)))
        again, _ = _client(world, "fra-1")
        with again:
            _tell(two, "fra-2", third)
            until(messages, _published(("fra-2", third)))
            _tell(again, "fra-1", first)
            until(messages, _published(("fra-1", first), ("fra-2", third)))


def test_keys_outlive_control(prepared_url: str) -> None:
    """A control that starts publishes what the edges told the one before, and waits for no report."""
    first = _key()

    def stored() -> bool:
        with psycopg.connect(prepared_url) as connection:
            rows = connection.execute("SELECT handoff_keys FROM edges WHERE name = 'fra-1'").fetchall()
        return rows == [([first],)]

    with Server(prepared_url) as server:
        headers = {"Authorization": f"Bearer {TOKENS[Role.EDGE]}"}
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as client:
            assert _tell(client, "fra-1", first).status_code == 200
        _eventually(stored)
    with Server(prepared_url) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        _eventually(lambda: first in client.get("/v1/handoff/jwks.json").text)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["x"], "43 characters"),
        (["A" * 43 + "="], "43 characters"),
        ([_key() for _ in range(4)], "3 of them"),
    ],
    ids=["short", "padded", "many"],
)
@pytest.mark.reads
def test_reports_with_other_keys_are_refused(world: Api, keys: list[str], words: str) -> None:
    """With what is wrong, and where."""
    answer = _tell(world.edge, "edge-one", *keys)
    assert answer.status_code == 422
    assert words in answer.text
    assert "handoff_keys" in answer.text


@pytest.mark.reads
def test_the_keys_are_not_known_before_the_database_is_read(world: Api) -> None:
    """No fewer keys than there are: nothing is published of what is not known."""
    replica = world.server.app.state.context.replica
    _eventually(lambda: bool(replica.now.handoff_keys.version))  # what the database holds: none
    assert keys_in(world.anonymous.get("/v1/handoff/jwks.json").content) == []
