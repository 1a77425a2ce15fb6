"""The command line. Every command has `--json` where it prints data, and documented exit codes (`gtm.cli.common.exits`)."""

from gtm.cli.main import main

__all__ = ["main"]
