"""`gtm demo`: look at the running demo world, turn its regions off and on, change their capacity, send them traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, offers
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.servers.backend import backend, break_
from gtm.cli.servers.traffic import traffic
from gtm.nesting import loads

app = typer.Typer(no_args_is_help=True)
app.command()(traffic)
app.command()(backend)
app.command("break")(break_)

_HAVING = ("data_dir",)
_NOTICED = "edges notice by their probes: with the demo's policy within about 3 seconds"


@offers(app, "list", having=_HAVING)
def list_regions(ask: Command) -> None:
    """List the regions: state, slots, requests being served and waiting; at each model server, how many of its slots are taken."""
    _show(ask, _call("GET", "/", ask.data_dir))


@offers(app, having=_HAVING)
def fail(ask: Command, region: str) -> None:
    """Kill a region: its balancer and model servers stop listening until it is restored."""
    _switch(ask, region, "fail", _NOTICED)


@offers(app, having=_HAVING)
def restore(ask: Command, region: str) -> None:
    """Bring a failed region back."""
    _switch(ask, region, "restore", _NOTICED)


@offers(app, having=_HAVING)
def capacity(
    ask: Command,
    region: str,
    slots: Annotated[int, typer.Argument(help="Requests that it serves at once.", min=1, max=10_000)],
) -> None:
    """Change how many requests a region serves at once."""
    note = "the region reports it within a second; the plan follows step by step: see `gtm top`"
    _switch(ask, region, f"capacity/{slots}", note)


def _switch(ask: Command, region: str, action: str, note: str) -> None:
    _show(ask, _call("POST", f"/{region}/{action}", ask.data_dir, region))
    if not ask.as_json:
        output.note(note)


def _show(ask: Command, state: dict[str, Any]) -> None:
    if ask.printed_json(state):
        return
    output.table(
        ("region", "state", "slots", "outstanding", "queue", "model servers"),
        (
            (
                name,
                output.styled(one.state),
                one.slots,
                one.outstanding,
                one.queue,
                "  ".join(f"{server.outstanding}/{server.slots}" for server in one.backends),
            )
            for name, one in state.items()
        ),
        empty="the demo world has no regions",
    )


def _call(method: str, path: str, data_dir: Path, region: str | None = None) -> dict[str, Any]:
    """Ask the world's switch; the regions' state.

    Raises:
        CommandError: no world runs there, or it has no such region.
    """
    import httpx

    from gtm.client.objects import JsonObject
    from gtm.demo.block import DemoError, DemoFile
    from gtm.transport import context_for

    try:
        world = DemoFile.read(data_dir)
    except DemoError as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from error
    if region is not None and region not in world.regions:
        raise CommandError(f"there is no demo region `{region}`; there are {', '.join(world.regions)}")
    try:
        verify = context_for(world.switch, None, direct=True)
        response = httpx.request(method, f"{world.switch}{path}", timeout=5.0, trust_env=False, verify=verify)
        state: dict[str, Any] = loads(response.raise_for_status().content, JsonObject)
    except (httpx.HTTPError, ValueError) as error:
        message = f"the demo world does not answer ({error}); is `gtm serve --demo` running?"
        raise CommandError(message, Exit.UNREACHABLE) from error
    return state
