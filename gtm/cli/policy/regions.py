"""`gtm regions` and `gtm services`: what there is and how it does; drain, activate and disable regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.policy import safety

if TYPE_CHECKING:
    from gtm.cli.common.client import Client, Document

app = typer.Typer(no_args_is_help=True)
services_app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """List regions with their admin state, health, endpoints and capacity."""
    from gtm.cli.common import client, output

    api = client.control(control_url, token)
    health = _health(api)
    regions = [
        (region, health.get(region["name"]), managed) for region, managed in _managed(api, "/v1/regions")
    ]
    if as_json:
        output.print_json(
            [{**region, "health": found, "managed_by": managed} for region, found, managed in regions]
        )
        return
    some = ("managed by",) if any(managed for *_, managed in regions) else ()
    output.table(
        ("region", "admin state", "health", "country", "endpoints", "capacity", *some, "details"),
        (
            (
                region["name"],
                output.styled(region["admin_state"]),
                output.styled(_status(found)),
                region["country"],
                "\n".join(endpoint["url"] for endpoint in region["endpoints"]),
                _capacity(region["capacity"]),
                *((managed and managed["manager"]) for _ in some),
                _trouble(found),
            )
            for region, found, managed in regions
        ),
        empty="there are no regions: add some with `gtm apply FOLDER`",
    )


@app.command()
def history(
    name: str,
    *,
    limit: Annotated[int, typer.Option(help="Most changes to show.", min=1, max=1000)] = 20,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show when verdicts on a region's endpoints changed, of each edge and of all together, the newest first."""
    from gtm.cli.common import client, output

    api = client.control(control_url, token)
    found = api.get("/v1/health/changes", region=name, limit=limit)
    if as_json:
        output.print_json(found["items"])
        return
    if not found["complete"]:
        output.note("warning: the database is away: what is older than an hour is missing", "yellow")
    output.table(
        ("when (UTC)", "edge", "endpoint", "before", "after", "http", "ms", "what the probe met"),
        (
            (
                output.when(one["at"]),
                one["vantage"] or "all together",
                one["endpoint"],
                output.styled(one["before"]),
                output.styled(one["after"]),
                one["status"],
                one["latency_ms"],
                one["detail"],
            )
            for one in found["items"]
        ),
        empty=f"no verdict on {name} is kept",
    )


@app.command()
def show(
    name: str,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a region: its document, and each endpoint's health by vantage."""
    from gtm.cli.common import client, output

    api = client.control(control_url, token)
    found = api.call("GET", f"/v1/regions/{client.segment(name)}")
    region, manager = found.value, found.managed_by
    health = _health(api).get(region["name"])
    if as_json:
        output.print_json({**region, "health": health, "managed_by": manager})
        return
    probe = region["probe"]
    output.facts(
        (
            ("region", region["name"]),
            ("display name", region["display_name"]),
            ("admin state", output.styled(region["admin_state"])),
            ("managed by", manager),
            ("draining since (UTC)", output.when(region["draining_since"])),
            ("health", output.styled(_status(health))),
            *(
                (f"health ({family})", output.styled(status))
                for family, status in ((health or {}).get("families") or {}).items()
                if status == "down" and _status(health) == "up"
            ),
            (
                "disputed",
                "edges go by their own probes" if health is not None and health["disputed"] else None,
            ),
            ("country", " ".join(part for part in (region["country"], region["subdivision"]) if part)),
            ("position", f"{region['lat']}, {region['lon']}"),
            ("capacity", _capacity(region["capacity"])),
            ("cost weight", region["cost_weight"]),
            ("models", ", ".join(region["models"])),
            ("probe", f"{probe['type']} {probe['path']} every {probe['interval']:g} s"),
        )
    )
    output.say("")
    rows = []
    known = {item["url"]: item for item in (health or {}).get("endpoints", ())}
    for endpoint in region["endpoints"]:
        found = known.get(endpoint["url"], {"status": "unknown"})
        addresses = [*endpoint["ipv4"], *endpoint["ipv6"], endpoint["cname"] or ""]
        rows.append((endpoint["url"], " ".join(filter(None, addresses)), "all", *_health_cells(found)))
        rows += [
            ("", "", vantage, *_health_cells(seen)) for vantage, seen in found.get("vantages", {}).items()
        ]
        rows += [
            ("", one["address"], "all", *_health_cells(one))
            for one in found.get("addresses", ())
            if one["vantages"]
        ]
    output.table(
        ("endpoint", "addresses", "seen by", "health", "since (UTC)", "latency", "details"), rows, empty=""
    )


def _add_state(verb: str, description: str) -> None:
    @app.command(verb, help=description)
    def change(
        name: str,
        *,
        comment: options.Comment = "",
        force: safety.Force = False,
        reason: safety.Reason = "",
        control_url: options.ControlUrl = options.CONTROL,
        token: options.Token = None,
        wait: options.Wait = True,
        timeout: options.Timeout = options.WAIT_SECONDS,
        as_json: options.AsJson = False,
    ) -> None:
        from gtm.cli.common import client

        said = {"comment": comment.strip()} if comment.strip() else {}
        forced = safety.parameters(force=force, reason=reason)
        api = client.control(control_url, token)
        path = f"/v1/regions/{client.segment(name)}:{verb}"
        done = api.call("POST", path, parameters={**said, **forced}).value
        _report(api, done, wait=wait, timeout=timeout, as_json=as_json)


for _verb, _description in (
    ("drain", "Take no new clients in a region."),
    ("activate", "Let a region take clients again."),
    ("disable", "Take a region out of service, and stop probing it."),
):
    _add_state(_verb, _description)


@services_app.command("list")
def list_services(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """List services with their host names, steering and regions."""
    from gtm.cli.common import client, output

    services = list(_managed(client.control(control_url, token), "/v1/services"))
    if as_json:
        output.print_json([{**service, "managed_by": managed} for service, managed in services])
        return
    some = ("managed by",) if any(managed for _, managed in services) else ()
    output.table(
        ("service", "host names", "steering", "ttl", "regions", "model", *some),
        (
            (
                service["name"],
                "\n".join(map(_host, service["hostnames"])),
                service["steering"],
                service["ttl"],
                ", ".join(member["region"] for member in service["members"]),
                service["model"],
                *((managed and managed["manager"]) for _ in some),
            )
            for service, managed in services
        ),
        empty="there are no services: add some with `gtm apply FOLDER`",
    )


def _managed(api: Client, path: str) -> Iterator[tuple[Document, Document | None]]:
    """Every resource of a list, and who manages it."""
    for page in api.pages(path):
        managed = page.get("managed_by", {})  # an older control does not say
        yield from ((one, managed.get(one["name"])) for one in page["items"])


def _host(host: str | dict[str, Any]) -> str:
    """A host name, with what it states of the requests that come by it."""
    if isinstance(host, str):
        return host
    said = [host[field] for field in ("tenant", "data_class") if host.get(field)]
    return f"{host['name']} ({', '.join(said)})"


def _report(api: Client, done: dict[str, Any], *, wait: bool, timeout: float, as_json: bool) -> None:
    from gtm.cli.common import changes, output

    if not as_json:
        region = done["resource"]
        already = " already" if done["outcome"] == "unchanged" else ""
        output.say(f"region {region['name']} is{already} {region['admin_state']}")
    changes.report_change(api, done, wait=wait, timeout=timeout, as_json=as_json)


def _health(api: Client) -> dict[str, Any]:
    return {item["region"]: item for item in api.get("/v1/health")["regions"]}


def _status(health: Mapping[str, Any] | None) -> str:
    return "unknown" if health is None else str(health["status"])


def _trouble(health: Mapping[str, Any] | None) -> str:
    """What is the matter with the endpoints that are not up."""
    endpoints = () if health is None else health["endpoints"]
    return "\n".join(
        f"{item['url']}: {item['detail'] or item['status']}" for item in endpoints if item["status"] != "up"
    )


def _capacity(capacity: Mapping[str, Any]) -> str:
    outstanding, rate = capacity["outstanding"], capacity["requests_per_second"]
    parts = (
        f"{outstanding} outstanding" if outstanding is not None else "",
        f"{rate:g}/s" if rate is not None else "",
    )
    return ", ".join(filter(None, parts)) or "not stated"


def _health_cells(found: Mapping[str, Any]) -> tuple[Any, ...]:
    from gtm.cli.common import output

    latency = found.get("latency_ms")
    return (
        output.styled(found["status"]),
        output.when(found.get("since")),
        "" if latency is None else f"{latency:.1f} ms",
        found.get("detail", ""),
    )
