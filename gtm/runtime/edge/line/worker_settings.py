"""What an agent hands to its workers at their start (`gtm.runtime.process.handed`)."""

from __future__ import annotations

from dataclasses import dataclass

from gtm.runtime.edge.line.worker_id import WorkerId
from gtm.settings import EdgeSettings

FINISH = 5.0
"""Seconds for which a worker that gets SIGTERM lets its TCP connections end by themselves."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker's.

    `edge` is what its edge was told, but for the token. `descriptor` is the worker's end of the link, `udp` and `tcp` are
    bound sockets that the agent lends it. `cookie_secrets` are what DNS cookies are made with, and what they were made
    with before; only workers of DNS have them. `door` is a bound Unix socket at which a next agent finds this worker,
    should its own be gone; None: it ends with its own.
    """

    id: WorkerId
    edge: EdgeSettings
    descriptor: int
    udp: tuple[int, ...] = ()
    tcp: tuple[int, ...] = ()
    cookie_secrets: tuple[bytes, ...] = ()
    door: int | None = None
