"""`gtm export --for`: files for proxies, against a real control tier."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gtm.cli.common.client import Client
from gtm.cli.common.commands import Command
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.policy import listing
from gtm.cli.policy.listing import ListFiles, WantedLists
from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.documents.lists import ListFormat
from gtm.feed.reports import EdgeReport
from tests import worlds
from tests.api.conftest import POLICY, TOKENS, Server
from tests.cli.conftest import Gtm
from tests.worlds.control import WORLD


def _seen(server: Server, *down: str) -> None:
    """An edge says which regions are down."""
    active = server.app.state.context.replica.active

    def told() -> None:
        health = worlds.health(WORLD.regions, down, since=1.0)
        active.reports.take("edge-1", "127.0.0.1", EdgeReport("1", 2, 1, health))
        active.verdicts.judge()

    server.do(told)


@pytest.fixture
def server(prepared_url: str, bare: Gtm, tmp_path: Path) -> Iterator[Server]:
    """A control tier with a policy, and every region up; `bare` asks it."""
    with Server(prepared_url) as found:
        bare.environment = {"GTM_CONTROL_URL": found.url, "GTM_TOKEN": TOKENS[Role.ADMIN]}
        document = tmp_path / "policy" / "all.json"
        document.parent.mkdir()
        document.write_text(json.dumps({**POLICY, "data_classes": [{"name": "health"}]}))
        bare.ok("apply", document.parent, "--yes", "--no-wait")
        _seen(found)
        yield found


def _shown(path: Path) -> str:
    return path.read_text()


def test_files_are_written_once(server: Server, bare: Gtm, tmp_path: Path) -> None:
    """One for each class and one for all; those of a class alone where one is named."""
    out = tmp_path / "lists"
    done = bare.ok("export", "--for", "nginx", "--out", out)
    assert {path.name for path in out.iterdir()} == {"chat.conf", "chat.health.conf"}
    assert _shown(out / "chat.conf").startswith("upstream chat {\n    server 127.0.1.")
    assert "us-east" not in _shown(out / "chat.conf")
    assert "chat.conf: eu-central 100%, eu-west stands in" in done.out
    bare.ok("export", "--for", "haproxy", "--out", out, "--data-class", "health", "--client-country", "US")
    assert "us-east" in _shown(out / "chat.health.cfg")
    assert not (out / "chat.cfg").exists()
    _seen(server, "eu-central")
    bare.ok("export", "--for", "llm-d", "--out", out, "--service", "chat")
    (only,) = json.loads(_shown(out / "chat.json"))["endpoints"]
    assert (only["address"], only["labels"]) == ("127.0.1.2", {"region": "eu-west"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--for", "nginx", "--out", "x", "--service", "chaz"], "there is no service `chaz`"),
        (["--for", "nginx", "--out", "x", "--data-class", "healt"], "did you mean `health`"),
        (["--for", "nginx", "--out", "x", "--client-country", "XX"], "country"),
        (["--for", "nginx"], "--for takes --out FOLDER"),
        (["--for", "nginx", "--out", "x", "folder"], "--for takes --out FOLDER"),
        (["folder", "--watch"], "--for to write lists"),
        ([], "give the folder"),
    ],
)
def test_what_is_wrong_is_said(server: Server, bare: Gtm, arguments: list[str], said: str) -> None:
    """And nothing is written."""
    done = bare("export", *arguments)
    assert done.code == 2
    assert said in done.err
    assert not Path("x").exists()


def test_the_command_after_a_change(server: Server, bare: Gtm, tmp_path: Path) -> None:
    """It is run once the files are there; where it fails, the exit code says so."""
    out = tmp_path / "lists"
    copy = f"{sys.executable} -c \"import shutil; shutil.copy('{out}/chat.conf', '{tmp_path}/seen')\""
    bare.ok("export", "--for", "nginx", "--out", out, "--then", copy)
    assert _shown(tmp_path / "seen") == _shown(out / "chat.conf")
    done = bare("export", "--for", "nginx", "--out", tmp_path / "others", "--then", "false")
    assert done.code == 1
    assert "--then: `false` failed" in done.err


class Ended(BaseException):
    """Ends a command that goes on."""


def test_watching(
    server: Server,
    bare: Gtm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A region that fails is out at the next look; without control the files stay; what is deleted names no region."""
    out = tmp_path / "lists"
    asks = Client.get_lists

    def gone(*_: Any, **__: Any) -> Any:
        raise CommandError("control is gone", Exit.UNREACHABLE)

    steps: Iterator[Any] = iter(
        [
            lambda: _seen(server, "eu-central"),
            lambda: monkeypatch.setattr(Client, "get_lists", gone),
            lambda: None,
            lambda: monkeypatch.setattr(Client, "get_lists", asks),
        ]
    )
    seen: list[str] = []

    def sleep(_: float) -> None:
        seen.append(_shown(out / "chat.json"))
        step = next(steps, None)
        if step is None:
            raise Ended
        step()

    monkeypatch.setattr(time, "sleep", sleep)
    command = Command(server.url, TOKENS[Role.ADMIN])
    with pytest.raises(Ended):
        listing.write(command, WantedLists(ListFormat.ENVOY_EDS, out), watch=True)
    assert "127.0.1.1" in seen[0]
    assert "127.0.1.1" not in seen[1]
    assert "127.0.1.2" in seen[1]
    assert seen[2:] == [seen[1]] * 3
    said = capsys.readouterr()
    assert said.err.count("control is gone: the files stay as they are") == 1
    assert "control answers again" in said.out


def _answer(*regions: str, holds: float | None = None) -> Any:
    one = {
        "service": "chat",
        "data_class": None,
        "holds_for": holds,
        "regions": [
            {
                "region": name,
                "share": 1.0 / len(regions),
                "standby": False,
                "endpoints": [{"url": f"https://{name}.test", "ipv4": ["192.0.2.1"], "ipv6": []}],
            }
            for name in regions
        ],
    }
    return as_answered({"revision": 1, "epoch": 1, "lists": [one]})


def test_a_list_ends_when_the_law_may_have_changed(tmp_path: Path) -> None:
    """Not before; counted from when control was asked."""
    now = [100.0]
    files = ListFiles(WantedLists(ListFormat.HAPROXY, tmp_path), lambda: now[0])
    files.take(_answer("de", holds=60.0), 100.0)
    now[0] = 159.9
    files.expire()
    assert "server de" in _shown(tmp_path / "chat.cfg")
    now[0] = 160.0
    files.expire()
    assert _shown(tmp_path / "chat.cfg") == "backend chat\n"
    files.take(_answer("de"), 161.0)
    now[0] = 1e9
    files.expire()
    assert "server de" in _shown(tmp_path / "chat.cfg")


def test_what_is_gone_from_the_policy_names_no_region(tmp_path: Path) -> None:
    """Its file stays, for proxies go on with what they had where a file is missing."""
    files = ListFiles(WantedLists(ListFormat.HAPROXY, tmp_path))
    files.take(_answer("de"), 0.0)
    files.take(as_answered({**_answer("de"), "lists": []}), 1.0)
    assert _shown(tmp_path / "chat.cfg") == "backend chat\n"


def test_a_file_is_written_only_where_it_says_something_new(tmp_path: Path) -> None:
    """Or where it could not be written before."""
    files = ListFiles(WantedLists(ListFormat.HAPROXY, tmp_path / "lists"))
    (tmp_path / "lists").write_text("no folder")
    with pytest.raises(CommandError, match="cannot write"):
        files.take(_answer("de"), 0.0)
    (tmp_path / "lists").unlink()
    files.take(_answer("de"), 1.0)
    path = tmp_path / "lists" / "chat.cfg"
    inode = path.stat().st_ino
    files.take(_answer("de"), 2.0)
    assert path.stat().st_ino == inode
    files.take(_answer("de", "ie"), 3.0)
    assert path.stat().st_ino != inode


def test_a_command_that_fails_is_run_again(tmp_path: Path) -> None:
    """Until it succeeds, whether or not the file changes again."""
    flag = tmp_path / "flag"
    files = ListFiles(WantedLists(ListFormat.HAPROXY, tmp_path / "lists", then=f"test -e {flag}"))
    files.take(_answer("de"), 0.0)
    files.tell()
    assert files.failed
    flag.touch()
    files.take(_answer("de"), 1.0)
    files.tell()
    assert not files.failed


# --- what people filed against others that keep files up to date: each test names its source ---


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.write_text("backend chat\n    server x 9.9.9.9:1\n")]
)
def test_what_somebody_else_did_to_a_file_does_not_last(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    """hashicorp/consul-template#408, hashicorp/consul-template#911: a file that was deleted, or taken from a backup, stayed so until the data changed. What is in force must be what the law says.

    To whom it belongs is theirs (hashicorp/consul-template#1061).
    """
    flag = tmp_path / "told"
    files = ListFiles(WantedLists(ListFormat.HAPROXY, tmp_path / "lists", then=f"touch {flag}"))
    files.take(_answer("de"), 0.0)
    files.tell()
    path, text = tmp_path / "lists" / "chat.cfg", _shown(tmp_path / "lists" / "chat.cfg")
    path.chmod(0o600)
    flag.unlink()
    files.take(_answer("de"), 1.0)
    files.tell()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not flag.exists()
    change(path)
    files.take(_answer("de"), 2.0)
    files.tell()
    assert _shown(path) == text
    assert flag.exists()


@pytest.mark.parametrize("what", ["rm", "chmod 600", "sed -i s/server/server-template/"])
def test_a_command_that_changes_the_files_is_not_run_for_ever(tmp_path: Path, what: str) -> None:
    """hashicorp/consul-template#612, hashicorp/consul-template#561: it ran again and again, though nothing had changed."""
    out, counted = tmp_path / "lists", tmp_path / "count"
    script = tmp_path / "then"
    script.write_text(f"#!/bin/sh\n{what} {out}/chat.cfg\necho >> {counted}\n")
    script.chmod(0o700)
    files = ListFiles(WantedLists(ListFormat.HAPROXY, out, then=str(script)))
    for n in range(5):
        files.take(_answer("de"), float(n))
        files.tell()
    assert counted.read_text() == "\n"


@pytest.mark.parametrize("form", ListFormat)
def test_no_proxy_reads_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: ListFormat
) -> None:
    """hashicorp/consul-template#17, hashicorp/consul-template#58, envoyproxy/envoy#2241: it is moved to its place, from beside it, and until then has no name by which any proxy takes what is in the folder."""
    (tmp_path / "really").mkdir()
    out = tmp_path / "lists"
    out.symlink_to("really")
    meanwhile: set[str] = set()
    sync = os.fsync

    def looks(descriptor: int) -> None:
        meanwhile.update(path.name for path in out.iterdir())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", looks)
    files = ListFiles(WantedLists(form, out))
    files.take(_answer("de"), 0.0)
    (name,) = (path.name for path in out.iterdir())
    assert len(meanwhile) > 1
    assert [one for one in meanwhile if one.endswith((".cfg", ".conf", ".json", ".yaml"))] == [name]


def test_a_service_that_went_while_nobody_looked(server: Server, bare: Gtm, tmp_path: Path) -> None:
    """hashicorp/consul-template#527: what had changed while it did not run was never written. A command that is started for a service that is gone has its files name no region, and says so."""
    out = tmp_path / "lists"
    bare.ok("export", "--for", "haproxy", "--out", out, "--service", "chat")
    for path in tuple(out.iterdir()):
        for other in ("old", "older"):
            moved = out / path.name.replace("chat", other)
            moved.write_text(path.read_text().replace("backend chat", f"backend {other}"))
    told = bare(
        "export", "--for", "haproxy", "--out", out, "--service", "old", "--then", f"touch {tmp_path}/told"
    )
    assert (told.code, "there is no service `old`" in told.err) == (2, True)
    assert _shown(out / "old.cfg") == "backend old\n"
    assert _shown(out / "old.health.cfg") == "backend old.health\n"
    assert "server" in _shown(out / "older.cfg")
    assert "server" in _shown(out / "chat.cfg")
    assert (tmp_path / "told").exists()
