"""WebSockets, and pages of other origins, through an edge that carries."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page

from tests.drills.carrying import CarriedWorld, carrying
from tests.drills.clients.asked import FREE, SOCKETS, Client, ask
from tests.drills.clients.browsing import CHAT, SOCKET, browser, origins, talking

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Sockets:
    """The edge, and origins of pages: one that the service names, and one that it does not."""

    world: CarriedWorld
    named: str
    unnamed: str


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sockets]:
    """All of it."""
    folder = tmp_path_factory.mktemp("sockets")
    with (
        origins() as (named, unnamed),
        talking(named, 9) as file,
        carrying(folder, {"fra": file}, service={"cors": {"origins": [named]}}) as world,
    ):
        yield Sockets(world, named, unnamed)


@pytest.fixture(scope="module")
def page(sockets: Sockets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Page]]:
    """Opens a page of an origin, in Chromium."""
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("by", ["path", "host"])
@pytest.mark.parametrize("client", SOCKETS, ids=lambda client: client.name)
def test_sockets_are_carried(client: Client, by: str, sockets: Sockets) -> None:
    """Messages both ways, large ones too, the server's first, its end and its code, and a refusal of a key."""
    if missing := client.missing():
        pytest.skip(missing)
    world = sockets.world
    found = ask(client, world.by_path if by == "path" else world.by_host, "", world.in_flight)
    assert {case: result.wrong for case, result in found.items() if result.wrong} == {}


def test_a_browser_s_socket_is_carried(sockets: Sockets, page: Callable[[str], Page]) -> None:
    """Of Chromium."""
    found = page(sockets.named).evaluate(SOCKET, [sockets.world.by_path, FREE])
    assert found == ["hello", "first", 4001, "bye"]


def test_pages_read_what_is_carried_and_what_is_refused(
    sockets: Sockets, page: Callable[[str], Page]
) -> None:
    """The answer of a model server, its refusal of a key, and the edge's own one when the region is gone; other origins read nothing."""
    world = sockets.world
    for base in (world.by_path, world.by_host):
        assert page(sockets.named).evaluate(CHAT, [base, FREE]) == [200, {"said": "hello"}]
        asks = CHAT.replace("await answer.json()", "0")
        assert page(sockets.named).evaluate(asks, [base, "another"]) == [401, 0]
        with pytest.raises(Exception, match="Failed to fetch"):
            page(sockets.unnamed).evaluate(CHAT, [base, FREE])
    world.balancers["fra"].signal(signal.SIGKILL)
    world.balancers["fra"].end()
    status, said = page(sockets.named).evaluate(CHAT, [world.by_path, FREE])
    assert (status, said["error"]["code"]) in (
        (502, "backend_failed"),
        (502, "region_failed"),
        (503, "none_usable"),
        (503, "refused_unavailable"),
    )
