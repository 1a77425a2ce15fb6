"""`gtm demo backend` and `gtm demo break`: simulated model servers, and the ways in which they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Annotated

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError, Exit
from gtm.nesting import loads

if TYPE_CHECKING:
    from gtm.demo.backend.profile import Profile
    from gtm.demo.backend.server import Backend


def backend(
    *,
    host: Annotated[str, typer.Option(help="The first one's address.")] = options.LOOPBACK,
    port: Annotated[int, typer.Option(help="The first one's port; 0: free ones.", min=0, max=65_535)] = 8000,
    count: Annotated[int, typer.Option(help="How many, in one process.", min=1, max=250)] = 1,
    addresses: Annotated[
        bool, typer.Option("--addresses", help="Each stands on the next address, not on the next port.")
    ] = False,
    admin_port: Annotated[
        int | None,
        typer.Option(help="A port to watch and break all of them; 0: a free one.", min=0, max=65_535),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model that each serves; may be repeated.")
    ] = None,
    speed: Annotated[
        float, typer.Option(help="How much faster time runs in them.", min=0.001, max=1000)
    ] = 1.0,
    slots: Annotated[int, typer.Option(help="Sequences in a batch.", min=1, max=100_000)] = 64,
    batched_tokens: Annotated[int, typer.Option(help="Tokens in a step.", min=1, max=1_000_000)] = 2048,
    step_ms: Annotated[float, typer.Option(help="What an empty step takes.", min=0.001, max=60_000)] = 12.0,
    sequence_ms: Annotated[
        float, typer.Option(help="What each decoding sequence adds to a step.", min=0, max=60_000)
    ] = 0.2,
    prefill_rate: Annotated[float, typer.Option(help="Tokens of prompts per second.", min=1)] = 10_000.0,
    kv_blocks: Annotated[int, typer.Option(help="KV blocks of 16 tokens.", min=1, max=100_000_000)] = 8192,
    max_model_len: Annotated[int, typer.Option(help="Tokens of a prompt and its answer.", min=1)] = 8192,
    gpu_gb: Annotated[
        float, typer.Option(help="GPU memory; each KV block takes 2 MB, each model 16 GB.", min=1)
    ] = 80.0,
    load_seconds: Annotated[
        float,
        typer.Option(help="What it takes to load a model; 0: all are loaded at once.", min=0, max=86_400),
    ] = 0.0,
    on_demand: Annotated[
        bool, typer.Option("--on-demand", help="Requests load a model that is not loaded, and wait for it.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Run simulated model servers: OpenAI's API, vLLM's metrics, no model."""
    import uvloop

    from gtm.demo.backend.profile import Profile, ProfileError

    try:
        profile = Profile(
            max_num_seqs=slots,
            max_num_batched_tokens=max(batched_tokens, slots),
            step_s=step_ms / 1000,
            step_per_sequence_s=sequence_ms / 1000,
            prefill_tokens_per_second=prefill_rate,
            kv_blocks=kv_blocks,
            max_model_len=max_model_len,
            model_load_s=load_seconds,
            gpu_memory_bytes=round(gpu_gb * 10**9),
        ).faster(speed)
    except ProfileError as error:
        raise CommandError(str(error)) from error
    places = list(_places(host, port, count, addresses=addresses))
    uvloop.run(_run(places, admin_port, profile, model or ["demo"], on_demand=on_demand, as_json=as_json))


def break_(
    url: Annotated[str, typer.Argument(help="A simulated model server, or the admin address of several.")],
    mode: Annotated[
        str, typer.Argument(help="ok, refuse, hang, stall, reset, error, dead, slow, oom or unloaded.")
    ],
    *,
    number: Annotated[
        int | None, typer.Option("--backend", help="At an admin address: only this one, from 0.", min=0)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="For how long (stall: how long each stream stops).", min=0.001)
    ] = None,
    after: Annotated[int | None, typer.Option(help="Tokens before a stall or a reset.", min=0)] = None,
    factor: Annotated[float | None, typer.Option(help="How much slower.", min=0.001)] = None,
) -> None:
    """Make a simulated model server fail, or heal it (`ok`)."""
    import httpx

    given = {"mode": mode, "seconds": seconds, "after": after, "factor": factor}
    fault = {name: value for name, value in given.items() if value is not None}
    query = {} if number is None else {"backend": number}
    try:
        response = httpx.post(
            f"{url.rstrip('/')}/demo/fail", json=fault, params=query, timeout=5.0, trust_env=False
        )
        if response.status_code == httpx.codes.BAD_REQUEST:
            raise CommandError(loads(response.content)["error"]["message"])
        response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        message = f"no simulated model server answers at {url} ({error}); one that refuses connections is healed at its --admin-port"
        raise CommandError(message, Exit.UNREACHABLE) from error
    typer.echo(f"{url}: {mode}")


def _places(host: str, port: int, count: int, *, addresses: bool) -> Iterator[tuple[str, int]]:
    """The addresses and ports at which the servers listen."""
    for number in range(count):
        if addresses:
            try:
                yield str(IPv4Address(host) + number), port
            except ValueError as error:
                raise CommandError(
                    f"--addresses counts on from an IPv4 address, not from `{host}`: {error}"
                ) from error
        elif port + number > 65_535:
            raise CommandError(f"{count} ports from {port} on do not exist; choose a lower --port")
        else:
            yield host, port and port + number


async def _run(
    places: list[tuple[str, int]],
    admin_port: int | None,
    profile: Profile,
    models: list[str],
    *,
    on_demand: bool,
    as_json: bool,
) -> None:
    import asyncio
    import signal

    from gtm.demo.backend.errors import ApiError
    from gtm.demo.backend.server import Backend, Switch

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    backends: list[Backend] = []
    switch, admin = Switch(backends), None
    try:
        for host, port in places:
            one = Backend(profile, models, loaded=profile.model_load_s == 0, on_demand=on_demand)
            await one.start(host, port)
            backends.append(one)
        if admin_port is not None:
            admin = await switch.start(places[0][0], admin_port)
    except ApiError as error:
        raise CommandError(f"{error} See --gpu-gb and --kv-blocks.") from error
    except OSError as error:
        raise CommandError(
            f"cannot listen: {error}; choose another --port or --host", Exit.UNREACHABLE
        ) from error
    _say(backends, admin, models, as_json=as_json)
    await stop.wait()
    switch.stop()
    for one in backends:
        one.stop()


def _say(backends: list[Backend], admin: str | None, models: list[str], *, as_json: bool) -> None:
    import sys

    urls = [one.url for one in backends]
    if as_json:
        typer.echo(json.dumps({"backends": urls, "admin": admin, "models": models}))
    for url in () if as_json else urls:
        typer.echo(f"model server at {url}/v1 with {', '.join(models)}")
    if admin is not None and not as_json:
        typer.echo(f"switch at {admin}")
    sys.stdout.flush()
