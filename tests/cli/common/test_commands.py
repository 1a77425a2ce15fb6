"""Of all commands, the one that is run is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gtm.cli.app import app, needed
from tests.cli.conftest import Gtm

ALL: Any = get_command(app)


def _described(command: Any) -> Any:
    """Names, options and help of a command and of those in it."""
    parameters = [(one.name, one.opts, one.required, getattr(one, "help", "")) for one in command.params]
    inner = {name: _described(one) for name, one in getattr(command, "commands", {}).items()}
    return command.name, command.help, parameters, inner


@pytest.mark.parametrize("name", sorted(ALL.commands))
def test_it_is_what_it_is_among_all(name: str) -> None:
    """Alone, with the same options, help and further commands."""
    made: Any = get_command(needed([name, "--help"]))
    assert list(made.commands) == [name]
    assert _described(made.commands[name]) == _described(ALL.commands[name])
    assert _described(made)[:3] == _described(ALL)[:3]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["aply", "policy"]])
def test_help_and_mistakes_are_about_all(arguments: list[str], bare: Gtm) -> None:
    """Nothing is left out of a list, nor is a command that was meant."""
    assert needed(arguments) is app
    said = bare(*arguments)
    assert "apply" in said.out + said.err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed: str) -> None:
    """As some who start daemons leave them: what would be printed goes nowhere, and the command does what it does."""
    demo = Path(__file__).parents[3] / "policies" / "demo"
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m gtm.cli check "$1" {closed}', sys.executable, demo],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
