"""`gtm edges`."""

from __future__ import annotations

import psycopg

from gtm.cli.common.exits import Exit
from gtm.cli.common.output import cells
from gtm.cli.live.edges import CERTIFICATES, dns_rows
from gtm.client.objects import as_answered
from tests.cli.conftest import Control, Gtm


def test_an_edge_that_is_gone_is_forgotten(run: Gtm, control: Control) -> None:
    """It is listed as silent until it is forgotten, which is said once, and is an error where there is none."""
    with psycopg.connect(control.database_url, autocommit=True) as session:
        session.execute(
            "INSERT INTO edges (name, version, address, first_seen, last_seen, revision_applied, epoch_applied) "
            "VALUES ('old', '1', '192.0.2.1', now() - interval '1 day', now() - interval '1 day', 1, 1)"
        )
    listed = run.ok("edges", "list")
    assert "old" in listed.out
    assert [(edge["name"], edge["live"]) for edge in run.ok("edges", "list", "--json").json] == [
        ("old", False)
    ]
    assert run.ok("edges", "forget", "old").out == "edge old is forgotten\n"
    assert run.ok("edges", "list", "--json").json == []
    again = run("edges", "forget", "old")
    assert (again.code, "there is no edge `old`" in again.err) == (Exit.BAD_INPUT, True)


def test_an_edge_is_shown(run: Gtm, control: Control) -> None:
    """What it tells; what one that is silent or of before does not, in words."""
    with psycopg.connect(control.database_url, autocommit=True) as session:
        session.execute(
            "INSERT INTO edges (name, version, address, first_seen, last_seen, revision_applied, epoch_applied) "
            "VALUES ('old', '1', '192.0.2.1', now() - interval '1 day', now() - interval '1 day', 1, 1)"
        )
    assert "it is not live" in run.ok("edges", "show", "old").out
    assert run.ok("edges", "show", "old", "--json").json["dns"] is None
    assert run("edges", "show", "nobody").code == Exit.BAD_INPUT


def test_changes_of_verdicts_are_a_table(run: Gtm, control: Control) -> None:
    """The newest first, with what the probe met, as text; of a region without any it says so."""
    assert run.ok("regions", "history", "eu-central").out == "no verdict on eu-central is kept\n"
    with psycopg.connect(control.database_url, autocommit=True) as session:
        session.execute(
            "INSERT INTO health_changes (number, region, url, vantage, before, after, detail, status, ms) VALUES "
            "(1800000000000000, 'eu-central', 'https://a', 'fra', 'unknown', 'up', '', 200, 12.5), "
            "(1800000001000000, 'eu-central', 'https://a', '', 'up', 'down', E'status 503 [red]\\x1b[31m', 503, NULL)"
        )
    out = run.ok("regions", "history", "eu-central").out
    down, up = out.splitlines()[1:]
    assert down.startswith("2027-01-15 08:00:01  all together  https://a  up ")
    assert "status 503 [red]\ufffd[31m" in down
    assert "fra" in up
    assert len(run.ok("regions", "history", "eu-central", "--limit", "1", "--json").json) == 1


def test_what_it_tells_is_a_table() -> None:
    """Answers, limits, and certificates, of which those that end soon are marked."""
    dns = {
        "answered": [{"type": "A", "rcode": "NOERROR", "transport": "udp", "per_second": 1.5}],
        "limited": {"slipped": 2.0},
        "dropped": {"short": 0.25},
    }
    assert dns_rows(as_answered(dns)) == [
        ("A", "NOERROR", "udp", "1.50"),
        ("limited", "slipped", "udp", "2.00"),
        ("dropped", "short", "", "0.25"),
    ]
    certificate = {
        "region": "eu",
        "endpoint": "https://eu.example.com",
        "names": ["eu.example.com"],
        "subject": "",
        "issuer": "",
        "not_after": "2026-12-01T00:00:00Z",
        "days_left": 3.4,
        "ends_soon": True,
        "sha256": "ab" * 32,
    }
    assert cells(as_answered(certificate), CERTIFICATES) == [
        "eu",
        "https://eu.example.com",
        "eu.example.com",
        "not verified",
        "2026-12-01 00:00:00",
        "3 !",
        "ab" * 8,
    ]
