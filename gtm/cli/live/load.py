"""`gtm load`: what regions report of their load, and what they can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks

if TYPE_CHECKING:
    from gtm.client import types

    _Part: TypeAlias = types.RegionCapacityView | types.ServiceCapacity

app = typer.Typer()


@asks(app)
def load(ask: Command) -> None:
    """Show each region's load and usable capacity, as a whole and by service, and what it is reduced by."""
    found = ask.api.get_load()
    if ask.printed_json(found):
        return
    output.table(
        ("region", "service", "reports", "in flight", "queue", "service time", "slots", "rate", "reduced by"),
        (
            (
                region.region if part is region else "",
                part.get("service", "(all)"),
                _reports(part),
                _number(part.load.outstanding if part.load else None),
                _number(part.load.queue if part.load else None),
                _time(part),
                _bound(part.slots),
                _bound(part.requests_per_second, "/s"),
                ", ".join(_reductions(region, part)),
            )
            for region in found.regions
            for part in _parts(region)
        ),
        empty="there are no regions: add some with `gtm apply FOLDER`",
    )


def _parts(region: types.RegionCapacityView) -> tuple[_Part, ...]:
    return region, *region.services


def _reports(part: _Part) -> str:
    """`fresh, 2 s, 3 reporters`."""
    if part.load is None:
        return str(part.freshness)
    count = part.load.sources
    return f"{part.freshness}, {part.age:.0f} s, {count} reporter{'' if count == 1 else 's'}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _time(part: _Part) -> str:
    if part.service_time_ms is None:
        return ""
    source = part.service_time_source.replace("_", " ")
    return f"{part.service_time_ms:.0f} ms" + (f" ({source})" if part.get("service") else "")


def _bound(bound: types.SlotBoundSchema | types.RateBoundSchema, unit: str = "") -> str:
    """`45 of 50`: what new clients may use of the least that is declared or reported."""
    if bound.usable is None:
        return "no bound"
    limits = [bound[name] for name in ("declared", "reported") if bound.get(name) is not None]
    return f"{bound.usable:.5g}{unit}" + (f" of {min(limits):g}{unit}" if limits else "")


def _reductions(region: types.RegionCapacityView, part: _Part) -> list[str]:
    """Whatever keeps usable capacity below its limit, in words."""
    if region.admin_state != "active":
        return [str(region.admin_state)]
    found = []
    if region.health < 1:
        found.append(f"health {region.health:.0%}")
    if region.slow_start < 1:
        found.append(f"slow start {region.slow_start:.0%}")
    if part.freshness == "lost":
        found.append("silence 50%")
    if part.backlog:
        found.append(f"backlog {part.backlog:g}")
    if region.reserve:
        found.append(f"reserve {region.reserve:.0%}")
    return found
