"""Commands beside a running `gtm serve --demo`: routes, explanations, waiting for a real edge, lost tokens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gtm.cli.common.exits import Exit
from tests.cli.conftest import DEMO, Gtm
from tests.system.harness import System, eventually

pytestmark = pytest.mark.system


@pytest.fixture
def beside(bare: Gtm, shared_demo: System) -> Gtm:
    """`gtm` in a second terminal, with the first admin token."""
    bare.environment = {
        "GTM_CONTROL_URL": shared_demo.control,
        "GTM_EDGE_URL": shared_demo.edge,
        "GTM_TOKEN": shared_demo.token,
        "GTM_DATA_DIR": str(shared_demo.data_dir),
    }
    return bare


def test_route(beside: Gtm) -> None:
    """A client in Britain is served in Dublin, and the table says why."""
    asked = ("route", "chat", "--client", "81.2.69.142")
    eventually(
        lambda: "eu-west (lowest_latency)" in beside.ok(*asked).out, "nothing of other tests' drains is left"
    )
    assert "eu-west: chosen" in beside.ok(*asked).out
    assert beside.ok("route", "chat", "--client", "81.2.69.142", "--json").json["region"] == "eu-west"
    assert beside.ok("route", "web").out, "without an address it is about this machine"


def test_explain(beside: Gtm) -> None:
    """Every candidate is there in rank order, with exclusions, their rules, and the law behind them."""
    asked = ("records", "--client", "8.8.8.8", "--tenant", "clinic", "--data-class", "health")
    told = beside.ok("explain", *asked, "--json").json
    assert [item["rank"] for item in told["candidates"]] == list(range(1, 8))
    out = beside.ok("explain", *asked).out
    lines = out.splitlines()
    positions = [
        next(number for number, line in enumerate(lines) if f" {item['region']} " in line and " km " in line)
        for item in told["candidates"]
    ]
    assert positions == sorted(positions)
    assert "residency (clinic-records, health-records)" in out
    assert "tenant clinic" in out
    assert "GDPR" in out
    assert "no residency rule matches" in beside.ok("explain", "web", "--client", "8.8.8.8").out


def test_refusal(beside: Gtm) -> None:
    """When no region inside the fence takes clients, the answer is a refusal with its reason, and the exit code 1."""
    for region in ("eu-central", "eu-west"):
        beside.ok("regions", "drain", region, "--force", "--reason", "to see the refusal")
    try:
        done = beside("route", "chat", "--client", "91.198.174.192")
        assert done.code == Exit.NO
        assert "refused" in done.out
        told = beside("explain", "chat", "--client", "91.198.174.192", "--json")
        assert told.code == Exit.NO
        assert told.json["outcome"] == "refused_residency"
        shown = beside("explain", "chat", "--client", "91.198.174.192").out
        assert "draining" in shown
        assert "residency (" in shown
        assert beside.ok("route", "web", "--client", "91.198.174.192"), "others carry on"
    finally:
        for region in ("eu-central", "eu-west"):
            beside.ok("regions", "activate", region, "--force", "--reason", "enough seen")


@pytest.mark.parametrize(
    "asked",
    [
        ("nosuch",),
        ("chat", "--client", "1.2.3"),
        ("chat", "--client", "8.8.8.8", "--tenant", "stranger"),
        ("chat", "--client", "8.8.8.8", "--data-class", "secret"),
        ("chat", "--model", ""),
    ],
)
def test_bad_questions(beside: Gtm, asked: tuple[str, ...]) -> None:
    """They end with 2 and say what is wrong."""
    for command in ("route", "explain"):
        done = beside(command, *asked)
        assert done.code == Exit.BAD_INPUT
        assert done.err.startswith("error: ")


def test_a_misspelt_name_is_asked_back(beside: Gtm) -> None:
    """`explain` says which name may be meant, for whoever may list them; without a token, what the edge said stands."""
    assert "there is no service `chatt`; did you mean `chat`?" in beside("explain", "chatt").err
    tenant = beside("explain", "chat", "--tenant", "clinics")
    assert "there is no tenant `clinics`; did you mean `clinic`?" in tenant.err
    assert "did you mean" not in beside("explain", "nothing-like-it").err
    beside.environment["GTM_CONTROL_URL"] = "http://127.0.0.1:1"
    assert beside("explain", "chatt").err.rstrip().endswith("there is no service `chatt`")


def test_apply_until_in_sync(beside: Gtm, tmp_path: Path) -> None:
    """When apply ends, the edge answers by the new policy."""
    beside.ok("export", tmp_path / "before")
    folder = Path(shutil.copytree(tmp_path / "before", tmp_path / "after"))
    services = folder / "services.yaml"
    services.write_text(services.read_text().replace("ttl: 30\n", "ttl: 77\n"))

    def ttl() -> int:
        return int(beside.ok("route", "chat", "--json").json["ttl"])

    try:
        done = beside.ok("apply", folder, "--yes")
        assert "IN_SYNC on 1 edge" in done.out
        eventually(lambda: ttl() == 77, "nothing that another test took down moves any more")
    finally:
        beside.ok("apply", tmp_path / "before", "--yes")
    eventually(lambda: ttl() == 30, "nothing that another test took down moves any more")


def test_health_of_regions(beside: Gtm) -> None:
    """A failed region shows as down, with what its probe met and who saw it."""

    def status() -> str:
        regions = {item["name"]: item for item in beside.ok("regions", "list", "--json").json}
        return str(regions["sa-east"]["health"]["status"])

    eventually(lambda: status() == "up", "sa-east is up")
    beside.ok("demo", "fail", "sa-east")
    eventually(lambda: status() == "down", "sa-east is down")
    assert "refused" in beside.ok("regions", "list").out
    shown = beside.ok("regions", "show", "sa-east").out
    assert "down" in shown
    assert "local" in shown
    beside.ok("demo", "restore", "sa-east")
    eventually(lambda: status() == "up", "sa-east is up again")


def test_lost_token(beside: Gtm) -> None:
    """Beside a running system, a new admin token comes from the database itself."""
    made = beside.ok("token", "create", "rescue", "--role", "admin", "--direct", GTM_TOKEN="")
    assert beside.ok("token", "list", GTM_TOKEN=made.out.strip())
    assert beside.ok("db", "check")
    assert "already" in beside.ok("db", "upgrade").out


def test_demo_policy_is_current(beside: Gtm) -> None:
    """What runs is the demo's policy, up to the loopback addresses that were free."""
    planned = beside.ok("plan", DEMO, "--json").json
    paths = {field["path"] for change in planned["changes"] for field in change["fields"]}
    assert paths <= {"endpoints", "refusal.ipv4"}


def test_edge_is_not_control(beside: Gtm, shared_demo: System) -> None:
    """One server's address given for the other's is recognised."""
    done = beside("status", "--control", shared_demo.edge)
    assert done.code == Exit.UNREACHABLE
    assert "not the control API" in done.err
