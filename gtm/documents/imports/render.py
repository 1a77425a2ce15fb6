"""A draft → the texts of a policy folder, with comments that ask for what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gtm.documents.imports.parts import ImportedPool, Steered
from gtm.documents.imports.policy import ImportedDraft


def files(draft: ImportedDraft, origin: str) -> dict[str, str]:
    """The texts of the files by name.

    Args:
        draft: what was made of the source.
        origin: where it came from, in a few words, for the head of each file.
    """
    head = f"# Imported from {_line(origin)}."
    found = {"zones.yaml": _text(head, _zone(draft.zone))}
    if draft.services:
        found["regions.yaml"] = _text(head, _regions(draft))
        found["services.yaml"] = _text(head, _services(draft))
    return found


def _text(head: str, lines: Iterator[str]) -> str:
    return "\n".join((head, *lines)) + "\n"


def _line(text: str) -> str:
    """A text that is safe in a comment."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)[:300]


def _json(value: Any) -> str:
    """A value in YAML's flow style; what is text stays text."""
    return json.dumps(value)


def _mapping(value: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_json(item)}" for key, item in value.items()) + "}"


def _zone(zone: dict[str, Any]) -> Iterator[str]:
    yield "zones:"
    yield f"  - name: {_json(zone['name'])}"
    if "primary_ns" not in zone:
        yield "    # primary_ns:   needed: the first of your edges' names, such as ns1.example.net"
    if "hostmaster" not in zone:
        yield "    # hostmaster:   needed: the mailbox of who runs the zone, a dot for its @: hostmaster.example.com"
    yield from (
        f"    {key}: {_json(value)}"
        for key, value in zone.items()
        if key not in ("name", "name_servers", "records")
    )
    if "name_servers" in zone:
        yield "    name_servers:   # those of now; put your edges here before you delegate the zone to them"
        yield from (f"      - {_mapping(server)}" for server in zone["name_servers"])
    if zone["records"]:
        yield "    records:"
        yield from (f"      - {_mapping(record)}" for record in zone["records"])


def _regions(draft: ImportedDraft) -> Iterator[str]:
    yield "# What only you know is missing: where each region stands, and the URL at which it is probed. gtm check asks for it."
    yield "regions:"
    for name, pool in draft.regions:
        yield from _region(name, pool)


def _region(name: str, pool: ImportedPool) -> Iterator[str]:
    yield f"  - name: {_json(name)}"
    yield from (f"    # {_line(hint)}" for hint in pool.hints)
    yield "    # country:   needed: where it stands, ISO 3166-1 alpha-2, such as DE; residency rules rest on it"
    if pool.lat is None or pool.lon is None:
        yield "    # lat:   needed: degrees north"
        yield "    # lon:   needed: degrees east"
    else:
        yield f"    lat: {_json(pool.lat)}"
        yield f"    lon: {_json(pool.lon)}"
    yield "    endpoints:   # one for each server lets each be probed"
    yield "      -"
    yield "        # url:   needed: where look-ups and redirects send clients, and what is probed: https://eu.example.com"
    answers = {"ipv4": list(pool.ipv4), "ipv6": list(pool.ipv6), "cname": next(iter(pool.cnames), None)}
    yield from (f"        {key}: {_json(value)}" for key, value in answers.items() if value)
    if not any(answers.values()):
        yield "        {}"
    if pool.probe is None:
        yield "    # probe:   the health check, such as {type: https, path: /healthz, interval: 10, timeout: 3}"
    else:
        yield f"    probe: {_mapping(dict(pool.probe))}"


def _services(draft: ImportedDraft) -> Iterator[str]:
    yield "services:"
    for service, steered in draft.services:
        yield from _service(service, steered)


def _service(service: dict[str, Any], steered: Steered) -> Iterator[str]:
    yield f"  - name: {_json(service['name'])}"
    yield from (f"    # {_line(hint)}" for hint in steered.hints)
    yield from (
        f"    {key}: {_json(value)}" for key, value in service.items() if key not in ("name", "members")
    )
    yield "    # refusal:   addresses of a server of yours that tells clients why they are refused: {ipv4: [192.0.2.99]}"
    yield "    members:   # in the order of failover"
    yield from (f"      - {_mapping(member)}" for member in service["members"])
