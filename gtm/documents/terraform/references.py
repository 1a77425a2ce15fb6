"""What of a policy refers to what, for Terraform, which makes resources in the order of their references.

All the fields that name another resource become references (`gtm_region.fra.name`). Beside them zones need each other, and
services, in ways that no field says: control takes a name server's addresses only if they are in a zone of the policy, and
DS records only of a zone that is there. These become `depends_on`.

Laws:
 1. What is found holds no circle, which Terraform refuses. Two resources that need each other (a zone whose name server is a
    service's host name in it) are told apart by no order: what is between them stays a plain name.
 2. All of a circle wait for the same, so that Terraform begins them at once, and the provider makes them in one change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from gtm.core.model.kinds import REFERENCES
from gtm.core.model.names import absolute, ancestors, closest

Resource = tuple[str, str]
"""Kind and name."""
Documents = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Kind → name → document."""
Needs = Mapping[Resource, Collection[Resource]]


def replaced(value: Any, fields: Any, link: Callable[[str, str], str]) -> Any:
    """A document with what `link` makes of each name of another resource, given that one's kind and name."""
    if isinstance(value, (list, tuple)):
        return [replaced(item, fields, link) for item in value]
    if isinstance(fields, str):
        return link(fields, value)
    return {key: replaced(item, fields[key], link) if key in fields else item for key, item in value.items()}


def needs(documents: Documents) -> tuple[Needs, Needs]:
    """What each resource refers to, and what it needs besides; without circles."""
    referring = {
        (kind, name): set(_named(documents, kind, document))
        for kind, items in documents.items()
        for name, document in items.items()
    }
    besides = {("zones", name): set(found) for name, found in _of_zones(documents).items()}
    both = {one: found | besides.get(one, set()) for one, found in referring.items()}
    circle = _circles(both)
    outside: dict[int, set[Resource]] = {number: set() for number in circle.values()}
    for one, found in both.items():
        outside[circle[one]] |= {other for other in found if circle[other] != circle[one]}
    referred = {one: found & outside[circle[one]] for one, found in referring.items()}
    return referred, {one: found for one in both if (found := outside[circle[one]] - referred[one])}


def _named(documents: Documents, kind: str, document: Mapping[str, Any]) -> Iterator[Resource]:
    found: list[Resource] = []

    def link(target: str, name: str) -> str:
        if name in documents.get(target, ()):
            found.append((target, name))
        return name

    replaced(document, REFERENCES.get(kind, {}), link)
    yield from found


def _of_zones(documents: Documents) -> dict[str, set[Resource]]:
    """Zone → the zones and services that must be there before it."""
    zones = documents.get("zones", {})
    owners = {
        host["name"]: name
        for name, service in documents.get("services", {}).items()
        for host in service.get("hostnames", ())
    }
    return {
        name: {*_of_servers(name, zone, zones, owners), *_of_delegations(name, zone, zones)}
        for name, zone in zones.items()
    }


def _of_servers(
    name: str, zone: Mapping[str, Any], zones: Collection[str], owners: Mapping[str, str]
) -> Iterator[Resource]:
    """A name server that has addresses lies in a zone, and one that has none is known to the zone or service that has them."""
    for server in zone.get("name_servers", ()):
        host = server["name"]
        given = server.get("ipv4") or server.get("ipv6")
        if not given and host in owners:
            yield "services", owners[host]
            continue
        around = closest(zones, host)
        if around not in (None, name) and not (given and name in ancestors(host)):
            yield "zones", str(around)


def _of_delegations(name: str, zone: Mapping[str, Any], zones: Collection[str]) -> Iterator[Resource]:
    """DS records of a zone of the policy's own stand in the zone around it without NS records."""
    for record in zone.get("records", ()):
        below = absolute(record["name"], name)
        if record["type"] == "DS" and below in zones:
            yield "zones", below


def _circles(needed: Needs) -> dict[Resource, int]:
    """Each resource's circle, by a number: those that reach each other have the same (Kosaraju's algorithm)."""
    needing: dict[Resource, list[Resource]] = {one: [] for one in needed}
    for one, found in needed.items():
        for other in found:
            needing[other].append(one)
    left: list[Resource] = []
    seen: set[Resource] = set()
    for one in needed:
        left += _reached(one, needed, seen)
    circle: dict[Resource, int] = {}
    seen = set()
    for one in reversed(left):
        circle |= dict.fromkeys(_reached(one, needing, seen), len(circle))
    return circle


def _reached(start: Resource, edges: Needs, seen: set[Resource]) -> list[Resource]:
    """What is reached from a resource and was not before, in the order in which depth-first search leaves it."""
    if start in seen:
        return []
    seen.add(start)
    left: list[Resource] = []
    trail = [(start, iter(edges[start]))]
    while trail:
        one, rest = trail[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                trail.append((other, iter(edges[other])))
                break
        else:
            trail.pop()
            left.append(one)
    return left
