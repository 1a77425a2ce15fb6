"""Consent to changes: asked for at a terminal, required as `--yes` everywhere else."""

from __future__ import annotations

import sys

from gtm.cli.common.exits import CommandError, Exit


def require(*, yes: bool, as_json: bool) -> None:
    """Fail early where nobody could be asked.

    Raises:
        CommandError: no `--yes`, and no terminal to ask at.
    """
    if not yes and (as_json or not sys.stdin.isatty()):
        where = "with --json" if as_json else "without a terminal"
        raise CommandError(f"nobody can be asked {where}: give --yes to make the change; nothing was changed")


def confirm(question: str) -> None:
    """Ask on standard error.

    Raises:
        CommandError: the answer is anything but yes (exit code 1).
    """
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was changed", Exit.NO)
