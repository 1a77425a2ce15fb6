"""The configurations in docs/lists.md, run by Envoy, HAProxy and NGINX under load, while regions fail and the law changes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import httpx
import pytest
from hypothesis import given

from gtm.core.model.access import Role
from gtm.core.model.lists import ListedRegion
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.services import Steering
from gtm.documents.lists import ListFormat, file_name, text_of
from gtm.documents.schema import concise_policy
from gtm.feed.reports import EdgeReport
from tests import worlds
from tests.adapters.test_balancers import _running
from tests.api.conftest import TOKENS, Server
from tests.core.strategies import quick
from tests.docs.blocks import ROOT
from tests.documents.test_lists import listings
from tests.ports import free_port
from tests.system.harness import eventually
from tests.tools import tool

pytestmark = pytest.mark.drill

REGIONS = ("eu-central", "eu-west", "us-east")
OUTSIDE = "us-east"
MANY = 200
"""Requests in a row that tell what a proxy does from chance."""


@dataclass
class ModelServers:
    """A server for each region, which counts what it is asked."""

    ports: dict[str, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    last: dict[str, float] = field(default_factory=dict)
    """When each was asked last, by the monotonic clock."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Proxies that are reloaded reset connections."""


@contextmanager
def _model_servers() -> Iterator[ModelServers]:
    found, running = ModelServers(), []
    for name in REGIONS:

        class Answers(BaseHTTPRequestHandler):
            region = name
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Say which region it is; proxies' checks are not counted."""
                if self.path == "/v1/models":
                    found.asked[self.region] += 1
                    found.last[self.region] = time.monotonic()
                body = self.region.encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        server = _Quiet(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        found.ports[name] = server.server_port
    try:
        yield found
    finally:
        for server in running:
            server.shutdown()
            server.server_close()


@dataclass
class Listing:
    """A control tier with three regions, of which one is outside of the fence, and servers in each."""

    server: Server
    models: ModelServers
    law: Policy
    folder: Path

    def see(self, *down: str) -> float:
        """An edge says which regions are down; when that was control's verdict."""
        active = self.server.app.state.context.replica.active
        health = worlds.health(self.law.regions, down, since=1.0)

        def told() -> None:
            active.reports.take("edge-1", "127.0.0.1", EdgeReport("1", 2, 1, health))
            active.verdicts.judge()

        self.server.do(told)
        return time.monotonic()


@pytest.fixture
def listing(prepared_url: str, tmp_path: Path) -> Iterator[Listing]:
    """Everything is up; an edge says so again and again."""
    with _model_servers() as models, Server(prepared_url) as server:
        law = worlds.policy(
            *(
                worlds.region(name, Endpoint(f"http://127.0.0.1:{models.ports[name]}", ("127.0.0.1",)))
                for name in REGIONS
            ),
            worlds.service("chat", " ".join(REGIONS), steering=Steering.WEIGHTED),
            worlds.rule("gdpr", "EEA", client_jurisdictions="EEA"),
        )
        headers = {"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
        body = {"policy": concise_policy(law)}
        answer = httpx.post(
            f"{server.url}/v1/policy:apply", json=body, headers=headers, trust_env=False, timeout=60
        )
        assert answer.status_code == 200, answer.text
        made = Listing(server, models, law, tmp_path / "lists")
        made.see()
        yield made


def _export(listing: Listing, form: str, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "gtm.cli", "export", "--for", form, "--service", "chat"),
        *("--client-country", "DE", "--out", str(listing.folder), *more),
    ]


def _environment(listing: Listing) -> dict[str, str]:
    told = {"GTM_CONTROL_URL": listing.server.url, "GTM_TOKEN": TOKENS[Role.VIEWER]}
    return {**os.environ, **told, "PYTHONPATH": str(ROOT)}


@contextmanager
def _kept(listing: Listing, form: str, *more: str) -> Iterator[Path]:
    """The lists kept up to date; where the command says what it does."""
    log = listing.folder.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            _export(listing, form, "--watch", *more), env=_environment(listing), stdout=out, stderr=out
        )
    try:
        eventually(log.read_bytes, "it has looked once")
        yield log
    finally:
        process.terminate()
        process.wait(30)


def _block(heading: str, language: str) -> str:
    """The last block of a section of the page."""
    page = (ROOT / "docs/lists.md").read_text().partition(f"## You run {heading}")[2]
    blocks = re.findall(rf"```{language}\n(.*?)```", page.partition("\n## ")[0], re.DOTALL)
    assert blocks
    return str(blocks[-1])


class Load:
    """Clients that ask a proxy one request after the other."""

    def __init__(self, port: int) -> None:
        self.answers: Counter[int] = Counter()
        self._url = f"http://127.0.0.1:{port}/v1/models"
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def _run(self) -> None:
        with httpx.Client(trust_env=False, timeout=20) as client:
            while not self._ended.wait(0.005):
                try:
                    self.answers[client.get(self._url).status_code] += 1
                except httpx.TransportError:
                    self.answers[0] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def _asked(port: int, count: int = MANY) -> Counter[str]:
    """Which regions answer so many requests."""
    with httpx.Client(trust_env=False, timeout=20) as client:
        return Counter(client.get(f"http://127.0.0.1:{port}/v1/models").text.strip() for _ in range(count))


def _follows(listing: Listing, port: int) -> None:
    """A proxy under load goes by the file: what is out gets nothing, what is back does, and what is outside never did."""
    models = listing.models
    with Load(port) as load:
        eventually(lambda: models.asked["eu-central"] and models.asked["eu-west"], "both regions serve")
        for out, left in (("eu-central", "eu-west"), ("eu-west", "eu-central")):
            since = listing.see(out)
            eventually(lambda left=left: set(_asked(port)) == {left}, f"{out} is out")  # type: ignore[misc]
            print(f"{out}: last asked {models.last[out] - since:.2f} s after the verdict")
            before = models.asked[out]
            assert set(_asked(port)) == {left}
            assert models.asked[out] == before
            listing.see()
            eventually(lambda: set(_asked(port)) == {"eu-central", "eu-west"}, f"{out} is back")
        listing.see("eu-central", "eu-west")
        eventually(lambda: OUTSIDE not in _asked(port, 10) and not _ok(port), "all inside are down: refusals")
        listing.see()
        eventually(lambda: _ok(port), "they are back")
    assert models.asked[OUTSIDE] == 0
    print(dict(load.answers))


def _ok(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200


def _first(listing: Listing, form: str) -> None:
    done = subprocess.run(
        _export(listing, form),
        env=_environment(listing),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_envoy(listing: Listing, tmp_path: Path) -> None:
    """By EDS from the file."""
    program, port = tool("envoy"), free_port()
    text = _block("Envoy", "yaml").replace("port_value: 10000", f"port_value: {port}")
    text = text.replace("/etc/envoy/lists", str(listing.folder))
    (tmp_path / "envoy.yaml").write_text(text)
    _first(listing, "envoy-eds")
    command = [program, "-c", str(tmp_path / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1"]
    with _running([*command, "--log-level", "warning"], port), _kept(listing, "envoy-eds"):
        _follows(listing, port)


def test_nginx(listing: Listing, tmp_path: Path) -> None:
    """By a reload after each change."""
    program, port = tool("nginx"), free_port()
    block = (
        _block("NGINX", "nginx")
        .replace(":10001", f":{port}")
        .replace("/etc/nginx/lists", str(listing.folder))
    )
    config = _nginx(tmp_path, block)
    _first(listing, "nginx")
    then = f"{program} -c {config} -s reload"
    with _running([program, "-c", str(config)], port), _kept(listing, "nginx", "--then", then):
        _follows(listing, port)


def _nginx(folder: Path, block: str) -> Path:
    config = folder / "nginx.conf"
    paths = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error; events {{}}\n"
        f"http {{ access_log off; {paths}\n{block} }}\n"
    )
    return config


def test_haproxy(listing: Listing, tmp_path: Path) -> None:
    """By a new process after each change, which the page's script starts."""
    port, pid = free_port(), tmp_path / "haproxy.pid"
    config, script = tmp_path / "haproxy.cfg", tmp_path / "reload"
    config.write_text(_block("HAProxy", "haproxy").replace(":10002", f":{port}"))
    text = (
        _block("HAProxy", "sh")
        .replace("/run/haproxy.pid", str(pid))
        .replace("exec haproxy", f"exec {tool('haproxy')}")
    )
    script.write_text(
        text.replace("/etc/haproxy/haproxy.cfg", str(config)).replace(
            "/etc/haproxy/lists", str(listing.folder)
        )
    )
    script.chmod(0o755)
    _first(listing, "haproxy")
    pid.write_text("")
    try:
        with _kept(listing, "haproxy", "--then", str(script)):
            eventually(lambda: _ok(port), "HAProxy listens")
            _follows(listing, port)
    finally:
        for number in pid.read_text().split():
            os.kill(int(number), signal.SIGTERM)


def _valid(form: ListFormat, folder: Path) -> Callable[[tuple[ListedRegion, ...]], None]:
    """Whether the program of a format takes a list; its addresses alone, for names of tests do not resolve."""
    path = folder / file_name(form, "chat")
    if form is ListFormat.NGINX:
        config = _nginx(folder, f"include {path};")
        command = [tool("nginx"), "-t", "-c", str(config)]
    elif form is ListFormat.HAPROXY:
        (folder / "head.cfg").write_text(_block("HAProxy", "haproxy"))
        command = [tool("haproxy"), "-c", "-f", str(folder / "head.cfg"), "-f", str(path)]
    else:
        command = [tool("envoy"), "--mode", "validate", "-c", str(folder / "envoy.json")]

    def check(regions: tuple[ListedRegion, ...]) -> None:
        numeric = tuple(
            ListedRegion(
                one.region, one.share, one.standby, tuple(e for e in one.endpoints if e.ipv4 or e.ipv6)
            )
            for one in regions
        )
        text = text_of(form, "chat", numeric).text
        path.write_text(text)
        if form is ListFormat.ENVOY_EDS:  # it validates what is within its own configuration
            (assignment,) = json.loads(text)["resources"]
            del assignment["@type"]
            cluster = {"name": "chat", "type": "STATIC", "load_assignment": assignment}
            (folder / "envoy.json").write_text(json.dumps({"static_resources": {"clusters": [cluster]}}))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (done.stderr, text)

    return check


@pytest.mark.parametrize("form", [ListFormat.ENVOY_EDS, ListFormat.HAPROXY, ListFormat.NGINX])
def test_whatever_is_listed_the_program_takes_it(form: ListFormat, tmp_path: Path) -> None:
    """Random lists, the empty one among them."""
    check = _valid(form, tmp_path)
    check(())

    @quick(60)
    @given(listings())
    def each(regions: tuple[ListedRegion, ...]) -> None:
        check(regions)

    each()
