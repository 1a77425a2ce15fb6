"""What servers are told at start. A field made by `option` is a command-line option and a GTM_* variable, all of it here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from gtm import options, secret
from gtm.core.policy.edges import EdgePlace
from gtm.options import option

Network = IPv4Network | IPv6Network
Address = tuple[str, int]
"""A literal IP address and a port."""

DEFAULT_CONTROL_PORT = 8080
DEFAULT_EDGE_PORT = 8081
DEFAULT_DNS_PORT = 5300
DEFAULT_BALANCER_PORT = 8088
DEFAULT_ADMIN_PORT = 8089
DEFAULT_HALF_LIFE = 86_400.0
DEFAULT_DEMAND_DAYS = 7
DEFAULT_AUDIT_DAYS = 365
DEFAULT_PROBE_DAYS = 7
DEFAULT_MAX_MOVED_SHARE = 0.3
DEFAULT_ZSK_DAYS = 90
LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
"""The networks of this machine itself."""
LOCAL_EDGE = "local"
"""The name of the edge that `gtm serve` runs."""

_THIS_MACHINE = ",".join(map(str, LOOPBACK))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What every server is told.

    `data_dir` holds the embedded Postgres and an edge's last-good file. `geoip_db` None is the shipped database. Clients
    in `metrics_allow` read the metrics without a token.
    """

    data_dir: Path = option(
        Path("gtm-data"),
        "Where state lives: the embedded Postgres, the last-good file.",
        read=Path.absolute,
        takes=Path,
        required=True,
    )
    _: KW_ONLY
    bind: tuple[str, ...] = option(
        ["127.0.0.1"],
        "An address to listen on; several: with commas, or given again.",
        takes=list[str],
        read=options.addresses,
    )
    geoip_db: Path | None = option(
        None, "A GeoIP database (MMDB); without it the shipped one.", takes=Path | None
    )
    geoip_overrides: Path | None = option(
        None, "Locations of your own networks (YAML); they win.", takes=Path | None
    )
    metrics_allow: tuple[Network, ...] = option(
        _THIS_MACHINE,
        "Networks that read /metrics without a token, with commas (`none`: nobody).",
        read=options.networks_or_none,
    )
    log_level: str = option("info", "debug, info, warning or error.", read=options.log_level)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings(ServerSettings):
    """What edges and balancers are told, who follow control. `replace`: take over from the one that runs on `data_dir`, if one does."""

    control_url: str
    token: str = field(repr=False)
    name: str
    replace: bool = False
    trusted_proxies: tuple[Network, ...] = option(
        "",
        "Networks whose X-Forwarded-For or Forwarded is believed, separated by commas.",
        read=options.networks,
    )
    ca_file: Path | None = option(
        None,
        "Certificates (PEM) to trust besides the public ones, for control and for probes.",
        takes=Path | None,
    )
    exit_when_refused: bool = option(
        default=False,
        meaning="End where control refuses the token and no policy is kept from before, in place of trying on.",
    )
    user: str | None = option(
        "", "The user to become once the addresses are bound (from root).", read=options.text_or_none
    )


@dataclass(frozen=True, slots=True)
class DnssecSettings:
    """Keys of signed zones. `key_file` encrypts them in the database.

    After `zsk_days` days a zone-signing key is replaced; 0: only by hand. `resolver`, an address and a port, is asked
    for the parents' DS records; None: nobody is.
    """

    key_file: Path
    zsk_days: int = DEFAULT_ZSK_DAYS
    resolver: Address | None = None


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The identity provider by which people sign in at the dashboard; without an `issuer` there is none.

    `roles` says which claim gives which role. Without a `client_secret` this is a public client.
    """

    issuer: str | None = option(
        "",
        "An OpenID Connect provider by which people sign in at the dashboard: its issuer, an https URL.",
        read=options.issuer,
    )
    client_id: str | None = option("", "What control is called there.", read=options.text_or_none)
    client_secret: str | None = option(
        None,
        "The secret that goes with it; better: --oidc-client-secret-file.",
        takes=str | None,
        secret=secret.PHRASE,
    )
    roles: tuple[tuple[str, str, str], ...] = option(
        [],
        "A role for people with a value of a claim, as ROLE=CLAIM:VALUE (admin=group:gtm-admins); several: with commas.",
        takes=list[str],
        read=options.grants,
    )

    def require(self, dashboard_url: str | None) -> None:
        """Raise ValueError if there is an issuer, and what belongs to it is missing."""
        given = {
            "--oidc-client-id": self.client_id,
            "--oidc-roles": self.roles,
            "--dashboard-url": dashboard_url,
        }
        missing = [name for name, value in given.items() if not value]
        if self.issuer is not None and missing:
            raise ValueError(f"{', '.join(missing)}: needed with --oidc-issuer (docs/dashboard.md)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings(ServerSettings):
    """`gtm control`. Without `database_url` an embedded Postgres runs under `data_dir`.

    `geoip_db` and `geoip_overrides` are an edge's, for questions about a client's latency.
    """

    control_port: int = option(
        DEFAULT_CONTROL_PORT, "Port of the control API (0: any).", minimum=0, maximum=65535
    )
    database_url: str | None = option(
        None,
        "A Postgres server, as postgresql://…; without it an embedded one runs.",
        takes=str | None,
        secret=secret.URL,
    )
    latency_half_life: float = option(
        DEFAULT_HALF_LIFE, "Seconds after which a measured round trip counts half.", minimum=60
    )
    max_moved_share: float = option(
        DEFAULT_MAX_MOVED_SHARE,
        "Share (0-1) of the present demand that a change of policy may move at once, unless forced.",
        minimum=0,
        maximum=1,
    )
    fence_approvals: int = option(
        0,
        "How many others have to approve of a change that opens a fence: 0 or 1.",
        minimum=0,
        maximum=1,
    )
    demand_days: int = option(
        DEFAULT_DEMAND_DAYS,
        "Days for which recorded demand, the plan's history and what requests took are kept (0: none is recorded).",
        minimum=0,
        maximum=366,
    )
    audit_days: int = option(
        DEFAULT_AUDIT_DAYS, "Days for which the audit log is kept.", minimum=1, maximum=3660
    )
    probe_days: int = option(
        DEFAULT_PROBE_DAYS,
        "Days for which the history of health is kept (0: it is not written down).",
        minimum=0,
        maximum=366,
    )
    peer_allow: tuple[Network, ...] = option(
        "",
        "Networks in which balancers may say that others of their region reach them, with commas.",
        read=options.networks,
    )
    dnssec_key_file: Path | None = option(
        None,
        "What private DNSSEC keys are encrypted with in the database; made in the data directory by default.",
        takes=Path | None,
    )
    dnssec_zsk_days: int = option(
        DEFAULT_ZSK_DAYS,
        "Days after which a zone-signing key is replaced (0: only by hand).",
        minimum=0,
        maximum=3660,
    )
    dnssec_resolver: Address | None = option(
        "",
        "A resolver (address, or address:port) to ask for the parents' DS records; without it nobody is asked.",
        read=options.resolver,
    )
    dashboard_url: str | None = option(
        "",
        "Where people find the dashboard, as https://gtm.example.com; needed behind a proxy that speaks TLS.",
        read=options.site_url,
    )
    oidc: OidcSettings = OidcSettings()
    sign_in: str = field(default="", repr=False)
    """The secret of a link that signs in as admin once, for whoever started this process; empty: there is none. No option: `gtm serve` hands it."""

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
    each `rate_limit_slip`-th limited reply is sent, without records.
    """

    nsid: str | None = option(
        "",
        "What NSID and id.server answer: the edge's name by default; `none`: nothing.",
        read=options.dns_text_or_none,
    )
    version: str = option("", "What version.bind answers; without it nothing.", read=options.dns_text)
    rate_limit: int = option(
        10_000,
        "UDP replies a second and process to one client prefix, /24 or /56 (0: nothing is limited).",
        minimum=0,
    )
    rate_limit_excess: int = option(
        256 * 1024,
        "Bytes a second and process to one client prefix beyond twice its queries.",
        minimum=0,
    )
    rate_limit_slip: int = option(
        2, "Each so-many-th limited reply is sent, without records (0: none).", minimum=0, maximum=100
    )
    rate_limit_exempt: tuple[Network, ...] = option(
        _THIS_MACHINE,
        "Networks that are not limited, separated by commas (`none`: all are).",
        read=options.networks_or_none,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSettings(FollowerSettings):
    """`gtm balancer`. Its backends are those of `file`, or of `backend` where there is none.

    `region` is the region's name in the policy. `name` tells it from other balancers of the region. `service`: what requests are
    for whose host name is none of a service.

    An empty `peer_address` is the first of `bind`, or, where that is every address, the one that control is reached from; its port is that of
    requests.
    """

    region: str = option(
        "",
        "The region, as the policy names it, whose requests are served here.",
        read=options.name,
        required=True,
    )
    backend: tuple[str, ...] = option(
        [],
        "A model server, as http://HOST:PORT; several: with commas, or given again.",
        takes=list[str],
        read=options.texts,
    )
    file: Path | None = option(
        None,
        "Backends and how they are shared (YAML, docs/balancer.md); read again when it changes.",
        takes=Path | None,
        variable="GTM_BALANCER_FILE",
    )
    service: str | None = option(
        "",
        "The service that requests are for whose host name is none of a service.",
        read=options.text_or_none,
    )
    balancer_port: int = option(
        DEFAULT_BALANCER_PORT, "Port that clients' requests come to (0: any).", minimum=0, maximum=65535
    )
    admin_port: int = option(
        DEFAULT_ADMIN_PORT, "Port of metrics and state (0: any).", minimum=0, maximum=65535
    )
    peer_address: str = option(
        "",
        "Where the region's other balancers reach this one by UDP, as ADDRESS or ADDRESS:PORT; `none`: nowhere.",
        read=options.peer_address,
    )
    workers: int = option(
        1,
        "Processes that carry requests; more than 1 are fed by one more (docs/balancer.md).",
        minimum=1,
        maximum=64,
    )
    probe_allow: tuple[Network, ...] = option(
        "",
        "Networks to push to although they are loopback, link-local or a cloud's metadata service, with commas.",
        read=options.networks,
    )
    drain_time: float = option(
        300.0,
        "Seconds that streams may take to finish once the balancer is told to end.",
        minimum=0,
        maximum=86400,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings(FollowerSettings):
    """`gtm edge`.

    `named`: somebody gave the edge its `name`; otherwise it takes the one that its token is for, if that is only one.

    Ports of 0 mean: any free one. `dns_bind` are addresses for DNS alone, with ports or on `dns_port`; none: those of
    `bind`. `dns_cookie_secret_file` None: a secret of its own. `geoip_anonymous_db` None: no client counts as behind an
    anonymising network. `region` is the one the edge runs in, if any. `country` and `operator_country` None: as of its
    region, or unknown.
    """

    named: bool = True
    edge_port: int = option(DEFAULT_EDGE_PORT, "Port of the edge's HTTP (0: any).", minimum=0, maximum=65535)
    dns_port: int = option(DEFAULT_DNS_PORT, "Port of DNS, UDP and TCP (0: any).", minimum=0, maximum=65535)
    dns_bind: tuple[tuple[str, int | None], ...] = option(
        [],
        "An address for DNS alone, as ADDRESS, IPV4:PORT or [IPV6]:PORT; several: as for --bind.",
        takes=list[str],
        read=options.places,
    )
    dns_cookie_secret_file: Path | None = option(
        None,
        "What DNS cookies are made with, for all edges that share an address; without it a secret of its own.",
        takes=Path | None,
    )
    dns: DnsSettings = DnsSettings()
    workers: int = option(1, "DNS processes and HTTP processes, each.", minimum=1, maximum=64)
    geoip_anonymous_db: Path | None = option(
        None,
        "A database of anonymising networks (MMDB, GeoIP2 Anonymous IP); without it none is known.",
        takes=Path | None,
    )
    probe_allow: tuple[Network, ...] = option(
        "",
        "Networks to probe although they are loopback, link-local or a cloud's metadata service, with commas.",
        read=options.networks,
    )
    tls_certificate: Path | None = option(
        None,
        "The certificate, with what leads to its authority (PEM), that the edge's HTTP port shows: it then speaks TLS.",
        takes=Path | None,
        variable="GTM_EDGE_CERTIFICATE",
    )
    tls_key: Path | None = option(
        None,
        "Its private key (PEM, without a password).",
        takes=Path | None,
        variable="GTM_EDGE_KEY",
    )
    drain_time: float = option(
        60.0,
        "Seconds that carried requests may take to finish once the edge is told to end.",
        minimum=0,
        maximum=86400,
    )
    carry: bool = option(
        default=True,
        meaning="Carry requests of services that ask for it (`answer: carry`); otherwise they are redirected.",
        variable="GTM_EDGE_CARRY",
    )
    carry_trust: tuple[Network, ...] = option(
        "",
        "Networks whose servers get carried requests over plain HTTP without proving to be gtm's balancers, with commas.",
        read=options.networks,
    )
    open_lookups: bool = option(
        default=False, meaning="Let anyone look up routes for other clients' addresses without a token."
    )
    near_lookups: bool = False
    """This machine may do so, which alone can reach the edge."""
    token_max_age: float = option(
        86_400.0,
        "Seconds without a word from control after which the edge accepts no tokens any more.",
        minimum=60,
    )
    beacons: bool = option(default=True, meaning="Let browsers post round trips that they measured.")
    region: str | None = option(
        "",
        "The region this edge runs in, whose way to the others its probes then measure.",
        read=options.text_or_none,
    )
    country: str | None = option(
        "",
        "Where the edge stands (ISO 3166-1 alpha-2), for residency rules that bind edges; its region's by default.",
        read=options.country,
        variable="GTM_EDGE_COUNTRY",
    )
    operator_country: str | None = option(
        "",
        "Where whoever runs the edge is established (ISO 3166-1 alpha-2); its region's operator's by default.",
        read=options.country,
        variable="GTM_EDGE_OPERATOR_COUNTRY",
    )

    @property
    def dns_addresses(self) -> tuple[Address, ...]:
        """The addresses and port at which DNS listens."""
        given = self.dns_bind or tuple((host, None) for host in self.bind)
        return tuple((host, self.dns_port if port is None else port) for host, port in given)

    @property
    def place(self) -> EdgePlace:
        """Where the edge stands, as far as it was told."""
        return EdgePlace(self.country, self.operator_country, self.region)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`gtm serve`: what control and the edge are told, each a process of its own. `demo`: with the demo world."""

    control: ControlSettings
    edge: EdgeSettings
    demo: bool = False
