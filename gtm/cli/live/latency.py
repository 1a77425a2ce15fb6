"""`gtm latency`: what was measured of round trips, and what is estimated for a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks

if TYPE_CHECKING:
    from gtm.client import types

app = typer.Typer()


@asks(app)
def latency(
    ask: Command,
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
) -> None:
    """Show what was measured of round trips, and for a client the estimate for each region and what it rests on."""
    if forget is not None:
        ask.api.forget_latency({"token": forget})
        output.say(f"forgotten: what token `{forget}` taught of round trips")
        return
    found = ask.api.get_latency(client=client_ip, country=country, lat=lat, lon=lon)
    if ask.printed_json(found):
        return
    rows = found.rows
    measured = f"{rows.network} networks, {rows.asn} operators, {rows.country} countries, "
    measured += f"{rows.place} places, {rows.region} pairs of regions"
    version = found.version or "nothing measured yet"
    output.facts([("table", version), ("measured", measured), ("half-life", f"{found.half_life:.0f} s")])
    estimates = found.estimates
    if estimates is None:
        _doubts(found.doubts)
        return
    if estimates.location.doubtful:
        network = estimates.location.network
        output.warn(
            [f"the location of {network} is doubtful: it answers quicker than light could from there"]
        )
    columns: dict[str, output.Column] = {
        "region": "region",
        "estimate": lambda one: _ms(one.rtt_ms),
        "rests on": lambda one: one.source or "",
        "geography alone": lambda one: _ms(one.model_ms),
        "distance": lambda one: "" if one.distance_km is None else f"{one.distance_km:.0f} km",
        "measured": lambda one: "; ".join(map(_measured, one.measured)),
    }
    output.records(estimates.regions, columns, empty="there are no regions: add some with `gtm apply FOLDER`")


def _doubts(found: types.DoubtsSchema) -> None:
    """The networks that are not where the location database says."""
    if found.disputed:
        columns: dict[str, output.Column] = {
            "network": "network",
            "claimed to be in": lambda one: f"{one.country or 'no country'} at {one.place}",
            "but this near": lambda one: ", ".join(
                f"{region} {_ms(ms)}" for region, ms in one.fastest_ms.items()
            ),
            "location is": lambda one: (
                "doubtful" if one.doubtful else f"believed ({len(one.reporters)} of {found.votes} votes)"
            ),
        }
        output.say("")
        output.records(found.disputed, columns, empty="")
    for reporter in found.set_aside:
        output.warn(
            [
                f"token {reporter}… disputes too many locations to have a vote, or an edge says so: where is its region?"
            ]
        )


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} ms"


def _measured(one: types.MeasuredSchema) -> str:
    """`network 203.0.113.0/24: +12 ms, 31 samples`."""
    text = f"{one.level} {one.key}: {one.residual_ms:+.0f} ms, {one.samples:.0f} samples"
    return text if one.published else f"{text} (too few yet)"
