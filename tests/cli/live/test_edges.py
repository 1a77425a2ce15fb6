"""`gtm edges`."""

from __future__ import annotations

import psycopg

from gtm.cli.common.exits import Exit
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
