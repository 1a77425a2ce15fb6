"""Becoming an ordinary user, for good, once everything is bound that only root may bind; keeping what one knows to oneself."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gtm

_PR_SET_DUMPABLE = 4
_OWN_FILES = re.compile(
    r"(edge|balancer)\.lock|edge\.sock|(edge-(last-good|clock|key|name|handoff-keys)|balancer-(handoff-keys|peers))(\.\d+\.tmp)?"
    r"|edge\.sock\.\d+\.tmp|edge-worker\.[0-9a-f]+\.sock"
)
"""What an edge keeps in its data directory."""


class UserError(OSError):
    """This process cannot become the user that was asked for; the message says why."""


def find_user(name: str) -> pwd.struct_passwd | None:
    """The user to become; None if this process is that user already.

    Raises:
        UserError: there is no such user, or only root could become it.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise UserError(
            errno.ENOENT, f"--user: there is no user `{name}` on this machine; create it, or name another"
        ) from None
    if os.geteuid() == user.pw_uid:
        return None
    if os.geteuid() != 0:
        raise UserError(
            errno.EPERM, f"--user: only root can become `{name}`; start the edge as root or as that user"
        )
    return user


def give(data_dir: Path, user: pwd.struct_passwd) -> None:
    """Make a data directory the user's, with what edges keep there. Other people's files are never touched.

    Raises:
        UserError: it holds other files, so that it may be more than an edge's data directory.
        OSError: it cannot be read or changed.
    """
    if data_dir.stat().st_uid == user.pw_uid:
        return  # and whatever is in it now, that user may have made
    paths = list(data_dir.iterdir())
    for path in paths:
        if not _OWN_FILES.fullmatch(path.name):
            raise UserError(
                errno.EPERM,
                f"--user: `{data_dir}` belongs to another user and holds more than an edge's files "
                f"(`{path.name}`); give `{user.pw_name}` a directory of its own with --data-dir, or make it the owner",
            )
    for path in (*paths, data_dir):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


@contextmanager
def acting_as(user: pwd.struct_passwd | None) -> Iterator[None]:
    """Touch files as this user for a while: what root creates or follows there could be a trap, or root's for ever."""
    if user is None:
        yield
        return
    group = os.getegid()
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def become(user: pwd.struct_passwd) -> None:
    """Drop groups, group and user, in this order, for this process and all it starts.

    Raises:
        UserError: it is not possible here, or could be undone, or the user cannot run gtm.
    """
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    except OSError as error:
        raise UserError(
            error.errno, f"--user: cannot become `{user.pw_name}` here: {error.strerror}"
        ) from error
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise UserError(errno.EPERM, f"--user: `{user.pw_name}` is root by another name; name another user")
    for path in (sys.executable, gtm.__file__):
        if not os.access(path, os.R_OK):
            raise UserError(
                errno.EACCES, f"--user: `{user.pw_name}` may not read `{path}`; install gtm where it can"
            )


def conceal() -> None:
    """Keep other processes of the same user from reading this one's memory and first environment (prctl(2)).

    Linux alone has it. It ends with exec: each process that has secrets says so for itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
