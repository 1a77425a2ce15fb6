"""Real clients with API keys get through an edge that carries what they would get of the model server that wants their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.drills.carrying import CarriedWorld, carrying
from tests.drills.clients.asked import (
    CLIENTS,
    FREE,
    LIMITED,
    OTHER_WAYS,
    PLAIN,
    Client,
    ask,
    balancer_document,
)
from tests.drills.clients.servers import Server, chat_server, other_server, serving

pytestmark = [pytest.mark.system, pytest.mark.drill]

KEYS = frozenset((FREE, LIMITED))


@dataclass(frozen=True)
class Carried:
    """The edge, what is behind it, and the URL of the chat server."""

    world: CarriedWorld
    servers: tuple[Server, Server]
    chat: str


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Carried]:
    """An edge and a region, for all clients."""
    servers = chat_server(KEYS), other_server(KEYS)
    with serving(*servers) as (chat, other):
        files = {"fra": balancer_document(chat, other)}
        with carrying(tmp_path_factory.mktemp("carried"), files) as world:
            yield Carried(world, servers, chat)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("client", "by"),
    [
        pytest.param(client, by, id=f"{client.name}-{by}")
        for by, clients in (("path", (*CLIENTS, *PLAIN)), ("host", OTHER_WAYS))
        for client in clients
    ],
)
def test_a_client_keeps_its_key(client: Client, by: str, carried: Carried) -> None:
    """Every call of it is answered, bodies and streams whole and piece by piece, and no server misses its key."""
    missing = client.missing()
    if missing:
        pytest.skip(missing)
    world = carried.world
    before = [one.with_key for one in carried.servers]
    base = world.by_path if by == "path" else world.by_host
    found = ask(client, base, carried.chat, world.in_flight)
    assert {case: result.wrong for case, result in found.items() if result.wrong} == {}
    assert [one.without_key for one in carried.servers] == [0, 0]
    assert sum(one.with_key for one in carried.servers) > sum(before)
