"""`gtm balancer --check-backends`: what checks find, before a balancer is started."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.cli.conftest import Gtm

KEY = "sk-test"


class _Handler(BaseHTTPRequestHandler):
    """A model server that wants a key for all but its health."""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if self.path == "/health":
            return self._say(200, {})
        known = self.headers.get("authorization") == f"Bearer {KEY}"
        found = {"/v1/models": (200, {"data": [{"id": "llama"}]})}.get(self.path, (404, {}))
        return self._say(*found) if known else self._say(401, {})

    def _say(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def _server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_what_checks_find_is_printed(bare: Gtm, tmp_path: Path) -> None:
    """Who would get requests, which models are listed, what is wrong with a check; and a server that is not there makes the command fail."""
    file = tmp_path / "balancer.yaml"
    (tmp_path / "key").write_text(KEY)
    with _server() as url:
        told = bare("balancer", "--check-backends", "--backend", url)
        assert (told.code, told.out.splitlines()[0]) == (0, f"up    {url}")
        assert "models: status 401" in told.out
        keyed = f"backends: [{{url: '{url}'}}]\nchecks: {{key: {{file: key}}}}\n"
        file.write_text(keyed)
        told = bare("balancer", "--check-backends", "--file", str(file))
        assert (told.code, told.out.splitlines()[0]) == (0, f"up    {url}  (llama)")
        file.write_text(keyed.replace("]", ", {url: 'http://127.0.0.1:1'}]", 1))
        told = bare("balancer", "--check-backends", "--file", str(file))
        assert told.code
        assert "down  http://127.0.0.1:1" in told.out
        assert "health: connection refused" in told.out
        assert "1 of 2 backends would get no requests" in told.err
        assert KEY not in told.out + told.err
    assert (
        logging.getLogger("gtm").level != logging.CRITICAL
    )  # as it was, for whoever comes after it in this process


def test_nothing_to_check_is_said(bare: Gtm) -> None:
    """With what to give."""
    told = bare("balancer", "--check-backends")
    assert told.code
    assert "--backend" in told.err
