"""Requests that a rule concerns, brought to an edge that stands outside of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dns.edns
import dns.message
import dns.query
import dns.rcode
import httpx

from tests.drills.arena import Arena, attack, held
from tests.ports import free_port
from tests.system.harness import Process, System, eventually
from tests.system.test_edge import edge_token, start_edge

_BODY = 10_000_000
_EUROPEAN, _AMERICAN = "91.198.174.192", "8.8.8.8"


@contextmanager
def _edge(arena: Arena, running: System, country: str) -> Iterator[tuple[int, int]]:
    """A real edge that says where it stands: its HTTP port and its DNS port."""
    http, resolver = free_port(), free_port()
    arguments = ("--edge-port", str(http), "--name", "second", "--country", country)
    arguments += ("--dns-bind", f"127.0.0.1:{resolver}", "--trusted-proxies", "127.0.0.0/8")
    process: Process = start_edge(arena.fresh(), running.control, edge_token(running), *arguments)
    try:
        eventually(lambda: _status(http, "/readyz") == 200, "the edge is ready")
        yield http, resolver
    finally:
        process.stop()


def _status(port: int, path: str, **headers: str) -> int:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=10).status_code
    return 0


def _bind_edges(running: System) -> None:
    """Put the demo's rule about chat in force for edges too."""
    rule = {
        "match": {"services": ["chat"], "client_jurisdictions": ["EEA"]},
        "allow": {"jurisdictions": ["EEA"]},
        "edges": "in_fence",
    }
    running.api("PUT", "/v1/residency-rules/gdpr-chat", json=rule).raise_for_status()


@attack("A7", "a request with a body at an edge outside of its rule")
def body_at_an_edge_outside(arena: Arena) -> str:
    """A client in the EEA's 10 MB go to an edge in the US: 421 by the head alone, as for look-ups; DNS refuses."""
    with arena.own("--demo", "--country", "DE") as running, _edge(arena, running, "US") as (http, resolver):
        _bind_edges(running)
        ask = {"host": "chat.demo.test", "x-forwarded-for": _EUROPEAN}
        eventually(lambda: _status(http, "/", **ask) == 421, "the edge outside refuses")
        for expect in (b"", b"Expect: 100-continue\r\n"):
            said = _post(http, expect)
            held(said.startswith(b"HTTP/1.1 421 "), f"answered {said[:60]!r}")
        found = _status(http, f"/v1/route?service=chat&client_ip={_EUROPEAN}")
        held(found == 421, f"the look-up got {found}")
        found = _status(http, "/", **{**ask, "x-forwarded-for": _AMERICAN})
        held(found == 307, f"a client whom no rule concerns got {found}")
        refused = _resolve(resolver)
        held(refused.rcode() == dns.rcode.REFUSED and not refused.answer, f"DNS answered {refused.to_text()}")
        inside = running.redirect("chat.demo.test", "/", _EUROPEAN)
        held(inside.status_code == 307, f"the edge inside answered {inside.status_code}")
    return "421 before a byte of 10 MB, 421 for look-ups, REFUSED over DNS; the edge inside answers"


def _resolve(port: int) -> dns.message.Message:
    """What DNS answers a resolver that says its client is in the EEA."""
    option = dns.edns.ECSOption(_EUROPEAN, 24)
    query = dns.message.make_query("chat.demo.test", "A", use_edns=0, options=[option])
    return dns.query.udp(query, "127.0.0.1", port=port, timeout=5)


def _post(port: int, expect: bytes) -> bytes:
    """Send a head that promises a body, and read the whole answer before sending any of it."""
    head = (
        b"POST /v1/x HTTP/1.1\r\nHost: chat.demo.test\r\nX-Forwarded-For: %b\r\n%bContent-Length: %d\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head % (_EUROPEAN.encode(), expect, _BODY))
        received = b""
        with suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
    return received
