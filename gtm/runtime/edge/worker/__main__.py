"""One answering process of an edge, `python -m gtm.runtime.edge.worker NAME`: DNS on threads, or HTTP on an event loop, around an `EdgeWorker`."""

from __future__ import annotations

import random
import resource
import secrets
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from gtm.dns.io.server import DnsServer
from gtm.dns.io.tcp import TcpLimits
from gtm.geoip.near import own_names
from gtm.http.answers.corrections import Corrections
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.runtime.edge.line import FINISH, EdgeWorkerSettings, WorkerKind
from gtm.runtime.edge.orphans import listen_early
from gtm.runtime.edge.worker.worker import EdgeWorker
from gtm.runtime.process import pauses, signals
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.connections import fitting, raise_descriptor_limit
from gtm.runtime.process.handed import received
from gtm.runtime.process.http import DirectProtocol, HandedConnection, Lines, PatientServer, server_config
from gtm.runtime.process.listeners import Use
from gtm.runtime.process.logs import configure
from gtm.transport import tls_when_needed


def _run_dns(worker: EdgeWorker) -> None:
    """Answer DNS until the agent is gone."""
    router = worker.wait_for_view()
    if router is None:
        return

    current = worker.current

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        if current.deadline < inf and boot_time() >= current.deadline:
            current.tick()  # this process slept across a boundary
        answerer = worker.answerer
        if answerer is None:
            return None
        if tcp:
            return answerer.answer(packet, client, tcp=True, draw=random.random())
        return answerer.udp(packet, client)

    limits = TcpLimits().fitting(fitting(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    listeners = [one.taken() for one in worker.settings.lent]
    udp, tcp = ([one.socket for one in listeners if one.use is use] for use in (Use.DNS_UDP, Use.DNS_TCP))
    server = DnsServer(udp, tcp, respond, counts=worker.counts, limits=limits, limiter=worker.limiter)
    worker.start(server.stop, lambda: server.stop(FINISH), listeners)
    worker.ready(router)
    server.serve()


if TYPE_CHECKING:
    from gtm.runtime.edge.worker.carry import EdgeCarrier


class LateCarrier:
    """An `EdgeCarrier` that is made when somebody is to be carried first: most edges carry nobody, and the data plane takes 15 MB.

    What it takes is loaded by then (`EdgeWorker`): with the first policy that has a service which is carried.
    """

    def __init__(self, worker: EdgeWorker, app: EdgeApp) -> None:
        self.wants: Callable[[bytes, Lines], bool] = app.carries
        self._worker, self._app = worker, app
        self._carrier: EdgeCarrier | None = None
        self._draining = False

    def take(self, connection: DirectProtocol) -> HandedConnection:
        """What reads a connection from now on."""
        if self._carrier is None:
            from gtm.runtime.edge.worker.carry import EdgeCarrier

            worker, edge = self._worker, self._worker.settings.edge
            self._carrier = EdgeCarrier(
                self._app,
                worker.current,
                worker.handoffs,
                worker.counts,
                room=connection.all_connections,
                loop=connection.loop,
                trusts=self._app.trusts,
                allowed=edge.probe_allow,
                trusted=edge.carry_trust,
                tls=tls_when_needed(edge.ca_file),
            )
            if self._draining:
                self._carrier.drain()
        return self._carrier.take(connection)

    def drain(self) -> None:
        """The server ends: each connection ends with its next answer."""
        self._draining = True
        if self._carrier is not None:
            self._carrier.drain()

    def close(self) -> None:
        """The server has ended: what is not answered breaks off."""
        if self._carrier is not None:
            self._carrier.close()


def _run_http(worker: EdgeWorker) -> None:
    """Answer HTTP until the agent is gone."""
    router = worker.wait_for_view()
    if router is None:
        return
    edge = worker.settings.edge
    options = EdgeOptions(
        open_lookups=edge.open_lookups,
        token_max_age=edge.token_max_age,
        trusted_proxies=edge.trusted_proxies,
        beacons=edge.beacons,
        metrics_allow=edge.metrics_allow,
        near_lookups=edge.near_lookups,
        names=own_names(*edge.bind),
        carry=edge.carry,
    )
    app = EdgeApp(
        worker.current,
        worker.locator.locate,
        options,
        worker.counts,
        worker.metrics_text,
        silent=lambda: worker.silent,
        alone=lambda: worker.alone,
        afford=worker.afford,
        earn=worker.earn,
        handoffs=worker.handoffs,
        corrections=Corrections(
            worker.current,
            worker.counts,
            name=secrets.token_hex(8),
            siblings=edge.workers,
            afford=worker.afford,
        ),
    )
    worker.intake = app.intake
    config = server_config(
        app,
        grace=3 + round(edge.drain_time),
        lifespan=False,
        answer=app.answer_head,
        trusted=edge.trusted_proxies,
        carrier=LateCarrier(worker, app),
    )
    server = PatientServer(config, started=lambda: worker.ready(router), tls=worker.tls)
    listeners = [one.taken() for one in worker.settings.lent]
    worker.start(lambda: server.finish(0.0), lambda: server.finish(FINISH), listeners)
    server.run_on([one.socket for one in listeners])


def main() -> None:
    """Run the worker that this process was handed."""
    settings = received(EdgeWorkerSettings)
    configure(settings.edge.log_level, str(settings.id))
    signals.leave_to_parent()
    if settings.door is not None:
        listen_early(settings.door)
    pauses.shorten()
    raise_descriptor_limit()
    worker = EdgeWorker(settings)
    (_run_dns if settings.id.kind is WorkerKind.DNS else _run_http)(worker)


if __name__ == "__main__":
    main()
