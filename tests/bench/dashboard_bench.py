"""What the dashboard costs: `python tests/bench/dashboard_bench.py [--regions 100 --services 1000 --rules 10000] [--open 200] [--seconds 20]`.

A real control with an embedded Postgres and a large policy, over HTTP:

  pages    server time of each page of the menu, and of one of each kind of detail, first and again (median and worst of 20), and its bytes compressed
  first    bytes of a first visit: the page and all that it loads, compressed
  open     CPU of control while so many browsers look at the map, in parts of one core, beside what it takes without any
  frames   frames a second of the map with 500 flows, in Chromium without a window (which paints in software)

The last line is JSON: {"pages": {path: {"first_ms", "median_ms", "worst_ms", "bytes"}}, "first_load_bytes", "open": {"dashboards", "cpu", "cpu_idle"}, "fps"}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import httpx

from gtm.documents.schema import PolicyDocument, to_document
from tests.bench.measure import cpu_seconds
from tests.bench.scale_bench import large_policy
from tests.ports import free_port
from tests.system.harness import Process

DETAILS = (
    "/regions/r1",
    "/policy/services/s1",
    "/policy/revisions",
    "/policy/revisions/1",
    "/ask?service=s1&from=DE",
    "/residency?service=s1",
)
ROUNDS = 20
SETTLE_S = 5.0
HTML = {"Accept": "text/html", "Accept-Encoding": "gzip"}


class Control:
    """A running control with a large policy, and somebody who is signed in."""

    def __init__(self, home: Path, regions: int, services: int, rules: int) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = Process(
            ["control", "--data-dir", str(home / "data"), "--control-port", str(port)], home / "log"
        )
        self.client = httpx.Client(
            base_url=self.url, trust_env=False, timeout=600, headers=HTML, follow_redirects=True
        )
        self._until_ready()
        token = re.search(r"gtm_\S+", self.process.output)
        assert token is not None, self.process.output
        self.token = token[0]
        policy = large_policy(regions, services, min(10, regions), rules)
        body = {"policy": to_document(policy) if not isinstance(policy, PolicyDocument) else policy}
        answer = httpx.post(
            f"{self.url}/v1/policy:apply",
            json=body,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=600,
            trust_env=False,
        )
        answer.raise_for_status()
        self.client.post("/sign-in", data={"token": self.token}).raise_for_status()

    def _until_ready(self) -> None:
        for _ in range(600):
            try:
                if (
                    httpx.get(f"{self.url}/healthz", trust_env=False).status_code == 200
                    and "gtm_" in self.process.output
                ):
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"control did not start:\n{self.process.output}")

    def page(self, path: str) -> tuple[float, int, int]:
        """Server time in ms, the status, and bytes as they came."""
        began = time.perf_counter()
        with self.client.stream("GET", path) as answer:
            size = sum(map(len, answer.iter_raw()))
            return (time.perf_counter() - began) * 1000, answer.status_code, size


def pages(control: Control) -> dict[str, dict[str, float]]:
    """All of the menu, and details."""
    menu = [
        path for path in re.findall(r'<a href="(/[a-z]*)"', control.client.get("/").text) if path != "/docs"
    ]
    found = {}
    for path in dict.fromkeys([*menu, *DETAILS]):
        first, status, size = control.page(path)
        if status != 200:
            continue
        again = [control.page(path)[0] for _ in range(ROUNDS)]
        found[path] = {
            "first_ms": first,
            "median_ms": statistics.median(again),
            "worst_ms": max(again),
            "bytes": size,
        }
        print(
            f"  {path:36} first {first:7.1f} ms  median {found[path]['median_ms']:7.1f}  worst {max(again):7.1f}  {size:8,} bytes"
        )
    return found


def first_load(control: Control) -> int:
    """Bytes of the map's page and its files."""
    text = control.client.get("/").text
    files = re.findall(r'(?:src|href|data-land)="(/static/[^"]+)"', text)
    return control.page("/")[2] + sum(control.page(path)[2] for path in dict.fromkeys(files))


async def _look(port: int, cookie: str, ready: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /live/world HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncookie: {cookie}\r\n\r\n".encode())
    await ready.wait()
    while await reader.read(65_536):
        pass


async def _looking(control: Control, count: int, seconds: float) -> float:
    cookie = "; ".join(f"{one.name}={one.value}" for one in control.client.cookies.jar)
    port, ready = int(control.url.rpartition(":")[2]), asyncio.Event()
    ready.set()
    tasks = [asyncio.create_task(_look(port, cookie, ready)) for _ in range(count)]
    await asyncio.sleep(SETTLE_S)
    began, used = time.perf_counter(), cpu_seconds(control.process.popen.pid)
    await asyncio.sleep(seconds)
    part = (cpu_seconds(control.process.popen.pid) - used) / (time.perf_counter() - began)
    lost = sum(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if lost:
        print(f"  {lost} of {count} streams ended by themselves")
    return part


FRAMES = """async () => {
  const scene = JSON.parse(document.getElementById('scene').textContent);
  const names = scene.regions.map((one) => one.name);
  scene.flows = Array.from({length: 500}, (_, n) => [(n * 7) % 110 - 50, (n * 37) % 340 - 170, names[n % names.length], n % 50 + 1]);
  scene.places = scene.flows.map(([lat, lon, , rate]) => [lat, lon, rate, 0]);
  document.dispatchEvent(new CustomEvent('live:scene', {detail: JSON.stringify(scene)}));
  let frames = 0; const began = performance.now();
  await new Promise((done) => { const tick = () => { frames++; performance.now() - began < 5000 ? requestAnimationFrame(tick) : done(); }; requestAnimationFrame(tick); });
  return frames / ((performance.now() - began) / 1000);
}"""


def frames(control: Control) -> float | None:
    """Of the map with 500 flows."""
    path = shutil.which("chromium")
    if path is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{control.url}/sign-in")
        page.fill("input[name=token]", control.token)
        page.click("button.primary")
        page.route("**/live/world*", lambda route: route.abort())  # what is drawn stays
        page.goto(f"{control.url}/")
        page.wait_for_timeout(2000)
        found = float(page.evaluate(FRAMES))
        browser.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("regions", 100), ("services", 1000), ("rules", 10_000), ("open", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        control = Control(Path(home), given.regions, given.services, given.rules)
        try:
            print(f"{given.regions} regions, {given.services} services, {given.rules} rules")
            result["pages"] = pages(control)
            result["first_load_bytes"] = first_load(control)
            print(f"first load {result['first_load_bytes']:,} bytes")
            idle = asyncio.run(_looking(control, 0, given.seconds / 2))
            busy = asyncio.run(_looking(control, given.open, given.seconds))
            result["open"] = {"dashboards": given.open, "cpu": round(busy, 4), "cpu_idle": round(idle, 4)}
            print(f"{given.open} open dashboards: {busy:.1%} of a core, {idle:.1%} without any")
            result["fps"] = frames(control)
            if result["fps"] is not None:
                print(f"500 flows: {result['fps']:.1f} frames a second")
        finally:
            control.process.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
