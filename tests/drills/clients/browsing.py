"""What speaks over WebSockets and to pages of other origins: servers, pages, and a browser."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.drills.clients.asked import HERE, PYTHON
from tests.tools import tool

CHAT = """async ([base, key]) => {
    const headers = {authorization: `Bearer ${key}`, "content-type": "application/json"};
    const body = JSON.stringify({model: "llama", messages: [{role: "user", content: "hello"}]});
    const answer = await fetch(`${base}/v1/chat/completions`, {method: "POST", headers, body});
    return [answer.status, await answer.json()];
}"""
SOCKET = """async ([base, key]) => {
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
"""Of pages: what they ask of the service at a base, by a key."""


class _Empty(BaseHTTPRequestHandler):
    """A page with nothing on it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def origins() -> Iterator[tuple[str, str]]:
    """Two origins of pages."""
    pages = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{pages.server_port}", f"http://localhost:{pages.server_port}"
    finally:
        pages.shutdown()


@contextmanager
def talking(origin: str, slots: int) -> Iterator[dict[str, Any]]:
    """The file of a balancer before a server (`sockets.py`) that speaks to pages of an origin."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: `python -m tests.drills.clients` installs them")
    command = [str(PYTHON), str(HERE / "sockets.py"), origin]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            yield {
                "service": "chat",
                "backends": [{"url": url, "slots": slots}],
                "checks": {
                    "scrape": None,
                    "health": {"timeout": 30},
                },  # a busy machine is no server that is down
            }
        finally:
            server.kill()


@contextmanager
def browser(folder: Path, within: Sequence[str] = ()) -> Iterator[Callable[[str], Page]]:
    """Opens pages of an origin in Chromium. `within`: a command that runs it."""
    path = folder / "chromium"
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*within, tool("chromium-headless-shell")])} "$@"\n')
    path.chmod(0o755)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])

        def opened(origin: str) -> Page:
            page = found.new_page()
            page.goto(origin)
            return page

        yield opened
        found.close()
