"""WebSockets, and pages of other origins, through an edge that carries."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.drills.carrying import CarriedWorld, carrying
from tests.drills.clients.asked import FREE, HERE, PYTHON, SOCKETS, Client, ask
from tests.tools import tool

pytestmark = [pytest.mark.system, pytest.mark.drill, pytest.mark.timeout(600)]

_CHAT = """async ([base, key]) => {
    const headers = {authorization: `Bearer ${key}`, "content-type": "application/json"};
    const body = JSON.stringify({model: "llama", messages: [{role: "user", content: "hello"}]});
    const answer = await fetch(`${base}/v1/chat/completions`, {method: "POST", headers, body});
    return [answer.status, await answer.json()];
}"""
_SOCKET = """async ([base, key]) => {
    const url = `${base.replace("http", "ws")}/v1/realtime`;
    const socket = new WebSocket(url, ["realtime", `openai-insecure-api-key.${key}`]);
    const came = [];
    return await new Promise((done, failed) => {
        socket.onmessage = ({data}) => {
            came.push(data);
            socket.send(["first", "leave"][came.length - 1]);
        };
        socket.onclose = ({code, reason}) => done([...came, code, reason]);
    });
}"""


class _Empty(BaseHTTPRequestHandler):
    """A page with nothing on it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Sockets:
    """The edge, and origins of pages: one that the service names, and one that it does not."""

    world: CarriedWorld
    named: str
    unnamed: str


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sockets]:
    """All of it."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: `python -m tests.drills.clients` installs them")
    pages = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    named, unnamed = (f"http://{host}:{pages.server_port}" for host in ("127.0.0.1", "localhost"))
    command = [str(PYTHON), str(HERE / "sockets.py"), named]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            file = {
                "service": "chat",
                "backends": [{"url": f"http://127.0.0.1:{int(server.stdout.readline())}", "slots": 9}],
                "checks": {"scrape": None},
            }
            folder: Path = tmp_path_factory.mktemp("sockets")
            with carrying(folder, {"fra": file}, service={"cors": {"origins": [named]}}) as world:
                yield Sockets(world, named, unnamed)
        finally:
            server.kill()
            pages.shutdown()


@pytest.fixture(scope="module")
def page(sockets: Sockets) -> Iterator[Callable[[str], Page]]:
    """Opens a page of an origin, in Chromium."""
    path = tool("chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])

        def opened(origin: str) -> Page:
            found = browser.new_page()
            found.goto(origin)
            return found

        yield opened
        browser.close()


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
    found = page(sockets.named).evaluate(_SOCKET, [sockets.world.by_path, FREE])
    assert found == ["hello", "first", 4001, "bye"]


def test_pages_read_what_is_carried_and_what_is_refused(
    sockets: Sockets, page: Callable[[str], Page]
) -> None:
    """The answer of a model server, its refusal of a key, and the edge's own one when the region is gone; other origins read nothing."""
    world = sockets.world
    for base in (world.by_path, world.by_host):
        assert page(sockets.named).evaluate(_CHAT, [base, FREE]) == [200, {"said": "hello"}]
        asks = _CHAT.replace("await answer.json()", "0")
        assert page(sockets.named).evaluate(asks, [base, "another"]) == [401, 0]
        with pytest.raises(Exception, match="Failed to fetch"):
            page(sockets.unnamed).evaluate(_CHAT, [base, FREE])
    world.balancers["fra"].signal(signal.SIGKILL)
    world.balancers["fra"].end()
    status, said = page(sockets.named).evaluate(_CHAT, [world.by_path, FREE])
    assert (status, said["error"]["code"]) in (
        (502, "backend_failed"),
        (502, "region_failed"),
        (503, "none_usable"),
        (503, "refused_unavailable"),
    )
