"""What `gtm simulate` prints of a simulation, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_FOUR = tuple((when, side) for when in ("average", "peak") for side in ("before", "after"))
_HEADINGS = ("average before", "average after", "peak before", "peak after")
_SHOWN = 20


def tell(found: Mapping[str, Any]) -> None:
    """Print what a simulation found: its summary, regions, spillover and whose clients move."""
    from gtm.cli.common import output

    traffic = found["traffic"]
    served = f", {found['newly_served']:.1%} were refused before" if found["newly_served"] else ""
    output.facts(
        (
            ("traffic", f"{traffic['requests']:g} requests, {traffic['rate']:.4g}/s on average"),
            ("peak", f"{traffic['peak']['rate']:.4g}/s {output.when(traffic['peak']['start'])}".rstrip()),
            ("moved", f"{found['moved']:.1%} of requests{served}"),
        )
    )
    output.say("")
    _regions(found)
    output.say("")
    _summary(found)
    _spill(found)
    _countries(found)


def _each(found: Mapping[str, Any], read: Callable[[Any], Any]) -> list[Any]:
    """Something of each of the four projections."""
    return [read(found[when][side]) for when, side in _FOUR]


def _regions(found: Mapping[str, Any]) -> None:
    from gtm.cli.common import output

    sides = _each(found, lambda made: {item["region"]: item for item in made["regions"]})
    output.table(
        ("region", *_HEADINGS, "capacity used at the peak"),
        (
            (
                region["region"],
                *(_percent(side.get(region["region"], {}).get("share")) for side in sides),
                _percent(
                    sides[3].get(region["region"], {"room": {"utilization": None}})["room"]["utilization"]
                ),
            )
            for region in found["regions"]
        ),
        empty="neither policy has a region",
    )


def _summary(found: Mapping[str, Any]) -> None:
    """Latency and refusals."""
    from gtm.cli.common import output

    latencies = _each(found, lambda made: made["latency_ms"])
    rows: list[tuple[Any, ...]] = [
        (name, *("" if one is None else f"{one[key]:.0f} ms" for one in latencies))
        for key, name in (("mean", "latency, mean"), ("p50", "median"), ("p90", "90 %"), ("p99", "99 %"))
    ]
    for key, what in (("reasons", "refused"), ("rules", "refused by rule")):
        sides = _each(found, lambda made, key=key: made["refused"][key])  # type: ignore[misc]  # a default binds it
        rows += [
            (f"{what}: {name}", *(f"{side.get(name, 0.0):.4g}/s" for side in sides))
            for name in sorted({name for side in sides for name in side})
        ]
    queued = _each(found, lambda made: made["queued"])
    if any(queued):
        rows.append(("waiting at home, for want of capacity", *(f"{rate:.4g}/s" for rate in queued)))
    output.table(("", *_HEADINGS), rows, empty="")


def _spill(found: Mapping[str, Any]) -> None:
    from gtm.cli.common import output

    sides = _each(found, lambda made: {(item["from"], item["to"]): item["rate"] for item in made["spill"]})
    pairs = sorted({pair for side in sides for pair in side})
    if pairs:
        output.say("")
        rows = (
            (f"{home} → {to}", *(f"{side.get((home, to), 0.0):.4g}/s" for side in sides))
            for home, to in pairs
        )
        output.table(("spillover", *_HEADINGS), rows, empty="")


def _countries(found: Mapping[str, Any]) -> None:
    from gtm.cli.common import output

    changed = [item for item in found["countries"] if item["before"] != item["after"]]
    output.say("")
    output.table(
        ("country", "service", "before", "after", "share of requests"),
        (
            (
                item["country"] or "unknown",
                item["service"],
                item["before"] or "refused",
                item["after"] or "refused",
                f"{item['share']:.2%}",
            )
            for item in changed[:_SHOWN]
        ),
        empty="every country keeps its main region",
    )
    if len(changed) > _SHOWN:
        output.say(f"… and {len(changed) - _SHOWN} more with fewer requests; --json and --html have them")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
