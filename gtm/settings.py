"""What a process is told at start. Every field is a command-line option and a GTM_* variable (see gtm.cli)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from gtm.core.policy.edges import EdgePlace

Network = IPv4Network | IPv6Network
Address = tuple[str, int]
"""A literal IP address and a port."""

DEFAULT_CONTROL_PORT = 8080
DEFAULT_EDGE_PORT = 8081
DEFAULT_DNS_PORT = 5300
DEFAULT_HALF_LIFE = 86_400.0
DEFAULT_DEMAND_DAYS = 7
DEFAULT_MAX_MOVED_SHARE = 0.3
DEFAULT_ZSK_DAYS = 90
DEFAULT_TOKEN_MAX_AGE = 86_400.0
LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
"""This machine."""


@dataclass(frozen=True, slots=True)
class DnssecSettings:
    """Keys of signed zones. `key_file` encrypts them in the database.

    After `zsk_days` days a zone-signing key is replaced; 0: only by hand. `resolver`, an address and a port, is asked
    for the parents' DS records; None: nobody is.
    """

    key_file: Path
    zsk_days: int = DEFAULT_ZSK_DAYS
    resolver: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """`gtm control`. Without `database_url` an embedded Postgres runs under `data_dir`.

    `geoip_db` and `geoip_overrides` are an edge's, for questions about a client's latency. After `latency_half_life`
    seconds, a measured round trip counts half. A change may move `max_moved_share` (0–1) of the present demand at once;
    one that opens a fence needs the approval of `fence_approvals` others, 0 or 1; demand is recorded for `demand_days`
    days, 0 for none. For what begins with `dnssec_` see `DnssecSettings`. Clients in `metrics_allow` read the metrics
    without a token.
    """

    data_dir: Path
    bind: tuple[str, ...] = ("127.0.0.1",)
    control_port: int = DEFAULT_CONTROL_PORT
    database_url: str | None = None
    geoip_db: Path | None = None
    geoip_overrides: Path | None = None
    latency_half_life: float = DEFAULT_HALF_LIFE
    max_moved_share: float = DEFAULT_MAX_MOVED_SHARE
    fence_approvals: int = 0
    demand_days: int = DEFAULT_DEMAND_DAYS
    dnssec_key_file: Path | None = None
    dnssec_zsk_days: int = DEFAULT_ZSK_DAYS
    dnssec_resolver: tuple[str, int] | None = None
    metrics_allow: tuple[Network, ...] = LOOPBACK
    log_level: str = "info"

    @property
    def dnssec(self) -> DnssecSettings:
        """Of signed zones; the key file is in the data directory unless it is somewhere else."""
        key_file = self.dnssec_key_file or self.data_dir / "dnssec-key"
        return DnssecSettings(key_file, self.dnssec_zsk_days, self.dnssec_resolver)


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """What an edge's DNS says of itself, and how it limits abuse (docs/dns.md).

    `nsid` None is the edge's name, and empty none; an empty `version` is not told. Per client prefix and second, each
    process sends `rate_limit` replies (0: any number) and `rate_limit_excess` bytes beyond twice the queries'; past that
    each `rate_limit_slip`-th limited reply is sent, without records. `rate_limit_exempt` are networks.
    """

    nsid: str | None = None
    version: str = ""
    rate_limit: int = 10_000
    rate_limit_excess: int = 256 * 1024
    rate_limit_slip: int = 2
    rate_limit_exempt: tuple[str, ...] = ("127.0.0.0/8", "::1/128")


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """`gtm edge`. `data_dir` holds the last-good file; `geoip_db` None is the shipped database.

    `geoip_anonymous_db` None: no client counts as behind an anonymising network.

    `beacons`: browsers may post round trips. `region` is the one the edge runs in, if any: it then measures the way to
    the others. `country` and `operator_country` (ISO 3166-1 alpha-2) say where the edge stands and who runs it, for
    residency rules that bind edges; None: as of its region, or unknown.

    Once control was not heard for `token_max_age` seconds, the edge accepts no token until it is.

    `workers` is the number of DNS processes and of HTTP processes, each. Ports of 0 mean: any free one.

    `dns_bind` are addresses for DNS alone; none: those of `bind`, on `dns_port`. An edge started by root becomes `user`
    once it has bound its addresses. `replace`: take over from the edge that runs on `data_dir`, if one does.

    `dns_cookie_secret_file` holds what all edges that share an address make DNS cookies with; None: a secret of its own.

    Regions in `probe_allow` are probed although they are loopback, link-local or the like. Certificates of `ca_file` count
    besides the public ones, for control and for probes. Clients in `metrics_allow` read the metrics without a token.

    `named`: somebody gave the edge its `name`; otherwise it takes the one that its token is for, if that is only one.
    """

    data_dir: Path
    control_url: str
    token: str
    name: str
    bind: tuple[str, ...] = ("127.0.0.1",)
    edge_port: int = DEFAULT_EDGE_PORT
    dns_port: int = DEFAULT_DNS_PORT
    dns_bind: tuple[Address, ...] = ()
    dns_cookie_secret_file: Path | None = None
    dns: DnsSettings = DnsSettings()
    workers: int = 1
    geoip_db: Path | None = None
    geoip_overrides: Path | None = None
    geoip_anonymous_db: Path | None = None
    trusted_proxies: tuple[Network, ...] = ()
    probe_allow: tuple[Network, ...] = ()
    metrics_allow: tuple[Network, ...] = LOOPBACK
    ca_file: Path | None = None
    open_lookups: bool = False
    token_max_age: float = DEFAULT_TOKEN_MAX_AGE
    beacons: bool = True
    region: str | None = None
    named: bool = True
    country: str | None = None
    operator_country: str | None = None
    user: str | None = None
    replace: bool = False
    log_level: str = "info"

    @property
    def dns_addresses(self) -> tuple[Address, ...]:
        """Where DNS listens."""
        return self.dns_bind or tuple((host, self.dns_port) for host in self.bind)

    @property
    def place(self) -> EdgePlace:
        """Where the edge stands, as far as it was told."""
        return EdgePlace(self.country, self.operator_country, self.region)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`gtm serve`: control and edge in one place, as separate processes.

    `geoip_db` and the rest of the edge's settings mean the same as there.
    """

    data_dir: Path
    bind: tuple[str, ...] = ("127.0.0.1",)
    control_port: int = DEFAULT_CONTROL_PORT
    edge_port: int = DEFAULT_EDGE_PORT
    dns_port: int = DEFAULT_DNS_PORT
    dns_bind: tuple[Address, ...] = ()
    dns_cookie_secret_file: Path | None = None
    dns: DnsSettings = DnsSettings()
    workers: int = 1
    demo: bool = False
    database_url: str | None = None
    geoip_db: Path | None = None
    geoip_overrides: Path | None = None
    geoip_anonymous_db: Path | None = None
    trusted_proxies: tuple[Network, ...] = ()
    probe_allow: tuple[Network, ...] = ()
    metrics_allow: tuple[Network, ...] = LOOPBACK
    ca_file: Path | None = None
    open_lookups: bool = False
    token_max_age: float = DEFAULT_TOKEN_MAX_AGE
    beacons: bool = True
    country: str | None = None
    operator_country: str | None = None
    latency_half_life: float = DEFAULT_HALF_LIFE
    max_moved_share: float = DEFAULT_MAX_MOVED_SHARE
    fence_approvals: int = 0
    demand_days: int = DEFAULT_DEMAND_DAYS
    dnssec_key_file: Path | None = None
    dnssec_zsk_days: int = DEFAULT_ZSK_DAYS
    dnssec_resolver: tuple[str, int] | None = None
    log_level: str = "info"

    @property
    def dns_addresses(self) -> tuple[Address, ...]:
        """Where DNS listens."""
        return self.dns_bind or tuple((host, self.dns_port) for host in self.bind)
