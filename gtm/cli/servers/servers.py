"""The commands that run servers: `gtm serve`, `gtm control`, `gtm edge`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.settings import (
    DEFAULT_CONTROL_PORT,
    DEFAULT_DEMAND_DAYS,
    DEFAULT_DNS_PORT,
    DEFAULT_EDGE_PORT,
    DEFAULT_HALF_LIFE,
    DEFAULT_MAX_MOVED_SHARE,
    DEFAULT_TOKEN_MAX_AGE,
    DEFAULT_ZSK_DAYS,
    LOOPBACK,
    ControlSettings,
    DnsSettings,
    EdgeSettings,
    ServeSettings,
)

_DNS = DnsSettings()
_OWN = "127.0.0.0/8, ::1"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    for command in (serve, control, edge):
        app.command()(command)


def serve(
    *,
    demo: Annotated[bool, typer.Option("--demo", help="With the seven-region demo world.")] = False,
    data_dir: options.DataDir = options.DATA_DIR,
    bind: options.Bind = options.OWN,
    control_port: options.ControlPort = DEFAULT_CONTROL_PORT,
    edge_port: options.EdgePort = DEFAULT_EDGE_PORT,
    dns_port: options.DnsPort = DEFAULT_DNS_PORT,
    dns_bind: options.DnsBind = options.NONE,
    dns_cookie_secret_file: options.DnsCookieSecretFile = None,
    dns_nsid: options.DnsNsid = "",
    dns_version: options.DnsVersion = "",
    dns_rate_limit: options.DnsRateLimit = _DNS.rate_limit,
    dns_rate_limit_excess: options.DnsRateLimitExcess = _DNS.rate_limit_excess,
    dns_rate_limit_slip: options.DnsRateLimitSlip = _DNS.rate_limit_slip,
    dns_rate_limit_exempt: options.DnsRateLimitExempt = ",".join(_DNS.rate_limit_exempt),
    workers: options.Workers = 1,
    database_url: options.DatabaseUrl = None,
    geoip_db: options.GeoipDb = None,
    geoip_overrides: options.GeoipOverrides = None,
    geoip_anonymous_db: options.GeoipAnonymousDb = None,
    trusted_proxies: options.TrustedProxies = "",
    probe_allow: options.ProbeAllow = "",
    metrics_allow: options.MetricsAllow = options.METRICS_ALLOW,
    ca_file: options.CaFile = None,
    open_lookups: options.OpenLookups = False,
    token_max_age: options.TokenMaxAge = DEFAULT_TOKEN_MAX_AGE,
    beacons: options.Beacons = True,
    country: options.Country = "",
    operator_country: options.OperatorCountry = "",
    latency_half_life: options.LatencyHalfLife = DEFAULT_HALF_LIFE,
    max_moved_share: options.MaxMovedShare = DEFAULT_MAX_MOVED_SHARE,
    fence_approvals: options.FenceApprovals = 0,
    demand_days: options.DemandDays = DEFAULT_DEMAND_DAYS,
    dnssec_key_file: options.DnssecKeyFile = None,
    dnssec_zsk_days: options.DnssecZskDays = DEFAULT_ZSK_DAYS,
    dnssec_resolver: options.DnssecResolver = "",
    log_level: options.LogLevel = "info",
) -> None:
    """Run control and an edge in one place, on an embedded Postgres unless GTM_DATABASE_URL names a server."""
    from gtm.cli.servers.welcome import welcome
    from gtm.runtime.process.logs import configure
    from gtm.runtime.serve.supervisor import Supervisor

    hosts = options.addresses(bind)
    proxies = options.networks(trusted_proxies)
    settings = ServeSettings(
        data_dir=data_dir.absolute(),
        bind=hosts,
        control_port=control_port,
        edge_port=edge_port,
        dns_port=dns_port,
        dns_bind=options.dns_addresses(dns_bind, dns_port),
        dns_cookie_secret_file=dns_cookie_secret_file,
        dns=options.dns_settings(
            nsid=dns_nsid,
            version=dns_version,
            rate_limit=dns_rate_limit,
            rate_limit_excess=dns_rate_limit_excess,
            rate_limit_slip=dns_rate_limit_slip,
            exempt=dns_rate_limit_exempt,
        ),
        workers=workers,
        demo=demo,
        database_url=database_url,
        geoip_db=geoip_db,
        geoip_overrides=geoip_overrides,
        geoip_anonymous_db=geoip_anonymous_db,
        # The demo's clients are simulated on this machine, and state their addresses as proxies do.
        trusted_proxies=proxies or (options.networks(_OWN) if demo else ()),
        # The demo's regions are on this machine.
        probe_allow=options.networks(probe_allow, "--probe-allow") + (LOOPBACK if demo else ()),
        metrics_allow=options.metrics_allow(metrics_allow),
        ca_file=ca_file,
        # The demo may be asked about anybody's address, but only by this machine.
        open_lookups=open_lookups or (demo and all(_is_loopback(host) for host in hosts)),
        token_max_age=token_max_age,
        beacons=beacons,
        country=options.country(country),
        operator_country=options.country(operator_country, "--operator-country"),
        latency_half_life=latency_half_life,
        max_moved_share=max_moved_share,
        fence_approvals=fence_approvals,
        demand_days=demand_days,
        dnssec_key_file=dnssec_key_file,
        dnssec_zsk_days=dnssec_zsk_days,
        dnssec_resolver=options.resolver(dnssec_resolver),
        log_level=options.log_level(log_level),
    )
    configure(settings.log_level, "serve")
    _check_database(database_url)
    _run_with_database(Supervisor(settings, welcome).run())


def control(
    *,
    data_dir: options.DataDir = options.DATA_DIR,
    bind: options.Bind = options.OWN,
    control_port: options.ControlPort = DEFAULT_CONTROL_PORT,
    database_url: options.DatabaseUrl = None,
    prepare: Annotated[
        bool, typer.Option(help="Migrate the database and create the first admin token before serving.")
    ] = True,
    geoip_db: options.GeoipDb = None,
    geoip_overrides: options.GeoipOverrides = None,
    latency_half_life: options.LatencyHalfLife = DEFAULT_HALF_LIFE,
    max_moved_share: options.MaxMovedShare = DEFAULT_MAX_MOVED_SHARE,
    fence_approvals: options.FenceApprovals = 0,
    demand_days: options.DemandDays = DEFAULT_DEMAND_DAYS,
    dnssec_key_file: options.DnssecKeyFile = None,
    dnssec_zsk_days: options.DnssecZskDays = DEFAULT_ZSK_DAYS,
    dnssec_resolver: options.DnssecResolver = "",
    metrics_allow: options.MetricsAllow = options.METRICS_ALLOW,
    log_level: options.LogLevel = "info",
) -> None:
    """Run the control tier: the API over Postgres, and the feed that edges follow."""
    from gtm.runtime.control.server import run_control
    from gtm.runtime.process.logs import configure

    settings = ControlSettings(
        data_dir=data_dir.absolute(),
        bind=options.addresses(bind),
        control_port=control_port,
        database_url=database_url,
        geoip_db=geoip_db,
        geoip_overrides=geoip_overrides,
        latency_half_life=latency_half_life,
        max_moved_share=max_moved_share,
        fence_approvals=fence_approvals,
        demand_days=demand_days,
        dnssec_key_file=dnssec_key_file,
        dnssec_zsk_days=dnssec_zsk_days,
        dnssec_resolver=options.resolver(dnssec_resolver),
        metrics_allow=options.metrics_allow(metrics_allow),
        log_level=options.log_level(log_level),
    )
    configure(settings.log_level, "control")
    _check_database(database_url)
    if database_url is None:
        _prepare_data_dir(settings.data_dir)
    _run_with_database(run_control(settings, typer.echo, prepare_first=prepare))


def edge(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    insecure_control: options.InsecureControl = False,
    token: options.Token = None,
    name: Annotated[
        str,
        typer.Option(
            help="This edge's name; by default the one that its token is for, or the host's.",
            envvar="GTM_EDGE_NAME",
        ),
    ] = "",
    data_dir: options.DataDir = options.DATA_DIR,
    bind: options.Bind = options.OWN,
    edge_port: options.EdgePort = DEFAULT_EDGE_PORT,
    dns_port: options.DnsPort = DEFAULT_DNS_PORT,
    dns_bind: options.DnsBind = options.NONE,
    dns_cookie_secret_file: options.DnsCookieSecretFile = None,
    dns_nsid: options.DnsNsid = "",
    dns_version: options.DnsVersion = "",
    dns_rate_limit: options.DnsRateLimit = _DNS.rate_limit,
    dns_rate_limit_excess: options.DnsRateLimitExcess = _DNS.rate_limit_excess,
    dns_rate_limit_slip: options.DnsRateLimitSlip = _DNS.rate_limit_slip,
    dns_rate_limit_exempt: options.DnsRateLimitExempt = ",".join(_DNS.rate_limit_exempt),
    workers: options.Workers = 1,
    geoip_db: options.GeoipDb = None,
    geoip_overrides: options.GeoipOverrides = None,
    geoip_anonymous_db: options.GeoipAnonymousDb = None,
    trusted_proxies: options.TrustedProxies = "",
    probe_allow: options.ProbeAllow = "",
    metrics_allow: options.MetricsAllow = options.METRICS_ALLOW,
    ca_file: options.CaFile = None,
    open_lookups: options.OpenLookups = False,
    token_max_age: options.TokenMaxAge = DEFAULT_TOKEN_MAX_AGE,
    beacons: options.Beacons = True,
    region: Annotated[
        str,
        typer.Option(
            help="The region this edge runs in, whose way to the others its probes then measure.",
            envvar="GTM_REGION",
        ),
    ] = "",
    country: options.Country = "",
    operator_country: options.OperatorCountry = "",
    user: Annotated[
        str,
        typer.Option(help="The user to become once the addresses are bound (from root).", envvar="GTM_USER"),
    ] = "",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take over from the edge that runs on the data directory, without a gap."
        ),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="End the edge of the data directory, with workers that have lost their agent."
        ),
    ] = False,
    log_level: options.LogLevel = "info",
) -> None:
    """Run an edge: answers DNS and HTTP, probes the regions, follows control, and goes on without it."""
    from gtm.runtime.edge.agent import Agent
    from gtm.runtime.process.logs import configure

    if stop:
        _stop_edge(data_dir.absolute())
        return
    if not token:
        raise CommandError(
            "an edge needs a token: set GTM_TOKEN to one made by `gtm token create NAME --role edge`",
            Exit.NOT_ALLOWED,
        )
    options.check_in_the_clear(control_url, insecure=insecure_control)
    settings = EdgeSettings(
        data_dir=data_dir.absolute(),
        control_url=control_url,
        token=token,
        name=name or socket.gethostname(),
        named=bool(name),
        bind=options.addresses(bind),
        edge_port=edge_port,
        dns_port=dns_port,
        dns_bind=options.dns_addresses(dns_bind, dns_port),
        dns_cookie_secret_file=dns_cookie_secret_file,
        dns=options.dns_settings(
            nsid=dns_nsid,
            version=dns_version,
            rate_limit=dns_rate_limit,
            rate_limit_excess=dns_rate_limit_excess,
            rate_limit_slip=dns_rate_limit_slip,
            exempt=dns_rate_limit_exempt,
        ),
        workers=workers,
        geoip_db=geoip_db,
        geoip_overrides=geoip_overrides,
        geoip_anonymous_db=geoip_anonymous_db,
        trusted_proxies=options.networks(trusted_proxies),
        probe_allow=options.networks(probe_allow, "--probe-allow"),
        metrics_allow=options.metrics_allow(metrics_allow),
        ca_file=ca_file,
        open_lookups=open_lookups,
        token_max_age=token_max_age,
        beacons=beacons,
        region=region or None,
        country=options.country(country),
        operator_country=options.country(operator_country, "--operator-country"),
        user=user or None,
        replace=replace,
        log_level=options.log_level(log_level),
    )
    configure(settings.log_level, "edge")
    _prepare_data_dir(settings.data_dir)

    async def run() -> None:
        await Agent(settings).run()

    _run(run())


def _stop_edge(data_dir: Path) -> None:
    from gtm.runtime.edge import orphans

    if not data_dir.is_dir():
        raise CommandError(f"there is no data directory `{data_dir}`; name another with --data-dir")
    try:
        ended = orphans.end(data_dir)
    except OSError as error:
        raise CommandError(error.strerror or str(error), Exit.CANNOT_RUN) from error
    if ended:
        typer.echo(f"ended {', '.join(f'process {one}' for one in ended)}")
    else:
        typer.echo(f"no edge runs on `{data_dir}`")


def _prepare_data_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot use the data directory `{path}`: {error.strerror}; choose another with --data-dir"
        raise CommandError(message, Exit.CANNOT_RUN) from error


def _run(server: Coroutine[Any, Any, None], *expected: type[Exception]) -> None:
    """Run a server to its end; what keeps it from running is one line, not a traceback."""
    from gtm.geoip.reader import GeoIPError

    errors: tuple[type[Exception], ...] = (OSError, GeoIPError, *expected)
    try:
        asyncio.run(server)
    except errors as error:
        # An OSError's text begins with its number, which says nothing that its words do not.
        message = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError(message, Exit.CANNOT_RUN) from error


def _check_database(url: str | None) -> None:
    from gtm.storage.session import database_url

    try:
        if url is not None:
            database_url(url)
    except ValueError as error:
        raise CommandError(f"GTM_DATABASE_URL: {error}") from error


def _run_with_database(server: Coroutine[Any, Any, None]) -> None:
    """The same for what uses a database. An edge has no use for these imports, nor must it have their packages."""
    from gtm.demo.block import DemoError
    from gtm.storage.embedded import EmbeddedPostgresError
    from gtm.storage.errors import SchemaError, StorageUnavailable

    try:
        _run(server, DemoError, EmbeddedPostgresError, SchemaError)
    except StorageUnavailable as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from error


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    return ip_address(host).is_loopback
