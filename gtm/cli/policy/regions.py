"""`gtm regions` and `gtm services`: what there is and how it does; drain, activate and disable regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import changes, options, output
from gtm.cli.common.commands import CHANGES, Command, asks
from gtm.cli.common.output import moment, word
from gtm.cli.policy import safety

if TYPE_CHECKING:
    from gtm.cli.common.client import Client
    from gtm.client import Call, types
    from gtm.client.objects import JsonObject

app = typer.Typer(no_args_is_help=True)
services_app = typer.Typer(no_args_is_help=True)


@asks(app, "list")
def list_(ask: Command) -> None:
    """List regions with their admin state, health, endpoints and capacity."""
    from gtm.client import calls

    regions = _managed(ask.api, calls.list_regions(limit=1000), health=_health(ask.api))
    columns: dict[str, output.Column] = {
        "region": "name",
        "admin state": word("admin_state"),
        "health": lambda one: output.styled(_status(one.health)),
        "country": "country",
        "endpoints": lambda one: "\n".join(endpoint.url for endpoint in one.endpoints),
        "capacity": lambda one: _capacity(one.capacity),
        **_managers(regions),
        "details": lambda one: _trouble(one.health),
    }
    ask.table(regions, columns, empty="there are no regions: add some with `gtm apply FOLDER`")


@asks(app)
def history(
    ask: Command,
    name: str,
    *,
    limit: Annotated[int, typer.Option(help="Most changes to show.", min=1, max=1000)] = 20,
) -> None:
    """Show when verdicts on a region's endpoints changed, of each edge and of all together, the newest first."""
    from gtm.client import calls

    found = ask.api.send(calls.list_health_changes(region=name, limit=limit)).value
    if not (ask.as_json or found.complete):
        output.note("warning: the database is away: what is older than an hour is missing", "yellow")
    columns: dict[str, output.Column] = {
        "when (UTC)": moment("at"),
        "edge": lambda one: one.vantage or "all together",
        "endpoint": "endpoint",
        "before": word("before"),
        "after": word("after"),
        "http": "status",
        "ms": "latency_ms",
        "what the probe met": "detail",
    }
    ask.table(found.items_, columns, empty=f"no verdict on {name} is kept")


@asks(app)
def show(ask: Command, name: str) -> None:
    """Show a region: its document, and each endpoint's health by vantage."""
    from gtm.client import calls

    answer = ask.api.send(calls.get_regions(name))
    region: Any = answer.value
    manager = answer.managed_by
    health = _health(ask.api).get(region.name)
    if ask.printed_json({**region, "health": health, "managed_by": manager}):
        return
    probe = region.probe
    families = {} if health is None else health.get("families") or {}
    output.facts(
        (
            ("region", region.name),
            ("display name", region.display_name),
            ("admin state", output.styled(region.admin_state)),
            ("managed by", manager),
            ("draining since (UTC)", output.when(region.draining_since)),
            ("health", output.styled(_status(health))),
            *(
                (f"health ({family})", output.styled(status))
                for family, status in families.items()
                if status == "down" and _status(health) == "up"
            ),
            (
                "disputed",
                "edges go by their own probes" if health is not None and health.disputed else None,
            ),
            ("country", " ".join(part for part in (region.country, region.subdivision) if part)),
            ("position", f"{region.lat}, {region.lon}"),
            ("capacity", _capacity(region.capacity)),
            ("cost weight", region.cost_weight),
            ("models", ", ".join(region.models)),
            ("probe", f"{probe.type} {probe.path} every {probe.interval:g} s"),
        )
    )
    output.say("")
    rows = []
    known = {} if health is None else {item.url: item for item in health.endpoints}
    for endpoint in region.endpoints:
        found: Any = known.get(endpoint.url)
        addresses = [*endpoint.ipv4, *endpoint.ipv6, endpoint.cname or ""]
        rows.append((endpoint.url, " ".join(filter(None, addresses)), "all", *_health_cells(found)))
        if found is None:
            continue
        rows += [("", "", vantage, *_health_cells(seen)) for vantage, seen in found.vantages.items()]
        rows += [
            ("", one.address, "all", *_health_cells(one))
            for one in found.get("addresses", ())
            if one.vantages
        ]
    output.table(
        ("endpoint", "addresses", "seen by", "health", "since (UTC)", "latency", "details"), rows, empty=""
    )


def _add_state(verb: str, description: str) -> None:
    def change(
        ask: Command,
        name: str,
        *,
        comment: options.Comment = "",
        force: safety.Force = False,
        reason: safety.Reason = "",
    ) -> None:
        forced = safety.parameters(force=force, reason=reason)
        put = getattr(ask.api, f"{verb}_region")
        done: types.ResourceChangedRegionDocument = put(name, comment=comment.strip() or None, **forced)
        region: Any = done.resource
        if not ask.as_json:
            already = " already" if done.outcome == "unchanged" else ""
            output.say(f"region {region.name} is{already} {region.admin_state}")
        changes.report_change(ask, done)

    change.__doc__ = description
    asks(app, verb, also=CHANGES)(change)


for _verb, _description in (
    ("drain", "Take no new clients in a region."),
    ("activate", "Let a region take clients again."),
    ("disable", "Take a region out of service, and stop probing it."),
):
    _add_state(_verb, _description)


@asks(services_app, "list")
def list_services(ask: Command) -> None:
    """List services with their host names, steering and regions."""
    from gtm.client import calls

    services = _managed(ask.api, calls.list_services(limit=1000))
    columns: dict[str, output.Column] = {
        "service": "name",
        "host names": lambda one: "\n".join(map(_host, one.hostnames)),
        "steering": "steering",
        "ttl": "ttl",
        "regions": lambda one: ", ".join(member.region for member in one.members),
        "model": "model",
        **_managers(services),
    }
    ask.table(services, columns, empty="there are no services: add some with `gtm apply FOLDER`")


def _managed(api: Client, call: Call[Any], **more: Mapping[str, Any]) -> list[JsonObject]:
    """Every resource of a list, with what there is more of it by its name, and who manages it."""
    found = []
    for page in api.pages(call):
        managers = page.get("managed_by", {})  # an older control does not say
        for one in page.items_:
            one |= {field: of.get(one.name) for field, of in more.items()}
            one["managed_by"] = managers.get(one.name)
            found.append(one)
    return found


def _managers(resources: list[JsonObject]) -> dict[str, output.Column]:
    """The column that says who manages each resource, if one is managed."""
    if not any(one.managed_by for one in resources):
        return {}
    return {"managed by": lambda one: one.managed_by and one.managed_by.manager}


def _host(host: str | JsonObject) -> str:
    """A host name, with what it states of the requests that come by it."""
    if isinstance(host, str):
        return host
    said = [host[field] for field in ("tenant", "data_class") if host.get(field)]
    return f"{host.name} ({', '.join(said)})"


def _health(api: Client) -> dict[str, types.RegionHealthSchema]:
    return {item.region: item for item in api.get_health().regions}


def _status(health: types.RegionHealthSchema | None) -> str:
    return "unknown" if health is None else str(health.status)


def _trouble(health: types.RegionHealthSchema | None) -> str:
    """What is the matter with the endpoints that are not up."""
    endpoints = () if health is None else health.endpoints
    return "\n".join(f"{item.url}: {item.detail or item.status}" for item in endpoints if item.status != "up")


def _capacity(capacity: JsonObject) -> str:
    outstanding, rate = capacity.outstanding, capacity.requests_per_second
    parts = (
        f"{outstanding} outstanding" if outstanding is not None else "",
        f"{rate:g}/s" if rate is not None else "",
    )
    return ", ".join(filter(None, parts)) or "not stated"


def _health_cells(found: JsonObject | None) -> tuple[Any, ...]:
    if found is None:
        return output.styled("unknown"), "", "", ""
    latency = found.get("latency_ms")
    return (
        output.styled(found.status),
        output.when(found.get("since")),
        "" if latency is None else f"{latency:.1f} ms",
        found.get("detail", ""),
    )
