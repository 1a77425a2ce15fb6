"""The command line. Every command has `--json` where it prints data, and documented exit codes (`gtm.cli.exits`)."""

from gtm.cli.main import main

__all__ = ["main"]
