"""What the commands of gtm are told: by which variables, and by which options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from gtm.cli.app import app

OF_ALL = {"GTM_TOKEN_FILE", "GTM_DATABASE_URL_FILE"}
"""Read beside the variables of which they name the files."""


def command(arguments: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that arguments lead to, and what is left of them.

    Raises:
        KeyError: there is none.
    """
    found: Any = typer.main.get_command(app)
    left = [*arguments]
    while hasattr(found, "commands"):
        found = found.commands[left.pop(0)]
    return found, left


def unknown(arguments: Sequence[str], variables: set[str]) -> set[str]:
    """Those of the variables that the command of these arguments does not read; without arguments, that no command reads.

    Raises:
        click.ClickException: it does not take the arguments.
    """
    if not arguments:
        return variables - OF_ALL - _read(typer.main.get_command(app))
    found, left = command(arguments)
    found.make_context("gtm", left)
    return variables - OF_ALL - _read(found)


def _read(found: Any) -> set[str]:
    below = (_read(one) for one in getattr(found, "commands", {}).values())
    return {one.envvar for one in found.params if one.envvar}.union(*below)
