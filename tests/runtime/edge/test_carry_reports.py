"""What people filed against other reverse proxies, tried on edges that carry: each test names its source, and most hold what had held before."""

from __future__ import annotations

import asyncio

import pytest

from tests.balancer.world import Message, Peer, answering, read_head, run
from tests.runtime.edge.carrying import CENTRAL, OK, WEST, carrying, get

HOST = "chat.demo.test"


def _answer(status: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%b\r\n%b" % (status, b"".join(line + b"\r\n" for line in lines), body)


# --- what is asked ---


@pytest.mark.parametrize(
    ("target", "host", "start"),
    [
        pytest.param(f"http://{HOST}?x=/1", HOST, b"GET /?x=/1 HTTP/1.1", id="haproxy/haproxy#3460"),
        pytest.param(f"http://{HOST}", "edge", b"GET / HTTP/1.1", id="h2o/h2o#3110"),
        pytest.param(f"HTTP://{HOST}:80/a", "web.demo.test", b"GET /a HTTP/1.1", id="RFC 9112 3.2.2"),
    ],
)
def test_a_target_that_names_everything(target: str, host: str, start: bytes) -> None:
    """With an empty path it got a `/` in the wrong place, or none; gtm closed the connection without an answer. Its authority counts, not Host."""
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            client = await world.client()
            for _ in range(2):  # by the protocol that hands the connection over, and by what has it
                client.send(get(target, host), get(target, host))
                for _ in range(2):
                    assert (await client.response()).status == 200
            assert [request.start for request in seen] == [start] * 4

    run(main)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://edge/healthz", 200),
        ("http://edge?x", 404),
        ("http://web.demo.test?x", 307),
        ("http://web.demo.test", 307),
        (f"http://u:p@{HOST}/a", 400),
        (f"http://{HOST}@edge/healthz", 400),
        ("ftp://edge/healthz", 400),
    ],
)
@pytest.mark.parametrize("host", ["edge", HOST])
def test_whom_a_target_names_is_asked_and_nobody_else(target: str, host: str, status: int) -> None:
    """haproxy/haproxy#1378, benoitc/gunicorn#3723, zoxy-io/zoxy#248: by the target one server was meant, by Host another. All are answered; a user's name in it is an error (RFC 9110 §4.2.4)."""

    async def main() -> None:
        async with carrying() as (world, backends):
            answer = await world.ask(get(target, host))
            assert answer.status == status
            if status == 307:
                assert (answer.get("location") or b"").endswith((b"/", b"/?x"))
            assert not any(one.connections for one in backends)

    run(main)


@pytest.mark.parametrize("target", ["edge:443", f"{HOST}:443"])
def test_a_tunnel_to_elsewhere_is_refused_in_words(target: str) -> None:
    """RFC 9110 §9.3.6: gtm closed the connection without an answer."""

    async def main() -> None:
        async with carrying() as (world, backends):
            assert (await world.ask(get(target, target, method="CONNECT"))).status in (400, 501)
            assert not any(one.connections for one in backends)

    run(main)


def test_no_field_of_gtms_is_named_away() -> None:
    """traefik/traefik#8318, traefik/traefik#11077 (CVE-2021-32813, CVE-2024-45410): a client named the proxy's own fields in Connection, and they did not arrive."""
    names = "gtm-handoff, gtm-push, x-forwarded-for, x-forwarded-host, via, host, content-length, x-gtm-tenant, authorization"
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            asked = get(
                "/a", HOST, f"Connection: {names}", "Authorization: Bearer k", method="POST", body=b"abc"
            )
            assert (await world.ask(asked)).status == 200

    run(main)
    wanted = {*names.encode().split(b", ")} - {b"x-gtm-tenant"}
    assert wanted <= seen[0].names
    assert seen[0].body == b"abc"


@pytest.mark.parametrize(
    ("lines", "switched"),
    [
        pytest.param(
            ["Connection: keep-alive, Upgrade", "Upgrade: WebSocket"],
            True,
            id="http-party/node-http-proxy#690",
        ),
        pytest.param(
            ["Connection: keep-alive", "Connection: upgrade", "Upgrade: websocket"],
            True,
            id="robaho/httpserver#12",
        ),
        pytest.param(
            ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
            False,
            id="golang/go#80416, traefik/traefik#13797, dotnet/yarp#877",
        ),
        pytest.param(
            ["Connection: Upgrade, HTTP2-Settings", "Upgrade: websocket, h2c", "HTTP2-Settings: AAMAAABk"],
            False,
            id="both",
        ),
        pytest.param(["Upgrade: websocket"], False, id="haproxy/haproxy#2928"),
    ],
)
def test_which_switches_are_asked_for(lines: list[str], switched: bool) -> None:
    """Firefox's was not understood; and in a tunnel of HTTP/2 further requests went past all that the proxy decides."""
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            assert (await world.ask(get("/a", HOST, *lines))).status == 200

    run(main)
    assert (seen[0].get("upgrade") == b"websocket") == switched
    assert (b"upgrade" in seen[0].names) == switched
    assert b"http2-settings" not in seen[0].names


@pytest.mark.parametrize("said", ["Content-Length: 0", None])
def test_a_post_of_nothing(said: str | None) -> None:
    """Esri/resource-proxy#478, varnishcache/varnish-cache#4331 (the length of 0 was left out, and servers said 411), apache/trafficserver#12960 (the proxy said it)."""
    seen: list[Message] = []

    async def main() -> None:
        async with carrying(answering(OK, seen=seen)) as (world, _):
            assert (await world.ask(get("/a", HOST, *([said] if said else []), method="POST"))).status == 200

    run(main)
    assert seen[0].get("content-length") == (b"0" if said else None)
    assert b"transfer-encoding" not in seen[0].names


# --- what is answered ---


@pytest.mark.parametrize(
    ("method", "status", "lines"),
    [
        pytest.param("HEAD", b"200 OK", [b"Transfer-Encoding: chunked"], id="haproxy/haproxy#1932"),
        pytest.param("HEAD", b"404 No", [b"Content-Length: 5"], id="valyala/fasthttp#1824"),
        pytest.param("HEAD", b"200 OK", [], id="heroku/vegur#77"),
        pytest.param("GET", b"304 Same", [b"Content-Length: 5"], id="freeunitorg/freeunit#295"),
        pytest.param("GET", b"304 Same", [b"Transfer-Encoding: chunked"], id="graygnuorg/pound#54"),
        pytest.param("GET", b"204 None", [b"Transfer-Encoding: chunked"], id="snapframework/snap-server#83"),
        pytest.param("POST", b"204 None", [b"Content-Length: 0"], id="sxhxliang/mcp-access-point#16"),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(method: str, status: bytes, lines: list[bytes]) -> None:
    """Proxies waited for one, or made one up; the connection goes on."""

    async def main() -> None:
        async with carrying(answering(_answer(status, *lines))) as (world, backends):
            client = await world.client()
            for _ in range(3):
                client.send(get("/a", HOST, method=method))
                answer = await client.response(method)
                assert answer.start == b"HTTP/1.1 " + status
                assert b"transfer-encoding" not in answer.names
            if lines:  # else the region's may have ended with it
                assert backends[0].connections == 1
            client.send(get("/healthz", "edge"))
            assert (await client.response()).body == b'{"status":"ok"}'

    run(main)


def test_hints_before_an_answer() -> None:
    """nginx/nginx#1241, fpco/http-reverse-proxy#44: the second of two 103 in one piece was taken for the answer, or the proxy hung. One that nobody waits for (100) says nothing."""
    hints = [_answer(b"103 Early Hints", b"Link: </%d>" % n) for n in range(2)]
    said = b"".join([*hints, _answer(b"100 Continue"), OK])

    async def main() -> None:
        async with carrying(answering(said)) as (world, _):
            client = await world.client()
            for _ in range(2):
                client.send(get("/a", HOST, method="POST", body=b"x"))
                for n in range(2):
                    assert (await client.response()).get("link") == b"</%d>" % n
                assert (await client.response()).body == b"ok"

    run(main)


def test_clients_are_led_past_no_edge() -> None:
    """caddyserver/caddy#3159, golang/go#30359, dotnet/aspnetcore#35150: what a server says of its other ports and names (Alt-Svc) reached clients, and they went there."""
    said = b'h3="us-east.test:443"; ma=86400'

    async def main() -> None:
        answer = _answer(b"200 OK", b"Alt-Svc: " + said, b"alt-svc: clear", b"Content-Length: 0")
        async with carrying(answering(answer)) as (world, _):
            assert b"alt-svc" not in (await world.ask(get())).names

    run(main)


# --- bodies, and answers before them ---


@pytest.mark.parametrize("expects", [True, False])
@pytest.mark.parametrize("rest", [b"", get("/smuggled", HOST), b"x" * 300_000 + get("/smuggled", HOST)])
def test_an_answer_before_the_end_of_the_body(expects: bool, rest: bytes) -> None:
    """envoyproxy/envoy#2929, haproxy/haproxy#3316, lysine-dev/okhttp#3252: a 413 became a reset or a 503; or the connection went on, and the body was read as a request."""

    async def refuses(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(_answer(b"413 Too Large", b"Content-Length: 3", b"Connection: close", body=b"big"))

    async def main() -> None:
        async with carrying(refuses) as (world, backends):
            client = await world.client()
            lines = ["Expect: 100-continue"] if expects else []
            client.send(get("/a", HOST, *lines, "Content-Length: 1000000", method="PUT"))
            if expects:
                assert (await client.response()).status == 100
            client.send(bytes(70_000))  # as much as an edge waits for
            answer = await client.response()
            assert (answer.status, answer.body, answer.get("connection")) == (413, b"big", b"close")
            client.send(rest)
            assert await client.end() == b""
            assert [one.connections for one in backends] == [1, 0, 0]

    run(main)


@pytest.mark.parametrize("what", ["POST /a", "POST /v1/responses", "GET /a"])
def test_a_way_that_its_region_has_closed_meanwhile(what: str) -> None:
    """envoyproxy/envoy#1979, caddyserver/caddy#6452, sozu-proxy/sozu#1442: servers close connections that wait, and the next request got 502 or 503, whatever it was."""
    method, path = what.split()
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(OK)
        await closed.wait()

    async def main() -> None:
        async with carrying(script, script, script) as (world, backends):
            client = await world.client()
            for n in range(3):
                client.send(get(path, HOST, method=method, body=b"{}" if method == "POST" else b""))
                answer = await client.response()
                assert (answer.status, answer.get("x-gtm-region")) == (200, CENTRAL.encode())
                closed.set()
                await asyncio.sleep(0.02)
                assert backends[0].connections == n + 1
            assert not backends[1].connections

    run(main)


@pytest.mark.parametrize("more", [0, 1])
def test_a_body_is_sent_again_whole_or_not_at_all(more: int) -> None:
    """envoyproxy/envoy#42597, envoyproxy/envoy#19611: what was asked again had a part of its body. What is not kept is asked of nobody else."""
    body = bytes(range(256)) * 4096 + b"x" * more
    seen: list[Message] = []

    async def breaks(peer: Peer) -> None:
        await peer.request()

    async def main() -> None:
        async with carrying(breaks, answering(OK, seen=seen)) as (world, _):
            answer = await world.ask(get("/a", HOST, method="PUT", body=body))
            if more:
                assert answer.status == 502
                assert not seen
            else:
                assert answer.get("x-gtm-region") == WEST.encode()
                assert seen[0].body == body

    run(main)


@pytest.mark.parametrize("behind", [get("/a"), get("/healthz", "edge")])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_refused_body_is_no_request(chunked: bool, behind: bytes) -> None:
    """apache/apisix#10927, hyperium/hyper#2791: after an error before the body was read, the connection went on in the middle of it."""
    how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(behind)}"

    async def main() -> None:
        async with carrying() as (world, backends):
            client = await world.client()
            client.send(get("/r/nowhere/a", "edge", how, method="POST"))
            answer = await client.response()
            assert answer.status == 451
            client.send(behind)
            assert await client.end() == b""
            assert answer.get("connection") == b"close"
            assert not any(one.connections for one in backends)

    run(main)
