"""Everything in one place: `gtm serve`, the supervisor of an embedded Postgres, control, an edge, and the demo world.

Laws:
  1. Each tier is a process of its own, and speaks to the others as it would across the world: same feed, same tokens.
  2. What dies is started again; what goes on meanwhile does so by the edge's own laws.
  3. When the supervisor is told to end, nothing of it stays behind. When it dies, its children end, for they watch its
     lifeline; but the edge goes on answering, as edges do when everything else is down, until the next start on the
     data directory takes its place without a gap. A Postgres left over is cleared then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gtm.core.model.addresses import host_port
from gtm.demo.block import PORT as DEMO_PORT
from gtm.demo.block import SWITCH_HOST, DemoFile, address, reserve_block
from gtm.lockfile import holder_of
from gtm.runtime.control.prepare import FirstToken
from gtm.runtime.edge import orphans
from gtm.runtime.following.handover import HandoverError
from gtm.runtime.process import signals
from gtm.runtime.process.handed import document
from gtm.runtime.process.lifeline import Lifeline
from gtm.runtime.process.listeners import Listener, Use, settle
from gtm.runtime.process.privileges import conceal
from gtm.runtime.process.sockets import PortInUseError, reserve
from gtm.runtime.process.workers import Child
from gtm.runtime.serve.facts import ServeFacts
from gtm.runtime.serve.handed import LOCK, DatabaseReport, Preparing, ServedControl, WorldSettings, common
from gtm.settings import LOCAL_EDGE, EdgeSettings, ServeSettings
from gtm.storage.embedded import DataDirectoryLock, EmbeddedPostgres, EmbeddedPostgresError
from gtm.storage.embedded.lock import LOCK as DATABASE_LOCK
from gtm.storage.errors import SchemaError, StorageUnavailable

# --- What an earlier `gtm serve` on the data directory left when it was killed, and what to say if that keeps a port. ---
#
# Its control ends by itself, and its edge hands its sockets over; either takes a moment. Whoever holds the lock file of its kind in the data
# directory is one of these, and nobody else is. On another directory its edge goes on for as long as nothing starts there.


PATIENCE = 15.0
"""Seconds for which a process of an earlier start may take to end, or to hand its sockets over."""
_AGAIN = 0.1
"""Seconds between two tries."""
_LISTEN = "0A"
"""What /proc/net says of a TCP socket that listens."""


async def given_up(
    lock: Path, what: str, take: Callable[[], Awaitable[None]], stopped: Callable[[float], Awaitable[bool]]
) -> None:
    """Take ports, once a process of an earlier start has given them up.

    Args:
        lock: the lock file that it holds.
        what: what it is called.
        take: takes the ports, or raises PortInUseError.
        stopped: waits for so many seconds, and says whether this start was told to end meanwhile; nothing is taken then.

    Raises:
        PortInUseError: a port is taken. If such a process is there, and stays, the message says how to end it.
        HandoverError: it is an edge, and does not hand its sockets over; likewise.
        OSError: an address is not this machine's, or may not be bound.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    said = False
    while True:
        process = holder_of(lock)  # before the try: one that has the port now may be gone when that fails
        try:
            return await take()
        except HandoverError as error:
            raise type(error)(error.errno, f"{error.strerror}{_advice(process)}") from error
        except PortInUseError as error:
            if process is None:
                elsewhere = await asyncio.to_thread(left_on, error.port)
                if elsewhere is None:
                    raise
                message = (
                    f"{error.strerror}; the edge of a `gtm serve` that was killed goes on there: start that again on its data "
                    f"directory, or end the edge with `gtm edge --stop --data-dir {shlex.quote(str(elsewhere))}`"
                )
                raise PortInUseError(error.errno, message) from error
            if asyncio.get_running_loop().time() > deadline:
                message = (
                    f"{error.strerror}; the {what} of an earlier start on `{lock.parent}` (process {process or 'unknown'}) "
                    f"may hold it, and has not ended within {PATIENCE:.0f} s{_advice(process)}"
                )
                raise PortInUseError(error.errno, message) from error
            if not said:
                where = (error.strerror or "").partition(";")[0]
                logger.info(
                    "waiting for the %s of an earlier start (process %s) to end: %s", what, process, where
                )
                said = True
        if await stopped(_AGAIN):
            return None


def _advice(process: str | None) -> str:
    """How to end it, appended to what is wrong."""
    return f": end it with `kill -9 {process}`, and start again" if process and process.isdecimal() else ""


def left_on(port: int) -> Path | None:
    """The data directory of a `gtm serve` that was killed and whose edge has a port, as far as this user may look: root anywhere."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*/fd") if sockets else ():
        try:
            opened = [os.readlink(one) for one in process.iterdir()]  # noqa: PTH115 - most are no paths
        except OSError:  # gone, or not ours to see
            continue
        if not sockets.isdisjoint(opened):
            for one in map(Path, opened):
                if (
                    one.name == orphans.LOCK
                    and one.with_name(DATABASE_LOCK).exists()
                    and holder_of(one.with_name(DATABASE_LOCK)) is None
                ):
                    return one.parent
    return None


def _inodes(port: int) -> set[str]:
    """The sockets that a port of this machine is bound by, any address and protocol."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        lines: list[str] = []
        with suppress(OSError):  # a machine without IPv6, or without /proc
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        for fields in map(str.split, lines):
            listens = fields[3] == _LISTEN or table.startswith("udp")
            if listens and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


# --- Everything in one place: `gtm serve`, the supervisor of an embedded Postgres, control, an edge, and the demo world. ---


logger = logging.getLogger(__name__)

_READY = 90.0
"""Seconds until control and edge must be ready for the first time."""
_ANSWER = 2.0
"""Seconds that a process of this machine may take to say something of itself."""
_MOST = 1 << 20
_REGIONS = 30.0
"""Seconds for which the edge waits for the demo's regions."""


@dataclass(frozen=True, slots=True)
class Running:
    """A system that is ready: where it listens, and what is said once at its first start."""

    data_dir: Path
    control: str
    edge: str
    dns: str
    regions: tuple[str, ...]
    admin_token: str | None
    dashboard: str
    """A link that signs in there once."""
    embedded: bool
    """Whether its Postgres is the one in the data directory."""


class Supervisor:
    """One `gtm serve`.

    Args:
        settings: where and how.
        announce: called once everything is ready; it may start a process. It says whether people could read what it printed.
    """

    def __init__(
        self, settings: ServeSettings, announce: Callable[[Running, Lifeline], Awaitable[bool]]
    ) -> None:
        self._settings = settings
        self._announce = announce
        self._stopping = asyncio.Event()
        self._lifeline = Lifeline(common(settings))
        self._children: list[Child] = []
        self._postgres: EmbeddedPostgres | None = None
        self._data_dir = settings.control.data_dir
        self._lock = DataDirectoryLock(self._data_dir)
        self._owner = False
        self._switch: socket.socket | None = None
        self._secret = secrets.token_urlsafe(32)
        self._block: int | None = None
        self._said: tuple[int, int] | None = None
        self._prepared = False
        self._database_url = settings.control.database_url or ""
        self._sign_in = secrets.token_urlsafe(24)
        self._edge_token = f"gtm_serve_{secrets.token_urlsafe(32)}"

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            DataDirectoryInUse: another gtm works on the data directory.
            OSError: a port is in use.
            DemoError: no block of addresses is free.
            EmbeddedPostgresError: the embedded Postgres does not start.
            StorageUnavailable: the database given cannot be reached.
        """
        conceal()
        signals.heed(self._stopping.set, _look)
        try:
            # A second start on a directory meets its own ports as well: the directory is what to tell of. One that
            # isn't there yet nobody works on, and it stays away if a port is taken.
            if os.access(self._data_dir, os.F_OK):
                self._lock.acquire()
            await self._reserve_ports()
            self._lock.acquire()
            if not self._stopping.is_set():
                await self._start()
        finally:
            await self._stop()

    async def _reserve_ports(self) -> None:
        """Fail early and clearly if a port is taken, but by an edge whose place ours will take; settle ports of 0."""
        left = ((LOCK, "control", self._reserve_control), (orphans.LOCK, "edge", self._reserve_edge))
        for lock, what, take in left:
            await given_up(self._data_dir / lock, what, take, self._stopped_within)

    async def _reserve_control(self) -> None:
        control = self._settings.control
        port = reserve(control.bind[:1], control.control_port, (socket.SOCK_STREAM,), "--control-port")
        self._settings = replace(self._settings, control=replace(control, control_port=port))

    async def _reserve_edge(self) -> None:
        edge = self._settings.edge
        dns_option = "--dns-bind" if edge.dns_bind else "--dns-port"
        http = [(host, edge.edge_port) for host in edge.bind]
        inherited: list[Listener] = []
        if self._lock.held:
            inherited = await asyncio.to_thread(orphans.left_over, self._data_dir)
        try:
            port = settle(http, (Use.HTTP,), "--edge-port", inherited)[0][1]
            dns = settle(edge.dns_addresses, (Use.DNS_UDP, Use.DNS_TCP), dns_option, inherited)
        except PortInUseError as error:
            if inherited:  # the edge that is left over has told which are its own: this one is a stranger's
                raise OSError(error.errno, error.strerror) from error
            raise
        finally:
            for one in inherited:
                one.socket.close()
        self._settings = replace(self._settings, edge=replace(edge, edge_port=port, dns_bind=tuple(dns)))

    async def _start(self) -> None:
        self._lifeline.forks.start()  # it loads what children need while the database starts
        if self._settings.control.database_url is None:
            self._postgres = EmbeddedPostgres(self._data_dir, lock=self._lock)
            self._database_url = await asyncio.to_thread(self._postgres.start)
        self._owner = True
        ServeFacts.path(self._data_dir).unlink(missing_ok=True)
        # They are stopped in the other order: edge, demo world, control.
        self._said = os.pipe()
        self._control = self._child(
            "control", ["gtm.runtime.serve.control"], self._told_control, pass_fds=(self._said[1],)
        )
        if self._settings.demo:
            block, self._switch = reserve_block()
            self._block = block
            world = WorldSettings(
                block, self._switch.fileno(), self._secret, self._control_url, self._data_dir
            )
            await self._child(
                "demo world", ["gtm.runtime.serve.demo_world"], lambda: world, pass_fds=(world.switch,)
            ).start()  # at once: it gets ready while the database is made ready
        told = told_edge(self._settings, self._control_url, self._edge_token)
        edge = self._child("edge", ["gtm.runtime.edge.agent"], lambda: told, forks=True)
        found = self._settings.control.dashboard_url or self._control_url
        link = f"{found.rstrip('/')}/sign-in/{self._sign_in}"
        await self._control.start()
        prepared = await self._until_prepared(self._said[0])
        if prepared is not None and self._block is not None:
            switch = f"http://{address(self._block, SWITCH_HOST)}:{DEMO_PORT}"
            DemoFile(self._block, switch, prepared.regions).write(self._data_dir)
            await self._until_up(self._block)
        if prepared is not None and not self._stopping.is_set():
            await edge.start()
            if await self._until_ready():
                await self._ready(prepared, link)
        await self._watch()

    async def _until_prepared(self, said: int) -> DatabaseReport | None:
        """Wait until control has made the database ready; None if told to stop.

        Raises:
            StorageUnavailable: it cannot be reached.
            SchemaError: its schema is a newer gtm's.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[DatabaseReport] = loop.create_future()

        def hear() -> None:
            loop.remove_reader(said)
            told.set_result(DatabaseReport.told(os.read(said, 1 << 16)))

        loop.add_reader(said, hear)
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((told, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not told.done():
            loop.remove_reader(said)
            return None
        prepared = told.result()
        if prepared.error:
            raise (StorageUnavailable if prepared.unreachable else SchemaError)(prepared.error)
        self._prepared = True
        return prepared

    async def _ready(self, prepared: DatabaseReport, link: str) -> None:
        """Say so to the person, and to scripts: `serve.json` in the data directory holds the addresses."""
        running = Running(
            data_dir=self._data_dir,
            control=self._control_url,
            edge=self._edge_url,
            dns=_literal(*self._settings.edge.dns_addresses[0]),
            regions=prepared.regions,
            admin_token=prepared.admin_token,
            dashboard=link,
            embedded=self._settings.control.database_url is None,
        )
        if await self._announce(running, self._lifeline):
            FirstToken(self._data_dir).forget()
        ServeFacts(running.control, running.edge, running.dns, os.getpid()).write(self._data_dir)

    def _child(
        self,
        name: str,
        arguments: list[str],
        told: Callable[[], ServedControl | EdgeSettings | WorldSettings],
        *,
        pass_fds: tuple[int, ...] = (),
        forks: bool = False,
    ) -> Child:
        def handed() -> bytes:
            return document(told())

        self._children.append(Child(name, arguments, handed, self._lifeline, pass_fds=pass_fds, forks=forks))
        return self._children[-1]

    def _told_control(self) -> ServedControl:
        """What control is told; the database's address may change while this runs."""
        preparing = None
        if not self._prepared and self._said is not None:
            preparing = Preparing(self._edge_token, self._block, self._secret, self._said[1])
        return told_control(self._settings, self._database_url, preparing, self._sign_in)

    @property
    def _control_url(self) -> str:
        control = self._settings.control
        return f"http://{_literal(control.bind[0], control.control_port)}"

    @property
    def _edge_url(self) -> str:
        edge = self._settings.edge
        return f"http://{_literal(edge.bind[0], edge.edge_port)}"

    async def _until_ready(self) -> bool:
        """Wait until control and edge say so; False if told to stop, or if they do not within the time."""
        control, edge = self._settings.control, self._settings.edge
        deadline = asyncio.get_running_loop().time() + _READY
        for host, port in ((control.bind[0], control.control_port), (edge.bind[0], edge.edge_port)):
            while await _asked(_reachable(host), port, "/readyz") is None:
                if asyncio.get_running_loop().time() > deadline:
                    url = f"http://{_literal(host, port)}/readyz"
                    logger.error("not ready after %.0f s: %s; see the messages above", _READY, url)
                    return False
                if await self._stopped_within(0.1):
                    return False
        return True

    async def _until_up(self, block: int) -> None:
        """Wait until the demo's regions listen, for a while: an edge that finds them down at first would bring them back slowly."""
        deadline = asyncio.get_running_loop().time() + _REGIONS
        while asyncio.get_running_loop().time() < deadline:
            state = await _asked(address(block, SWITCH_HOST), DEMO_PORT, "/")
            if state is not None and all(
                one["state"] != "starting" for one in msgspec.json.decode(state).values()
            ):
                return
            if await self._stopped_within(0.05):
                return
        logger.warning("the demo's regions are not up after %.0f s", _REGIONS)

    async def _watch(self) -> None:
        """Until told to stop: bring back the embedded Postgres whenever it died."""
        while not await self._stopped_within(0.5):
            postgres = self._postgres
            if postgres is None or await asyncio.to_thread(postgres.alive):
                continue
            logger.error("the embedded Postgres ended; starting it again")
            try:
                url = await asyncio.to_thread(postgres.start)
                logger.info("the embedded Postgres runs again")
                if url != self._database_url:  # its old port was taken meanwhile
                    self._database_url = url
                    await self._control.restart()
            except EmbeddedPostgresError as error:
                logger.error("the embedded Postgres does not start: %s", error)
                await self._stopped_within(5.0)

    async def _end_orphans(self) -> None:
        """End workers that lost their agent a moment ago, and have no other yet."""
        try:
            await asyncio.to_thread(orphans.end, self._data_dir)
        except OSError as error:
            logger.error("processes of the edge may go on: %s", error.strerror or error)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _stop(self) -> None:
        """Edge first (it stops answering before its sources vanish), the database last."""
        for child in reversed(self._children):
            await child.stop()
            if child.name == "edge":
                await self._end_orphans()
        self._lifeline.close()
        for descriptor in self._said or ():
            os.close(descriptor)
        if self._switch is not None:
            self._switch.close()
        if self._owner:
            ServeFacts.path(self._data_dir).unlink(missing_ok=True)
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.stop)
        self._lock.release()
        if self._stopping.is_set():
            logger.info("stopped")


def _look() -> None:
    """Say what SIGHUP has come to."""
    logger.info(
        "SIGHUP: files of places are read again within 10 s of their change, unasked; options count from the next start"
    )


async def _asked(host: str, port: int, path: str) -> bytes | None:
    """What a process of this machine says of itself, the body of a 200; None for anything else, or for nothing within 2 s.

    A plain GET, without the 100 ms that an HTTP client takes to load.
    """
    try:
        async with asyncio.timeout(_ANSWER):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                asked = f"GET {path} HTTP/1.1\r\nHost: {host_port(host, port)}\r\nConnection: close\r\n\r\n"
                writer.write(asked.encode())
                head, _, body = (await reader.read(_MOST)).partition(b"\r\n\r\n")
                while not reader.at_eof():
                    body += await reader.read(_MOST)
            finally:
                writer.close()
    except OSError:  # TimeoutError too
        return None
    return body if head.split(b" ", 2)[1:2] == [b"200"] else None


def _reachable(host: str) -> str:
    """An address at which this machine reaches what listens on one: the loopback for a wildcard."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _literal(host: str, port: int) -> str:
    """An address as it stands in a URL: one that is reachable, with brackets around IPv6."""
    return host_port(_reachable(host), port)


def told_control(
    settings: ServeSettings, database_url: str, preparing: Preparing | None, sign_in: str
) -> ServedControl:
    """What control is told of all that this was told, and what this knows better.

    Args:
        settings: what this was told.
        database_url: of the database that it is to use.
        preparing: what it is to prepare; None: it has, and is told of no link, for nobody follows one any more.
        sign_in: the secret of a link.
    """
    told = replace(settings.control, database_url=database_url)
    return ServedControl(told if preparing is None else replace(told, sign_in=sign_in), preparing)


def told_edge(settings: ServeSettings, control_url: str, token: str) -> EdgeSettings:
    """What the edge is told: control is on this machine, and it takes the place of any edge that is left over."""
    return replace(settings.edge, control_url=control_url, token=token, name=LOCAL_EDGE, replace=True)
