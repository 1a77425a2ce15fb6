"""`gtm top`, and what it makes of documents."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from typing import Any

import httpx
from rich.console import Console

from gtm.cli.live.top import KEYS, Tab
from gtm.cli.live.top_view import bar, screen
from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from tests.cli.conftest import DEMO, Control, Gtm


def test_top(run: Gtm, control: Control) -> None:
    """Every region is there with what it reported; JSON is one line a document."""
    run.ok("apply", DEMO, "--yes", "--no-wait")
    reports = [{"region": "eu-west", "outstanding": 38, "queue": 3, "limit": 40}]
    headers = {"Authorization": f"Bearer {control.tokens[Role.REPORTER]}"}
    url = f"{control.url}/v1/load-reports"
    assert httpx.post(url, json={"reports": reports}, headers=headers, trust_env=False).status_code == 204
    while True:  # until the next plan
        done = run.ok("top", "--once", "--json")
        (line,) = done.out.splitlines()
        west = next(one for one in json.loads(line)["regions"] if one["region"] == "eu-west")
        if west["outstanding"] == 38:
            break
    lines = run.ok("top", "--once").out.splitlines()
    (west,) = (line for line in lines if line.startswith("eu-west"))
    assert west.split()[:5] == ["eu-west", "unknown", "██████████", "38/40", "3"]
    assert "spillover" in lines
    assert not any(line != line.rstrip() for line in lines)


SERVER = {"url": "http://10.0.0.1:8000", "state": "up", "outstanding": 4.0, "slots": 16, "models": ["llama"]}
EJECTED = {**SERVER, "url": "http://10.0.0.2:8000", "state": "ejected", "why": "5 failures in a row\x1b[31m"}
TENANT = {"name": "acme", "running": 3, "waiting": 1, "requests_per_second": 2.0}


def _show(control: Control) -> None:
    """What two balancers of a region show of its inside."""
    headers = {"Authorization": f"Bearer {control.tokens[Role.BALANCER]}"}
    refused = {"name": "globex", "running": 1, "refused_per_second": 1.5}
    for name, servers in (("b1", [SERVER, EJECTED]), ("b2", [SERVER])):
        inside = {"servers": servers, "tenants": [TENANT, refused], "servers_left_out": 2}
        url, body = f"{control.url}/v1/balancers/{name}/report", {"region": "eu-central", "inside": inside}
        assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 200


def test_the_inside_of_regions(run: Gtm, control: Control) -> None:
    """Model servers, those first that something is wrong with, and tenants of all balancers together; of none, a sentence."""
    assert "no balancer shows the inside" in run.ok("top", "--once", "--tab", "servers").out
    _show(control)
    out = run.ok("top", "--once", "--tab", "servers").out
    assert "\x1b" not in out
    heading, first, *others, left_out = out.splitlines()
    assert heading.split()[:4] == ["region", "server", "state", "load"]
    assert first.split()[:5] == ["eu-central", EJECTED["url"], "ejected", "██░░░░░░░░", "4/16"]
    assert "seen by b1; 5 failures in a row" in first
    assert [line.split()[1] for line in others] == [SERVER["url"]] * 2
    assert left_out == "4 more model servers are not shown"
    rows = [line.split() for line in run.ok("top", "--once", "--tab", "tenants").out.splitlines()]
    assert rows[1] == ["eu-central", "globex", "1", "2", "25%", "0", "0.0/s", "0.0/s", "3.0/s"]
    assert rows[2] == ["eu-central", "acme", "1", "6", "75%", "2", "4.0/s", "0.0/s", "0.0/s"]
    assert "no balancer" in run.ok("top", "--once", "--tab", "tenants", "--region", "us-east").out
    found = run.ok("top", "--once", "--json", "--tab", "servers", "--region", "eu-central").json
    assert [one["name"] for one in found["items"]] == ["b1", "b2"]


def test_keys_change_the_tab(run: Gtm, control: Control) -> None:
    """At a terminal: each by its number; others do nothing, and `q` ends."""
    _show(control)
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GTM_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gtm.cli", "top", "--tab", "tenants"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env={**environment, **run.environment, "COLUMNS": "150", "LINES": "40", "TERM": "xterm"},
    )
    os.close(theirs)

    def until(words: str) -> None:
        seen = ""
        while words not in seen:
            assert select.select([ours], [], [], 60)[0], seen
            seen += os.read(ours, 65_536).decode(errors="replace")

    headings = {Tab.REGIONS: "spillover", Tab.SERVERS: "kv cache", Tab.TENANTS: "weight"}
    until(headings[Tab.TENANTS])
    for key, tab in KEYS.items():
        os.write(ours, f"x{key}".encode())
        until(headings[tab])
    os.write(ours, b"q")
    assert process.wait(60) == 0
    os.close(ours)


def test_plan_is_served(run: Gtm, control: Control) -> None:
    """`GET /v1/plan` takes a viewer's token."""
    for role, status in ((Role.VIEWER, 200), (Role.REPORTER, 403)):
        headers = {"Authorization": f"Bearer {control.tokens[role]}"}
        for path in ("/v1/plan", "/v1/top"):
            assert httpx.get(control.url + path, headers=headers, trust_env=False).status_code == status


def test_top_without_control_or_token(bare: Gtm) -> None:
    """At the first look control must be there, and the token good."""
    assert bare("top", GTM_TOKEN="gtm_x", GTM_CONTROL_URL="http://127.0.0.1:9").code == 3
    assert bare("top").code == 4


DOCUMENT: dict[str, Any] = {
    "at": 1.0,
    "revision": 3,
    "database": "up",
    "plan": {"epoch": 5, "made": 1.0, "age": 0.4, "tick_ms": 12.0, "error": None},
    "edges": [{"name": "local", "age": 0.1, "revision": 3, "epoch": 5}],
    "requests_per_second": 150.2,
    "latency_p99_ms": 120.0,
    "decisions": {"dns": 15.0, "lookup": 0.0, "redirect": 100.0},
    "regions": [
        {
            "region": "eu-central",
            "admin_state": "draining",
            "health": "up",
            "freshness": "lost",
            "outstanding": None,
            "queue": None,
            "limit": 10.0,
            "utilisation": None,
            "requests_per_second": None,
            "decided": 3.0,
            "demand": 40.0,
            "price_ms": 10_000.0,
            "exhausted": True,
            "latency_p99_ms": 99.0,
        }
    ],
    "spill": [
        {
            "from": "eu-central",
            "to": "eu-west",
            "requests_per_second": 14.0,
            "planned": 15.0,
            "quotas": ["a"],
        },
        {"from": "us-east", "to": "us-west", "requests_per_second": 0.01, "planned": 0.0, "quotas": []},
    ],
    "quotas": [
        {
            "name": "a",
            "from": "eu-central",
            "to": ["eu-west"],
            "allowed": 20.0,
            "planned": 8.0,
            "binding": False,
        }
    ],
    "refusals": [{"service": "chat\x1b[31m", "outcome": "refused_overload", "requests_per_second": 2.5}],
}


def test_top_shows_the_p99_that_was_measured() -> None:
    """To the end in its column, to the first byte beside it; without gtm's balancers the estimate, marked as one."""
    (region,) = DOCUMENT["regions"]
    took = dict.fromkeys(("first_byte_p50_ms", "p50_ms"), 9.0) | {"requests": 5, "p99_ms": 4210.0}
    measured = shown({**DOCUMENT, "regions": [{**region, "measured": {**took, "first_byte_p99_ms": 412.0}}]})
    assert " 4210 ms draining" in measured
    assert "first byte p99 412 ms" in measured
    assert "99 ms draining" not in measured
    without = shown({**DOCUMENT, "regions": [{**region, "measured": {**took, "first_byte_p99_ms": None}}]})
    assert "first byte" not in without
    for none in ({}, {"measured": None}):
        assert " ~99 ms draining" in shown({**DOCUMENT, "regions": [{**region, **none}]})


def shown(document: dict[str, Any], lost: str = "") -> str:
    """A screen as text."""
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(screen(Tab.REGIONS, as_answered(document), lost))
    return captured.get()


def test_screen_says_what_matters() -> None:
    """Spill with its quota, refusals with their reason, prices, and why a region is not as it should be."""
    text = shown(DOCUMENT)
    assert "eu-central → eu-west  14/s  (a: 40% of 20/s)" in text
    assert "us-east →" not in text
    assert "overload 2.5/s" in text
    assert "\x1b" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("eu-central"))
    for part in ("–/10", "40/s", "3.0/s", "10 s", "99 ms", "draining, full by the plan, reports lost"):
        assert part in row
    assert "plan epoch 5, 0.4 s old, made in 12 ms" in text


def test_screen_says_what_was_corrected_and_why() -> None:
    """Free slots beside the region, and where requests went instead; nothing of it where nothing is reported."""
    slots = {"open": 0.0, "counted": 0.0, "limit": 8.0, "waiting": 3.0, "age": 0.2}
    regions = [{**DOCUMENT["regions"][0], "free_slots": slots}]
    corrections = [
        {"from": "eu-central", "to": "eu-west", "requests_per_second": 4.0},
        {"from": None, "to": "eu-west", "requests_per_second": 2.0},
        {"from": "us-east", "to": "eu-west", "requests_per_second": 0.1},
    ]
    text = shown({**DOCUMENT, "regions": regions, "corrections": corrections})
    assert "full by the plan, 0 of 8 slots free, 3 waiting, reports lost" in text
    lines = text[text.index("corrected by free slots") : text.index("refused\n")].split("\n")[1:3]
    assert [line.strip() for line in lines] == ["eu-central → eu-west  4.0/s", "refused → eu-west  2.0/s"]
    assert "us-east →" not in text
    assert "free slots" not in shown(DOCUMENT)


def test_screen_says_how_many_free_slots_count() -> None:
    """Where the policy declares fewer than balancers say; an older control does not tell."""
    slots = {"open": 100.0, "counted": 40.0, "limit": 120.0, "waiting": 0.0, "age": 0.2}
    for changed, wanted in (
        (slots, "100 of 120 slots free (40 count), reports"),
        ({**slots, "counted": 100.0}, "100 of 120 slots free, reports"),
        (
            {name: value for name, value in slots.items() if name != "counted"},
            "100 of 120 slots free, reports",
        ),
    ):
        regions = [{**DOCUMENT["regions"][0], "free_slots": changed}]
        assert wanted in shown({**DOCUMENT, "regions": regions})


def test_screen_says_what_was_pushed_and_what_was_kept() -> None:
    """By regions, with the rules that it counts against; then what stayed, and why in words. Little is left out."""
    pushes = [
        {"from": "us-east", "to": None, "why": "no_quota", "requests_per_second": 9.0, "quotas": []},
        {
            "from": "us-east",
            "to": "eu-west",
            "why": "moved",
            "requests_per_second": 4.0,
            "quotas": ["abroad"],
        },
        {
            "from": "us-east",
            "to": "eu-west",
            "why": "failed",
            "requests_per_second": 0.3,
            "quotas": ["abroad"],
        },
        {"from": "us-east", "to": "us-west", "why": "redirected", "requests_per_second": 2.0, "quotas": []},
        {"from": "us-east", "to": None, "why": "no_room", "requests_per_second": 1.0, "quotas": []},
        {"from": "eu-west", "to": None, "why": "a new one", "requests_per_second": 0.1, "quotas": []},
    ]
    text = shown({**DOCUMENT, "pushes": pushes})
    lines = text[text.index("pushed by balancers") : text.index("refused\n")].split("\n")[1:5]
    assert [line.strip() for line in lines] == [
        "us-east → eu-west  4.0/s  (abroad)",
        "us-east → eu-west  0.3/s  (not taken, abroad)",
        "us-east → us-west  2.0/s  (by redirect)",
        "us-east keeps  no token of a spillover quota 9.0/s, no peer inside the fence has room 1.0/s",
    ]
    assert "a new one" not in text
    assert "pushed" not in shown(DOCUMENT)


def test_screen_says_what_is_wrong() -> None:
    """Control away, database down, no plan, an old plan, no edge: each is a line."""
    wrong = {**DOCUMENT, "database": "down", "edges": [], "plan": {**DOCUMENT["plan"], "error": "no solver"}}
    text = shown(wrong, "control cannot be reached")
    for part in ("control cannot be reached; ", "database is down", "no new plan: no solver", "no edge"):
        assert part in text
    assert "the plan is old" in shown({**DOCUMENT, "plan": {**DOCUMENT["plan"], "age": 30.0}})
    assert "is old" not in shown(DOCUMENT)


def test_bars_stay_in_their_bounds() -> None:
    """More than full is full; unknown is neither."""
    assert [bar(share).plain.count("█") for share in (0.0, 0.5, 1.0, 7.0)] == [0, 5, 10, 10]
    assert "█" not in bar(None).plain
