"""What earlier versions made for `nobody` is given to the account that Postgres runs as now.

Laws:

1. A directory is closed to `nobody` before what is in it is looked at: nothing in it changes under our hands.
2. Only what is `nobody`'s changes its owner, and no link is followed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gtm.storage.embedded.account import NOBODY, OWN, Account, is_nobodys
from gtm.storage.embedded.errors import EmbeddedPostgresError

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
