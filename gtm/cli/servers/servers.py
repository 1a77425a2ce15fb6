"""The commands that run servers: `gtm serve`, `gtm control`, `gtm edge`."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.servers.declared import Given, with_options
from gtm.cli.servers.running import run_server, run_with_database
from gtm.runtime.process import pauses
from gtm.settings import LOOPBACK, BalancerSettings, ControlSettings, EdgeSettings, ServeSettings

app = typer.Typer()


@app.command()
@with_options(ControlSettings, EdgeSettings, without={"user", "exit_when_refused"})
def serve(
    given: Given,
    *,
    demo: Annotated[bool, typer.Option("--demo", help="With the seven-region demo world.")] = False,
) -> None:
    """Run control and an edge in one place, on an embedded Postgres unless GTM_DATABASE_URL names a server."""
    from gtm.cli.servers import serving

    edge = given.settings(EdgeSettings, control_url="", token="", name="")  # which the supervisor knows
    if edge.tls_certificate is not None or edge.tls_key is not None:
        raise CommandError(
            "`gtm serve` speaks plain HTTP, on one machine: leave GTM_EDGE_CERTIFICATE and GTM_EDGE_KEY out, or run `gtm control` and `gtm edge` apart",
            Exit.BAD_INPUT,
        )
    settings = ServeSettings(given.settings(ControlSettings), _of_demo(edge) if demo else edge, demo)
    _check_database(settings.control.database_url)
    _check_identity(settings.control)
    serving.start(settings)


def _of_demo(edge: EdgeSettings) -> EdgeSettings:
    """What an edge of the demo world is told besides."""
    return replace(
        edge,
        # Where Frankfurt is: the edge may carry what the GDPR rule and the clinic's concern.
        country=edge.country or (None if edge.region else "DE"),
        # The demo's clients are simulated on this machine, and state their addresses as proxies do.
        trusted_proxies=edge.trusted_proxies or LOOPBACK,
        # The demo's regions are on this machine.
        probe_allow=edge.probe_allow + LOOPBACK,
        # The demo may be asked about anybody's address, but only by this machine.
        near_lookups=all(_is_loopback(host) for host in edge.bind),
    )


@app.command()
@with_options(ControlSettings)
def control(
    given: Given,
    *,
    prepare: Annotated[
        bool, typer.Option(help="Migrate the database and create the first admin token before serving.")
    ] = True,
) -> None:
    """Run the control tier: the API over Postgres, and the feed that edges follow."""
    with pauses.loading():
        from gtm.runtime.control.prepare import FirstToken
        from gtm.runtime.control.prepare import prepare as prepare_database
        from gtm.runtime.control.server import run_control
        from gtm.runtime.process.logs import configure

    settings = given.settings(ControlSettings)
    configure(settings.log_level, "control")
    _check_database(settings.database_url)
    _check_identity(settings)
    if settings.database_url is None:
        _prepare_data_dir(settings.data_dir)

    async def make_ready(url: str) -> None:
        # Beside a Postgres of somebody's control has no directory of its own.
        first = FirstToken(settings.data_dir) if settings.database_url is None else None
        admin_token = await prepare_database(url, first=first)
        if admin_token is not None:
            typer.echo(f"first admin token (shown only this once): {admin_token}")
        if first is not None:
            first.forget()

    run_with_database(run_control(settings, make_ready if prepare else None))


@app.command()
@with_options(EdgeSettings)
def edge(
    given: Given,
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
    take_over: Annotated[
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
) -> None:
    """Run an edge: answers DNS and HTTP, probes the regions, follows control, and goes on without it."""
    with pauses.loading():
        from gtm.runtime.edge.agent.agent import Agent
        from gtm.runtime.process.logs import configure

    if stop:
        _stop_edge(given.values["data_dir"].absolute())
        return
    if not token:
        raise CommandError(
            "an edge needs a token: set GTM_TOKEN to one made by `gtm token create NAME --role edge`",
            Exit.NOT_ALLOWED,
        )
    options.check_in_the_clear(control_url, insecure=insecure_control)
    settings = given.settings(
        EdgeSettings,
        control_url=control_url,
        token=token,
        name=name or socket.gethostname(),
        named=bool(name),
        replace=take_over,
    )
    configure(settings.log_level, "edge")
    _check_certificate(settings)
    _prepare_data_dir(settings.data_dir)

    async def run() -> None:
        await Agent(settings).run()

    run_server(run())


def _check_certificate(settings: EdgeSettings) -> None:
    """Fail early where the edge cannot speak TLS as it is told to: its workers would be started again and again."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise CommandError(
            "--tls-certificate and --tls-key go together: give both, or neither", Exit.BAD_INPUT
        )
    from gtm.runtime.process.http import listener_tls

    try:
        listener_tls(certificate.absolute(), key.absolute())
    except ValueError as error:
        raise CommandError(str(error), Exit.BAD_INPUT) from error


@app.command()
@with_options(BalancerSettings)
def balancer(
    given: Given,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    insecure_control: options.InsecureControl = False,
    token: options.Token = None,
    name: Annotated[
        str,
        typer.Option(
            help="This balancer's name, which tells it from others of its region; by default the host's.",
            envvar="GTM_BALANCER_NAME",
        ),
    ] = "",
    take_over: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take over from the region's balancer on the data directory, without a gap."
        ),
    ] = False,
    check_paths: Annotated[
        Path | None,
        typer.Option(
            metavar="ACCESS_LOG",
            help="Run nothing; say which requests of an access log the `paths` of --file would refuse.",
        ),
    ] = None,
    check_backends: Annotated[
        bool,
        typer.Option(
            "--check-backends",
            help="Run nothing; make each check of each backend once, and say what it finds.",
        ),
    ] = False,
) -> None:
    """Run a region's balancer: carries requests to model servers, inside the fence, and reports its load."""
    if check_paths is not None:
        from gtm.cli.servers import checks

        checks.check_paths(check_paths, given.values["file"])
        return
    if check_backends:
        from gtm.cli.servers import checks

        if given.values["file"] is None and not given.values["backend"]:
            raise CommandError("there is nothing to check: give --backend http://HOST:PORT, or --file FILE")
        checks.check_backends(given.values["file"], tuple(given.values["backend"]))
        return
    with pauses.loading():
        from gtm.core.model.problems import PolicyError
        from gtm.runtime.balancer.balancer import Balancer
        from gtm.runtime.process.logs import configure

    if not token:
        raise CommandError(
            "a balancer needs a token: set GTM_TOKEN to one made by "
            "`gtm token create NAME --role balancer --regions REGION`",
            Exit.NOT_ALLOWED,
        )
    options.check_in_the_clear(control_url, insecure=insecure_control)
    settings = given.settings(
        BalancerSettings,
        control_url=control_url,
        token=token,
        name=name or socket.gethostname(),
        replace=take_over,
    )
    if settings.file is None and not settings.backend:
        raise CommandError("a balancer needs backends: give --backend http://HOST:PORT, or --file FILE")
    configure(settings.log_level, "balancer")
    _prepare_data_dir(settings.data_dir)
    try:
        running = Balancer(settings)
    except PolicyError as error:
        raise CommandError(str(error)) from error
    import uvloop

    from gtm.balancer.wire.tls import TlsError

    run_server(running.run(), TlsError, run=uvloop.run)


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


def _check_identity(settings: ControlSettings) -> None:
    try:
        settings.oidc.require(settings.dashboard_url)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _check_database(url: str | None) -> None:
    if url is None:
        return
    from gtm.storage.connecting import parameters

    try:
        parameters(url)
    except ValueError as error:
        raise CommandError(f"GTM_DATABASE_URL: {error}") from error


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    return ip_address(host).is_loopback
