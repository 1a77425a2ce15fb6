"""Every command, with output that lacks characters, is full, or is read by nobody any more. docs/cli.md says what comes of it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gtm.cli.app import app
from gtm.cli.common import streams
from gtm.cli.common.exits import Exit
from gtm.core.model.access import Role
from tests.cli.conftest import Control, Gtm
from tests.worlds.control import POLICY

NAME = "Zürich → 東京 \N{SNOWMAN}"


def _walked(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands that are no groups."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield path
    for name, one in inner.items():
        yield from _walked(one, (*path, name))


COMMANDS = tuple(_walked(get_command(app)))
SERVERS = {
    ("serve",),
    ("control",),
    ("edge",),
    ("balancer",),
    ("demo", "backend"),
    ("demo", "traffic"),
    ("report",),
}
"""They run until they are told to end; what they say first is in tests of theirs."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and the bytes that it wrote."""

    code: int
    out: bytes
    err: str


Typed = Callable[..., Ended]


@pytest.fixture
def typed(bare: Gtm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Runs commands whose standard output is a file of the system's, in a character set."""

    def run(*arguments: object, to: int | None = None, encoding: str = "ascii", **environment: str) -> Ended:
        written = tmp_path / "written"
        number = os.open(written, os.O_RDWR | os.O_CREAT | os.O_TRUNC) if to is None else to
        with os.fdopen(number, "w", encoding=encoding) as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            done = bare(*arguments, **environment)
        return Ended(done.code, written.read_bytes() if to is None else b"", done.err)

    return run


def _nobody_reads() -> int:
    """The writing end of a pipe whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command: tuple[str, ...], typed: Typed) -> None:
    """In ASCII, into a full disk, and into `head` that has seen enough."""
    shown = typed(*command, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert b"Usage:" in shown.out
    full = typed(*command, "--help", to=os.open("/dev/full", os.O_WRONLY))
    assert (full.code, full.err) == (
        Exit.CANNOT_RUN,
        "error: cannot write the output: no space left on device\n",
    )
    gone = typed(*command, "--help", to=_nobody_reads())
    assert (gone.code, gone.err) == (Exit.READER_GONE, "")


@pytest.fixture
def world(control: Control, bare: Gtm, tmp_path: Path) -> dict[str, str]:
    """A policy in force whose names few character sets have, and folders beside: what stands in braces below."""
    bare.environment = {"GTM_CONTROL_URL": control.url, "GTM_TOKEN": control.tokens[Role.ADMIN]}
    folder, other = tmp_path / "policy", tmp_path / "other"
    regions = [{**one, "display_name": NAME} for one in POLICY["regions"]]
    for where, kind in ((folder, {}), (other, {"display_name": f"{NAME} 2"})):
        where.mkdir()
        document = {**POLICY, "regions": [{**one, **kind} for one in regions]}
        (where / "all.yaml").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    bare.ok("apply", folder, "--yes", "--no-wait")
    traffic = tmp_path / "traffic.csv"
    traffic.write_text("service,count,country\nchat,5,DE\n")
    return {
        "folder": str(folder),
        "other": str(other),
        "new": str(tmp_path / "neu-ß"),
        "traffic": str(traffic),
        "region": regions[0]["name"],
        "database": control.database_url,
    }


OUTPUTS: dict[str, tuple[str, int]] = {
    "init": ("{new} --region Zürich=https://x.example.com,192.0.2.1 --service web", 0),
    "check": ("{folder}", 0),
    "plan": ("{other}", 0),
    "apply": ("{other} --yes --no-wait", 0),
    "simulate": ("--policy {other} --traffic {traffic}", 0),
    "export": ("-", 0),
    "import": ("gdnsd {traffic} --zone demo.test", 2),
    "route": ("web", 3),
    "explain": ("chat --policy {folder} --client 192.0.2.1", 1),
    "status": ("", 0),
    "load": ("", 0),
    "latency": ("", 0),
    "top": ("--once", 0),
    "audit": ("", 0),
    "dashboard": ("", 0),
    "version": ("", 0),
    "regions list": ("", 0),
    "regions history": ("{region}", 0),
    "regions show": ("{region}", 0),
    "regions drain": ("{region}", 0),
    "regions activate": ("{region}", 0),
    "regions disable": ("{region}", 0),
    "services list": ("", 0),
    "revisions list": ("", 0),
    "revisions show": ("1", 0),
    "revisions diff": ("1 2", 0),
    "revisions rollback": ("1 --yes", 2),
    "revisions accept-older": ("--yes", 2),
    "managed list": ("", 0),
    "managed release": ("x regions/y --reason ü", 2),
    "managed hand-over": ("x y regions/y --reason ü", 2),
    "token create": ("ü --role viewer", 2),
    "token rotate": ("ü", 2),
    "token list": ("", 0),
    "token revoke": ("ü", 2),
    "fence approve": ("x --reason ü", 2),
    "fence approvals": ("", 0),
    "db upgrade": ("--database-url {database}", 0),
    "db current": ("--database-url {database}", 0),
    "db check": ("--database-url {database}", 0),
    "backup": ("{new}.backup --database-url {database}", 0),
    "restore": ("{new}.backup --database-url {database}", 1),
    "dns query": ("ü..example", 2),
    "edges list": ("", 0),
    "edges show": ("ü", 2),
    "edges forget": ("ü", 2),
    "dnssec status": ("ü", 2),
    "dnssec roll": ("ü", 2),
    "dnssec withdraw": ("ü", 2),
    "demo break": ("http://127.0.0.1:1 stall", 3),
    "demo list": ("", 3),
    "demo fail": ("ü", 3),
    "demo restore": ("ü", 3),
    "demo capacity": ("ü 3", 3),
}
"""What each command is asked, and how it ends."""


def test_every_command_is_tried() -> None:
    """A new one belongs into `OUTPUTS`, or among those that run on."""
    assert {" ".join(one) for one in COMMANDS if one not in SERVERS} == OUTPUTS.keys()


def test_main_outputs_in_ascii(typed: Typed, world: dict[str, str]) -> None:
    """What the character set lacks is replaced, and the command ends as it would; so does its JSON, which is whole.

    httpie/cli issue 42: "UnicodeEncodeError when piping Unicode output". alerta/python-alerta-client issue 5: "Can't pipe output if
    non-ASCII characters in any alert text".
    """
    for command, (told, code) in OUTPUTS.items():
        arguments = [*command.split(), *(part.format(**world) for part in told.split())]
        done = typed(*arguments)
        assert done.code == code, (arguments, done)
        assert done.out or done.err, command
        if command != "export":
            assert done.out.isascii(), command
    shown = typed("regions", "list")
    assert "Zürich" in typed("export", "-").out.decode()
    assert shown.out
    found = json.loads(typed("regions", "show", world["region"], "--json").out.decode())
    assert NAME in json.dumps(found, ensure_ascii=False)


def test_main_outputs_that_cannot_be_written(typed: Typed, world: dict[str, str]) -> None:
    """A full disk is said in one line; a reader that went away is nobody's fault."""
    for command in ("status", "regions list", "top --once", "export -", "audit --lines", "token list --json"):
        full = typed(*command.split(), to=os.open("/dev/full", os.O_WRONLY))
        assert (full.code, full.err.count("\n")) == (Exit.CANNOT_RUN, 1), command
        assert "error: cannot write the output: no space left on device" in full.err
        gone = typed(*command.split(), to=_nobody_reads())
        assert (gone.code, gone.err) == (Exit.READER_GONE, ""), command
    assert world


def test_outputs_that_do_not_block(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that somebody else made so is waited for until its reader takes the rest (httpie/cli#565, ansible/ansible#77639)."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    size = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    wait, taken = select.select, bytearray()

    def reads_who_is_waited_for(*lists: Any) -> Any:
        taken.extend(os.read(read, size))
        return wait(*lists)

    monkeypatch.setattr(select, "select", reads_who_is_waited_for)
    shown = typed("--help", to=write)
    rest = os.read(read, size)
    os.close(read)
    assert (shown.code, shown.err) == (0, "")
    assert len(taken) >= size
    assert rest.endswith(b"\n")


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("size", ["0", "1", "-5", "99999999", "²", "", " 80"])
def test_sizes_that_no_terminal_has(name: str, size: str) -> None:
    """Nothing was printed with 0 (travis-ci/travis-ci#6896, metalama/Metalama#1517), and 500 MB with very many."""
    environment = {name: size, "TERM": "dumb"}
    streams.forget_sizes(environment)
    assert environment == {"TERM": "dumb"}
    environment = {"COLUMNS": "132", "LINES": "50"}
    streams.forget_sizes(environment)
    assert environment == {"COLUMNS": "132", "LINES": "50"}


def test_help_without_a_width(bare: Gtm) -> None:
    """It is as long as with any."""
    for columns in ("0", "²"):
        assert "Usage:" in bare("check", "--help", COLUMNS=columns).out


@pytest.mark.parametrize("argument", ["b\udcfcro", "\N{SNOWMAN}", "x\x1b[31m"])
def test_arguments_of_other_character_sets(argument: str, typed: Typed, bare: Gtm) -> None:
    """Bytes that are no UTF-8 come as surrogates, which no terminal takes: the error is said all the same."""
    assert typed("check", argument).code == Exit.BAD_INPUT
    assert bare("check", argument).code == Exit.BAD_INPUT


def test_errors_that_cannot_be_said(bare: Gtm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error that is full changes nothing of how a command ends."""
    with Path("/dev/full").open("w", encoding="ascii") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert bare("check", "/none").code == Exit.BAD_INPUT
        assert bare("version").code == 0
