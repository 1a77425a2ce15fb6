"""Options that several commands share: each is a flag and a GTM_* variable."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

import typer

from gtm.cli.common.exits import CommandError, Exit
from gtm.settings import DEFAULT_CONTROL_PORT, DEFAULT_EDGE_PORT, Address, DnsSettings, Network
from gtm.settings import LOOPBACK as LOOPBACK_NETWORKS

DataDir = Annotated[
    Path,
    typer.Option(help="Where state lives: the embedded Postgres, the last-good file.", envvar="GTM_DATA_DIR"),
]
Bind = Annotated[
    list[str],
    typer.Option(help="An address to listen on; several: with commas, or given again.", envvar="GTM_BIND"),
]
DnsBind = Annotated[
    list[str],
    typer.Option(
        help="An address for DNS alone, as ADDRESS, IPV4:PORT or [IPV6]:PORT; several: as for --bind.",
        envvar="GTM_DNS_BIND",
    ),
]
ControlPort = Annotated[
    int, typer.Option(help="Port of the control API (0: any).", envvar="GTM_CONTROL_PORT", min=0, max=65535)
]
EdgePort = Annotated[
    int, typer.Option(help="Port of the edge's HTTP (0: any).", envvar="GTM_EDGE_PORT", min=0, max=65535)
]
DnsPort = Annotated[
    int, typer.Option(help="Port of DNS, UDP and TCP (0: any).", envvar="GTM_DNS_PORT", min=0, max=65535)
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="A Postgres server, as postgresql://…; without it an embedded one runs.",
        envvar="GTM_DATABASE_URL",
    ),
]
Workers = Annotated[
    int, typer.Option(help="DNS processes and HTTP processes, each.", envvar="GTM_WORKERS", min=1, max=64)
]
DnsCookieSecretFile = Annotated[
    Path | None,
    typer.Option(
        help="What DNS cookies are made with, for all edges that share an address; without it a secret of its own.",
        envvar="GTM_DNS_COOKIE_SECRET_FILE",
    ),
]
DnsNsid = Annotated[
    str,
    typer.Option(
        help="What NSID and id.server answer: the edge's name by default; `none`: nothing.",
        envvar="GTM_DNS_NSID",
    ),
]
DnsVersion = Annotated[
    str, typer.Option(help="What version.bind answers; without it nothing.", envvar="GTM_DNS_VERSION")
]
DnsRateLimit = Annotated[
    int,
    typer.Option(
        help="UDP replies a second and process to one client prefix, /24 or /56 (0: nothing is limited).",
        envvar="GTM_DNS_RATE_LIMIT",
        min=0,
    ),
]
DnsRateLimitExcess = Annotated[
    int,
    typer.Option(
        help="Bytes a second and process to one client prefix beyond twice its queries.",
        envvar="GTM_DNS_RATE_LIMIT_EXCESS",
        min=0,
    ),
]
DnsRateLimitSlip = Annotated[
    int,
    typer.Option(
        help="Each so-many-th limited reply is sent, without records (0: none).",
        envvar="GTM_DNS_RATE_LIMIT_SLIP",
        min=0,
        max=100,
    ),
]
DnsRateLimitExempt = Annotated[
    str,
    typer.Option(
        help="Networks that are not limited, separated by commas (`none`: all are).",
        envvar="GTM_DNS_RATE_LIMIT_EXEMPT",
    ),
]
GeoipDb = Annotated[
    Path | None,
    typer.Option(help="A GeoIP database (MMDB); without it the shipped one.", envvar="GTM_GEOIP_DB"),
]
GeoipOverrides = Annotated[
    Path | None,
    typer.Option(help="Locations of your own networks (YAML); they win.", envvar="GTM_GEOIP_OVERRIDES"),
]
GeoipAnonymousDb = Annotated[
    Path | None,
    typer.Option(
        help="A database of anonymising networks (MMDB, GeoIP2 Anonymous IP); without it none is known.",
        envvar="GTM_GEOIP_ANONYMOUS_DB",
    ),
]
TrustedProxies = Annotated[
    str,
    typer.Option(
        help="Networks whose X-Forwarded-For or Forwarded is believed, separated by commas.",
        envvar="GTM_TRUSTED_PROXIES",
    ),
]
ProbeAllow = Annotated[
    str,
    typer.Option(
        help="Networks to probe although they are loopback, link-local or a cloud's metadata service, with commas.",
        envvar="GTM_PROBE_ALLOW",
    ),
]
MetricsAllow = Annotated[
    str,
    typer.Option(
        help="Networks that read /metrics without a token, with commas (`none`: nobody).",
        envvar="GTM_METRICS_ALLOW",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        help="Certificates (PEM) to trust besides the public ones, for control and for probes.",
        envvar="GTM_CA_FILE",
    ),
]
InsecureControl = Annotated[
    bool,
    typer.Option(
        "--insecure-control",
        help="Send the token to another machine over http, where whoever is on the way reads it.",
        envvar="GTM_INSECURE_CONTROL",
    ),
]
OpenLookups = Annotated[
    bool,
    typer.Option(
        help="Let anyone look up routes for other clients' addresses without a token.",
        envvar="GTM_OPEN_LOOKUPS",
    ),
]
TokenMaxAge = Annotated[
    float,
    typer.Option(
        help="Seconds without a word from control after which the edge accepts no tokens any more.",
        envvar="GTM_TOKEN_MAX_AGE",
        min=60,
    ),
]
Beacons = Annotated[
    bool,
    typer.Option(help="Let browsers post round trips that they measured.", envvar="GTM_BEACONS"),
]
Country = Annotated[
    str,
    typer.Option(
        help="Where the edge stands (ISO 3166-1 alpha-2), for residency rules that bind edges; its region's by default.",
        envvar="GTM_EDGE_COUNTRY",
    ),
]
OperatorCountry = Annotated[
    str,
    typer.Option(
        help="Where whoever runs the edge is established (ISO 3166-1 alpha-2); its region's operator's by default.",
        envvar="GTM_EDGE_OPERATOR_COUNTRY",
    ),
]
LatencyHalfLife = Annotated[
    float,
    typer.Option(
        help="Seconds after which a measured round trip counts half.", envvar="GTM_LATENCY_HALF_LIFE", min=60
    ),
]
MaxMovedShare = Annotated[
    float,
    typer.Option(
        help="Share (0-1) of the present demand that a change of policy may move at once, unless forced.",
        envvar="GTM_MAX_MOVED_SHARE",
        min=0,
        max=1,
    ),
]
FenceApprovals = Annotated[
    int,
    typer.Option(
        help="How many others have to approve of a change that opens a fence: 0 or 1.",
        envvar="GTM_FENCE_APPROVALS",
        min=0,
        max=1,
    ),
]
DemandDays = Annotated[
    int,
    typer.Option(
        help="Days for which recorded demand is kept (0: none is recorded).",
        envvar="GTM_DEMAND_DAYS",
        min=0,
        max=366,
    ),
]
DnssecKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="What private DNSSEC keys are encrypted with in the database; made in the data directory by default.",
        envvar="GTM_DNSSEC_KEY_FILE",
    ),
]
DnssecZskDays = Annotated[
    int,
    typer.Option(
        help="Days after which a zone-signing key is replaced (0: only by hand).",
        envvar="GTM_DNSSEC_ZSK_DAYS",
        min=0,
        max=3660,
    ),
]
DnssecResolver = Annotated[
    str,
    typer.Option(
        help="A resolver (address, or address:port) to ask for the parents' DS records; without it nobody is asked.",
        envvar="GTM_DNSSEC_RESOLVER",
    ),
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.", envvar="GTM_LOG_LEVEL")]
ControlUrl = Annotated[str, typer.Option("--control", help="The control API.", envvar="GTM_CONTROL_URL")]
Token = Annotated[
    str | None,
    typer.Option(help="Bearer token (better in GTM_TOKEN than in a shell history).", envvar="GTM_TOKEN"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
EdgeUrl = Annotated[str, typer.Option("--edge", help="An edge's HTTP.", envvar="GTM_EDGE_URL")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Comment = Annotated[str, typer.Option(help="Why; kept with the revision.")]
Wait = Annotated[bool, typer.Option(help="Wait until every live edge has the change.")]
Timeout = Annotated[float, typer.Option(help="Longest wait for the edges, in seconds.", min=0, max=3600)]

LOOPBACK = "127.0.0.1"
OWN = [LOOPBACK]
NONE: list[str] = []
METRICS_ALLOW = ",".join(map(str, LOOPBACK_NETWORKS))
CONTROL = f"http://{LOOPBACK}:{DEFAULT_CONTROL_PORT}"
EDGE = f"http://{LOOPBACK}:{DEFAULT_EDGE_PORT}"
DATA_DIR = Path("gtm-data")
WAIT_SECONDS = 60.0

_MAX_TEXT = 255  # RFC 1035 §3.3
_NONE = "none"  # an empty variable is an unset one
_LEVELS = ("debug", "info", "warning", "error")


def addresses(given: list[str]) -> tuple[str, ...]:
    """Parse `--bind`.

    Raises:
        CommandError: something else than literal IP addresses.
    """
    found = _parts(given)
    for part in found:
        try:
            ip_address(part)
        except ValueError as error:
            raise CommandError(f"--bind: `{part}` is not an IPv4 or IPv6 address") from error
    if not found:
        raise CommandError("--bind: give at least one address")
    return found


def dns_addresses(given: list[str], port: int) -> tuple[Address, ...]:
    """Parse `--dns-bind`; `port` is that of addresses without one.

    Raises:
        CommandError: something else than literal IP addresses, or a port that is none.
    """
    return tuple(_dns_address(part, port) for part in _parts(given))


def _dns_address(text: str, port: int) -> Address:
    host, own_port = text, ""
    if match := re.fullmatch(r"\[(.*)\](?::(\d+))?|([^:]*):(\d+)", text):
        host, own_port = match[1] or match[3], match[2] or match[4] or ""
    number = int(own_port or port)
    try:
        ip_address(host)
    except ValueError as error:
        raise CommandError(
            f"--dns-bind: `{text}` is not an address; write 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53"
        ) from error
    if number > 65535:
        raise CommandError(f"--dns-bind: the port of `{text}` is above 65535")
    return host, number


def _parts(given: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


def dns_settings(
    *, nsid: str, version: str, rate_limit: int, rate_limit_excess: int, rate_limit_slip: int, exempt: str
) -> DnsSettings:
    """Gather the options of DNS.

    Raises:
        CommandError: a text is too long, or networks are none.
    """
    for name, text in (("--dns-nsid", nsid), ("--dns-version", version)):
        if len(text.encode()) > _MAX_TEXT:
            raise CommandError(f"{name}: at most {_MAX_TEXT} bytes")
    own = () if exempt == _NONE else networks(exempt, "--dns-rate-limit-exempt")
    return DnsSettings(
        nsid={"": None, _NONE: ""}.get(nsid, nsid),
        version=version,
        rate_limit=rate_limit,
        rate_limit_excess=rate_limit_excess,
        rate_limit_slip=rate_limit_slip,
        rate_limit_exempt=tuple(str(network) for network in own),
    )


def networks(text: str, option: str = "--trusted-proxies") -> tuple[Network, ...]:
    """Parse an option that takes networks.

    Raises:
        CommandError: something else than networks.
    """
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error


def check_in_the_clear(url: str, *, insecure: bool, option: str = "--control") -> None:
    """Keep a token from being sent to another machine in the clear.

    Raises:
        CommandError: it would be, and nobody said that it may.
    """
    from gtm.transport import in_the_clear

    if not insecure and in_the_clear(url):
        raise CommandError(
            f"{option}: `{url}` is http to another machine, which would send the token in the clear: put TLS in front of "
            "it and use https, or set GTM_INSECURE_CONTROL=true where the network between is your own",
            Exit.NOT_ALLOWED,
        )


def metrics_allow(text: str) -> tuple[Network, ...]:
    """Parse `--metrics-allow`.

    Raises:
        CommandError: something else than networks.
    """
    return () if text == _NONE else networks(text, "--metrics-allow")


def country(text: str, option: str = "--country") -> str | None:
    """Parse `--country` and `--operator-country`.

    Raises:
        CommandError: not a country's code.
    """
    from gtm.core.model.countries import COUNTRIES

    code = text.strip().upper()
    if not code or code in COUNTRIES:
        return code or None
    hint = "; the United Kingdom's code is `GB`" if code == "UK" else ""
    raise CommandError(f"{option}: `{text}` is not a country code (ISO 3166-1 alpha-2), such as `DE`{hint}")


def resolver(text: str) -> Address | None:
    """Parse `--dnssec-resolver`.

    Raises:
        CommandError: something else than an address.
    """
    if not text:
        return None
    from gtm.control.dnssec.parent import resolver_address

    try:
        return resolver_address(text)
    except ValueError as error:
        raise CommandError(f"--dnssec-resolver: {error}") from error


def log_level(text: str) -> str:
    """Parse `--log-level`.

    Raises:
        CommandError: not a level.
    """
    if text.lower() not in _LEVELS:
        raise CommandError(f"--log-level: `{text}` is none of {', '.join(_LEVELS)}")
    return text.lower()
