"""What commands make of servers that are not there, or not what they should be."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gtm.cli.common.exits import Exit
from tests.cli.conftest import Control, Gtm

ANSWERS = {
    "html": (200, "text/html", b"<h1>It works!</h1>"),
    "empty": (200, "application/json", b""),
    "list": (200, "application/json", b"[]"),
    "other": (200, "application/json", b'{"hello": "world"}'),
    "binary": (200, "application/json", b"\xff\xfe\x00"),
    "deep": (200, "application/json", b"[" * 100_000),
    "gateway": (502, "text/html", b"<h1>Bad Gateway</h1>"),
    "login": (302, "text/html", b""),
    "mistake": (500, "application/problem+json", b'{"detail": "gtm made a mistake; its log says which"}'),
    "down": (503, "application/problem+json", b'{"detail": "the database cannot be reached"}'),
}


@pytest.fixture
def stranger() -> Iterator[str]:
    """A web server that answers by the first part of the path, and knows nothing of gtm."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = ANSWERS[self.path.split("/")[1]]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if status == 500:
                self.send_header("X-GTM-Tier", "control")
            self.send_header("Content-Length", str(len(body)))
            if status == 302:
                self.send_header("Location", "/html")
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answer", ANSWERS)
def test_strangers(bare: Gtm, stranger: str, answer: str) -> None:
    """Whatever answers in control's or an edge's place, the command ends with 3 and one line."""
    for command in (("status",), ("regions", "list"), ("token", "list")):
        done = bare(*command, "--control", f"{stranger}/{answer}", "--token", "gtm_x_y")
        assert done.code == Exit.UNREACHABLE, done
        assert done.err.startswith("error: ")
    assert bare("route", "web", "--edge", f"{stranger}/{answer}").code == Exit.UNREACHABLE


def test_controls_own_failure(bare: Gtm, stranger: str) -> None:
    """It is told as such: which request, where to look; and of a change, where it stands whether it was made."""
    url = f"{stranger}/mistake"
    done = bare("status", "--control", url, "--token", "gtm_x_y")
    assert done.code == Exit.UNREACHABLE
    assert done.err.startswith(f"error: the control API at {url} failed at GET /v1/")
    assert "(HTTP 500), which is no fault of what you gave" in done.err
    assert "its log on that machine says why, at `unexpected error at GET /v1/" in done.err
    assert "revisions" not in done.err
    done = bare("token", "revoke", "x", "--control", url, "--token", "gtm_x_y")
    assert done.code == Exit.UNREACHABLE
    assert "failed at DELETE /v1/tokens/x (HTTP 500)" in done.err
    assert "whether it was done, `gtm revisions list` and `gtm audit` say" in done.err


def test_nobody_there(bare: Gtm) -> None:
    """A refused connection says what to start, and a server that hangs up is told as well."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = bare("status", "--control", f"http://127.0.0.1:{port}", "--token", "gtm_x_y")
    assert done.code == Exit.UNREACHABLE
    assert "connection refused" in done.err
    assert "gtm serve" in done.err
    assert bare("explain", "web", "--edge", f"http://127.0.0.1:{port}").code == Exit.UNREACHABLE
    with socket.create_server(("127.0.0.1", 0)) as rude:
        rude_port = rude.getsockname()[1]

        def hang_up() -> None:
            rude.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        done = bare("status", "--control", f"http://127.0.0.1:{rude_port}", "--token", "gtm_x_y")
        thread.join()
    assert done.code == Exit.UNREACHABLE


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://x", "http://", "http://h:99999", "http://h?x", "http://h/#f", "http://[::1"]
)
def test_urls_that_are_none(bare: Gtm, url: str) -> None:
    """They end with 2 and name the option."""
    done = bare("status", "--control", url, "--token", "gtm_x_y")
    assert done.code == Exit.BAD_INPUT
    assert "--control" in done.err
    assert "--edge" in bare("route", "web", "--edge", url).err


def test_https_to_what_speaks_http(bare: Gtm, stranger: str) -> None:
    """Nothing is wrong with a server that is up: the scheme is."""
    done = bare("status", "--control", stranger.replace("http://", "https://"), "--token", "gtm_x_y")
    assert done.code == Exit.UNREACHABLE
    assert "it speaks http there, not https" in " ".join(done.err.split())


def test_tokens_that_are_none(bare: Gtm, control: Control) -> None:
    """Without a token the error says where to get one; one that cannot be is not sent, nor repeated."""
    missing = bare("status", "--control", control.url)
    assert missing.code == Exit.NOT_ALLOWED
    assert "gtm token create" in missing.err
    forged = bare("status", "--control", control.url, "--token", "gtm_0000000000_forged")
    assert forged.code == Exit.NOT_ALLOWED
    assert "see that GTM_TOKEN (or --token)" in " ".join(forged.err.split())
    for text in ("gtm_ä", "gtm_a gtm_b", "gtm_a\nX-Evil: 1"):
        done = bare("status", "--control", control.url, "--token", text)
        assert done.code == Exit.NOT_ALLOWED
        assert text not in done.err


def test_control_is_no_edge(run: Gtm, control: Control) -> None:
    """One server's address given for the other's is recognised."""
    done = run("route", "web", "--edge", control.url)
    assert done.code == Exit.UNREACHABLE
    assert "not an edge" in done.err


def test_help_is_light() -> None:
    """`gtm --help` loads no database, no framework and no HTTP client."""
    heavy = ("sqlalchemy", "fastapi", "pydantic", "httpx", "alembic", "psycopg", "uvicorn", "maxminddb")
    program = (
        "import sys; from gtm.cli.app import app; app(['--help'], standalone_mode=False); "
        f"print('loaded:', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_usage_and_version(bare: Gtm) -> None:
    """Wrong usage ends with 2."""
    assert bare("frobnicate").code == Exit.BAD_INPUT
    assert bare("plan").code == Exit.BAD_INPUT
    assert bare("route").code == Exit.BAD_INPUT
    assert bare.ok("version", "--json").json["version"]
