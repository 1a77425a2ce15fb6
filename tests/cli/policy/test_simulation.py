"""`gtm simulate`, `gtm explain --policy`, and changes against the safety rules."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gtm.cli.common.exits import Exit
from gtm.control.lead.vantages import Judgement
from gtm.core.model.access import Role
from gtm.core.model.state import State
from tests import worlds
from tests.api.conftest import TOKENS, Server
from tests.cli.conftest import DEMO, Gtm

TWO_POOLS = """
regions:
- {name: v4, lat: 1, lon: 2, country: DE, endpoints: [{url: 'http://v4.test', ipv4: [192.0.2.1]}]}
- {name: v6, lat: 1, lon: 2, country: DE, endpoints: [{url: 'http://v6.test', ipv6: ['2001:db8::1']}]}
zones: [{name: x.test, primary_ns: ns.y.test, hostmaster: h.y.test}]
services:
- {name: s, hostnames: [s.x.test], zone: x.test, members: [{region: v4}, {region: v6}], families: separate,
   refusal: {ipv4: [192.0.2.9], ipv6: ['2001:db8::9']}}
"""
TRAFFIC = "service,client,country,count\nchat,81.2.69.142,,300\nchat,,DE,600\nweb,,US,100\n"


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """The demo's policy with Frankfurt draining."""
    folder = Path(shutil.copytree(DEMO, tmp_path / "draft"))
    file = folder / "regions.yaml"
    text = file.read_text()
    file.write_text(text.replace("    country: DE\n", "    country: DE\n    admin_state: draining\n", 1))
    return folder


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    """A small file of traffic."""
    file = tmp_path / "traffic.csv"
    file.write_text(TRAFFIC)
    return file


def test_without_any_server(bare: Gtm, draft: Path, traffic: Path, tmp_path: Path) -> None:
    """Two folders and a file are enough: people get tables, scripts JSON, and both a page."""
    asked = ("simulate", "--policy", draft, "--against", DEMO, "--traffic", traffic)
    done = bare.ok(*asked, "--html", tmp_path / "out.html")
    assert "moved    60.0% of requests" in done.out
    assert "DE       chat     eu-central  eu-west  60.00%" in done.out
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    found = bare.ok(*asked, "--json", "--duration", "10m").json
    assert (found["traffic"]["requests"], found["traffic"]["seconds"]) == (1000, 600)
    assert [item["country"] for item in found["countries"]] == ["DE", "GB", "US"]


def test_what_is_left_out_is_said(bare: Gtm, draft: Path, tmp_path: Path) -> None:
    """Requests for a service that neither policy knows are counted out, on standard error."""
    file = tmp_path / "t.csv"
    file.write_text("service,count\nweb,5\nchta,7\n")
    done = bare.ok("simulate", "--policy", draft, "--against", DEMO, "--traffic", file)
    assert "7 requests for `chta` are left out" in done.err
    assert "requests, " in done.out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--traffic": "nosuch.csv"}, "cannot read `nosuch.csv`: no such file or directory"),
        ({"--policy": "nosuch"}, "cannot read `nosuch`"),
        ({"--against": "nosuch"}, "cannot read `nosuch`"),
        ({"--duration": "soon"}, "--duration: `soon` is not a number with s, m, h, d or w"),
        ({"--since": "0h"}, "--since: `0h` is not a number"),
        ({"--html": "/nosuch/out.html"}, "cannot write `/nosuch/out.html`"),
        ({"--geoip-db": "/nosuch.mmdb"}, "cannot locate addresses"),
    ],
)
def test_bad_usage(bare: Gtm, draft: Path, traffic: Path, change: dict[str, str], said: str) -> None:
    """What cannot be read or written is named, and ends with 2."""
    given = {"--policy": draft, "--against": DEMO, "--traffic": traffic, **change}
    done = bare("simulate", *(part for pair in given.items() for part in pair))
    assert done.code == Exit.BAD_INPUT
    assert said in done.err


def test_wrong_lines_are_listed(bare: Gtm, draft: Path, tmp_path: Path) -> None:
    """Each with its file, line and column."""
    file = tmp_path / "t.csv"
    file.write_text("service,count\nchat,many\nchat,1\n,1\n")
    done = bare("simulate", "--policy", draft, "--against", DEMO, "--traffic", file)
    assert done.code == Exit.BAD_INPUT
    assert f"{file}: line 2, column `count`: `many` is not a number of requests" in done.err
    assert "line 4, column `service`: is empty" in done.err


def set_up(server: Server) -> None:
    """Let every endpoint of the policy in force be up."""
    replica = server.app.state.context.replica
    replica.active.verdicts.judge = lambda: None  # no edge reports here, whose silence would make all unknown
    state = State(1, health=worlds.health(replica.now.policy.regions, since=1.0))
    server.do(lambda: replica.current.become(replace(replica.now, state=state)))
    replica.active.reports.vantages.judgement = Judgement(told=state.health, presumed=state.health)


@pytest.fixture
def demo(bare: Gtm, prepared_url: str) -> Any:
    """`gtm` with an admin's token for a control tier that has the demo's policy in force, and everything up."""
    with Server(prepared_url) as server:
        bare.environment = {"GTM_CONTROL_URL": server.url, "GTM_TOKEN": TOKENS[Role.ADMIN]}
        bare.ok("apply", DEMO, "--yes", "--no-wait")
        set_up(server)
        yield bare


def test_against_what_is_running(demo: Gtm, draft: Path, traffic: Path) -> None:
    """Control simulates with the present it knows; recorded traffic that is not there is an error that says so."""
    found = demo.ok("simulate", "--policy", draft, "--traffic", traffic, "--json").json
    assert (found["moved"], found["revision"]) == (pytest.approx(0.6), 2)
    for more in ((), ("--against", str(DEMO))):
        done = demo("simulate", "--policy", draft, "--traffic", "recorded", "--since", "2h", *more)
        assert done.code == Exit.BAD_INPUT
        assert "no demand is recorded from" in done.err


def test_explain_by_a_draft(demo: Gtm, draft: Path) -> None:
    """Control explains what the draft would decide, in the words that an edge uses."""
    done = demo.ok("explain", "chat", "--client", "91.198.174.192", "--policy", draft)
    assert "eu-west (lowest_latency)" in done.out
    assert "draining" in done.out
    assert "draft, epoch" in done.out
    refused = demo("explain", "records", "--client", "8.8.8.8", "--policy", draft, "--json")
    assert (refused.code, refused.json["outcome"]) == (Exit.NO, "refused_residency")
    assert refused.json["draft"] is True
    unknown = demo("explain", "nosuch", "--policy", draft)
    assert (unknown.code, "there is no service `nosuch`" in unknown.err) == (Exit.BAD_INPUT, True)


def test_explain_over_dns(demo: Gtm) -> None:
    """With a family the question is put as DNS has it, by a host name, and the answer's records are shown."""
    done = demo.ok("explain", "chat", "--client", "91.198.174.192", "--family", "ipv4")
    assert "asked      A of chat.demo.test" in done.out
    assert "answer     127.0.1.1" in done.out
    empty = demo.ok("explain", "chat", "--client", "91.198.174.192", "--family", "ipv6")
    assert "asked      AAAA of chat.demo.test" in empty.out
    assert "answer     empty (NOERROR)" in empty.out
    for more, says in (
        (("--model", "x"), "over DNS nobody can state a model"),
        (("--host", "chat.demo.tset"), "did you mean `chat.demo.test`?"),
    ):
        refused = demo("explain", "chat", "--family", "ipv4", *more)
        assert (refused.code, says in refused.err) == (Exit.BAD_INPUT, True)
    alone = demo("explain", "--host", "chat.demo.test", "--family", "ipv4")
    assert "give its name beside it" in alone.err


def test_explain_families_that_are_decided_apart(demo: Gtm, tmp_path: Path) -> None:
    """By a draft whose families are separate, each has the regions with such addresses; nobody probes them, so that both refuse."""
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "a.yaml").write_text(TWO_POOLS)
    for family, other, refusal in (("ipv4", "v6", "192.0.2.9"), ("ipv6", "v4", "2001:db8::9")):
        asked = ("explain", "s", "--policy", tmp_path / "two", "--family", family)
        found = demo(*asked, "--json").json["candidates"]
        assert [one["region"] for one in found if one["excluded"] == "no_address"] == [other]
        assert f"answer   {refusal}" in demo(*asked).out


def test_unsafe_changes(demo: Gtm, draft: Path) -> None:
    """A plan says that a change is unsafe; applying and draining are refused, unless forced with a reason."""
    plan = demo.ok("plan", draft)
    assert "unsafe: reach: service `records` would have no usable region" in plan.out
    assert "not checked: capacity and moved: no demand is known" in plan.out
    for command in (("apply", draft, "--yes"), ("regions", "drain", "eu-central")):
        done = demo(*command)
        assert done.code == Exit.BAD_INPUT
        assert "service `records` would have no usable region" in done.err
        assert "--force --reason" in done.err
    assert demo("regions", "drain", "eu-central", "--force").code == Exit.BAD_INPUT
    assert "means nothing" in demo("apply", draft, "--yes", "--reason", "x").err
    demo.ok("regions", "drain", "eu-central", "--force", "--reason", "smoke", "--no-wait")
    assert "forced against the safety rules reach: smoke" in demo.ok("revisions", "list").out
    demo.ok("revisions", "rollback", 2, "--yes", "--no-wait", "--force", "--reason", "never mind")
    demo.ok("apply", draft, "--yes", "--no-wait", "--force", "--reason", "the same")
