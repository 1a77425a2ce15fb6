"""`gtm serve --demo` as a newcomer, an accident and an operator meet it. One system for the tests that leave it whole."""

from __future__ import annotations

import csv
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest

from gtm.runtime.process.lifeline import ENVIRONMENT as LIFELINE
from tests.system.harness import System, alive, command_line, descendants, eventually, kill_remains, system

pytestmark = pytest.mark.system

GERMAN = "91.198.174.192"  # Wikimedia's, in the Netherlands: inside the EEA, nearest to Frankfurt
LONDON = "81.2.69.142"
PARTS = ("gtm.runtime.serve.control", "-m gtm.runtime.edge.agent", "gtm.runtime.edge.worker", "demo_world")
EUROPE = {"eu-central", "eu-west"}
ADDRESSES = Path(__file__).parent.parent / "geoip" / "public_addresses.csv"


class Stage:
    """A data directory on which a demo runs, to which accidents happen. It is started where none runs."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._running: System | None = None

    def system(self) -> System:
        """What runs."""
        if self._running is None or self._running.process.popen.poll() is not None:
            self._running = System(self.data_dir, "--demo")
            self._running.wait()
        return self._running

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._running is not None and self._running.process.popen.poll() is None:
            self._running.process.stop()
        kill_remains(self.data_dir)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stage]]:
    """The stage of the next test is the last."""
    found = [Stage(tmp_path_factory.mktemp("serve") / "data")]
    yield found
    found[-1].close()


@pytest.fixture
def stage(
    stages: list[Stage], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Where the next accident happens: the one that survived those before; if a test of it fails, the next has a new one."""
    failed = request.session.testsfailed
    yield stages[-1]
    if request.session.testsfailed > failed:
        stages[-1].close()
        stages.append(Stage(tmp_path_factory.mktemp("serve") / "data"))


@pytest.fixture
def demo(stages: list[Stage]) -> System:
    """A demo system, shared by the tests of this module, accidents too; each leaves it as it found it."""
    return stages[-1].system()


@pytest.fixture
def whole(demo: System) -> Iterator[System]:
    """The shared system, with every region restored afterwards."""
    yield demo
    for region in ("eu-central", "eu-west"):
        demo.demo("restore", region)
    eventually(lambda: demo.region(service="chat", client_ip=GERMAN) == "eu-central", "Frankfurt is back")


def address_of(demo: System, region: str) -> str:
    """A region's IPv4 address."""
    return str(demo.api("GET", f"/v1/regions/{region}").json()["endpoints"][0]["ipv4"][0])


def test_lookup_names_a_european_region_with_reasons(demo: System) -> None:
    """The first command of the README works."""
    eventually(
        lambda: demo.region(service="chat", client_ip=LONDON) in EUROPE,
        "what other tests took down is up again",
    )
    answer = demo.route(service="chat", client_ip=LONDON).json()
    assert answer["reasons"]
    assert answer["endpoint"]["url"].startswith("http://127.0.")


def test_no_region_is_found_down_at_the_start(demo: System) -> None:
    """Balancers listen before the edge probes them: one that was down at first would come back slowly."""
    start = demo.process.output.partition("gtm is ready")[0]
    found = re.findall(r"region (\S+): http://\S+ is (\w+)", start)
    regions = [item["name"] for item in demo.api("GET", "/v1/regions").json()["items"]]
    assert sorted(found) == sorted((name, "up") for name in regions)


def test_secrets_are_in_no_environment_and_no_argument(demo: System) -> None:
    """The database's URL and tokens are handed over in no environment and no argument list."""
    seen: dict[str, set[str]] = {}
    for pid in descendants(demo.process.popen.pid):
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        names = {entry.partition("=")[0] for entry in environment if entry.startswith("GTM_")} - {LIFELINE}
        assert "gtm_serve_" not in command_line(pid)
        seen.setdefault(next((part for part in PARTS if part in command_line(pid)), "other"), set()).update(
            names
        )
    assert seen == {
        "gtm.runtime.serve.control": set(),
        "-m gtm.runtime.edge.agent": set(),
        "gtm.runtime.edge.worker": set(),
        "demo_world": set(),
        "other": set(),  # Postgres
    }


def test_dns_redirect_and_lookup_agree_on_real_addresses(demo: System) -> None:
    """≥ 200 public addresses of ≥ 40 countries get the same region over HTTP and DNS, Europeans inside the EEA."""
    with ADDRESSES.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert len(rows) >= 200
    assert len({row["country"] for row in rows}) >= 40
    regions = {item["name"]: item for item in demo.api("GET", "/v1/regions?limit=100").json()["items"]}
    served: set[str] = set()

    def agree(service: str, address: str, length: int) -> bool:
        region = demo.region(service=service, client_ip=address)
        found = demo.addresses(f"{service}.demo.test", f"{address}/{length}")
        return region is not None and found == regions[region]["endpoints"][0]["ipv4"]

    for service in ("chat", "web"):
        items = [{"service": service, "client_ip": row["address"]} for row in rows]
        batch = httpx.post(f"{demo.edge}/v1/route:batch", json={"requests": items}, timeout=20).json()[
            "results"
        ]
        for row, answer in zip(rows, batch, strict=True):
            length = 128 if ":" in row["address"] else 32
            addresses = demo.addresses(f"{service}.demo.test", f"{row['address']}/{length}")
            region = answer["region"]
            if region is None or addresses != regions[region]["endpoints"][0]["ipv4"]:
                # So many questions at once are demand too: the plan may have moved in between. On a busy machine probes time out.
                eventually(partial(agree, service, row["address"], length), f"both tiers agree on {row}")
            assert answer["client"]["country"] == row["country"]
            served |= {region} - {None}
    assert served == set(regions), "every region is nearest to somebody"


def test_redirect_keeps_path_and_query(demo: System) -> None:
    """A redirect by host name leads to the caller's region, path and query kept byte for byte."""
    response = httpx.get(
        f"{demo.edge}/a%20b//c?x=1&y=%2F", headers={"Host": "web.demo.test"}, follow_redirects=False
    )
    assert response.status_code == 307
    assert response.headers["location"].endswith("/a%20b//c?x=1&y=%2F")
    assert "private" in response.headers["cache-control"] or "no-store" in response.headers["cache-control"]

    def carried() -> bool:
        found = httpx.get(
            f"{demo.edge}/v1/models?x=1&y=%2F", headers={"Host": "web.demo.test"}, follow_redirects=True
        )
        assert found.url.query == b"x=1&y=%2F"
        region = found.history[0].headers["x-gtm-region"]
        return found.status_code == 200 and found.headers["x-gtm-region"] == region

    eventually(carried, "no region that another test took down is missing")


def test_killing_regions_never_leaves_the_fence(whole: System) -> None:
    """Frankfurt dies: Dublin serves. Dublin dies too: GDPR traffic is refused, everything else goes on."""
    refusal = address_of(whole, "eu-central").rsplit(".", 1)[0] + ".8"
    eventually(lambda: whole.region(service="chat", client_ip=GERMAN) == "eu-central", "Frankfurt serves")
    whole.demo("fail", "eu-central")
    eventually(lambda: whole.region(service="chat", client_ip=GERMAN) == "eu-west", "Dublin takes over")
    eventually(
        lambda: whole.addresses("chat.demo.test", f"{GERMAN}/24") == [address_of(whole, "eu-west")],
        "over DNS too",
    )
    whole.demo("fail", "eu-west")
    eventually(
        lambda: whole.route(service="chat", client_ip=GERMAN).status_code == 451, "GDPR traffic is refused"
    )
    answer = whole.resolve("chat.demo.test", f"{GERMAN}/24")
    assert answer.rcode() == 0
    assert whole.addresses("chat.demo.test", f"{GERMAN}/24") == [refusal]
    assert httpx.get(f"http://{refusal}:9000/").status_code == 451
    assert whole.route(service="web", client_ip=GERMAN).json()["region"] not in EUROPE
    assert whole.route(service="chat", client_ip="8.8.8.8").json()["region"] not in EUROPE


def test_tenants_of_the_policy_are_pinned(demo: System) -> None:
    """Health records of the clinic stay in Germany; saying less does not help; an unknown tenant is an error."""
    eventually(lambda: demo.region(service="records", client_ip="8.8.8.8") is not None, "Frankfurt is up")
    for said in ({"tenant": "clinic", "data_class": "health"}, {"tenant": "clinic"}, {}):
        assert demo.region(service="records", client_ip="8.8.8.8", **said) == "eu-central", said
    assert (
        demo.region(service="records", client_ip="8.8.8.8", tenant="acme", data_class="public")
        != "eu-central"
    )
    assert demo.route(service="records", client_ip="8.8.8.8", tenant="clinci").status_code in (404, 422)


def test_a_drain_reaches_the_answers_and_survives(demo: System) -> None:
    """A drained region takes no new clients on any edge, until it is activated."""
    eventually(lambda: demo.region(service="web", client_ip="8.8.8.8") == "us-west", "us-west serves")
    refused: list[str] = []

    def drained() -> bool:
        # What the tests before asked for is demand, which a drain may not move at once: until it is forgotten.
        answer = demo.api("POST", "/v1/regions/us-west:drain")
        refused.append(answer.text)
        return answer.status_code == 200

    eventually(drained, f"us-west may be drained: {refused[-1:]}", 90)
    try:
        eventually(lambda: demo.region(service="web", client_ip="8.8.8.8") == "us-east", "us-west is drained")
        assert demo.api("GET", "/v1/regions/us-west").json()["admin_state"] == "draining"
    finally:
        demo.api("POST", "/v1/regions/us-west:activate").raise_for_status()
    eventually(lambda: demo.region(service="web", client_ip="8.8.8.8") == "us-west", "us-west is back")


def test_a_change_is_pending_until_every_worker_answers_from_it(demo: System) -> None:
    """A worker that has not taken a revision in keeps it PENDING, whatever the edge's agent holds."""
    (slow,) = demo.processes("gtm.runtime.edge.worker dns-")
    os.kill(slow, signal.SIGSTOP)
    try:
        revision = demo.api("PUT", "/v1/tenants/late", json={}).json()["revision"]
        answers = {"service": "chat", "client_ip": LONDON}
        eventually(lambda: demo.route(**answers).json()["revision"] == revision, "the http worker has it")
        answered = datetime.now(UTC).isoformat()
        edges = "/v1/edges"
        eventually(
            lambda: demo.api("GET", edges).json()["items"][0]["last_seen"] > answered, "the edge reported"
        )
        assert demo.api("GET", "/v1/status").json()["sync"]["state"] == "PENDING"
    finally:
        os.kill(slow, signal.SIGCONT)
    eventually(lambda: demo.api("GET", "/v1/status").json()["sync"]["state"] == "IN_SYNC", "all have it")
    demo.api("DELETE", "/v1/tenants/late").raise_for_status()


def test_bad_policy_changes_nothing(demo: System) -> None:
    """A policy that does not compile is rejected whole with every problem; the answers stay."""
    before = demo.api("GET", "/v1/revisions?limit=1").json()["items"][0]["number"]
    document = demo.api("GET", "/v1/policy").json()
    policy = document.get("policy", document)
    policy["services"][0]["members"] = [{"region": "nowhere"}, {"region": "neither"}]
    response = demo.api("POST", "/v1/policy:apply", json={"policy": policy})
    assert response.status_code == 422
    assert len(response.json()["errors"]) >= 2
    assert demo.api("GET", "/v1/revisions?limit=1").json()["items"][0]["number"] == before
    # After the failures of other tests the plan brings clients home by steps.
    eventually(lambda: demo.region(service="chat", client_ip=LONDON) in EUROPE, "it answers as before")


def test_metrics_are_of_the_whole_edge(demo: System) -> None:
    """Decisions made over DNS show up in the HTTP tier's metrics."""
    demo.addresses("web.demo.test", "8.8.8.0/24")
    demo.region(service="web", client_ip="8.8.8.8")

    def counted() -> bool:
        text = httpx.get(f"{demo.edge}/metrics").text
        return 'via="dns"' in text and 'via="lookup"' in text

    eventually(counted, "both tiers are counted")


def test_metrics_say_how_everything_stands(demo: System) -> None:
    """Control's gauges agree with what the API says; the edge's tell of its line to control, its probes and workers."""
    eventually(lambda: demo.api("GET", "/v1/plan").json()["made"], "there is a plan")
    expected = (
        r'^gtm_region_health\{region="eu-central",status="up"\} 1.0$',
        r'^gtm_region_health\{region="eu-central",status="down"\} 0.0$',
        r'^gtm_region_admin_state\{region="eu-central",state="active"\} 1.0$',
        r"^gtm_control_database_up 1.0$",
        r"^gtm_plan_failed 0.0$",
        r"^gtm_control_edges_live 1.0$",
        r'^gtm_endpoint_vantages\{endpoint="[^"]+",region="eu-west",status="up"\} 1.0$',
        r'^gtm_control_edge_report_timestamp_seconds\{edge="[^"]+"\} 1',
    )

    def control_says_so() -> bool:
        text = httpx.get(f"{demo.control}/metrics").text
        return all(re.search(pattern, text, re.MULTILINE) for pattern in expected)

    # A region that failed for a moment, in a test before or on a busy machine, is up again with a later report.
    eventually(control_says_so, "control's gauges say it")

    def edge_says_so() -> bool:
        text = httpx.get(f"{demo.edge}/metrics").text
        return all(
            re.search(pattern, text, re.MULTILINE)
            for pattern in (
                r"^gtm_edge_control_connected 1.0$",
                r"^gtm_edge_control_heard_timestamp_seconds 1\.\d+e\+09$",
                r'^gtm_edge_workers\{kind="dns"\} 1.0$',
                r'^gtm_edge_endpoint_health\{endpoint="[^"]+",region="eu-west",status="up"\} 1.0$',
                r'^gtm_edge_probe_timestamp_seconds\{endpoint="[^"]+",region="eu-west"\} 1',
            )
        )

    eventually(edge_says_so, "the edge's gauges are there")


def test_sighup_ends_no_process(demo: System) -> None:
    """All of `gtm serve` are told at once, as by `systemctl kill --signal=HUP`: supervisor, control, edge, workers, fork servers."""
    family = [demo.process.popen.pid, *descendants(demo.process.popen.pid)]
    for pid in family:
        if alive(pid):
            os.kill(pid, signal.SIGHUP)
    for said in ("SIGHUP: files of places", "SIGHUP: looking whether files of places"):
        eventually(lambda said=said: said in demo.process.output, said)
    assert httpx.get(f"{demo.control}/readyz", trust_env=False).status_code == 200
    servers = [pid for pid in family if alive(pid)]
    for pid in servers:
        os.kill(pid, signal.SIGHUP)
    assert demo.api("GET", "/v1/policy").status_code == 200
    assert all(map(alive, servers)), demo.process.output


def test_second_serve_on_the_same_data_directory_says_so(demo: System) -> None:
    """A second gtm on a data directory ends at once, clearly, and the first goes on."""
    second = System(
        demo.data_dir, "--dns-port", str(demo.dns_port)
    )  # in use too, but that is not the trouble
    second.process.log = demo.data_dir.with_suffix(".log")
    assert second.process.end() == 5
    assert "already running" in second.process.output
    # After the failures of other tests the plan brings clients home by steps.
    eventually(lambda: demo.region(service="chat", client_ip=LONDON) in EUROPE, "it answers as before")
    assert (demo.data_dir / "serve.json").exists()


def test_port_in_use_is_named(demo: System, tmp_path: Path) -> None:
    """A taken port ends the start with its number and the option that moves it."""
    other = System(tmp_path / "data", "--dns-port", str(demo.dns_port))
    assert other.process.end() == 5
    assert str(demo.dns_port) in other.process.output
    assert "--dns-port" in other.process.output
    assert not (tmp_path / "data").exists()


@pytest.mark.drill
def test_two_demos_run_side_by_side(demo: System, tmp_path: Path) -> None:
    """A second demo stands on the next block of addresses, and both answer with their own."""
    with system(tmp_path / "data", "--demo") as second:
        ours, theirs = (one.route(service="chat", client_ip=LONDON).json() for one in (demo, second))
        assert ours["endpoint"]["url"] != theirs["endpoint"]["url"]
        for answer in (ours, theirs):
            models = httpx.get(f"{answer['endpoint']['url']}/v1/models", headers={"Host": "web.demo.test"})
            assert models.headers["x-gtm-region"] == answer["region"]
            assert models.json()["data"][0]["id"] == "demo"


def test_answers_go_on_when_control_and_postgres_are_killed(stage: Stage) -> None:
    """Kill -9 of control and Postgres loses no answer; both come back by themselves, with everything."""
    running = stage.system()
    # A client inside the EEA may be served there alone; London's may be sent farther while a plan spills over.
    ask = partial(running.region, service="chat", client_ip=GERMAN)
    eventually(lambda: all(ask() in EUROPE for _ in range(50)), "regions killed by an earlier test are back")
    for pid in [*running.processes("gtm.runtime.serve.control"), *running.processes("bin/postgres -D")]:
        os.kill(pid, signal.SIGKILL)
    for _ in range(50):
        assert ask() in EUROPE
        assert running.addresses("chat.demo.test", f"{GERMAN}/32")
    eventually(lambda: httpx.get(f"{running.control}/readyz").status_code == 200, "control is back")
    assert running.api("GET", "/v1/regions/eu-west").status_code == 200
    forced = "force=true&force_reason=test"
    running.api("POST", f"/v1/regions/eu-west:drain?{forced}").raise_for_status()
    eventually(
        lambda: running.region(service="chat", client_ip=LONDON) == "eu-central",
        "changes reach the edge again",
    )
    running.api("POST", f"/v1/regions/eu-west:activate?{forced}").raise_for_status()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.drill)])
def test_clean_stop_leaves_nothing(stage: Stage, number: int) -> None:
    """SIGTERM and SIGINT end every process, and a new start finds everything as it was."""
    running = stage.system()
    running.api("POST", "/v1/regions/us-east:disable").raise_for_status()
    children = descendants(running.process.popen.pid)
    assert len(children) >= 6
    running.process.signal(number)
    assert running.process.end() in (0, 130)
    assert running.process.output.splitlines()[-1].endswith("serve: stopped")
    eventually(lambda: not any(alive(pid) for pid in children), "every process has ended")
    assert not (stage.data_dir / "serve.json").exists()
    again = stage.system()
    assert again.api("GET", "/v1/regions/us-east").json()["admin_state"] == "disabled"
    again.api("POST", "/v1/regions/us-east:activate").raise_for_status()


def test_killed_workers_and_agent_come_back(stage: Stage) -> None:
    """Kill -9 of every edge process: the supervisor brings the edge back, from its last-good file.

    While there is no agent its workers answer, and nothing is lost when the next one takes them over.
    """
    running = stage.system()
    workers = running.processes("gtm.runtime.edge.worker")
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: running.region(service="chat", client_ip=LONDON) in EUROPE, "HTTP is back")
    eventually(lambda: running.addresses("chat.demo.test", f"{LONDON}/32") != [], "DNS too")
    eventually(lambda: len(running.processes("gtm.runtime.edge.worker")) == 2, "both are")
    workers = running.processes("gtm.runtime.edge.worker")
    (agent,) = running.processes("-m gtm.runtime.edge.agent")
    os.kill(agent, signal.SIGKILL)
    while any(map(alive, workers)):
        assert running.region(service="chat", client_ip=LONDON) is not None
        assert running.addresses("chat.demo.test", f"{LONDON}/32")
    assert len(running.processes("gtm.runtime.edge.worker")) == 2
    # A supervisor that is told to stop while there is no agent ends what answers alone.
    (agent,) = running.processes("-m gtm.runtime.edge.agent")
    workers = running.processes("gtm.runtime.edge.worker")
    os.kill(agent, signal.SIGKILL)
    running.process.signal(signal.SIGTERM)
    assert running.process.end() == 0
    assert not any(map(alive, workers))


@pytest.mark.drill
def test_killed_fork_servers_are_missed_by_nobody(stage: Stage) -> None:
    """Kill -9 of what forks processes ends none of them, and whatever dies after it comes back."""
    running = stage.system()
    servers = running.processes("forkserver")
    assert len(servers) == 2  # the supervisor's, and the edge's
    others = [pid for pid in descendants(running.process.popen.pid) if pid not in servers]
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(alive, servers)), "they are dead")
    assert all(map(alive, others))
    for part in ("gtm.runtime.edge.worker", "gtm.runtime.serve.control"):
        for pid in running.processes(part):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(running.processes("gtm.runtime.edge.worker")) == 2, "both workers are back")
    eventually(lambda: running.region(service="chat", client_ip=LONDON) in EUROPE, "HTTP is back")
    eventually(lambda: running.addresses("chat.demo.test", f"{LONDON}/32") != [], "DNS too")
    eventually(lambda: httpx.get(f"{running.control}/readyz").status_code == 200, "control is back")


@pytest.mark.drill
def test_kill_9_of_everything_is_survived(stage: Stage) -> None:
    """Kill -9 of the supervisor: its edge goes on, the rest ends, and the next start clears and takes over what is left."""
    running = stage.system()
    edge = [*running.processes("-m gtm.runtime.edge.agent"), *running.processes("gtm.runtime.edge.worker")]
    assert len(edge) == 3
    others = [pid for part in ("gtm.runtime.serve.control", "demo_world") for pid in running.processes(part)]
    assert len(others) == 2
    running.process.popen.kill()
    running.process.end()
    eventually(lambda: not any(alive(pid) for pid in others), "control and the demo world have ended")
    assert running.resolve("chat.demo.test").answer, "the edge answers"
    assert "region" in running.route(service="chat", client_ip=LONDON).json()
    assert all(map(alive, edge))
    again = stage.system()
    assert (again.edge, again.dns_port) == (running.edge, running.dns_port)
    eventually(lambda: not any(map(alive, edge)), "the old edge has ended")
    # The demo's regions start beside the edge: one that was probed too early is down until it is probed again.
    eventually(lambda: again.region(service="chat", client_ip=LONDON) in EUROPE, "it serves again")
