"""`gtm demo`: look at the running demo world, turn its regions off and on, change their capacity, send them traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gtm.cli.common import options, output
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.servers.backend import backend, break_
from gtm.cli.servers.traffic import traffic
from gtm.nesting import loads

app = typer.Typer(no_args_is_help=True)
app.command()(traffic)
app.command()(backend)
app.command("break")(break_)

_NOTICED = "edges notice by their probes: with the demo's policy within about 3 seconds"


@app.command("list")
def list_regions(*, data_dir: options.DataDir = options.DATA_DIR, as_json: options.AsJson = False) -> None:
    """List the regions: state, slots, requests being served and waiting; at each model server, how many of its slots are taken."""
    _show(_call("GET", "/", data_dir), as_json=as_json)


@app.command()
def fail(
    region: str, *, data_dir: options.DataDir = options.DATA_DIR, as_json: options.AsJson = False
) -> None:
    """Kill a region: its balancer and model servers stop listening until it is restored."""
    _switch(region, "fail", data_dir, _NOTICED, as_json=as_json)


@app.command()
def restore(
    region: str, *, data_dir: options.DataDir = options.DATA_DIR, as_json: options.AsJson = False
) -> None:
    """Bring a failed region back."""
    _switch(region, "restore", data_dir, _NOTICED, as_json=as_json)


@app.command()
def capacity(
    region: str,
    slots: Annotated[int, typer.Argument(help="Requests that it serves at once.", min=1, max=10_000)],
    *,
    data_dir: options.DataDir = options.DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Change how many requests a region serves at once."""
    note = "the region reports it within a second; the plan follows step by step: see `gtm top`"
    _switch(region, f"capacity/{slots}", data_dir, note, as_json=as_json)


def _switch(region: str, action: str, data_dir: Path, note: str, *, as_json: bool) -> None:
    _show(_call("POST", f"/{region}/{action}", data_dir, region), as_json=as_json)
    if not as_json:
        output.note(note)


def _show(state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(state)
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
