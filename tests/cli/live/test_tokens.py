"""`gtm token` through control and directly, and `gtm db`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from gtm.cli.common.exits import Exit
from gtm.storage.embedded import DataDirectoryLock
from tests.cli.conftest import Control, Gtm


def test_create_use_revoke(run: Gtm) -> None:
    """A new token's text is alone on standard output, works at once, and no longer once revoked."""
    made = run.ok("token", "create", "ci", "--role", "viewer", "--expires", "30d")
    text = made.out.strip()
    assert text.startswith("gtm_")
    assert "shown only this once" in made.err
    assert run.ok("status", GTM_TOKEN=f" {text}\n"), "white space around a pasted token is not part of it"
    listed = {item["name"]: item for item in run.ok("token", "list", "--json").json}
    expires = datetime.fromisoformat(listed["ci"]["expires_at"])
    assert timedelta(days=29) < expires - datetime.now(UTC) <= timedelta(days=30)
    assert text not in run.ok("token", "list").out
    run.ok("token", "revoke", listed["ci"]["id"])
    assert run("status", GTM_TOKEN=text).code == Exit.NOT_ALLOWED
    assert "revoked" in run.ok("token", "list").out
    again = run.ok("token", "create", "ci", "--role", "viewer")
    assert again.out.strip() != text, "the name is free again"
    assert "gtm token rotate ci" in run("token", "create", "ci", "--role", "viewer").err
    assert [item["name"] for item in run.ok("token", "list", "--json").json].count("ci") == 2
    assert run("token", "revoke", "nobody").code == Exit.BAD_INPUT


def test_rotate(run: Gtm) -> None:
    """A token's new text works at once, its old one until the grace is over."""
    old = run.ok("token", "create", "ci", "--role", "viewer", "--expires", "30d").out.strip()
    done = run.ok("token", "rotate", "ci", "--grace", "1h")
    new = done.out.strip()
    assert re.search(r"the text before it works until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", done.err)
    for text in (old, new):
        assert run.ok("status", GTM_TOKEN=text)
    assert "replaced" in run.ok("token", "list").out
    last = run.ok("token", "rotate", "ci", "--grace", "0s").out.strip()
    assert "has ended" in run("token", "rotate", "ci", "--grace", "0").err
    for text in (old, new, last):
        assert run("status", GTM_TOKEN=text).code == Exit.NOT_ALLOWED
    for arguments in (("nobody",), ("ci", "--grace", "soon"), ("ci", "--grace", "31d")):
        assert run("token", "rotate", *arguments).code == Exit.BAD_INPUT


def test_tokens_of_regions(run: Gtm, control: Control) -> None:
    """What a token is bound to is shown, whichever way it was made."""
    direct = ("--direct", "--database-url", control.database_url)
    made = run.ok("token", "create", "fra-balancer", "--role", "balancer", "--regions", "eu-central")
    assert "token fra-balancer (balancer of eu-central, id" in made.err
    other = run.ok("token", "create", "servers", "--role", "reporter", "--regions", "eu-*", "--json", *direct)
    assert (other.json["regions"], other.json["edges"]) == ("eu-*", None)
    listed = run.ok("token", "list").out
    assert re.search(r"fra-balancer +[0-9a-f]+ +balancer +eu-central +admin-one +active", listed)
    assert re.search(r"servers +[0-9a-f]+ +reporter +eu-\* +local-admin +active", listed)
    assert "balancer of eu-central" in run.ok("token", "rotate", "fra-balancer").err
    assert "needs the region" in run("token", "create", "x", "--role", "balancer", *direct).err


def test_owners(run: Gtm, control: Control) -> None:
    """Whose a token is, is said when it is made or replaced, and shown; left out it is that of the token that makes it, or of who started it all."""
    direct = ("--direct", "--database-url", control.database_url)
    create = ("token", "create", "--role", "viewer", "--json")
    made = run.ok(*create, "ann", "--owner", "ann@example.com").json
    assert (made["owner"], made["makers"]) == ("ann@example.com", ["admin-one"])
    assert run.ok(*create, "mine").json["owner"] == "admin-one"
    made = run.ok(*create, "bob", "--owner", "bob@example.com", *direct).json
    assert (made["owner"], made["makers"]) == ("bob@example.com", [])
    assert run.ok(*create, "rescue", *direct).json["owner"] == "local-admin"
    assert re.search(r"bob +[0-9a-f]+ +viewer +bob@example.com +active", run.ok("token", "list").out)
    kept = run.ok("token", "rotate", "ann", "--json", *direct).json
    assert (kept["owner"], kept["makers"]) == ("ann@example.com", [])
    given = run.ok("token", "rotate", "ann", "--owner", "ci", "--json").json
    assert (given["owner"], given["makers"]) == ("ci", ["admin-one"])
    for wrong in ("*", "", "Ann Smith", "x" * 401):
        assert "owner" in run("token", "create", "x", "--role", "viewer", "--owner", wrong).err
        assert "owner" in run("token", "rotate", "ann", "--owner", wrong, *direct).err


NO_TOKENS = (
    ("x", "--role", "boss"),
    ("x",),
    ("X Y", "--role", "viewer"),
    ("x", "--role", "balancer"),
    ("x", "--role", "balancer", "--regions", "EU"),
    ("x", "--role", "balancer", "--edges", "x"),
    ("x", "--role", "edge", "--regions", "eu-west"),
    ("x", "--role", "viewer", "--expires", "soon"),
    ("x", "--role", "viewer", "--expires", "0d"),
    ("x", "--role", "viewer", "--expires", "999999w"),
    ("x", "--role", "viewer", "--expires", "2020-01-01T00:00:00Z"),
    ("x", "--role", "viewer", "--expires", "2999-01-01T00:00:00"),
)
"""What no token can be made of."""


def test_bad_input(run: Gtm, control: Control) -> None:
    """It ends with 2, through control and directly alike."""
    for arguments in NO_TOKENS:
        for way in ((), ("--direct", "--database-url", control.database_url)):
            done = run("token", "create", *arguments, *way)
            assert done.code == Exit.BAD_INPUT, done
            assert done.out == ""


def test_direct(bare: Gtm, control: Control) -> None:
    """With access to the database no token is needed, and what is made there works at control."""
    direct = ("--direct", "--database-url", control.database_url)
    made = bare.ok("token", "create", "rescue", "--role", "admin", "--json", *direct).json
    reach = {"GTM_CONTROL_URL": control.url, "GTM_TOKEN": made["token"]}
    through = bare.ok("token", "list", "--json", **reach).json
    assert bare.ok("token", "list", "--json", *direct).json == through, "both ways show the same"
    bare.ok("token", "revoke", "rescue", *direct)
    assert bare("token", "revoke", "nobody", *direct).code == Exit.BAD_INPUT
    states = {item["name"]: item["revoked_at"] for item in bare.ok("token", "list", "--json", *direct).json}
    assert states["rescue"] is not None
    bare.ok("token", "create", "rescue", "--role", "admin", *direct)
    assert bare("token", "create", "rescue", "--role", "admin", *direct).code == Exit.BAD_INPUT
    assert bare.ok("token", "rotate", "rescue", "--grace", "0s", *direct).out.startswith("gtm_")


def test_database_that_is_none(bare: Gtm, tmp_path: Path, empty_database_url: str) -> None:
    """A database that cannot be used is told from one that cannot be reached, and no password is repeated."""
    lost = bare("db", "current", "--database-url", "postgresql://u:hunter2@127.0.0.1:1/x")
    assert lost.code == Exit.UNREACHABLE
    wrong = bare("db", "current", "--database-url", "mysql://u:hunter2@h/x")
    assert wrong.code == Exit.BAD_INPUT
    assert "hunter2" not in lost.err + wrong.err
    nowhere = bare("token", "list", "--direct", "--data-dir", tmp_path)
    assert nowhere.code == Exit.CANNOT_RUN
    assert "--data-dir" in nowhere.err
    assert list(tmp_path.iterdir()) == [], "looking creates nothing"
    empty = bare("token", "list", "--direct", "--database-url", empty_database_url)
    assert empty.code == Exit.NO
    assert "gtm db upgrade" in empty.err


def test_migrations(bare: Gtm, empty_database_url: str) -> None:
    """The schema is upgraded once, and differences from it are found."""
    at = ("--database-url", empty_database_url)
    assert bare.ok("db", "current", "--json", *at).json["current"] is None
    assert bare("db", "check", *at).code == Exit.NO
    done = bare.ok("db", "upgrade", "--json", *at).json
    assert done["before"] is None
    assert bare.ok("db", "current", "--json", *at).json == {"current": done["after"], "head": done["after"]}
    assert "already" in bare.ok("db", "upgrade", *at).out
    assert bare.ok("db", "check", "--json", *at).json["ok"] is True
    with psycopg.connect(empty_database_url) as session:
        session.execute("ALTER TABLE tokens ADD COLUMN surprise text")
    found = bare("db", "check", *at)
    assert found.code == Exit.NO
    assert "surprise" in found.out


def test_embedded_that_does_not_run(bare: Gtm, tmp_path: Path) -> None:
    """An embedded database is started for the command, and stopped after it."""
    at = ("--data-dir", tmp_path / "data")
    assert bare.ok("db", "upgrade", *at)
    made = bare.ok("token", "create", "first", "--role", "admin", "--direct", *at)
    assert made.out.startswith("gtm_")
    assert "first" in bare.ok("token", "list", "--direct", *at).out
    assert not (tmp_path / "data" / "postgres" / "data" / "postmaster.pid").exists()


def test_data_directory_of_a_gtm_that_uses_another_server(bare: Gtm, tmp_path: Path) -> None:
    """If gtm runs on the directory but no embedded Postgres does, the error says to name the server in use."""
    (tmp_path / "postgres").mkdir()
    lock = DataDirectoryLock(tmp_path)
    lock.acquire()
    try:
        done = bare("token", "list", "--direct", "--data-dir", tmp_path)
    finally:
        lock.release()
    assert done.code == Exit.CANNOT_RUN
    assert "set GTM_DATABASE_URL here too" in done.err


def test_audit(run: Gtm, control: Control) -> None:
    """What was done is shown, by whom and by what; as lines it is all of it."""
    direct = ("--direct", "--database-url", control.database_url)
    run.ok("token", "create", "ci", "--role", "viewer")
    run.ok("token", "revoke", "ci", *direct)
    shown = run.ok("audit", "--target", "token ci", "--since", "1h").out
    assert re.search(r"direct +token.revoke +token ci", shown)
    assert re.search(r"api +token.create +token ci", shown)
    lines = [json.loads(line) for line in run.ok("audit", "--lines", "--target", "token ci").out.splitlines()]
    assert [one["via"] for one in lines] == ["api", "direct"]
    assert run.ok("audit", "--json", "--until", "2000-01-01T00:00:00Z").json == []
    for wrong in (("--since", "soon"), ("--until", "2030-01-01T00:00:00"), ("--action", "NO")):
        assert run("audit", *wrong).code == Exit.BAD_INPUT
