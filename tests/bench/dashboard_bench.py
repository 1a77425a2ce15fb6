"""What the dashboard costs: `python tests/bench/dashboard_bench.py [--regions 100 --services 1000 --rules 10000] [--parts pages past] [--open 200] [--seconds 20]`.

A real control with an embedded Postgres and a large policy, over HTTP:

  CPU is that of control and its database, and tells most on a machine that is shared.

  pages    server time of each page of the menu, and of one of each kind of detail, first and again (median and worst of 20), and its bytes compressed
  acts     server time of what takes more than a page, first and the median of 3 more: the preview of a drain, "What it changes" of a rule
           that is changed, a question about another day, the report of rules that only watch, a list of 1,000 services, an export
  first    bytes of a first visit: the page and all that it loads, compressed
  then     server time of a step of the slider over recorded demand, of a minute of 20,000 rows, with a week of minutes recorded
  past     server time of the plan's history with a week of it (`dashboard_past`), and of searches in an audit log of a million entries
  open     CPU of control while so many browsers look at the map, in parts of one core, beside what it takes without any
  frames   of the map with 500 flows, in Chromium without a window (which paints in software): frames a second, and CPU of the page's main thread per frame

The last line is JSON: {"pages": {path: {"first_ms", "median_ms", "worst_ms", "bytes"}}, "acts": {what: {"first_ms", "median_ms", "cpu_ms"}}, "first_load_bytes", "then" and "past": as "pages",
"open": {"dashboards", "cpu", "cpu_idle"}, "frames": {"1440x900": {"fps", "script_ms", "main_ms"}}}; the last two are of the page's main thread, per frame.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import httpx
from sqlalchemy import text

from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import ClassKey, Row
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.dashboard.live import MOST
from gtm.documents.schema import PolicyDocument, to_document
from gtm.storage.embedded.server import connection_url
from gtm.storage.session import Database
from tests.bench.dashboard_past import AUDIT, PLAN, record_audit, record_plans
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
    "/simulate?traffic=now&down=r1",
    "/plan/history",
)
ROUNDS = 20
ROWS = 20_000
ENTRIES = 1_000_000
PARTS = ("pages", "then", "past", "acts", "open", "frames")
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

    @property
    def used(self) -> float:
        """Seconds of a processor that control, its database and the processes that it has ended took so far."""
        pid = self.process.popen.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cpu_seconds(pid) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """An answer of the API."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        answer = self.client.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer

    def page(self, path: str) -> tuple[float, int, int]:
        """Server time in ms, the status, and bytes as they came."""
        began = time.perf_counter()
        with self.client.stream("GET", path) as answer:
            size = sum(map(len, answer.iter_raw()))
            return (time.perf_counter() - began) * 1000, answer.status_code, size


def timed(control: Control, path: str) -> dict[str, float]:
    """A page, first and again."""
    first, status, size = control.page(path)
    if status != 200:
        raise SystemExit(f"{path} is answered with {status}")
    used = control.used
    again = [control.page(path)[0] for _ in range(ROUNDS)]
    cpu = (control.used - used) / ROUNDS * 1000
    print(
        f"  {path[:36]:36} first {first:7.1f} ms  median {statistics.median(again):7.1f}  worst {max(again):7.1f}  CPU {cpu:6.1f}  {size:8,} bytes"
    )
    return {
        "cpu_ms": cpu,
        "first_ms": first,
        "median_ms": statistics.median(again),
        "worst_ms": max(again),
        "bytes": size,
    }


async def record(url: str, regions: int, services: int) -> datetime:
    """Record a week: minutes of a tenth of the rows, and one of all; the time of that one."""
    at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=30)
    places = [
        ("DE", 52.5, 13.4),
        ("US", 42.4, -71.1),
        ("JP", 35.6, 139.7),
        ("BR", -23.5, -46.6),
        ("IN", 19.0, 72.8),
    ]
    counts = {}
    for number in range(ROWS):
        country, lat, lon = places[number % len(places)]
        location = Location(country, lat=lat + 5 * (number // services % 4), lon=lon)
        request = Request(f"s{number % services}", location)
        region = "" if number % 97 == 0 else f"r{number % regions}"
        outcome = "served" if region else "refused_overload"
        key = ClassKey(request.service, "real_time", (f"r{number % 7}",), "0").text
        counts[Row(request.service, region, outcome, "http", key, cell_of(request, Priority.REAL_TIME))] = (
            60.0 + number % 50
        )
    database = Database(url)
    async with database.transaction() as tx:
        await tx.demand.record(at, "bench", counts)
        copy = """
            INSERT INTO demand_minutes (minute, source, total, rows, counts)
            SELECT other, 'week', m.total / 10, m.rows[1:cardinality(m.rows) / 10], m.counts[1:cardinality(m.rows) / 10]
            FROM demand_minutes AS m, generate_series(m.minute - interval '5 days', m.minute + interval '29 hours', interval '1 minute') AS other
            WHERE m.source = 'bench' AND other <> m.minute
        """
        await tx.connection.execute(text(copy))
    more = True
    while more:  # as control does in the end, an hour every five seconds
        async with database.transaction() as tx:
            more = await tx.demand.sum_hour(datetime.now(UTC) - timedelta(hours=1))
    await database.dispose()
    return at


def then(control: Control, at: datetime) -> dict[str, dict[str, float]]:
    """What the slider asks for, and the page."""
    moment = f"{at:%Y-%m-%dT%H:%M}"
    paths = (
        f"/live/then?at={moment}",
        f"/live/then?at={moment}&service=s1",
        f"/live/then?at={moment}&country=DE",
        f"/?at={moment}&span=7d",
    )
    return {path: timed(control, path) for path in paths}


def pages(control: Control) -> dict[str, dict[str, float]]:
    """All of the menu, and details."""
    menu = [
        path for path in re.findall(r'<a href="(/[a-z]*)"', control.client.get("/").text) if path != "/docs"
    ]
    found = {}
    for path in dict.fromkeys([*menu, *DETAILS]):
        found[path] = timed(control, path)
    return found


def acts(control: Control) -> dict[str, dict[str, float]]:
    """What takes more than a page."""
    rule = control.ask("GET", "/v1/residency-rules/rule1").json()
    changed = {**rule, "deny": {"regions": ["r0"]}}
    watching = {**rule, "name": "watching", "mode": "monitor"}
    control.ask("POST", "/v1/policy:apply", {"policy": {"residency_rules": [watching]}, "partial": True})
    question = {"service": "s1", "country": "DE", "lat": 50.0, "lon": 8.0, "at": "2020-06-01T00:00:00Z"}
    dry = {"policy": {"residency_rules": [changed]}, "partial": True, "dry_run": True}
    found = {}
    for name, act in {
        "preview of a drain": lambda: control.page("/regions/r1/drain?preview=now"),
        "What it changes": lambda: control.ask("POST", "/v1/policy:apply", dry),
        "Ask about another day": lambda: control.ask("POST", "/v1/route:explain", question),
        "rules that only watch": lambda: control.ask("GET", "/v1/residency/monitored"),
        "1,000 services": lambda: control.ask("GET", "/v1/services?limit=1000"),
        "export": lambda: control.ask("GET", "/v1/policy"),
    }.items():
        times, used = [], control.used
        for _ in range(4):
            began = time.perf_counter()
            act()
            times.append((time.perf_counter() - began) * 1000)
        cpu = (control.used - used) / len(times) * 1000
        found[name] = {"first_ms": times[0], "median_ms": statistics.median(times[1:]), "cpu_ms": cpu}
        print(f"  {name:36} first {times[0]:7.1f} ms  median {found[name]['median_ms']:7.1f}  CPU {cpu:7.1f}")
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


def viewer(control: Control, name: str) -> str:
    """The cookie of somebody who has just signed in."""
    token = control.ask("POST", "/v1/tokens", {"name": name, "role": "viewer"}).json()["token"]
    with httpx.Client(base_url=control.url, trust_env=False, timeout=60, headers=HTML) as client:
        client.post("/sign-in", data={"token": token})
        return "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)


async def _looking(control: Control, count: int, seconds: float) -> float:
    cookies = [viewer(control, f"viewer-{number}") for number in range(0, count, MOST)]
    port, ready = int(control.url.rpartition(":")[2]), asyncio.Event()
    ready.set()
    tasks = [asyncio.create_task(_look(port, cookies[number // MOST], ready)) for number in range(count)]
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
  scene.cells = scene.flows.map(([lat, lon, , rate]) => [lat, lon, rate, 0]);
  document.dispatchEvent(new CustomEvent('live:scene', {detail: JSON.stringify(scene)}));
}"""
COUNT = """async () => {
  let frames = 0; const began = performance.now();
  await new Promise((done) => { const tick = () => { frames++; performance.now() - began < 5000 ? requestAnimationFrame(tick) : done(); }; requestAnimationFrame(tick); });
  return [frames, (performance.now() - began) / 1000];
}"""
WINDOWS = ((1440, 900), (360, 780), (3840, 2160))


def frames(url: str, token: str) -> dict[str, dict[str, float]]:
    """Of the map with 500 flows, by the size of the window. Times are CPU of the page's main thread per frame, of which scripts are a part."""
    path = shutil.which("chromium")
    if path is None:
        return {}
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width, height in WINDOWS:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{url}/sign-in")
            page.fill("input[name=token]", token)
            page.click("button.primary")
            page.route("**/live/world*", lambda route: route.abort())  # what is drawn stays
            page.goto(f"{url}/")
            page.wait_for_timeout(2000)
            page.evaluate(FRAMES)
            page.wait_for_timeout(1000)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = _spent(session)
            count, seconds = page.evaluate(COUNT)
            spent = {name: 1000 * (value - before[name]) / count for name, value in _spent(session).items()}
            one = found[f"{width}x{height}"] = {
                "fps": count / seconds,
                "script_ms": spent["ScriptDuration"],
                "main_ms": spent["TaskDuration"],
            }
            print(
                f"  {width}x{height}: {one['fps']:.1f} frames a second, {one['main_ms']:.2f} ms of the main thread per frame, of which scripts {one['script_ms']:.2f}"
            )
            page.close()
        browser.close()
    return found


def _spent(session: Any) -> dict[str, float]:
    """Seconds that the page's main thread has spent."""
    found = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in found if one["name"] in ("ScriptDuration", "TaskDuration")}


def past(control: Control, url: str, regions: int) -> dict[str, dict[str, float]]:
    """What looks back."""
    asyncio.run(record_plans(url, regions))
    asyncio.run(record_audit(url, ENTRIES))
    return {path: timed(control, path) for path in (*PLAN, *AUDIT)}


def opened(control: Control, count: int, seconds: float) -> dict[str, float]:
    """What open maps take."""
    idle = asyncio.run(_looking(control, 0, seconds / 2))
    busy = asyncio.run(_looking(control, count, seconds))
    print(f"{count} open dashboards: {busy:.1%} of a core, {idle:.1%} without any")
    return {"dashboards": count, "cpu": round(busy, 4), "cpu_idle": round(idle, 4)}


def measured(control: Control, url: str, given: argparse.Namespace) -> dict[str, Any]:
    """The parts that are asked for. Those after `then` have a week of recorded demand."""
    result: dict[str, Any] = {}
    if "pages" in given.parts:
        result["pages"] = pages(control)
        result["first_load_bytes"] = first_load(control)
        print(f"first load {result['first_load_bytes']:,} bytes")
    if {"then", "acts"} & set(given.parts):
        at = asyncio.run(record(url, given.regions, given.services))
    if "then" in given.parts:
        result["then"] = then(control, at)
    if "past" in given.parts:
        result["past"] = past(control, url, given.regions)
    if "acts" in given.parts:
        result["acts"] = acts(control)
    if "open" in given.parts:
        result["open"] = opened(control, given.open, given.seconds)
    if "frames" in given.parts:
        print("500 flows")
        result["frames"] = frames(control.url, control.token)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("regions", 100), ("services", 1000), ("rules", 10_000), ("open", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        control = Control(Path(home), given.regions, given.services, given.rules)
        try:
            print(
                f"{given.regions} regions, {given.services} services, {given.rules} rules; load {os.getloadavg()[0]:.1f}"
            )
            result = measured(control, connection_url(Path(home) / "data"), given)
        finally:
            control.process.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
