"""The control process: the API and the feed on uvicorn, over an embedded or a given Postgres."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from gtm.api.app import create_app
from gtm.core.model.requests import Location
from gtm.dashboard.app import with_dashboard
from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.sign_in.oidc import Provider
from gtm.geoip.near import own_names
from gtm.geoip.reader import Locator
from gtm.runtime.control.answers import edge_answers
from gtm.runtime.process import lifeline, pauses, signals
from gtm.runtime.process.connections import ACCEPTED, raise_descriptor_limit, say_once_without_room
from gtm.runtime.process.http import server_config
from gtm.runtime.process.notify import notify_ready
from gtm.runtime.process.places import reload_places, say_lacking
from gtm.runtime.process.privileges import conceal
from gtm.runtime.process.sockets import listener, reserve
from gtm.settings import ControlSettings
from gtm.storage import migrate
from gtm.storage.embedded import EmbeddedPostgres
from gtm.storage.errors import DatabaseUnfit, StorageUnavailable
from gtm.storage.session import Database

logger = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Uvicorn, with signals left to us (we also stop when our parent is gone)."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and tell the service manager. Of a `gtm serve`, control is not the main process."""
        self.config.backlog = ACCEPTED
        say_once_without_room(asyncio.get_running_loop())
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(socket.SOMAXCONN)  # who waits to be accepted is another matter
        if self.started and not lifeline.held():
            notify_ready()


async def run_control(
    settings: ControlSettings, prepare: Callable[[str], Awaitable[None]] | None = None
) -> None:
    """Serve until SIGTERM, SIGINT, or the parent's end.

    Args:
        settings: where and how.
        prepare: makes the database of a URL ready before it is used (`gtm.runtime.control.prepare`); None: it must be.

    Raises:
        OSError: the port is in use.
        EmbeddedPostgresError: the embedded Postgres does not start.
        StorageUnavailable: the database given cannot be reached.
        SchemaError: its schema is not this version's, and was not to be migrated, or is from a newer one.
    """
    conceal()
    raise_descriptor_limit()
    pauses.shorten()  # feeds and pages go on beside plans and compilations
    port = reserve(settings.bind, settings.control_port, (socket.SOCK_STREAM,), "--control-port")
    postgres = None
    url = settings.database_url
    if url is None:
        postgres = EmbeddedPostgres(settings.data_dir)
        url = await asyncio.to_thread(postgres.start)
    try:
        if prepare is not None:
            await prepare(url)
        else:
            try:
                await asyncio.to_thread(migrate.require, url)
            except DatabaseUnfit:
                raise
            except StorageUnavailable as error:
                logger.warning("serving once the database answers: %s", error)
        await _serve(settings, url, port)
    finally:
        if postgres is not None:
            await asyncio.to_thread(postgres.stop)


_LOOK_EVERY = 5.0
"""Seconds between looks whether the GeoIP files have changed."""


class _Places:
    """Where addresses are; the database is read when it is first needed, and again when it has changed."""

    def __init__(self, settings: ControlSettings) -> None:
        self._settings = settings
        self._locator: Locator | None = None
        self._asked = asyncio.Event()

    def locate(self, address: str | bytes) -> Location:
        """Say where an address is, by the files as they were last taken in."""
        if self._locator is None:
            self._locator = Locator(self._settings.geoip_db, self._settings.geoip_overrides)
            say_lacking(self._locator)
        return self._locator.locate(address)

    def look(self) -> None:
        """Look at once (SIGHUP)."""
        logger.info("SIGHUP: looking whether files of places have changed; options count from the next start")
        self._asked.set()

    async def follow(self) -> None:
        """Look whether the files have changed, for as long as this runs."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), _LOOK_EVERY)
            self._asked.clear()
            if self._locator is not None:
                await asyncio.to_thread(reload_places, self._locator)


def _identity(settings: ControlSettings) -> Identity | None:
    """Who says who people are, beside tokens."""
    oidc = settings.oidc
    if oidc.issuer is None or oidc.client_id is None or settings.dashboard_url is None:
        return None
    provider = Provider(
        oidc.issuer,
        client_id=oidc.client_id,
        secret=oidc.client_secret,
        url=settings.dashboard_url,
        clock=time.time,
        monotonic=time.monotonic,
    )
    return Identity(provider, oidc.roles)


async def _serve(settings: ControlSettings, url: str, port: int) -> None:
    database = Database(url)

    def stop() -> None:
        server.should_exit = True

    places = _Places(settings)
    app = create_app(
        database,
        settings,
        places.locate,
        edge_answers,
        name=f"{socket.gethostname()}:{port}",
        deposed=stop,
        names=own_names(*settings.bind, settings.dashboard_url),
    )
    server = _Server(server_config(with_dashboard(app, settings.dashboard_url, _identity(settings)), grace=2))
    signals.heed(stop, places.look)
    lifeline.watch(stop)
    sockets = [listener(host, port) for host in settings.bind]
    logger.info("control listens on port %d", port)
    following = asyncio.create_task(places.follow())
    try:
        await server.serve(sockets=sockets)
    finally:
        following.cancel()
        await database.dispose()
