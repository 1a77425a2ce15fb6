"""As whom Postgres runs. It refuses to run as root, so root starts it as `nobody`."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtm.storage.embedded.errors import EmbeddedPostgresError

_NOBODY = "nobody"
_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group for child processes; None means our own."""

    uid: int | None = None
    gid: int | None = None

    def popen(self) -> dict[str, Any]:
        """Arguments for `subprocess` that start a child as this account, in a plain environment."""
        switch = {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": ()}
        # A fixed environment: PG*, LD_* and locale variables of the caller must not reach the server.
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
        return {**switch, "env": environment, "umask": 0o077, "cwd": "/", "stdin": subprocess.DEVNULL}

    def own(self, descriptor: int) -> None:
        """Give an open file or directory of ours to this account."""
        if self.uid is not None and self.gid is not None:
            os.fchown(descriptor, self.uid, self.gid)

    def can_run(self, program: Path) -> bool:
        """Whether this account can start the program, tried with `--version`."""
        try:
            done = subprocess.run(
                [program, "--version"], **self.popen(), capture_output=True, check=False, timeout=_TIMEOUT
            )
        except OSError:
            return False
        return done.returncode == 0


def choose(home: Path) -> Account:
    """Ourselves, or as root the owner of the existing cluster, or else `nobody`.

    Raises:
        EmbeddedPostgresError: root may not become that user here.
    """
    if os.geteuid() != 0:
        return Account()
    owner = home.stat() if home.is_dir() else None
    if owner is not None and owner.st_uid != 0:
        account = Account(owner.st_uid, owner.st_gid)
    else:
        try:
            nobody = pwd.getpwnam(_NOBODY)
        except KeyError as e:
            raise EmbeddedPostgresError(
                f"Postgres refuses to run as root, and there is no user `{_NOBODY}` to run it as; start gtm as "
                "an ordinary user, or set GTM_DATABASE_URL to a Postgres server"
            ) from e
        account = Account(nobody.pw_uid, nobody.pw_gid)
    try:
        subprocess.run(["/bin/sh", "-c", ":"], **account.popen(), check=True, timeout=_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as e:
        raise EmbeddedPostgresError(
            f"Postgres refuses to run as root, and switching to user id {account.uid} is not possible here "
            f"({e}); start gtm as an ordinary user, or set GTM_DATABASE_URL to a Postgres server"
        ) from e
    return account
