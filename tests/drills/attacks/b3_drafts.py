"""Drafts of viewers that are made to cost control its memory and time."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.drills.arena import Arena, attack, held
from tests.drills.attacks.b3_heads import resident
from tests.system.harness import System

_SILENCE = 5.0
"""Seconds without a heartbeat after which an edge holds control for lost."""


def _token(running: System, role: str) -> str:
    made = running.api("POST", "/v1/tokens", json={"name": f"drill-{role}", "role": role})
    made.raise_for_status()
    return str(made.json()["token"])


class _Listener(threading.Thread):
    """Follows the feed, and remembers the longest silence."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self._url, self._token = url, token
        self.longest, self.heard, self.done = 0.0, 0, threading.Event()

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"{self._url}/v1/feed"
        with httpx.stream("GET", url, params={"edge": "drill-edge"}, headers=headers, timeout=60) as feed:
            last = time.monotonic()
            for _ in feed.iter_lines():
                now = time.monotonic()
                self.longest, last = max(self.longest, now - last), now
                self.heard += 1
                if self.done.is_set():
                    return


def _body(regions: int, rules: int) -> bytes:
    places: list[dict[str, Any]] = [
        {
            "name": f"r{n}",
            "lat": 1,
            "lon": n % 180,
            "country": "DE",
            "endpoints": [{"url": f"http://r{n}.test"}],
        }
        for n in range(regions)
    ]
    services = [{"name": f"s{n}", "members": [{"region": f"r{n % regions}"}]} for n in range(rules)]
    return json.dumps(
        {"service": "s1", "country": "DE", "policy": {"regions": places, "services": services}}
    ).encode()


@attack("B3", "drafts of 10,000 × 10,000, and 12 of 300 × 600 at once, with a viewer's token")
def drafts(arena: Arena) -> str:
    """Refused or worked out apart: the feed's heartbeats go on, and control's own memory stays as it was."""
    running = arena.shared
    viewer, edge = _token(running, "viewer"), _token(running, "edge")
    (control,) = running.processes("gtm.runtime.serve.control")
    before = resident(control)
    listener = _Listener(running.control, edge)
    listener.start()

    def post(body: bytes) -> httpx.Response:
        headers = {"Authorization": f"Bearer {viewer}", "Content-Type": "application/json"}
        url = f"{running.control}/v1/route:explain"
        return httpx.post(url, content=body, headers=headers, timeout=150)

    huge = post(_body(10_000, 10_000))
    held(huge.status_code == 413 and "pairs" in huge.text, f"{huge.status_code} {huge.text[:200]}")
    many = _body(300, 600)
    with ThreadPoolExecutor(12) as pool:
        statuses = sorted(answer.status_code for answer in pool.map(post, [many] * 12))
    held(set(statuses) <= {200, 413, 422, 503}, f"statuses {statuses}")
    held(503 in statuses, f"12 at once were all taken in: {statuses}")
    listener.done.set()
    listener.join(10)
    held(listener.heard > 2, "the feed was not heard")
    held(listener.longest < _SILENCE, f"{listener.longest:.1f} s without a heartbeat")
    grown = (resident(control) - before) >> 20
    held(grown < 200, f"control has {grown} MB more")
    return f"statuses {statuses}, silence {listener.longest:.1f} s, {grown} MB more in control"
