"""What an agent tells its workers at start."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.policy.edges import NOWHERE, EdgePlace
from gtm.settings import DEFAULT_TOKEN_MAX_AGE, DnsSettings

ENVIRONMENT = "GTM_WORKER"
FINISH = 5.0
"""Seconds for which a worker that gets SIGTERM lets its TCP connections end by themselves."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the agent tells a worker, as JSON in `GTM_WORKER`.

    `descriptor` is the worker's end of the link, `udp` and `tcp` are bound sockets that the agent lends it.
    """

    kind: str
    name: str
    descriptor: int
    udp: tuple[int, ...]
    tcp: tuple[int, ...]
    geoip_db: str | None
    geoip_overrides: str | None
    geoip_anonymous_db: str | None
    trusted_proxies: tuple[str, ...]
    open_lookups: bool
    beacons: bool
    log_level: str
    place: EdgePlace = NOWHERE
    """Where the edge stands."""
    dns: DnsSettings = field(default_factory=DnsSettings)
    cookie_secrets: tuple[bytes, ...] = ()
    """What DNS cookies are made with, and what they were made with before; only workers of DNS have them."""
    token_max_age: float = DEFAULT_TOKEN_MAX_AGE
    metrics_allow: tuple[str, ...] = ()
    door: int | None = None
    """A bound Unix socket at which a next agent finds this worker, should its own be gone; None: it ends with its own."""
    probe_allow: tuple[str, ...] = ()
    ca_file: str | None = None
    """How it probes once nobody does it for the edge."""
