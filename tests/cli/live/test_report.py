"""`gtm report`: from a server's metrics to the capacity of its region, with a real control tier in between."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from gtm.cli.common.exits import Exit
from gtm.core.model.access import Role
from tests.adapters import texts
from tests.cli.conftest import DEMO, Control, Gtm


@pytest.fixture
def vllm() -> Iterator[str]:
    """A server that serves vLLM's metrics and has served ten requests more each time it is asked."""
    answers = iter([texts.VLLM % texts.EARLIER] + [texts.VLLM % texts.LATER] * 100)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(next(answers).encode() if self.path == "/metrics" else b"")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_regions_load_from_its_servers_metrics(run: Gtm, control: Control, vllm: str) -> None:
    """With the least that is asked for: where the server is, its region, how many it serves at once."""
    run.ok("apply", DEMO, "--yes")
    reporter = control.tokens[Role.REPORTER]
    done = run.ok(
        "report", "--region", "eu-central", "--vllm", vllm, "--limit", 64, "--once", GTM_TOKEN=reporter
    )
    told = json.loads(done.out.splitlines()[-1])
    assert (told["source"], told["outstanding"], told["service_time_ms"]) == (vllm, 11.0, 3000.0)
    assert "reporting" in done.out
    (region,) = (item for item in run.ok("load", "--json").json["regions"] if item["region"] == "eu-central")
    assert (region["load"]["outstanding"], region["load"]["queue"], region["load"]["limit"]) == (11, 3, 64)


def test_what_keeps_a_region_from_being_reported_is_said(run: Gtm, control: Control, vllm: str) -> None:
    """A region that there is not, a token that may not, servers that are not there: each with its exit code."""
    run.ok("apply", DEMO, "--yes")
    run.environment["GTM_TOKEN"] = control.tokens[Role.REPORTER]
    unknown = run("report", "--region", "mars", "--vllm", vllm, "--once")
    assert (unknown.code, "mars" in unknown.err) == (2, True)
    weak = run(
        "report", "--region", "eu-west", "--vllm", vllm, "--once", GTM_TOKEN=control.tokens[Role.VIEWER]
    )
    assert weak.code == 4
    away = run("report", "--region", "eu-west", "--tgi", "127.0.0.1:1", "--once")
    assert away.code == 3
    assert "cannot be read" in away.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say which servers"),
        (["--vllm", "::"], "is not a URL"),
        (["--vllm", "h:1", "--tgi", "h:1"], "given twice"),
        (["--prometheus", "h:1"], "needs --series"),
        (["--vllm", "h:1", "--series", "queue=x"], "without --prometheus"),
        (["--prometheus", "h:1", "--series", "busy=x"], "signals are outstanding"),
        (["--prometheus", "h:1", "--series", "queue=x{"], "is no series"),
        (["--vllm", "h:1", "--label", "x"], "is not NAME=VALUE"),
    ],
)
def test_options_that_cannot_be_meant(bare: Gtm, arguments: list[str], words: str) -> None:
    """Each with what to write instead."""
    done = bare("report", "--region", "r", "--dry-run", *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.split())


def test_a_dry_run_needs_neither_token_nor_control(bare: Gtm, vllm: str) -> None:
    """What would be reported, a JSON object a server; any series can be a signal."""
    named = 'outstanding=vllm:num_requests_running{engine="0"}'
    done = bare.ok("report", "--region", "r", "--dry-run", "--once", "--prometheus", vllm, "--series", named)
    assert json.loads(done.out) == {"region": "r", "source": vllm, "outstanding": 7.0}


def test_networks_that_are_asked_without_a_proxy(bare: Gtm) -> None:
    """An IPv6 network among them ended the command with a traceback (encode/httpx#3221)."""
    asked = ("report", "--region", "r", "--haproxy", "http://192.0.2.1/metrics", "--once", "--dry-run")
    ways = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "fe80::/10,[::1]"}
    assert "connection refused" in bare(*asked, **ways).err
    wrong = bare(*asked, http_proxy="http://u:s3cretpw@[::1", no_proxy="")
    assert (wrong.code, "s3cret" in wrong.err) == (Exit.BAD_INPUT, False)
    assert "http_proxy is no URL" in wrong.err
