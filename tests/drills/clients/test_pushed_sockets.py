"""WebSockets, and pages of other origins, where DNS leads: to a region that serves them, and to one that is full and pushes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page

from tests.drills.clients.asked import FREE, SOCKETS, Client, ask
from tests.drills.clients.browsing import CHAT, SOCKET, browser, origins, talking
from tests.drills.clients.resolving import ADDRESSES, HOST, ResolvedWorld, resolving

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.timeout(600)]

SLOTS = {"fra": 9, "ams": 1000, "iad": 9}
_OPENS = (
    f"GET /v1/realtime HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {FREE}\r\n\r\n"
).encode()
_PROBE = "/v1/chat/completions", {"model": "llama", "messages": [{"role": "user", "content": "hello"}]}


@dataclass(frozen=True)
class Sockets:
    """The world, and origins of pages: one that the service names, and one that it does not."""

    world: ResolvedWorld
    named: str
    unnamed: str

    def served(self) -> dict[str, int]:
        """What each region's servers have had."""
        return {
            name: sum(int(one["requests"]) for one in self.world.carried.state(name)["choices"].values())
            for name in ADDRESSES
        }

    def only(self, region: str, before: dict[str, int]) -> bool:
        """Whether servers of this region alone have had something since."""
        now = self.served()
        return now[region] > before[region] and {**now, region: 0} == {**before, region: 0}


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sockets]:
    """All of it."""
    with ExitStack() as stack:
        named, unnamed = stack.enter_context(origins())
        files = {name: stack.enter_context(talking(named, SLOTS[name])) for name in ADDRESSES}
        service = {"cors": {"origins": [named]}}
        world = stack.enter_context(resolving(tmp_path_factory.mktemp("sockets"), files, service=service))
        yield Sockets(world, named, unnamed)


@pytest.fixture(scope="module")
def page(sockets: Sockets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Page]]:
    """Opens a page of an origin, in a Chromium that resolves names as the other clients do."""
    with browser(tmp_path_factory.mktemp("browser"), sockets.world.within) as opened:
        yield opened


@pytest.fixture(scope="module", params=["fra", "ams"])
def region(sockets: Sockets, request: pytest.FixtureRequest) -> Iterator[str]:
    """Who is to serve: Frankfurt, where DNS leads; Amsterdam, while WebSockets hold all slots there."""
    if request.param == "fra":
        yield "fra"
        return
    with sockets.world.filled((_OPENS, SLOTS["fra"]), probes=[_PROBE]):
        yield "ams"


@pytest.mark.parametrize("client", SOCKETS, ids=lambda client: client.name)
def test_sockets_open_where_dns_leads(client: Client, sockets: Sockets, region: str) -> None:
    """Messages both ways, large ones too, the server's first, its end and its code, and a refusal of a key."""
    if missing := client.missing():
        pytest.skip(missing)
    world, before = sockets.world, sockets.served()
    found = ask(client, world.base, "", lambda: world.in_flight(region), within=world.within)
    assert {case: result.wrong for case, result in found.items() if result.wrong} == {}
    assert sockets.only(region, before)


def test_a_browser_s_socket_opens(sockets: Sockets, page: Callable[[str], Page], region: str) -> None:
    """Of Chromium."""
    before = sockets.served()
    found = page(sockets.named).evaluate(SOCKET, [sockets.world.base, FREE])
    assert found == ["hello", "first", 4001, "bye"]
    assert sockets.only(region, before)


def test_pages_read_what_is_answered(sockets: Sockets, page: Callable[[str], Page], region: str) -> None:
    """The answer of a model server, and its refusal of a key; other origins read nothing."""
    before, base = sockets.served(), sockets.world.base
    assert page(sockets.named).evaluate(CHAT, [base, FREE]) == [200, {"said": "hello"}]
    asks = CHAT.replace("await answer.json()", "0")
    assert page(sockets.named).evaluate(asks, [base, "another"]) == [401, 0]
    with pytest.raises(Exception, match="Failed to fetch"):
        page(sockets.unnamed).evaluate(CHAT, [base, FREE])
    assert sockets.only(region, before)
