"""The command line. Every command has `--json` where it prints data, and documented exit codes (`gtm.cli.common.exits`)."""

from __future__ import annotations


def main() -> None:
    """Run a command. Servers need none of what that loads."""
    from gtm.cli.app import main as run

    run()
