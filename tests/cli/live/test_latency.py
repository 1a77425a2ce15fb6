"""`gtm latency`."""

from __future__ import annotations

import re

from tests.cli.conftest import DEMO, Gtm


def test_latency(run: Gtm) -> None:
    """What was measured is counted; for a client each region has its estimate and what it rests on, nearest first."""
    assert "nothing measured yet" in run.ok("latency").out
    run.ok("apply", DEMO, "--yes")
    out = run.ok("latency", "--client", "81.2.69.142").out
    assert re.search(r"^eu-west +\d+ ms +model +\d+ ms +\d+ km", out, re.MULTILINE)
    told = run.ok("latency", "--country", "JP", "--json").json
    assert told["estimates"]["regions"][0]["region"] == "ap-northeast"
    refused = run("latency", "--lat", "10")
    assert refused.code == 2
    assert "belong together" in refused.err


def test_forget(run: Gtm) -> None:
    """What a token taught, by its name; an unknown one is said to be."""
    run.ok("token", "create", "fra", "--role", "edge")
    assert "token `fra`" in run.ok("latency", "--forget", "fra").out
    assert "no token `dub`" in run("latency", "--forget", "dub").err
