"""`gtm load`."""

from __future__ import annotations

import re

import httpx

from gtm.core.model.access import Role
from tests.cli.conftest import DEMO, Control, Gtm


def test_load(run: Gtm, control: Control) -> None:
    """Every region and service is there, with what was reported, what is usable, and what it is reduced by."""
    assert "there are no regions" in run.ok("load").out
    run.ok("apply", DEMO, "--yes")
    run.ok("regions", "drain", "us-east")
    reports = [
        {"region": "eu-west", "outstanding": 12, "queue": 3, "limit": 8},
        {"region": "eu-west", "service": "chat", "service_time_ms": 1500},
    ]
    headers = {"Authorization": f"Bearer {control.tokens[Role.REPORTER]}"}
    sent = httpx.post(
        f"{control.url}/v1/load-reports", json={"reports": reports}, headers=headers, trust_env=False
    )
    assert sent.status_code == 204, sent.text
    told = {item["region"]: item for item in run.ok("load", "--json").json["regions"]}
    assert told["eu-west"]["load"]["queue"] == 3.0
    lines = run.ok("load").out.splitlines()
    (west,) = (line for line in lines if line.startswith("eu-west"))
    assert re.search(
        r"\(all\) +(fresh|stale), \d+ s, 1 reporter +12 +3 +\d+ ms +0 of 8 +0/s .*health 0%", west
    )
    (east,) = (line for line in lines if line.startswith("us-east"))
    assert re.search(r"never .*draining$", east)
    assert any(re.search(r"^ +chat .* 1500 ms \(reported\)", line) for line in lines)


def test_a_reporters_token_is_made(run: Gtm) -> None:
    """The command line knows the role."""
    assert run.ok("token", "create", "balancer-1", "--role", "reporter").out.startswith("gtm_")
