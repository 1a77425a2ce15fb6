"""Regions as a policy describes them: where they are, their endpoints, probes and capacity."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlsplit


class AdminState(StrEnum):
    """What the operator wants of a region, whatever its health says."""

    ACTIVE = "active"
    DRAINING = "draining"
    """Takes no new clients."""
    DISABLED = "disabled"
    """Out of service, and not probed."""


class ProbeType(StrEnum):
    """The protocol of a health check."""

    HTTP = "http"
    HTTPS = "https"
    TCP = "tcp"


class AddressFamily(StrEnum):
    """A family of addresses, by the name of its field in an endpoint and in a refusal."""

    IPV4 = "ipv4"
    """What A records hold (RFC 1035 §3.4.1)."""
    IPV6 = "ipv6"
    """What AAAA records hold (RFC 3596 §2.2)."""

    @property
    def label(self) -> str:
        """The name that people know it by."""
        return "IPv4" if self is AddressFamily.IPV4 else "IPv6"

    @property
    def rrtype(self) -> str:
        """The type of record that holds its addresses."""
        return "A" if self is AddressFamily.IPV4 else "AAAA"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One ingress of a region.

    At least one of `ipv4`, `ipv6` and `cname` is needed for DNS answers; `url` is the base that redirects and
    lookups hand out (scheme, authority and an optional path prefix, without a trailing slash).
    """

    url: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    cname: str | None = None

    def addresses(self, family: AddressFamily) -> tuple[str, ...]:
        """Those of a family."""
        return self.ipv4 if family is AddressFamily.IPV4 else self.ipv6

    @property
    def host(self) -> str | None:
        """The URL's host, in lower case; an address without brackets."""
        return urlsplit(self.url).hostname


def https_port(endpoint: Endpoint) -> int:
    """The port of an endpoint's URL, which is one of https."""
    return urlsplit(endpoint.url).port or 443


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a region can hold: outstanding requests at once, and requests per second. None: not stated."""

    outstanding: int | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A health check, made against every endpoint of a region (times in seconds).

    `http` and `https` replace the scheme of the endpoint's URL and request `path` relative to its authority;
    `port` overrides the URL's port. `body_regex` is an RE2 pattern searched in the first 64 KiB of the body.
    `json_field` is a dotted path into a JSON body that must equal `json_value`. `addresses`: each address of an endpoint is
    checked by itself as well, as DNS clients meet it.
    """

    type: ProbeType = ProbeType.HTTP
    port: int | None = None
    path: str = "/healthz"
    host: str | None = None
    expected_status: tuple[int, ...] = (200,)
    body_regex: str | None = None
    json_field: str | None = None
    json_value: str | int | float | bool | None = None
    interval: float = 10.0
    timeout: float = 3.0
    up_threshold: int = 2
    down_threshold: int = 3
    verify_tls: bool = True
    addresses: bool = True


@dataclass(frozen=True, slots=True)
class SpillIn:
    """How much a region takes of other regions' demand: a share (0–1) of its usable capacity, requests per second."""

    max_share: float | None = None
    max_requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A place that serves requests. `country` is ISO 3166-1 alpha-2; its jurisdictions derive from it.

    `operator_country` is where whoever runs it is established (ISO 3166-1 alpha-2): a law may reach the operator
    wherever the machines stand. None: unknown.

    `reserve` is the share of its capacity that no plan uses. Over `slow_start` seconds after a failure its traffic
    ramps up; over `drain_deadline` seconds from `draining_since` on, clients with affinity leave it.
    """

    name: str
    lat: float
    lon: float
    country: str
    endpoints: tuple[Endpoint, ...]
    display_name: str = ""
    subdivision: str | None = None
    operator_country: str | None = None
    models: tuple[str, ...] = ()
    capacity: Capacity = Capacity()
    reserve: float = 0.1
    spill_in: SpillIn = SpillIn()
    slow_start: float = 30.0
    cost_weight: float = 1.0
    admin_state: AdminState = AdminState.ACTIVE
    draining_since: datetime | None = None
    drain_deadline: float = 300.0
    probe: Probe = Probe()
