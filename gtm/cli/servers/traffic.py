"""`gtm demo traffic`: clients from all over the world for the running demo."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from gtm.cli.common import options, output
from gtm.cli.common.exits import CommandError, Exit
from gtm.demo.clients import DemandProfile

if TYPE_CHECKING:
    from gtm.client.objects import JsonObject
    from gtm.demo.traffic import DemoTraffic, Target

_EVERY = 0.5
"""Seconds between two live lines."""


def traffic(
    *,
    rps: Annotated[float, typer.Option(help="Requests per second.", min=0.1, max=10_000)] = 100.0,
    profile: Annotated[DemandProfile, typer.Option(help="How demand changes.")] = DemandProfile.STEADY,
    seconds: Annotated[
        float | None, typer.Option(help="How long; without it until Ctrl-C.", min=0.1, max=86_400)
    ] = None,
    dns_share: Annotated[
        float,
        typer.Option(help="Share of clients that ask over DNS; the others ask for a redirect.", min=0, max=1),
    ] = 0.3,
    day_seconds: Annotated[
        float, typer.Option(help="How long a day of follow-the-sun lasts.", min=1, max=86_400)
    ] = 120.0,
    burst_country: Annotated[str, typer.Option(help="Whose demand bursts.")] = "IN",
    seed: Annotated[int | None, typer.Option(help="The same clients at the same moments.")] = None,
    data_dir: options.DataDir = options.DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Send the demo's regions requests of clients from many countries, each where gtm says; Ctrl-C ends it."""
    from gtm.client.objects import as_answered
    from gtm.demo.clients import Demand, countries
    from gtm.demo.traffic import Course, DemoTraffic

    known = {country.code for country in countries()}
    if burst_country not in known:
        raise CommandError(f"no demo client is in `{burst_country}`; they are in {', '.join(sorted(known))}")
    target = _target(data_dir)
    course = Course(Demand(profile, rps, day_seconds, burst_country), dns_share, seconds)
    run = DemoTraffic(target, course, Random(seed))
    _check_edge(target)
    import asyncio

    asyncio.run(_run(run, live=not as_json))
    found = run.summary.document(run.seconds)
    if as_json:
        output.print_json(found)
    else:
        _print(as_answered(found))


async def _run(traffic: DemoTraffic, *, live: bool) -> None:
    """Until it is over, or Ctrl-C; meanwhile a line on standard error, if that is a terminal."""
    import asyncio

    from rich.console import Console
    from rich.status import Status

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(traffic.run(stop))
    console = Console(stderr=True, highlight=False)
    if not live or not console.is_terminal:
        await running
        return
    with Status("sending requests; Ctrl-C ends it", console=console) as status:
        while not running.done():
            await asyncio.wait((running,), timeout=_EVERY)
            status.update(traffic.line())
    await running


def _target(data_dir: Path) -> Target:
    """Where the running demo is.

    Raises:
        CommandError: none runs there.
    """
    from gtm.core.latency.geographic import terminal_at
    from gtm.demo.block import PORT, DemoError, DemoFile, address
    from gtm.demo.policy import demo_policy
    from gtm.demo.traffic import Target
    from gtm.runtime.serve.facts import ServeFacts, host_and_port

    try:
        world = DemoFile.read(data_dir)
        facts = ServeFacts.read(data_dir)
    except (DemoError, OSError, ValueError) as error:
        message = f"no demo is ready on the data directory `{data_dir}`; start one with `gtm serve --demo`, or name its "
        raise CommandError(f"{message}directory with --data-dir", Exit.UNREACHABLE) from error
    return Target(
        edge=host_and_port(facts.edge),
        dns=host_and_port(facts.dns),
        port=PORT,
        regions={address(world.block, number): name for number, name in enumerate(world.regions, 1)},
        terminals={region.name: terminal_at(region.lat, region.lon) for region in demo_policy().regions},
    )


def _check_edge(target: Target) -> None:
    """End now rather than with a summary of failures, if nothing answers.

    Raises:
        CommandError: the edge cannot be reached.
    """
    import socket

    try:
        socket.create_connection(target.edge, timeout=5.0).close()
    except OSError as error:
        message = f"the demo's edge at {target.edge[0]}:{target.edge[1]} cannot be reached ({error.strerror or error})"
        raise CommandError(f"{message}; is `gtm serve --demo` running?", Exit.UNREACHABLE) from error


def _print(found: JsonObject) -> None:
    asked = ", ".join(f"{count} by {via}" for via, count in found.via.items())
    output.facts(
        (
            ("requests", f"{found.requests} in {found.seconds:.0f} s ({asked or 'none'})"),
            ("outcomes", ", ".join(f"{name} {count}" for name, count in found.outcomes.items())),
            ("redirects", ", ".join(f"{name} {count}" for name, count in found.reasons.items())),
            ("not sent", f"{found.not_sent}: too many were open" if found.not_sent else ""),
            ("decision", _times(found.decision_ms)),
            (
                "first byte",
                f"{_times(found.first_byte_ms)}, of which in queues {_times(found.queue_wait_ms)}",
            ),
            ("network", f"{_times(found.network_rtt_ms)} (simulated; in none of the other times)"),
        )
    )
    output.say("")
    failures = ("region_full", "region_gone", "wrong_region")
    output.table(
        ("region", "served", "per s", "full", "gone", "wrong", "first byte", "queue", "network (simulated)"),
        (
            (
                name,
                one.served,
                one.requests_per_second,
                *(one.get(failure, 0) for failure in failures),
                _times(one.first_byte_ms),
                _times(one.queue_wait_ms),
                _times(one.network_rtt_ms),
            )
            for name, one in found.regions.items()
        ),
        empty="no request reached a region",
    )


def _times(found: JsonObject) -> str:
    """`p50 412 ms, p99 1180 ms`."""
    if found.p50 is None:
        return "–"
    return ", ".join(f"{name} {value:.0f} ms" for name, value in found.items() if value is not None)
