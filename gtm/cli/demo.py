"""`gtm demo`: turn regions of the running demo world off and on."""

from __future__ import annotations

from pathlib import Path

import typer

from gtm.cli import options
from gtm.cli.exits import CommandError, Exit

app = typer.Typer(no_args_is_help=True)


@app.command()
def fail(
    region: str, *, data_dir: options.DataDir = options.DATA_DIR, as_json: options.AsJson = False
) -> None:
    """Kill a region: its server stops listening until it is restored."""
    _switch(region, "fail", data_dir, as_json=as_json)


@app.command()
def restore(
    region: str, *, data_dir: options.DataDir = options.DATA_DIR, as_json: options.AsJson = False
) -> None:
    """Bring a failed region back."""
    _switch(region, "restore", data_dir, as_json=as_json)


def _switch(region: str, action: str, data_dir: Path, *, as_json: bool) -> None:
    import httpx

    from gtm.cli import output
    from gtm.runtime.demo.block import DemoError, DemoFile

    try:
        world = DemoFile.read(data_dir)
    except DemoError as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from error
    if region not in world.regions:
        raise CommandError(f"there is no demo region `{region}`; there are {', '.join(world.regions)}")
    try:
        response = httpx.post(f"{world.switch}/{region}/{action}", timeout=5.0, trust_env=False)
        state: dict[str, str] = response.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        message = f"the demo world does not answer ({error}); is `gtm serve --demo` running?"
        raise CommandError(message, Exit.UNREACHABLE) from error
    if as_json:
        output.print_json(state)
    else:
        for name, what in state.items():
            typer.echo(f"{name:16} {what}")
        output.note("edges notice by their probes: with the demo's policy within about 3 seconds")
