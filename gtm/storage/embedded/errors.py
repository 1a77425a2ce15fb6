"""Why an embedded Postgres doesn't run."""

from __future__ import annotations

from pathlib import Path


class EmbeddedPostgresError(Exception):
    """The embedded Postgres can't be set up, started or reached; the message says what to do."""


class DataDirectoryInUse(EmbeddedPostgresError):  # noqa: N818 - it names what is so, not a fault
    """Another process of gtm works on the same data directory."""


def unusable(path: Path, error: OSError) -> EmbeddedPostgresError:
    """What to say when the operating system refuses a file or directory."""
    return EmbeddedPostgresError(
        f"can't use the data directory: {(error.strerror or str(error)).lower()}: `{error.filename or path}`; "
        "give another with --data-dir"
    )
