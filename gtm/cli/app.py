"""The command `gtm`: it makes the commands that are needed, and runs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command_name

import gtm
from gtm.cli.common import options, output, service_links, streams
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.live import (
    audit,
    dashboard,
    dns_query,
    dnssec,
    edges,
    latency,
    load,
    report,
    routing,
    token,
    top,
)
from gtm.cli.policy import (
    exporting,
    fence,
    importing,
    init,
    managed,
    policies,
    regions,
    revisions,
    simulation,
)
from gtm.cli.servers import backup, db, demo, servers
from gtm.secret import guard_tracebacks

_SERVERS = ("serve", "control", "edge", "balancer")


def _typer() -> typer.Typer:
    return typer.Typer(
        name="gtm",
        help="A self-hosted global traffic manager: which region should serve this request?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _typer()
for _commands in (
    servers.app,
    init.app,
    policies.app,
    simulation.app,
    exporting.app,
    importing.app,
    routing.app,
    edges.top_level,
    load.app,
    report.app,
    latency.app,
    top.app,
    audit.app,
    dashboard.app,
    backup.app,
):
    app.registered_commands += _commands.registered_commands
for _group, _name, _help in (
    (regions.app, "regions", "List, show, drain, activate and disable regions."),
    (regions.services_app, "services", "List services."),
    (revisions.app, "revisions", "What the policy was, who changed it, and the way back."),
    (managed.app, "managed", "Which tools manage resources, and letting go of them."),
    (token.app, "token", "Make, list, replace and revoke bearer tokens."),
    (fence.app, "fence", "Approve of changes that open a fence."),
    (db.app, "db", "Migrations of the database's schema."),
    (dns_query.app, "dns", "Ask an edge's DNS, and see the decision behind its answer."),
    (edges.app, "edges", "List edges, and forget those that are gone."),
    (dnssec.app, "dnssec", "The keys of signed zones: states, DS records, rolls."),
    (demo.app, "demo", "Fail, restore and resize regions of the running demo world, and send it traffic."),
):
    app.add_typer(_group, name=_name, help=_help)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"gtm {gtm.__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _version(wanted=value),
            is_eager=True,
            help="Print gtm's version.",
        ),
    ] = False,
) -> None:
    """A self-hosted global traffic manager: which region should serve this request?"""


@app.command()
def version(*, as_json: options.AsJson = False) -> None:
    """Print gtm's version."""
    typer.echo(f'{{"version": "{gtm.__version__}"}}' if as_json else gtm.__version__)


def needed(arguments: Sequence[str]) -> typer.Typer:
    """The application with nothing but the command or group that is run: Typer takes 40 ms to make all of them.

    All of it where the first argument names none: help, completion and mistakes are about all.
    """
    first = arguments[0] if arguments else ""
    needed = _typer()
    needed.registered_callback = app.registered_callback
    needed.registered_commands = [
        one
        for one in app.registered_commands
        if first == (one.name or get_command_name(getattr(one.callback, "__name__", "")))
    ]
    needed.registered_groups = [one for one in app.registered_groups if first == one.name]
    return needed if needed.registered_commands or needed.registered_groups else app


def main() -> None:
    """Run a command; errors a person can act on end it with one message and an exit code, not with a traceback."""
    streams.open_all()
    streams.forget_sizes(os.environ)
    guard_tracebacks()
    for line in service_links.ignore(os.environ):
        if sys.argv[1:2] and sys.argv[1] in _SERVERS:  # others do not look at them
            typer.echo(line, err=True)
    try:
        needed(sys.argv[1:])()
    except CommandError as error:
        output.end(error)
    except streams.OutputError as error:
        streams.end(error)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    finally:
        streams.finish()
