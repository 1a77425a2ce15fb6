"""`gtm init`: a first policy of one's own, from a few questions."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from gtm.cli.common import output
from gtm.cli.common.exits import CommandError
from gtm.cli.common.program import program

_PLACE = re.compile(r"(?P<name>[^@=]+)@(?P<country>[A-Za-z]{2}),(?P<lat>-?[0-9.]+),(?P<lon>-?[0-9.]+)")
_HOW = (
    "write CITY=URL or CITY=URL,IPV4, as in `Frankfurt=https://fra.example.com,192.0.2.10`; a place that is not known by name "
    "is NAME@COUNTRY,LATITUDE,LONGITUDE, as in `lab@DE,50.1,8.7=…`"
)


app = typer.Typer()


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not have any *.yaml yet.")],
    *,
    region: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CITY=URL[,IPV4]", help="A region: where it is, its base URL, its address; given again."
        ),
    ] = None,
    service: Annotated[str, typer.Option(help="What the first service is called.")] = "api",
    zone: Annotated[
        str | None,
        typer.Option(
            help="A DNS zone that the edges answer for; the service is SERVICE.ZONE. Without: no DNS."
        ),
    ] = None,
    name_server: Annotated[
        str | None, typer.Option(help="The IPv4 address of an edge, which is the zone's name server.")
    ] = None,
    probe_path: Annotated[str, typer.Option(help="What health checks ask for.")] = "/healthz",
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="Requests that each region serves at once; without, no bound is known."),
    ] = None,
    gdpr: Annotated[
        bool | None, typer.Option("--gdpr/--no-gdpr", help="Clients in the EEA are served in the EEA only.")
    ] = None,
) -> None:
    """Write a commented policy folder to start from. What no option says is asked, if this is a terminal."""
    _check_folder(folder)
    asking = sys.stdin.isatty()
    places = [_place(text) for text in region or []] or (_ask_regions() if asking else [])
    if not places:
        raise CommandError(f"say where regions are, with --region: {_HOW}")
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CommandError(
            f"two regions would be called `{twice[0]}`: give one as NAME@COUNTRY,LATITUDE,LONGITUDE"
        )
    if asking and zone is None and region is None:
        zone = (
            typer.prompt("DNS zone that the edges answer for (empty: none)", default="", show_default=False)
            or None
        )
    if zone is not None and name_server is None:
        if not asking:
            raise CommandError("--zone needs --name-server, the IPv4 address of an edge")
        name_server = typer.prompt("IPv4 address of an edge, the zone's name server")
    in_eea = [place.name for place in places if place.country in _eea()]
    if gdpr is None:
        gdpr = (
            bool(in_eea)
            and asking
            and typer.confirm("Serve clients in the EEA in the EEA only?", default=True)
        )
    if gdpr and not in_eea:
        raise CommandError("--gdpr: none of the regions is in the EEA, so all its clients would be refused")
    plan = _Plan(tuple(places), service, zone, name_server, probe_path, slots, gdpr=gdpr)
    _write(folder, plan)


@dataclass(frozen=True, slots=True)
class _Region:
    name: str
    display_name: str
    country: str
    lat: float
    lon: float
    url: str
    ipv4: str | None


@dataclass(frozen=True, slots=True)
class _Plan:
    regions: tuple[_Region, ...]
    service: str
    zone: str | None
    name_server: str | None
    probe_path: str
    slots: int | None
    gdpr: bool


def _eea() -> frozenset[str]:
    from datetime import UTC, datetime

    from gtm.core.policy.jurisdictions import countries_at, resolve
    from gtm.documents.jurisdictions import shipped_jurisdictions

    return countries_at(resolve(shipped_jurisdictions(), ())[0]["EEA"], datetime.now(UTC).timestamp())


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"`{folder}` is a file: give a folder to write to")
    from gtm.core.model.references import some
    from gtm.documents.policy_files import names_within

    if folder.is_dir() and (present := names_within(folder)):
        message = f"`{folder}` holds {some(present, 'files')} already"
        raise CommandError(f"{message}: nothing was written; name a new folder")


def _place(text: str) -> _Region:
    """A region from its option.

    Raises:
        CommandError: it cannot be read, or the city is not known.
    """
    from gtm.documents.cities import UnknownCityError, city

    where, equals, rest = text.partition("=")
    url, _, ipv4 = rest.partition(",")
    host = urlsplit(url.strip()).hostname if "://" in url else None
    if not equals or host is None:
        raise CommandError(f"--region: `{text}` cannot be read: {_HOW}")
    given = _PLACE.fullmatch(where.strip())
    if given is not None:
        name = _slug(given["name"])
        return _Region(
            name,
            given["name"],
            given["country"].upper(),
            float(given["lat"]),
            float(given["lon"]),
            url.strip(),
            ipv4 or None,
        )
    try:
        found = city(where)
    except UnknownCityError as error:
        raise CommandError(f"--region: {error}; {_HOW}") from error
    return _Region(
        _slug(found.name), found.name, found.country, found.lat, found.lon, url.strip(), ipv4.strip() or None
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "region"


def _ask_regions() -> list[_Region]:
    """Regions one after the other, until an empty answer."""
    found: list[_Region] = []
    typer.echo("Where are your regions? (an empty city ends the list)")
    while True:
        name = typer.prompt(f"  city of region {len(found) + 1}", default="", show_default=False)
        if not name:
            return found
        url = typer.prompt("    base URL of its balancer (https://…)")
        ipv4 = typer.prompt(
            "    its IPv4 address, for DNS answers (empty: the URL's host as a CNAME)",
            default="",
            show_default=False,
        )
        try:
            found.append(_place(f"{name}={url},{ipv4}"))
        except CommandError as error:
            typer.echo(f"  {error}", err=True)


def _write(folder: Path, plan: _Plan) -> None:
    """Write the files, and check them as `gtm check` would.

    Raises:
        CommandError: they cannot be written, or have problems; then nothing is left behind.
    """
    from gtm.documents.folders import check_references, read_folder
    from gtm.documents.plausibility import plausibility

    files = {"regions.yaml": _regions(plan), "services.yaml": _services(plan)}
    if plan.gdpr:
        files["gdpr.yaml"] = _GDPR.format(service=plan.service)
    files["expect.yaml"] = _expectations(plan)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write `{folder}`: {(error.strerror or str(error)).lower()}") from error
    problems, snapshot = check_references(read_folder(folder))
    if problems:
        for name in files:
            (folder / name).unlink()
        if made:
            folder.rmdir()
        raise CommandError(
            "what was given makes no sound policy; nothing was written", problems=tuple(map(str, problems))
        )
    output.say(f"{folder}: {', '.join(files)}")
    if snapshot is not None:
        output.warn(map(str, plausibility(snapshot.policy)))
    gtm = program()
    output.say(f"next: {gtm} check {folder}   then, with GTM_TOKEN set: {gtm} apply {folder}")


def _regions(plan: _Plan) -> str:
    blocks = ["# Where requests can be served. Every field: docs/policy.md#regions.\nregions:"]
    for one in plan.regions:
        host = urlsplit(one.url).hostname
        address = f", ipv4: [{one.ipv4}]" if one.ipv4 else (f", cname: {host}" if plan.zone else "")
        capacity = (
            f"    capacity: {{outstanding: {plan.slots}}}   # requests at once; `gtm report` keeps this true\n"
            if plan.slots is not None
            else "    # capacity: {outstanding: 64}   # requests at once, for spillover before a region is full\n"
        )
        scheme = urlsplit(one.url).scheme
        blocks.append(
            f"  - name: {one.name}\n"
            f'    display_name: "{one.display_name}"\n'
            f"    country: {one.country}\n"
            f"    # operator_country: {one.country}   # who runs it, if a rule goes by that\n"
            f"    lat: {one.lat:g}\n"
            f"    lon: {one.lon:g}\n"
            f'    endpoints: [{{url: "{one.url}"{address}}}]\n'
            f"{capacity}"
            f"    # Seconds: it is out of the answers after three failures in a row.\n"
            f"    probe: {{type: {scheme}, path: {plan.probe_path}, interval: 5, timeout: 2, down_threshold: 3}}\n"
        )
    return "\n".join(blocks)


def _services(plan: _Plan) -> str:
    text = "# What clients ask for. Where a request may go is for residency rules to say. Every field: docs/policy.md#services.\n"
    if plan.zone is not None:
        text += (
            "zones:\n"
            f"  - name: {plan.zone}\n"
            f"    primary_ns: ns1.{plan.zone}\n"
            f"    hostmaster: hostmaster.{plan.zone}\n"
            "    # Add the other edges here, and delegate the zone to them at its parent.\n"
            f"    name_servers: [{{name: ns1.{plan.zone}, ipv4: [{plan.name_server}]}}]\n\n"
        )
    text += f"services:\n  - name: {plan.service}\n"
    if plan.zone is not None:
        text += (
            f"    hostnames: [{plan.service}.{plan.zone}]\n"
            f"    zone: {plan.zone}\n"
            "    ttl: 30\n"
            "    # Where DNS sends clients that no region may serve: an edge, whose HTTP says why.\n"
            f"{_refusal(plan)}"
        )
    text += (
        "    steering: latency\n"
        "    # service_time_ms: 900   # how long a request takes, until load reports say it\n"
        "    members:\n"
    )
    return text + "".join(f"      - region: {one.name}\n" for one in plan.regions)


def _refusal(plan: _Plan) -> str:
    """A CNAME may lead to IPv6, so a refusal then needs an address of that family too."""
    if all(one.ipv4 for one in plan.regions):
        return f"    refusal: {{ipv4: [{plan.name_server}]}}\n"
    return (
        "    # Put an IPv6 address of an edge in place of this one, which leads nowhere (RFC 6666).\n"
        f'    refusal: {{ipv4: [{plan.name_server}], ipv6: ["100::1"]}}\n'
    )


_GDPR = """\
# GDPR, Chapter V: a client in the EEA is served in the EEA. docs/residency.md has what a rule can say.
residency_rules:
  - name: gdpr
    match: {{services: [{service}], client_jurisdictions: [EEA]}}
    allow: {{jurisdictions: [EEA]}}
    legal_basis: "GDPR Chapter V"
"""


def _expectations(plan: _Plan) -> str:
    lines = [
        "# Decisions that this policy must make; `gtm check` tries them. docs/policy.md#expectations.",
        "expectations:",
    ]
    seen = set()
    for one in plan.regions:
        if one.country not in seen and sum(other.country == one.country for other in plan.regions) == 1:
            seen.add(one.country)
            place = f"lat: {one.lat:g}, lon: {one.lon:g}"
            lines.append(
                f'  - {{name: "clients at {one.display_name}", service: {plan.service}, country: {one.country}, '
                f"{place}, region: {one.name}}}"
            )
    return "\n".join(lines) + "\n" if len(lines) > 2 else f"{lines[0]}\nexpectations: []\n"
