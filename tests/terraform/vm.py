"""A machine for set-ups to be run on: this one, with its own /etc, /opt, /run, /var/lib, processes and systemctl (unshare(1)).

What is done there changes nothing here, and ends with it. Its network is this machine's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PACKAGES = Path(sysconfig.get_path("purelib"))
"""Where what gtm needs is installed, so that a test need not install it again."""
PYTHON = Path(sys.executable).resolve()
"""The Python that tests run with, itself."""
_MASKED = ("/opt", "/run", "/var/lib", "/var/log")
_SYSTEMCTL = Path(__file__).with_name("systemctl.py")

_MOUNTS = """
set -eu
number=0
for one in $KEPT; do
  number=$((number + 1)); mkdir -p "$BASE/kept/$number"; mount --bind "$one" "$BASE/kept/$number"
done
cp -a /etc/. "$BASE/etc"
mount --bind "$BASE/etc" /etc
for one in $MASKED; do mount -t tmpfs -o mode=0755 tmpfs "$one"; done
number=0
for one in $KEPT; do
  number=$((number + 1)); mkdir -p "$one"; mount --bind "$BASE/kept/$number" "$one"
done
trap '' CHLD
echo ready
exec cat
"""


class Machine:
    """A machine that runs."""

    def __init__(self, pid: int, programs: Path) -> None:
        self._enter = ["nsenter", "--target", str(pid), "--mount", "--pid", "--"]
        self._environment = {
            "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(PACKAGES),
        }

    def run(self, *command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command there, as root; what it prints is in `stdout`, both streams."""
        return subprocess.run(
            [*self._enter, *command],
            input=text or "",
            env=self._environment,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )

    def must(self, *command: str) -> str:
        """The same of a command that has to work: what it prints."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """A file there that root alone reads."""
        assert self.run("sh", "-c", f"umask 077 && cat > {shlex.quote(path)}", text=text).returncode == 0

    @contextmanager
    def stub_resolver(self) -> Iterator[None]:
        """Have systemctl say that systemd-resolved runs."""
        file = "/run/systemctl/systemd-resolved.pid"
        self.must("mkdir", "-p", "/run/systemctl")
        self.write(file, "1")
        self.must("touch", "/run/systemctl/systemd-resolved.ready")
        try:
            yield
        finally:
            self.must("rm", file)

    def calls(self) -> list[str]:
        """What systemctl was asked since the last time, but for questions."""
        file = "/run/systemctl/calls"
        said = self.must("sh", "-c", f"if [ -e {file} ]; then cat {file}; rm {file}; fi")
        return [line for line in said.splitlines() if line.split()[0] not in ("is-active", "show")]


_FORBIDDEN = "unshare is not permitted here"


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine whose files are below an empty folder. Where none can be made the test is skipped; with CI set it fails, unless the kernel forbids it."""
    if reason := _missing():
        if os.environ.get("CI") and not reason.startswith(_FORBIDDEN):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    programs = folder / "bin"
    for path in (programs, folder / "etc"):
        path.mkdir()
    shutil.copy(_SYSTEMCTL, programs)
    (programs / "systemctl").write_text(f'#!/bin/sh\nexec {PYTHON} -I {programs}/systemctl.py "$@"\n')
    (programs / "systemctl").chmod(0o755)
    kept = [path for path in (Path(sys.base_prefix), PACKAGES) if _hidden(path)]
    masked = {*map(Path, _MASKED), *(hidden for path in kept for hidden in _closed(path))}
    if any(folder.is_relative_to(one) for one in masked):
        kept.append(folder)
    lists = {"KEPT": " ".join(map(str, kept)), "MASKED": " ".join(sorted(map(str, masked)))}
    here = {**os.environ, "BASE": str(folder), **lists}
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    holder = subprocess.Popen(
        [*unshare, "sh", "-c", _MOUNTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        yield Machine(int(children[0]), programs)
    finally:
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()


def _closed(path: Path) -> list[Path]:
    """The first directory above that others than its owner cannot enter, if there is one."""
    return [one for one in reversed(path.parents) if not one.stat().st_mode & 0o001][:1]


def _hidden(path: Path) -> bool:
    """Whether others cannot get to a path, or what is masked lies above it."""
    return bool(_closed(path)) or any(path.is_relative_to(one) for one in _MASKED)


def _missing() -> str:
    """What keeps this machine from holding another; empty: nothing."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "useradd", "runuser"))):
        return "a machine for set-ups needs Linux with unshare, nsenter, runuser (util-linux) and useradd"
    if os.geteuid() != 0:
        return "a machine for set-ups needs root, since a set-up makes a user and runs a service as that"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/opt"],
        check=False,
        capture_output=True,
        text=True,
    )
    return f"{_FORBIDDEN}: {tried.stderr.strip()}" if tried.returncode else ""
