"""Pages of other origins: what they may read of an edge's answers (Fetch standard §3.2, CORS)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from gtm.core.model.cors import Cors
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.state import State
from gtm.feed.wire import StateMessage
from tests import worlds
from tests.http.test_beacon_script import PATIENCE, browser
from tests.http.world import Edge, regions

APP = "https://app.example.com"
EVIL = "https://evil.example"
LISTED = Cors((APP,), ("POST",), ("authorization", "content-type"))


def _with(cors: Cors | None) -> Callable[[Policy], Policy]:
    return lambda base: replace(
        base, services=tuple(replace(service, cors=cors) for service in base.services)
    )


def _preflight(edge: Edge, path: str, origin: str, **headers: str) -> httpx.Response:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    with edge.client() as client:
        return client.request("OPTIONS", path, headers=asked | headers)


@pytest.mark.parametrize(
    ("cors", "origin", "readable"),
    [(LISTED, APP, APP), (LISTED, EVIL, None), (Cors(("*",)), EVIL, "*"), (None, APP, None)],
)
def test_answers_can_be_read_by_the_pages_that_may(
    run_edge: Callable[..., Edge], cors: Cors | None, origin: str, readable: str | None
) -> None:
    """Redirects, refusals and look-ups, the first and those that are remembered; after agentgateway/agentgateway#926."""
    edge = run_edge(load=False)
    edge.load(change=_with(cors))
    for path, status in (
        *(("/r/web/v1/models", 307), ("/r/nowhere/x", 451)),
        *(("/v1/route?service=web", 200), ("/v1/route?service=nowhere", 451)) * 3,
    ):
        found = edge.get(path, headers={"origin": origin})
        assert found.status_code == status
        assert found.headers.get("access-control-allow-origin") == readable
        exposed = found.headers.get("access-control-expose-headers", "")
        assert ("retry-after" in exposed) == (readable is not None)
        assert found.headers.get("vary") == ("origin" if cors is LISTED else None)
        plain = edge.get(path)
        assert plain.status_code == status
        assert "access-control-allow-origin" not in plain.headers
        assert "vary" not in plain.headers


def test_what_is_wrong_with_a_request_can_be_read(run_edge: Callable[..., Edge]) -> None:
    """A tenant that the policy does not know: the page sees which."""
    edge = run_edge(load=False)
    edge.load(change=_with(LISTED))
    found = edge.get("/r/web/x", headers={"origin": APP, "x-gtm-tenant": "none-such"})
    assert (found.status_code, found.json()["code"]) == (422, "unknown_tenant")
    assert found.headers["access-control-allow-origin"] == APP


def test_preflights_are_answered_here(run_edge: Callable[..., Edge]) -> None:
    """By host name and by path, never by a redirect, whatever the law says: they hold no data."""
    edge = run_edge(load=False)
    edge.load(change=_with(LISTED))
    for path, headers in (("/r/web/x", {}), ("/x", {"host": "web.demo.test"}), ("/r/nowhere/x", {})):
        found = _preflight(edge, path, APP, **headers)
        assert (found.status_code, found.content) == (204, b"")
        assert found.headers["access-control-allow-origin"] == APP
        assert found.headers["access-control-allow-methods"] == "POST"
        assert found.headers["access-control-allow-headers"] == "authorization, content-type"
        assert "location" not in found.headers


@pytest.mark.parametrize("origins", [(APP,), ("*",)])
def test_a_star_stands_for_authorization_too(run_edge: Callable[..., Edge], origins: tuple[str, ...]) -> None:
    """Badgerati/Pode#1177 and whatwg/fetch#251: browsers leave `Authorization` out of `*`, and take it for a name where there are credentials."""
    edge = run_edge(load=False)
    edge.load(change=_with(Cors(origins, ("*",), ("*", "x-one"), credentials="*" not in origins)))
    found = _preflight(edge, "/r/web/x", APP)
    assert found.headers["access-control-allow-methods"] == "POST"
    assert found.headers["access-control-allow-headers"] == "authorization"


def test_a_page_reads_that_it_may_not_ask_about_others(run_edge: Callable[..., Edge]) -> None:
    """gravitee-io/issues#1576: what was wrong with a token could not be read."""
    edge = run_edge(load=False)
    edge.load(change=_with(LISTED))
    found = edge.get("/v1/route?service=web&client_ip=8.8.8.8", headers={"origin": APP})
    assert found.status_code in (401, 403)
    assert found.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize("cors", [LISTED, None])
def test_who_may_not_ask_is_told_what_to_do(run_edge: Callable[..., Edge], cors: Cors | None) -> None:
    """Instead of a redirect, at which every browser gives up without a word."""
    edge = run_edge(load=False)
    edge.load(change=_with(cors))
    found = _preflight(edge, "/r/web/x", EVIL)
    assert (found.status_code, found.json()["code"]) == (403, "origin_not_allowed")
    assert "`cors.origins`" in found.json()["detail"]
    assert "access-control-allow-origin" not in found.headers


def test_options_that_no_browser_asks_are_redirected(run_edge: Callable[..., Edge]) -> None:
    """Without an origin, or without a method that is asked for, it is the service's."""
    edge = run_edge(load=False)
    edge.load(change=_with(LISTED))
    with edge.client() as client:
        for headers in ({}, {"origin": APP}, {"access-control-request-method": "POST"}):
            assert client.request("OPTIONS", "/r/web/x", headers=headers).status_code == 307


def test_an_origin_that_is_said_twice_is_nobodys(run_edge: Callable[..., Edge]) -> None:
    """Which of them counts is nobody's guess. Pages that are no service's do not look at it, nor at the fields that are asked for, which are a list."""
    edge = run_edge(load=False)
    edge.load(change=_with(LISTED))
    twice = [("origin", APP), ("origin", EVIL), *[("access-control-request-headers", "x-one")] * 2]
    with edge.client() as client:
        found = client.get("/r/web/x", headers=twice)
        assert (found.status_code, found.headers.get("access-control-allow-origin")) == (307, None)
        assert client.get("/healthz", headers=twice).status_code == 200


def test_before_a_policy_and_for_no_service_a_preflight_is_told_so(run_edge: Callable[..., Edge]) -> None:
    """It is no page's fault."""
    edge = run_edge(load=False)
    assert _preflight(edge, "/r/web/x", APP).status_code == 503
    edge.load(change=_with(LISTED))
    found = _preflight(edge, "/r/none/x", APP)
    assert (found.status_code, found.json()["code"]) == (404, "unknown_service")


@contextmanager
def _pages(answers: Callable[[str], bytes], origins: list[str | None]) -> Iterator[tuple[str, list[str]]]:
    """A server of pages, or a region: its URL, and what it was asked for by POST."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = answers(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "authorization, content-type")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer()

        def do_OPTIONS(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            origins.append(self.headers.get("Origin"))
            posted.append(self.path)
            self._answer()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", posted
        running.shutdown()
        thread.join()


_PAGE = """<script>
(async () => {
  const found = {};
  for (const path of ["/r/web/v1/chat", "/r/nowhere/v1/chat"]) {
    try {
      const answer = await fetch("EDGE" + path, {method: "POST", body: "{}", headers: {"content-type": "application/json"}});
      const said = answer.status < 400 ? {} : await answer.json();
      found[path] = [answer.status, said.code || null];
    } catch (error) { found[path] = ["failed", null]; }
  }
  await fetch("/done?" + encodeURIComponent(JSON.stringify(found)), {method: "POST"});
})();
</script>"""


@pytest.mark.drill
@pytest.mark.parametrize("cors", ["*", "listed", None])
def test_a_page_in_a_real_browser(run_edge: Callable[..., Edge], tmp_path: Path, cors: str | None) -> None:
    """A page posts JSON by an edge: where it may, it reads a region's answer behind the redirect, as the origin `null`, and why it is refused."""
    edge = run_edge(load=False)
    origins: list[str | None] = []
    page = _PAGE.replace("EDGE", f"http://127.0.0.1:{edge.port}")
    with _pages(lambda _: b"ok", origins) as (region, _), _pages(lambda _: page.encode(), []) as (app, done):
        allowed = {"*": Cors(("*",)), "listed": Cors((app,)), None: None}[cors]
        leading = tuple(replace(one, endpoints=(Endpoint(region, ("127.0.0.1",)),)) for one in regions())
        edge.load(change=lambda base: replace(_with(allowed)(base), regions=leading))
        edge.current.apply(StateMessage(State(epoch=2, health=worlds.health(leading, set(), since=1.0))))
        with browser(app, tmp_path):
            until = time.monotonic() + PATIENCE
            while not done and time.monotonic() < until:
                time.sleep(0.05)
    (said,) = done
    found = json.loads(unquote(said.partition("?")[2]))
    if cors is None:
        assert found == {"/r/web/v1/chat": ["failed", None], "/r/nowhere/v1/chat": ["failed", None]}
        assert origins == []
    else:
        assert found == {"/r/web/v1/chat": [200, None], "/r/nowhere/v1/chat": [451, "refused_residency"]}
        assert origins == ["null"]
