"""Becoming an ordinary user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gtm.runtime.process import privileges
from gtm.runtime.process.privileges import UserError, acting_as, become, find_user, give

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
MYSELF = pwd.getpwuid(os.geteuid())


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    """A user that is not us."""
    return pwd.getpwnam("nobody")


def owner(path: Path) -> int:
    """Whose a file is."""
    return path.stat().st_uid


def test_a_user_that_is_not_there_is_named() -> None:
    """An unknown user is an error that says so."""
    with pytest.raises(UserError, match="no user `no-such-user`"):
        find_user("no-such-user")


def test_oneself_is_nobody_to_become() -> None:
    """A process that is the user already has nothing to do."""
    assert find_user(MYSELF.pw_name) is None


def test_only_root_can_become_another(monkeypatch: pytest.MonkeyPatch, nobody: pwd.struct_passwd) -> None:
    """An ordinary user is told who could."""
    monkeypatch.setattr("gtm.runtime.process.privileges.os.geteuid", lambda: nobody.pw_uid + 1)
    with pytest.raises(UserError, match="only root can become `nobody`"):
        find_user("nobody")


@ROOT
def test_the_data_directory_becomes_the_users(tmp_path: Path, nobody: pwd.struct_passwd) -> None:
    """What edges keep in it goes along; a link is given away, not what it leads to."""
    outside = tmp_path / "outside"
    outside.touch()
    data_dir = tmp_path / "data"
    data_dir.mkdir(0o700)
    kept = [data_dir / name for name in ("edge-last-good", "edge-clock", "edge-key")]
    for path in kept:
        path.touch()
    (data_dir / "edge.lock").symlink_to(outside)
    give(data_dir, nobody)
    assert {owner(path) for path in (data_dir, *kept)} == {nobody.pw_uid}
    assert (data_dir / "edge.lock").lstat().st_uid == nobody.pw_uid
    assert owner(outside) == 0


@ROOT
def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path, nobody: pwd.struct_passwd) -> None:
    """A directory that may be more than an edge's is not given away, and nothing in it."""
    (tmp_path / "edge-last-good").touch()
    (tmp_path / "passwd").touch()
    with pytest.raises(UserError, match=r"holds more than an edge's files \(`passwd`\)"):
        give(tmp_path, nobody)
    assert {owner(path) for path in (tmp_path, *tmp_path.iterdir())} == {0}
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    give(tmp_path, nobody)
    assert owner(tmp_path / "passwd") == 0


@ROOT
def test_files_can_be_made_as_the_user(nobody: pwd.struct_passwd) -> None:
    """What root makes for the user is the user's, and root is root again after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        with acting_as(nobody):
            (folder / "file").touch()
        assert owner(folder / "file") == nobody.pw_uid
        assert (os.geteuid(), os.getegid()) == (0, os.getgid())
        with acting_as(None):
            (folder / "mine").touch()
        assert owner(folder / "mine") == 0


@ROOT
def test_becoming_a_user_is_for_good(nobody: pwd.struct_passwd) -> None:
    """User, group and all other groups are dropped in every guise, and no way leads back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            privileges.sys.executable = privileges.gtm.__file__ = "/dev/null"  # which everybody may read
            become(nobody)
            groups = set(os.getgroups()) <= {nobody.pw_gid, *os.getgrouplist("nobody", nobody.pw_gid)}
            ids = {*os.getresuid(), *os.getresgid()} == {nobody.pw_uid, nobody.pw_gid}
            try:
                os.setuid(0)
            except PermissionError:
                code = 0 if groups and ids else 2
        finally:
            os.write(writer, b"%d" % code)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"0"
    os.close(reader)
    os.close(writer)


@ROOT
def test_root_by_another_name_is_refused() -> None:
    """A user that is root is no user to drop to."""
    assert find_user("root") is None
    child = os.fork()
    if child == 0:
        try:
            become(pwd.struct_passwd(("toor", "x", 0, 0, "", "/", "/bin/sh")))
        except UserError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@ROOT
def test_what_a_process_conceals_its_user_cannot_read(nobody: pwd.struct_passwd) -> None:
    """Neither its environment nor its memory: those belong to root from then on."""
    become = f"import ctypes, os, sys; from gtm.runtime.process.privileges import conceal; os.setresuid(*[{nobody.pw_uid}] * 3); "
    # As in a process that an ordinary user started: one that has changed its user is concealed already.
    keep = "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0); len(sys.argv) > 1 and conceal(); print('there', flush=True); input()"
    read = "print(len(open(f'/proc/{sys.argv[1]}/environ', 'rb').read()))"
    readable = []
    for concealed in ([], ["conceal"]):
        with subprocess.Popen(
            [sys.executable, "-c", become + keep, *concealed], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            command = [sys.executable, "-c", become + read, str(process.pid)]
            readable.append(subprocess.run(command, capture_output=True, check=False).returncode == 0)
            process.kill()
    assert readable == [True, False]
