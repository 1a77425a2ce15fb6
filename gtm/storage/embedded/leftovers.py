"""Servers that outlived their gtm, and what killed servers leave behind."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from gtm.storage.embedded.lock import EmbeddedPostgresError

STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
"""Fast shutdown, immediate shutdown, kill; and for how many seconds each may take."""
_POLL = 0.02


def postmaster_pid(cluster: Path) -> int | None:
    """The process id in `postmaster.pid`, if there is such a file and a sensible id in it."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def clear(cluster: Path) -> None:
    """Stop whatever server still runs on the cluster, and remove its stale `postmaster.pid`.

    The caller holds the data directory's lock, so that any server found is a leftover. A stale file would do
    harm by itself: Postgres refuses to start when its process id belongs to any other process by now.

    Raises:
        EmbeddedPostgresError: the leftover server can't be stopped.
    """
    if not (cluster / "postmaster.pid").exists():
        return
    for step, seconds in STOP_STEPS:
        running = _servers(cluster)
        postmaster = postmaster_pid(cluster)
        # The postmaster stops its children. Without it they stop by themselves, or are killed at last.
        for pid in running:
            if pid == postmaster or step == signal.SIGKILL:
                with suppress(ProcessLookupError):
                    os.kill(pid, step)
        if _wait_until_gone(cluster, seconds):
            break
    else:
        raise EmbeddedPostgresError(
            f"a Postgres server (processes {', '.join(map(str, _servers(cluster)))}) still runs on "
            f"`{cluster}` and can't be stopped; stop it by hand"
        )
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def _servers(cluster: Path) -> list[int]:
    """The Postgres processes whose working directory is the cluster."""
    wanted = cluster.stat()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            here = (entry / "cwd").stat()
            name = (entry / "comm").read_text().strip()
        except OSError:  # gone, or somebody else's
            continue
        if (here.st_dev, here.st_ino) == (wanted.st_dev, wanted.st_ino) and name == "postgres":
            found.append(int(entry.name))
    return found


def _wait_until_gone(cluster: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _servers(cluster):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True
