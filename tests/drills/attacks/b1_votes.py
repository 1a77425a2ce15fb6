"""One edge token against the world: ghosts that vote every region down."""

from __future__ import annotations

import threading
import time

import httpx

from tests.drills.arena import Arena, attack, held
from tests.system.harness import System

SECONDS = 5.0


def token(system: System, name: str, **more: str) -> str:
    """A stolen token of role `edge`."""
    made = system.api("POST", "/v1/tokens", json={"name": name, "role": "edge", **more})
    held(made.status_code == 201, made.text)
    text: str = made.json()["token"]
    return text


def all_down(system: System) -> dict[str, object]:
    """A report that every endpoint of every region is down."""
    regions = system.api("GET", "/v1/health").json()["regions"]
    return {
        "version": "1",
        "revision": 1,
        "epoch": 1,
        "health": {
            region["region"]: {one["url"]: {"status": "down", "since": 1.0} for one in region["endpoints"]}
            for region in regions
        },
    }


def post(system: System, text: str, edge: str, body: object) -> httpx.Response:
    """Report as an edge."""
    headers = {"Authorization": f"Bearer {text}"}
    return httpx.post(f"{system.control}/v1/edges/{edge}/report", headers=headers, json=body, timeout=20)


@attack("B1", "ghosts with the token of one edge report under other names")
def ghosts(arena: Arena) -> str:
    """Names are bound to tokens: nobody hears them."""
    system = arena.shared
    stolen, body = token(system, f"ghost-{time.monotonic_ns()}"), all_down(system)
    codes = {post(system, stolen, f"ghost-{number}", body).status_code for number in range(5)}
    held(codes == {403}, f"answers were {codes}")
    return "403 for every other name"


@attack("B1", "ghosts with the token of a group vote every region down")
def group(arena: Arena) -> str:
    """Twenty names of one token are one voter, and the edge that sees the regions up goes on with all of them."""
    system = arena.shared
    stolen, body = token(system, f"group-{time.monotonic_ns()}", edges="*"), all_down(system)
    ended = threading.Event()

    def vote() -> None:
        number = 0
        while not ended.is_set():
            post(system, stolen, f"ghost-{number % 20}", body)
            number += 1

    voter = threading.Thread(target=vote)
    voter.start()
    seen: list[object] = []
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for service in ("chat", "embeddings"):
                answer = system.route(service=service, client_ip="91.198.174.1")
                if answer.status_code not in (200, 404):
                    seen.append((service, answer.status_code, answer.text[:100]))
            if not system.addresses("chat.demo.test", "91.198.174.0/24"):
                seen.append("no address over DNS")
            time.sleep(0.1)
        warnings = system.api("GET", "/v1/status").json()["warnings"]
        answer = system.route(service="chat", client_ip="91.198.174.1").json()
    finally:
        ended.set()
        voter.join()
    held(not seen, f"refusals: {seen[:3]}")
    held(answer.get("region") == "eu-central", f"a client in Amsterdam got {answer.get('region')}")
    told = any("as many tokens' edges say" in text for text in warnings)
    held(told, f"nothing of it in the status: {warnings}")
    return f"every answer served for {SECONDS:.0f} s, Frankfurt for Amsterdam, and the tie of votes is in the status"
