"""`gtm latency`: what was measured of round trips, and what is estimated for a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gtm.cli.common import options


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(latency)


def latency(
    *,
    client_ip: Annotated[
        str | None, typer.Option("--client", help="An IP address: estimates for the client there.")
    ] = None,
    country: Annotated[str | None, typer.Option(help="Likewise for a country, such as DE.")] = None,
    lat: Annotated[
        float | None, typer.Option(help="Likewise for coordinates in degrees, with --lon.")
    ] = None,
    lon: Annotated[float | None, typer.Option(help="See --lat.")] = None,
    forget: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Forget what the edges or balancers of a token taught, instead."),
    ] = None,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what was measured of round trips, and for a client the estimate for each region and what it rests on."""
    from gtm.cli.common import client, output

    if forget is not None:
        client.control(control_url, token).send("POST", "/v1/latency:forget", body={"token": forget})
        output.say(f"forgotten: what token `{forget}` taught of round trips")
        return
    found = client.control(control_url, token).get(
        "/v1/latency", client=client_ip, country=country, lat=lat, lon=lon
    )
    if as_json:
        output.print_json(found)
        return
    rows = found["rows"]
    measured = f"{rows['network']} networks, {rows['asn']} operators, {rows['country']} countries, "
    measured += f"{rows['place']} places, {rows['region']} pairs of regions"
    version = found["version"] or "nothing measured yet"
    output.facts([("table", version), ("measured", measured), ("half-life", f"{found['half_life']:.0f} s")])
    estimates = found["estimates"]
    if estimates is None:
        _doubts(found["doubts"])
        return
    if estimates["location"]["doubtful"]:
        network = estimates["location"]["network"]
        output.warn(
            [f"the location of {network} is doubtful: it answers quicker than light could from there"]
        )
    output.table(
        ("region", "estimate", "rests on", "geography alone", "distance", "measured"),
        (
            (
                region["region"],
                _ms(region["rtt_ms"]),
                region["source"] or "",
                _ms(region["model_ms"]),
                "" if region["distance_km"] is None else f"{region['distance_km']:.0f} km",
                "; ".join(map(_measured, region["measured"])),
            )
            for region in estimates["regions"]
        ),
        empty="there are no regions: add some with `gtm apply FOLDER`",
    )


def _doubts(found: Mapping[str, Any]) -> None:
    """The networks that are not where the location database says."""
    from gtm.cli.common import output

    if found["disputed"]:
        output.say("")
        output.table(
            ("network", "claimed to be in", "but this near", "location is"),
            (
                (
                    one["network"],
                    f"{one['country'] or 'no country'} at {one['place']}",
                    ", ".join(f"{region} {_ms(ms)}" for region, ms in one["fastest_ms"].items()),
                    "doubtful" if one["doubtful"] else f"believed ({_votes(one, found)})",
                )
                for one in found["disputed"]
            ),
            empty="",
        )
    for reporter in found["set_aside"]:
        output.warn(
            [
                f"token {reporter}… disputes too many locations to have a vote, or an edge says so: where is its region?"
            ]
        )


def _votes(one: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return f"{len(one['reporters'])} of {found['votes']} votes"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} ms"


def _measured(one: Mapping[str, Any]) -> str:
    """`network 203.0.113.0/24: +12 ms, 31 samples`."""
    text = f"{one['level']} {one['key']}: {one['residual_ms']:+.0f} ms, {one['samples']:.0f} samples"
    return text if one["published"] else f"{text} (too few yet)"
