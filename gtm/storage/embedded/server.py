"""The embedded server: set up once, started and stopped with gtm.

Laws:

1. Everything lies in the data directory; modes and owners outside it never change. (As root, a copy of the
   public program files may be needed elsewhere: `gtm.storage.embedded.binaries`.)
2. The cluster is named to Postgres by an inherited directory descriptor (`/proc/self/fd/N/data`): no directory
   above it must be open to the account that Postgres runs as, and its path may be of any length and spelling.
3. Only loopback, only SCRAM with a random password, and the client insists on SCRAM as well, so that a stranger
   on the same port learns nothing.
4. Whoever holds the data directory's lock owns the server: one found running is a leftover and is stopped.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psycopg

from gtm.storage.embedded import account as accounts
from gtm.storage.embedded import binaries, leftovers
from gtm.storage.embedded.account import Account
from gtm.storage.embedded.lock import DataDirectoryLock, EmbeddedPostgresError, unusable

logger = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_NAME = "gtm"  # of the role and of the database
_SETTINGS = {
    "listen_addresses": _HOST,
    "unix_socket_directories": "",
    "cluster_name": "gtm",
    "max_connections": "50",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "max_wal_size": "256MB",
    "io_method": "sync",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_logical_replication_workers": "0",
    "log_statement": "none",
    "log_min_error_statement": "panic",
}
_START_SECONDS = 120.0  # recovery after a crash comes first
_PORT_TRIES = 5
_POLL = 0.01
_LOG_LIMIT = 8 << 20
_LEAST_FREE = 1 << 20
_LOG_TAIL_LINES = 12


class EmbeddedPostgres:
    """The Postgres server of one data directory. Not for use by several threads at once.

    `start`, `stop` and the setting up block: call them off the event loop.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        lock: DataDirectoryLock | None = None,
    ) -> None:
        """Nothing happens before `start`.

        Args:
            data_dir: the data directory.
            settings: postgresql.conf parameters that win over ours.
            lock: the directory's lock, if the caller holds it already; `stop` gives it up.
        """
        self.data_dir = data_dir.absolute()
        self.log = self.data_dir / "postgres.log"
        self._home = self.data_dir / "postgres"
        self._cluster = self._home / "data"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._lock = lock or DataDirectoryLock(self.data_dir)
        self._account: Account | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL that `start` returned last; empty before."""
        return self._url

    def alive(self) -> bool:
        """Whether the server runs. False after it died: `start` brings it back, normally on the same port.

        Also keeps the log below 8 MiB; call it every now and then.
        """
        if self._process is None or self._process.poll() is not None:
            return False
        if self.log.stat().st_size > _LOG_LIMIT:
            os.truncate(self.log, 0)
        return True

    def start(self) -> str:
        """Set the cluster up if there is none, start the server, and wait until it answers.

        Returns:
            Its libpq URL, password included. A running server's URL is returned at once.

        Raises:
            DataDirectoryInUse: another process of gtm works on the data directory.
            EmbeddedPostgresError: it doesn't start; the message holds the end of its log and what to do.
        """
        if self.alive():
            return self._url
        if not Path("/proc/self/fd").is_dir():
            raise EmbeddedPostgresError(
                "the embedded Postgres needs Linux with /proc; set GTM_DATABASE_URL to a Postgres server"
            )
        restart = self._lock.held
        self._lock.acquire()
        try:
            self._url = self._start()
        except BaseException as e:
            self._halt()
            if not restart:  # a restart that fails may be tried again, and nobody may slip in between
                self._lock.release()
            if isinstance(e, OSError):
                raise unusable(self.data_dir, e) from e
            raise
        return self._url

    def stop(self) -> None:
        """Stop the server, at worst after 20 s by force, and free the data directory. Harmless if it is stopped."""
        self._halt()
        self._lock.release()

    def _halt(self) -> None:
        if self._process is not None:
            for step, seconds in leftovers.STOP_STEPS:
                self._process.send_signal(step)
                try:
                    self._process.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self._process = None

    def _start(self) -> str:
        account = self._account = self._account or accounts.choose(self._home)
        programs = binaries.find(account)
        if not self._home.is_dir():
            self._home.mkdir(mode=0o700)
        if self._cluster.is_dir():
            leftovers.clear(self._cluster)
        if account.uid not in (None, self._home.stat().st_uid):
            self._give_home(account, programs)
        if not self._cluster.is_dir():
            self._initialise(account, programs)
        self._check_version(programs)
        for _ in range(_PORT_TRIES):
            port = self._choose_port()
            if self._launch(account, programs, port):
                return self._connect(port)
        raise EmbeddedPostgresError(f"no free port on {_HOST}: {self._log_tail()}")

    def _give_home(self, account: Account, programs: Path) -> None:
        """Make it the account's: it is new, or was `nobody`'s. It is root's until all is done, also if this is interrupted."""
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            accounts.close(home, accounts.ROOT)
            if self._cluster.is_dir():
                self._check_version(programs)
                accounts.give(self._home, home, account)
                self._renew_password(account, programs)
                logger.info(
                    "gave the embedded Postgres in `%s` from `%s` to an account of its own, user id %d, with a new password",
                    *(self._home, accounts.NOBODY, account.uid),
                )
            account.own(home)
        finally:
            os.close(home)

    def _renew_password(self, account: Account, programs: Path) -> None:
        """Give the role another password, without the last one: other processes of `nobody` may have read that.

        Raises:
            EmbeddedPostgresError: Postgres does not do so.
        """
        password = secrets.token_urlsafe(32)
        cluster = os.open(self._cluster, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            command: list[str | Path] = [
                programs / "postgres",
                "--single",
                "-D",
                f"/proc/self/fd/{cluster}",
                "postgres",
            ]
            done = _run(command, account, cluster, f"ALTER ROLE {_NAME} PASSWORD '{password}'\n")
        finally:
            os.close(cluster)
        if done.returncode != 0 or "ERROR:" in done.stderr:
            raise EmbeddedPostgresError(
                f"can't give the database in `{self._home}` a new password{_advice(done.stderr, self._home)}; postgres "
                f"said:\n{done.stderr.strip()}"
            )
        (self._home / "password").unlink(missing_ok=True)
        self._write("password", f"{password}\n", account)

    def _write(self, name: str, text: str, account: Account) -> None:
        descriptor = os.open(self._home / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            account.own(descriptor)
            file.write(text)

    def _initialise(self, account: Account, programs: Path) -> None:
        """Run initdb beside the cluster's place and move the result there, so that there is no half of one."""
        shutil.rmtree(self._home / "unfinished", ignore_errors=True)
        self._write("password", secrets.token_urlsafe(32) + "\n", account)
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            command: list[str | Path] = [
                programs / "initdb",
                f"--pgdata=/proc/self/fd/{home}/unfinished",
                f"--pwfile=/proc/self/fd/{home}/password",
                f"--username={_NAME}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
                "--sync-method=syncfs",  # one call in place of one for each of a thousand files
            ]
            done = _run(command, account, home)
        finally:
            os.close(home)
        if done.returncode != 0:
            shutil.rmtree(self._home / "unfinished", ignore_errors=True)
            said = done.stderr.strip() or done.stdout.strip()
            raise EmbeddedPostgresError(
                f"can't set up the database cluster in `{self._home}`{_advice(said, self._home)}; initdb said:\n{said}"
            )
        (self._home / "unfinished").rename(self._cluster)

    def _check_version(self, programs: Path) -> None:
        said = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        ours = said.stdout.split()[-1].partition(".")[0]
        try:
            theirs = (self._cluster / "PG_VERSION").read_text().strip()
        except FileNotFoundError as e:
            raise EmbeddedPostgresError(
                f"`{self._cluster}` is not a Postgres cluster (no PG_VERSION in it); move it away to begin anew, "
                "or restore it from a backup"
            ) from e
        if theirs != ours:
            raise EmbeddedPostgresError(
                f"`{self._cluster}` was written by Postgres {theirs}, but this gtm comes with Postgres {ours}; "
                f"run the previous version of gtm on it and `gtm export` the policy, or move it away to begin anew"
            )

    def _choose_port(self) -> int:
        """The port of the last start, so that clients find the server again; or any free one."""
        try:
            wanted = int((self._home / "port").read_text())
        except (FileNotFoundError, ValueError):
            wanted = 0
        for port in (wanted, 0):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Postgres does
                try:
                    probe.bind((_HOST, port))
                except (OSError, OverflowError):
                    continue
                chosen: int = probe.getsockname()[1]
                return chosen
        raise EmbeddedPostgresError(f"no free port on {_HOST} for the embedded Postgres")

    def _launch(self, account: Account, programs: Path, port: int) -> bool:
        """Start the server and wait until it is ready; False if somebody else took the port meanwhile."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", f"/proc/self/fd/{home}/data", f"--port={port}", *settings],
                **account.popen(),
                pass_fds=(home,),
                stdout=log,
                stderr=log,
                start_new_session=True,  # ^C at a terminal is for gtm, which stops the server when it is done
            )
        finally:
            os.close(log)
            os.close(home)
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready():
            if self._process.poll() is not None:
                tail = self._log_tail()
                if "Address already in use" in tail:
                    return False
                raise EmbeddedPostgresError(
                    f"the embedded Postgres doesn't start{_advice(tail, self._home)}; the end of `{self.log}`:\n{tail}"
                )
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"the embedded Postgres isn't ready after {_START_SECONDS:.0f} s; the end of `{self.log}`:\n"
                    f"{self._log_tail()}"
                )
            time.sleep(_POLL)
        self._write("port", f"{port}\n", account)
        return True

    def _ready(self) -> bool:
        """Whether our postmaster has written `ready` to the eighth line of postmaster.pid, as pg_ctl looks."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        ours = self._process is not None and lines[:1] == [str(self._process.pid)]
        return ours and len(lines) > 7 and lines[7].strip() == "ready"

    def _connect(self, port: int) -> str:
        """Log in, create our database if it isn't there, and return its URL."""
        try:
            password = (self._home / "password").read_text().strip()
        except FileNotFoundError as e:
            raise EmbeddedPostgresError(
                f"the database's password file `{self._home / 'password'}` is missing; restore it, or move "
                f"`{self._home}` away to begin anew"
            ) from e
        try:
            with psycopg.connect(
                _url(password, port, "postgres"), autocommit=True, connect_timeout=10
            ) as session:
                known = session.execute("SELECT FROM pg_database WHERE datname = %s", [_NAME]).fetchone()
                if known is None:
                    session.execute(f"CREATE DATABASE {_NAME}")
        except psycopg.Error as e:
            raise EmbeddedPostgresError(
                f"the embedded Postgres refuses to work: {str(e).strip()}{_advice(str(e), self._home)}; the end of "
                f"`{self.log}`:\n{self._log_tail()}"
            ) from e
        return _url(password, port, _NAME)

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 16_384))
                lines = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(lines[-_LOG_TAIL_LINES:]) or "(the log is empty)"


def connection_url(data_dir: Path) -> str:
    """The libpq URL of the server that another process of gtm runs on a data directory, password included.

    Raises:
        EmbeddedPostgresError: none runs there, or its files cannot be read; the message says what to do.
    """
    home = data_dir.absolute() / "postgres"
    try:
        password = (home / "password").read_text().strip()
        port = int((home / "port").read_text())
        url = _url(password, port, _NAME)
        psycopg.connect(url, connect_timeout=10).close()
    except PermissionError as e:
        raise EmbeddedPostgresError(
            f"`{e.filename}` is not yours to read; be root, or the user that `gtm serve` runs as"
        ) from e
    except (OSError, ValueError, psycopg.OperationalError) as e:
        raise EmbeddedPostgresError(
            f"no embedded Postgres answers for the data directory `{data_dir}`, although gtm runs on it; if gtm uses a "
            f"server of yours, set GTM_DATABASE_URL here too ({str(e).strip().splitlines()[0]})"
        ) from e
    return url


def _url(password: str, port: int, database: str) -> str:
    options = "require_auth=scram-sha-256&sslmode=disable&gssencmode=disable"
    return f"postgresql://{_NAME}:{password}@{_HOST}:{port}/{database}?{options}"


def _run(
    command: list[str | Path], account: Account, directory: int, told: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program of Postgres to its end, as an account that gets a directory opened and some text to read."""
    return subprocess.run(
        command,
        **{**account.popen(), "stdin": None},
        input=told,
        pass_fds=(directory,),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_START_SECONDS,
    )


def _advice(said: str, home: Path) -> str:
    """What to do about what Postgres said, where that is known."""
    # On a full disk the log may stay empty.
    if "No space left on device" in said or shutil.disk_usage(home).free < _LEAST_FREE:
        return ": the disk is full; free some space, or give another data directory with --data-dir"
    if "Permission denied" in said:
        return ": permission denied; the data directory must belong to the user that gtm runs as"
    if "password authentication failed" in said:
        return ": the file `password` in the data directory's `postgres` is not this cluster's; restore it"
    return ""
