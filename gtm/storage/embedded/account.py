"""As whom Postgres runs. It refuses to run as root, so root starts it as an account that has nothing else to do.

Whatever runs as the same account reads the database's password through `/proc/PID/cwd`, however closed the directories
above are: `nobody`, whom others use too, is for machines on which no account can be made.

What earlier versions made for `nobody` is given to the account that Postgres runs as now.

Laws:

1. A directory is closed to `nobody` before what is in it is looked at: nothing in it changes under our hands.
2. Only what is `nobody`'s changes its owner, and no link is followed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtm.storage.embedded.lock import EmbeddedPostgresError

logger = logging.getLogger(__name__)

OWN = "gtm-postgres"
NOBODY = "nobody"
_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
_LOCK = "/run/gtm-postgres.lock"
"""In a directory that is root's, so that no other user keeps a start waiting."""
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


ROOT = Account(0, 0)


def choose(home: Path) -> Account:
    """Ourselves, or as root the user whose cluster it is, or else `gtm-postgres`, or where that cannot be made `nobody`.

    Raises:
        EmbeddedPostgresError: root may not become that user here, or we are a user without an account.
    """
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)  # as initdb and postgres do; both end where there is none
        except KeyError:
            raise EmbeddedPostgresError(
                f"Postgres starts for no user without an account, and this machine or container has none for user id {uid} "
                "(OpenShift draws such ids): run gtm as a user that has one (in gtm's image: 10001), or set GTM_DATABASE_URL "
                "to a Postgres server"
            ) from None
        return Account()
    nobody = _named(NOBODY)
    owner = home.stat() if home.is_dir() else None
    if owner is not None and owner.st_uid not in (0, None if nobody is None else nobody.uid):
        account = Account(owner.st_uid, owner.st_gid)
        wrong = _refused(account)
    else:
        own = _named(OWN) or _made()
        if own is not None and _refused(own) is None:
            return own
        if nobody is None:
            raise EmbeddedPostgresError(
                f"Postgres refuses to run as root, and there is neither a user `{OWN}` nor `{NOBODY}` to run it as; "
                "start gtm as an ordinary user, or set GTM_DATABASE_URL to a Postgres server"
            )
        account = nobody
        wrong = _refused(account)
        if wrong is None:
            logger.warning(
                "the embedded Postgres runs as `%s`, for no account `%s` can be made here: every other process of `%s` can "
                "read the database's password and everything in it, and become admin; make the account (`useradd --system "
                "%s`) and start gtm again, or start it as an ordinary user",
                *(NOBODY, OWN, NOBODY, OWN),
            )
    if wrong is not None:
        raise EmbeddedPostgresError(
            f"Postgres refuses to run as root, and switching to user id {account.uid} is not possible here "
            f"({wrong}); start gtm as an ordinary user, or set GTM_DATABASE_URL to a Postgres server"
        ) from wrong
    return account


def is_nobodys(found: os.stat_result) -> bool:
    """Whether a file belongs to `nobody`."""
    nobody = _named(NOBODY)
    return nobody is not None and found.st_uid == nobody.uid


def _named(name: str) -> Account | None:
    """The account of this name; None if there is none."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(user.pw_uid, user.pw_gid)


@contextmanager
def _alone() -> Iterator[None]:
    """One start at a time, by a lock that nobody but root can take; without it where there is no place for that.

    `useradd` looks for the name before it takes its own lock. Of two at once the second therefore replaces the entry of the
    first, with another user id, and the first has none.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            file = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made() -> Account | None:
    """Our own account, made now: nobody logs in as it, and it has no home; None where that cannot be done."""
    useradd = shutil.which("useradd", path=_PROGRAMS)
    if useradd is None:
        return None
    nologin = shutil.which("nologin", path=_PROGRAMS) or "/bin/false"
    options = [
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--shell",
        nologin,
    ]
    with _alone():
        there = _named(OWN)  # by whatever start was first
        if there is not None:
            return there
        try:
            done = subprocess.run(
                [useradd, *options, OWN],
                **Account().popen(),
                capture_output=True,
                check=False,
                timeout=_TIMEOUT,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        made = _named(OWN)
    if made is not None and done.returncode == 0:
        logger.info("made the system account `%s`: the embedded Postgres runs as it", OWN)
    return made


def _refused(account: Account) -> Exception | None:
    """Why root may not become this account here; None if it may."""
    try:
        subprocess.run(["/bin/sh", "-c", ":"], **account.popen(), check=True, timeout=_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        return error
    return None


MOST = 200_000
"""Files and directories; a cluster of gtm's has some two thousand, and one more for each GiB of a table."""
DEEPEST = 12
"""Directories in one another; Postgres has four."""


def close(directory: int, account: Account) -> None:
    """Make an open directory the account's, and nobody else's to enter."""
    account.own(directory)
    os.fchmod(directory, 0o700)


def give(home: Path, directory: int, account: Account, *, depth: int = 1, before: int = 0) -> int:
    """Make what is in an open, closed directory the account's, as far as it is `nobody`'s; done again, it goes on with what is left.

    Args:
        home: the whole of it, for messages.
        directory: where to begin.
        account: with a user and a group.
        depth: it is in so many others.
        before: so many files were given already.

    Returns:
        How many then are.

    Raises:
        EmbeddedPostgresError: there is more of it than any cluster has.
        OSError: it cannot be read or changed.
    """
    given = before
    with os.scandir(directory) as entries:
        for entry in entries:
            given += 1
            if given > MOST or depth > DEEPEST:
                raise EmbeddedPostgresError(
                    f"`{home}` was `{NOBODY}`'s and holds more than {MOST:,} files, or more than {DEEPEST} directories in one "
                    f"another, which no database of gtm does: look what is in it, and make it `{OWN}`'s "
                    f"(`chown -hR {OWN}: {home}`)"
                )
            found = entry.stat(follow_symlinks=False)
            ours = found.st_uid == account.uid
            if stat.S_ISDIR(found.st_mode) and (ours or is_nobodys(found)):
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                try:
                    close(below, account)
                    given = give(home, below, account, depth=depth + 1, before=given)
                finally:
                    os.close(below)
            elif is_nobodys(found):
                os.chown(
                    entry.name, account.uid or 0, account.gid or 0, dir_fd=directory, follow_symlinks=False
                )
    return given
