"""`gtm simulate`: what a draft would make of traffic, beside what the policy in force makes of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options, output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.common.options import duration_seconds
from gtm.cli.common.policy_folder import explained, read_document

if TYPE_CHECKING:
    from gtm.client import types
    from gtm.client.objects import JsonObject
    from gtm.core.demand.traffic import Traffic
    from gtm.core.model.policy import Policy
    from gtm.core.model.services import Priority

RUNNING = "running"
RECORDED = "recorded"
CURRENT = "current"

app = typer.Typer()


@asks(app)
def simulate(
    ask: Command,
    *,
    traffic: Annotated[
        str, typer.Option(help="A CSV file (`-`: standard input), `recorded`, or `current`: of this moment.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The draft: a folder of YAML files, or one file. Left out: what it is compared with, for a scenario."
        ),
    ] = None,
    against: Annotated[str, typer.Option(help="A folder to compare with, or `running`.")] = RUNNING,
    since: Annotated[
        str, typer.Option(help="How much recorded traffic: a number with m, h, d or w.")
    ] = "24h",
    duration: Annotated[
        str,
        typer.Option(help="How long a file's requests took, where it has no times: with s, m, h, d or w."),
    ] = "1h",
    down: Annotated[list[str] | None, typer.Option(help="A region that fails; may be repeated.")] = None,
    drain: Annotated[list[str] | None, typer.Option(help="A region that drains; may be repeated.")] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(help="REGION=FACTOR: what it can take, as a multiple of now; may be repeated."),
    ] = None,
    demand: Annotated[
        list[str] | None,
        typer.Option(
            help="FACTOR, or SERVICE=FACTOR: so many times the requests, of all or of a service besides."
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="By the law, and the policy's dates, of this time to come (RFC 3339).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the result as a page of its own.")] = None,
    geoip_db: options.GeoipDb = None,
    geoip_overrides: options.GeoipOverrides = None,
    geoip_anonymous_db: options.GeoipAnonymousDb = None,
) -> None:
    """Try a draft, or what may happen, with traffic: shares, latency, spillover, refusals, capacity, and what moves. Changes nothing.

    With `--against FOLDER` and a file no server is needed: every region then counts as up, with its declared capacity.
    """
    back = duration_seconds("--since", since)
    lasting = duration_seconds("--duration", duration)
    draft = None if policy is None else read_document(policy)
    scenario = _scenario(down or (), drain or (), capacity or (), demand or (), at)
    locate = _locator(geoip_db, geoip_overrides, geoip_anonymous_db)
    if against != RUNNING:
        other = read_document(Path(against))
        before, after = _policy(other), _policy(other if draft is None else draft)
        if traffic == CURRENT:
            raise CommandError("`--traffic current` is known to control alone: leave out --against")
        if traffic == RECORDED:
            asked = _recorded(ask, back, before, after)
        else:
            asked = _file(traffic, lasting, locate, (after, before))
        found: Any = _simulated(before, after, asked, scenario)
    else:
        body: Any = {"scenario": scenario, "traffic": traffic}
        if draft is not None:
            body["policy"] = draft
        if traffic == RECORDED:
            body["since"] = _ago(back)
        elif traffic != CURRENT:
            running = ask.api.get_policy(admin_states=True)["policy"]
            policies = (_policy(running if draft is None else draft), _policy(running))
            body["traffic"] = _document(_file(traffic, lasting, locate, policies))
        with output.progress("simulating"):
            found = ask.api.simulate_policy(body)
    if html is not None:
        name = f"revision {found.revision}" if against == RUNNING else against
        _write(html, found, before=name, after=name if policy is None else str(policy), scenario=scenario)
    output.warn(found.warnings)
    if ask.printed_json(found):
        return
    _tell(found)
    if html is not None:
        output.say(f"\nwritten to {html}")


def _scenario(
    down: Iterable[str],
    drain: Iterable[str],
    capacity: Iterable[str],
    demand: Iterable[str],
    at: str | None,
) -> dict[str, Any]:
    """What options say may happen, as the control API takes it.

    Raises:
        CommandError: a factor is none.
    """
    named: dict[str, dict[str, float]] = {"capacity": {}, "services": {}}
    found: dict[str, Any] = {"down": list(down), "drain": list(drain), "at": at}
    for field, option, texts in (("capacity", "--capacity", capacity), ("services", "--demand", demand)):
        for text in texts:
            name, sign, factor = text.rpartition("=")
            try:
                value = float(factor)
            except ValueError:
                words = f"{option}: `{text}` is not a name, `=` and a number"
                raise CommandError(words, Exit.BAD_INPUT) from None
            if sign:
                named[field][name] = value
            elif field == "services":
                found["demand"] = value
            else:
                raise CommandError(f"{option}: `{text}` does not say of which region: REGION=FACTOR")
    found |= named
    return {key: value for key, value in found.items() if value not in (None, [], {})}


# --- traffic ---


def _locator(database: Path | None, overrides: Path | None, anonymous: Path | None) -> Callable[[], Any]:
    """Where addresses are. The database is read once an address comes."""
    made: list[Any] = []

    def locator() -> Any:
        if not made:
            from gtm.geoip.reader import GeoIPError, Locator

            try:
                made.append(Locator(database, overrides, anonymous=anonymous))
            except (GeoIPError, OSError) as error:
                raise CommandError(f"cannot locate addresses: {error}") from error
        return made[0]

    return locator


def _file(name: str, seconds: float, locator: Callable[[], Any], policies: tuple[Policy, ...]) -> Traffic:
    """The traffic of a CSV file.

    Raises:
        CommandError: it cannot be read, or has wrong lines.
    """
    from gtm.core.demand.traffic import TrafficBuilder
    from gtm.documents.traffic_csv import TrafficError, read_csv

    builder = TrafficBuilder(seconds)
    try:
        with _lines(name) as lines:
            read_csv(name, lines, builder, lambda address: locator().locate(address), _priorities(policies))
    except TrafficError as error:
        problems = tuple(str(problem) for problem in error.problems)
        raise CommandError(
            f"`{name}` is no traffic that can be simulated", Exit.BAD_INPUT, problems
        ) from error
    except OSError as error:
        raise CommandError(f"cannot read `{name}`: {(error.strerror or str(error)).lower()}") from error
    return builder.traffic()


@contextmanager
def _lines(name: str) -> Iterator[Iterator[str]]:
    """The lines of a file, with a bar that says how far they are read (in MiB)."""
    path = None if name == "-" else Path(name)
    size = None if path is None else path.stat().st_size >> 20
    with output.progress(f"reading {name} (MiB)", size) as bar:

        def counted(file: Any) -> Iterator[str]:
            done = 0
            for number, line in enumerate(file):
                done += len(line)
                if number % 10_000 == 0:
                    bar.update(bar.task_ids[0], completed=done >> 20)
                yield line

        if path is None:
            sys.stdin.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]  # always a text file
            yield counted(sys.stdin)
        else:
            with path.open(encoding="utf-8", newline="") as file:
                yield counted(file)


def _priorities(policies: tuple[Policy, ...]) -> dict[str, Priority]:
    """Service → its priority; the first policy that has the service says it."""
    return {service.name: service.priority for policy in reversed(policies) for service in policy.services}


def _recorded(ask: Command, seconds: float, before: Policy, after: Policy) -> Traffic:
    from gtm.control.policy.traffic import TrafficDocument

    found: Any = ask.api.get_recorded_demand(since=_ago(seconds))
    body = {key: found[key] for key in ("seconds", "start", "cells", "peak")}
    return TrafficDocument.model_validate(body).traffic(_priorities((after, before)))


def _document(traffic: Traffic) -> dict[str, Any]:
    """Traffic as the control API takes it.

    Raises:
        CommandError: it is too much.
    """
    from gtm.control.policy.traffic import MAX_CELLS, traffic_json

    count = len(traffic.whole.counts)
    if count > MAX_CELLS:
        message = f"the file has {count} kinds of requests, more than the {MAX_CELLS} that control takes"
        raise CommandError(f"{message}: compare with a folder (--against), which needs no server")
    return traffic_json(traffic)


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC).isoformat()


# --- without a server ---


def _policy(document: Mapping[str, Any]) -> Policy:
    from gtm.documents.schema import PolicyDocument

    return PolicyDocument.model_validate_json(json.dumps(document)).to_core()


def _simulated(before: Policy, after: Policy, traffic: Traffic, scenario: Mapping[str, Any]) -> JsonObject:
    from gtm.client.objects import as_answered
    from gtm.control.errors import ControlError
    from gtm.control.policy.drafts import parsed
    from gtm.control.policy.simulation import ScenarioDocument, simulated_offline

    with explained(), output.progress("simulating"):
        try:
            meant = parsed(ScenarioDocument, json.dumps(scenario).encode()).scenario
            made = simulated_offline(before, after, traffic, time.time(), meant)
        except ControlError as error:
            problems = tuple(f"{one.path}: {one.message}" for one in error.problems)
            raise CommandError(error.detail, problems=problems) from error
    found: JsonObject = as_answered(made)
    return found


# --- the result ---

_HEADINGS = ("average before", "average after", "peak before", "peak after")
_SHOWN = 20


def _tell(found: JsonObject) -> None:
    """Print what a simulation found: its summary, regions, spillover and whose clients move."""
    traffic = found.traffic
    served = f", {found.newly_served:.1%} were refused before" if found.newly_served else ""
    output.facts(
        (
            ("traffic", f"{traffic.requests:g} requests, {traffic.rate:.4g}/s on average"),
            ("peak", f"{traffic.peak.rate:.4g}/s {output.when(traffic.peak.start)}".rstrip()),
            ("moved", f"{found.moved:.1%} of requests{served}"),
        )
    )
    four = [found[when][side] for when in ("average", "peak") for side in ("before", "after")]
    output.say("")
    _regions(found.regions, four)
    output.say("")
    _summary(four)
    _spill(four)
    _countries(found.countries)


def _regions(regions: Iterable[Any], four: list[Any]) -> None:
    sides = [{item.region: item for item in made.regions} for made in four]
    output.table(
        ("region", *_HEADINGS, "capacity used at the peak"),
        (
            (
                region.region,
                *(_percent(side.get(region.region, {}).get("share")) for side in sides),
                _percent(_use(sides[3].get(region.region))),
            )
            for region in regions
        ),
        empty="neither policy has a region",
    )


def _summary(four: list[Any]) -> None:
    """Latency and refusals."""
    latencies = [made.latency_ms for made in four]
    rows: list[tuple[Any, ...]] = [
        (name, *("" if one is None else f"{one[key]:.0f} ms" for one in latencies))
        for key, name in (("mean", "latency, mean"), ("p50", "median"), ("p90", "90 %"), ("p99", "99 %"))
    ]
    for key, what in (("reasons", "refused"), ("rules", "refused by rule")):
        sides = [made.refused[key] for made in four]
        rows += [
            (f"{what}: {name}", *(f"{side.get(name, 0.0):.4g}/s" for side in sides))
            for name in sorted({name for side in sides for name in side})
        ]
    queued = [made.queued for made in four]
    if any(queued):
        rows.append(("waiting at home, for want of capacity", *(f"{rate:.4g}/s" for rate in queued)))
    output.table(("", *_HEADINGS), rows, empty="")


def _spill(four: list[Any]) -> None:
    sides = [{(item.from_, item.to): item.rate for item in made.spill} for made in four]
    pairs = sorted({pair for side in sides for pair in side})
    if pairs:
        output.say("")
        rows = (
            (f"{home} → {to}", *(f"{side.get((home, to), 0.0):.4g}/s" for side in sides))
            for home, to in pairs
        )
        output.table(("spillover", *_HEADINGS), rows, empty="")


def _countries(countries: Iterable[Any]) -> None:
    changed = [item for item in countries if item.before != item.after]
    output.say("")
    columns: dict[str, output.Column] = {
        "country": lambda one: one.country or "unknown",
        "service": "service",
        "before": lambda one: one.before or "refused",
        "after": lambda one: one.after or "refused",
        "share of requests": lambda one: f"{one.share:.2%}",
    }
    output.records(changed[:_SHOWN], columns, empty="every country keeps its main region")
    if len(changed) > _SHOWN:
        output.say(f"… and {len(changed) - _SHOWN} more with fewer requests; --json and --html have them")


def _use(side: JsonObject | None) -> float | None:
    """What is used of a region's capacity; None: it is not in the policy, or nothing bounds it."""
    return None if side is None else side.room.utilization


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _write(
    path: Path, found: types.SimulationView, *, before: str, after: str, scenario: Mapping[str, Any]
) -> None:
    from gtm.dashboard.report_file import report

    try:
        path.write_text(report(found, before=before, after=after, scenario=scenario), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from error
