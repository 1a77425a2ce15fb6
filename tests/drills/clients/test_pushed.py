"""Real clients with API keys find a region by DNS, and get what they would get of the model server that wants their keys: of that region, and of the peer that it pushes to while it is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.drills.clients.asked import FREE, LIMITED, OTHER_WAYS, Client, ask, balancer_document
from tests.drills.clients.resolving import ADDRESSES, ResolvedWorld, post, resolving
from tests.drills.clients.servers import BGE, LATE, LLAMA, Server, chat_server, other_server, serving

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.timeout(600)]

KEYS = frozenset((FREE, LIMITED))
SLOTS = 1000
"""Of each server in Amsterdam: Frankfurt may use its part of them between two reports."""
STAYS = ("responses", "response by id")
"""Cases of what one server keeps: it is pushed nowhere (docs/balancer.md), and waits where all slots are held."""


@dataclass(frozen=True)
class Pushed:
    """The world, each region's servers, and its chat server's URL."""

    world: ResolvedWorld
    servers: dict[str, tuple[Server, Server]]
    chat: dict[str, str]

    def with_key(self) -> dict[str, int]:
        """Requests that have come to each region's servers with a key."""
        return {name: sum(one.with_key for one in both) for name, both in self.servers.items()}


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    """Frankfurt and Amsterdam inside the fence, Ashburn outside of it."""
    servers = {name: (chat_server(KEYS), other_server(KEYS)) for name in ADDRESSES}
    with serving(*(one for both in servers.values() for one in both)) as urls:
        files = {
            name: balancer_document(*urls[2 * number : 2 * number + 2])
            for number, name in enumerate(ADDRESSES)
        }
        for server in files["ams"]["backends"]:
            server["slots"] = SLOTS
        with resolving(tmp_path_factory.mktemp("pushed"), files) as world:
            yield Pushed(world, servers, dict(zip(ADDRESSES, urls[::2], strict=True)))


@pytest.fixture(scope="module")
def full(pushed: Pushed) -> Iterator[Pushed]:
    """The same while Frankfurt has no slot, of no server."""
    chat, vectors = "/v1/chat/completions", "/v1/embeddings"

    def asking(text: str) -> tuple[tuple[str, dict[str, object]], tuple[str, dict[str, object]]]:
        said = {"model": LLAMA, "messages": [{"role": "user", "content": text}]}
        return (chat, said), (vectors, {"model": BGE, "input": text})

    held = [(post(path, body), 4) for path, body in asking(LATE)]
    with pushed.world.filled(*held, probes=asking("text 1")):
        yield pushed


@pytest.mark.parametrize("client", OTHER_WAYS, ids=lambda client: client.name)
def test_a_client_is_served_where_dns_leads(client: Client, pushed: Pushed) -> None:
    """Every call of it is answered, bodies and streams whole and piece by piece, and no server misses its key; no other region hears of it."""
    _asks(client, pushed, "fra")
    assert not pushed.world.pushed()


@pytest.mark.parametrize("client", OTHER_WAYS, ids=lambda client: client.name)
def test_a_client_is_served_where_its_region_pushes(client: Client, full: Pushed) -> None:
    """The same of the peer's servers: nothing of it comes to the region that is full, and nothing to the one outside of the fence."""
    before, at = full.world.pushed(), full.with_key()["ams"]
    _asks(client, full, "ams", without=STAYS)
    assert full.with_key()["ams"] - at <= full.world.pushed() - before


def _asks(client: Client, by: Pushed, region: str, *, without: tuple[str, ...] = ()) -> None:
    """All of a client's cases, which one region alone is to serve."""
    if missing := client.missing():
        pytest.skip(missing)
    world, before = by.world, by.with_key()
    found = ask(
        client,
        world.base,
        by.chat[region],
        lambda: world.in_flight(region),
        within=world.within,
        without=without,
    )
    assert {case: result.wrong for case, result in found.items() if result.wrong} == {}
    assert [one.without_key for both in by.servers.values() for one in both] == [0] * 6
    after = by.with_key()
    assert after[region] > before[region]
    assert {**after, region: 0} == {**before, region: 0}
