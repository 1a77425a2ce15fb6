"""Forms for the commonest kinds of resource. A form is a view of a draft's text: what it does not show stays as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import EnumType
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from gtm.client.generated import control_calls as calls
from gtm.client.objects import JsonObject
from gtm.core.model.kinds import REFERENCES
from gtm.dashboard.inside import Inside
from gtm.dashboard.pages.policy.words import as_yaml
from gtm.documents import yamls
from gtm.documents.resources import MAX_RESOURCES, MemberDocument
from gtm.documents.schema import DOCUMENTS

MORE_ROWS = 2
"""Empty rows for further members."""
_MOST_ROWS = 1000
_FIRST = 2
"""Regions that a new service, or a new spillover rule, begins with."""
_KNOWN = 13
"""Names of a kind that a form is told: the last says that there are more than it lists."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: where it is in a document, what it is called, and how it is written.

    `written` is `text`, `long`, `number`, `names` (with commas between), `choice` of `options`, or `members`. `offers` is the kind whose names are
    suggested. What is empty is left out of the document; of a choice that is the `default`.
    """

    path: str
    label: str
    hint: str
    written: str
    options: tuple[str, ...]
    default: str
    offers: str


_NAME = ("name", "Name", "Lower-case letters, digits and hyphens.")
_MOMENT = "A day and time such as 2026-01-31T00:00:00Z; empty: no bound."
_BASIS = "The law behind the rule: it is handed out with refusals."
_SHOWN: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "residency_rules": (
        _NAME,
        ("match.services", "Of services", "Empty: of all."),
        ("match.client_jurisdictions", "Clients in jurisdictions", "Such as EEA."),
        (
            "match.client_countries",
            "Clients in countries",
            "Codes such as DE. With no jurisdiction either: all clients.",
        ),
        ("match.tenants", "Of tenants", "Empty: of all."),
        ("match.data_classes", "Data of classes", "Empty: of all."),
        ("allow.jurisdictions", "May be served in", "Jurisdictions or countries. Empty: anywhere."),
        ("allow.regions", "And only in regions", "Empty: in all regions that stand there."),
        ("deny.jurisdictions", "May not be served in", ""),
        ("mode", "Mode", "Monitor only records what the rule would have refused."),
        ("effective_from", "In force from", _MOMENT),
        ("effective_until", "In force until", _MOMENT),
        ("legal_basis", "Legal basis", _BASIS),
    ),
    "spillover_rules": (
        _NAME,
        ("from_region", "From region", ""),
        ("to_regions", "To regions", ""),
        ("max_share", "At most this share of its demand", "0 to 1; empty: no bound."),
        ("max_requests_per_second", "At most requests per second", "Empty: no bound."),
        ("max_added_latency_ms", "At most longer on the way, in ms", "Empty: no bound."),
    ),
    "services": (
        _NAME,
        ("display_name", "Shown as", ""),
        ("members", "Regions that serve it", ""),
        ("steering", "Steering", ""),
        ("priority", "Priority", ""),
        ("on_unusable", "If no region of the fence is usable", ""),
        ("on_overload", "What does not fit", ""),
        ("families", "A and AAAA are decided", ""),
        ("ttl", "Answers may be kept, in seconds", ""),
        ("min_ttl", "The same while traffic moves", ""),
    ),
    "regions": (
        _NAME,
        ("display_name", "Shown as", ""),
        ("country", "Country", "A code such as DE: its jurisdictions derive from it."),
        ("operator_country", "Its operator's country", "Empty: unknown, and so in no fence by operator."),
        ("lat", "Latitude, in degrees north", ""),
        ("lon", "Longitude, in degrees east", ""),
        ("capacity.outstanding", "Requests at once", "Empty: not stated."),
        ("capacity.requests_per_second", "Requests per second", "Empty: not stated."),
        ("reserve", "Share that no plan uses", "0 to 0.95."),
        ("models", "Models served here", ""),
    ),
}
"""Kind → what its form shows: path, label and hint. How that is written, the documents say."""


def _field(kind: str, path: str, label: str, hint: str) -> Field:
    model: Any = DOCUMENTS[kind]
    names: Any = REFERENCES.get(kind, {})
    for part in path.split("."):
        declared = model.model_fields[part]
        model, names = declared.annotation, names.get(part, {})
    types = list(_types(declared.annotation))
    choice = isinstance(declared.annotation, EnumType)
    ways = {
        "choice": choice,
        "members": MemberDocument in types,
        "names": get_origin(declared.annotation) is tuple,
        "number": int in types or float in types,
        "long": path == "legal_basis",
    }
    written = next((way for way, holds in ways.items() if holds), "text")
    options = tuple(declared.annotation) if choice else ()
    default = str(declared.default) if choice else ""
    return Field(path, label, hint, written, options, default, names if isinstance(names, str) else "")


def _types(annotation: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)


FORMS = {kind: tuple(_field(kind, *one) for one in shown) for kind, shown in _SHOWN.items()}
"""Kind → its form."""


def kind_of_draft(policy: Mapping[str, Any] | None) -> str | None:
    """The kind whose form shows a draft; None: no form does."""
    if policy is None:
        return None
    held = [(kind, len(items)) for kind, items in policy.items() if items]
    return held[0][0] if len(held) == 1 and held[0][1] == 1 and held[0][0] in FORMS else None


def beginning(kind: str, example: Mapping[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    """What a new document's form begins with: the example, of what the form shows, with names that there are.

    What a form does not show nobody would look at, and names of the example's own are unknown in most policies.
    """
    shown = {field.path.partition(".")[0] for field in FORMS[kind]}
    made = {key: dict(value) if isinstance(value, Mapping) else value for key, value in example.items()}
    made = {key: value for key, value in made.items() if key in shown}
    for field in FORMS[kind]:
        there = names.get(field.offers, [])
        if field.written == "members":
            made["members"] = [{"region": name} for name in names["regions"][:_FIRST]]
        elif field.offers not in ("", "jurisdictions"):
            *way, last = field.path.split(".")
            within = made.get(way[0], {}) if way else made
            if last == "to_regions":
                within[last] = there[1:_FIRST]
            elif last in within:
                within[last] = there[:1] if field.written == "names" else "".join(there[:1])
    return made


def placed(kind: str, called: str, problems: Iterable[JsonObject]) -> dict[str, list[str]]:
    """What is wrong, by the path of the field of the form that it is about."""
    found: dict[str, list[str]] = {}
    for one in problems:
        way = one.path.removeprefix(f"{kind}.{called}.")
        for field in FORMS[kind]:
            if way == field.path or way.startswith((f"{field.path}.", f"{field.path}[")):
                found.setdefault(field.path, []).append(one.message)
    return found


def fields(kind: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The form of a document: each field with what is written in it."""
    return [
        {
            "field": field,
            "id": f"f-{field.path.replace('.', '-')}",
            "value": list(_rows(document)) if field.written == "members" else _shown(field, document),
        }
        for field in FORMS[kind]
    ]


def _shown(field: Field, document: Mapping[str, Any]) -> str:
    value: Any = document
    for part in field.path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return field.default
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for member in document.get("members") or ():
        yield {
            "region": member.get("region", ""),
            "weight": member.get("weight", ""),
            "share": member.get("share", ""),
        }
    for _ in range(MORE_ROWS):
        yield {"region": "", "weight": "", "share": ""}


async def known(api: Inside) -> dict[str, list[str]]:
    """Names that fields suggest, by kind."""
    kinds: tuple[Any, ...] = ("services", "regions", "tenants", "data_classes")
    *found, shipped = await asyncio.gather(
        *(api.ask(calls.search_resources(kind=kind, limit=_KNOWN)) for kind in kinds),
        api.ask(calls.list_jurisdictions(limit=_KNOWN)),
    )
    names = {kind: [one.name for one in page.items_] for kind, page in zip(kinds, found, strict=True)}
    return {**names, "jurisdictions": [one.name for one in shipped.items_]}


def filled(kind: str, document: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """A document with what a form says in place of its own."""
    made = {key: dict(value) if isinstance(value, Mapping) else value for key, value in document.items()}
    for field in FORMS[kind]:
        given = form.get(f"f:{field.path}")
        if field.written == "members":
            made["members"] = _members(document, form)
        elif given is not None:
            _put(made, field, given.strip())
    return made


def _put(made: dict[str, Any], field: Field, given: str) -> None:
    *way, last = field.path.split(".")
    within = made
    for part in way:
        within = within.setdefault(part, {})
    value = _value(field, given)
    if value in (None, "", []) and last != "name":
        within.pop(last, None)
    else:
        within[last] = value


def _value(field: Field, given: str) -> Any:
    """What is written, as a document has it; what is no number stays text, and whoever reads the document says so."""
    if field.written == "names":
        return [part.strip() for part in given.split(",") if part.strip()][:MAX_RESOURCES]
    if field.written == "long":
        return given.replace("\r\n", "\n")
    return _number(given) if field.written == "number" else given


def _number(given: str) -> Any:
    if len(given) > 30 or not given:
        return given
    try:
        return int(given) if given.lstrip("-").isdecimal() else float(given)
    except ValueError:
        return given


def _members(document: Mapping[str, Any], form: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows that name a region; what rows do not show stays with the region."""
    before = {one.get("region"): one for one in document.get("members") or () if isinstance(one, Mapping)}
    made = []
    for index in range(_MOST_ROWS):
        region = form.get(f"member:{index}:region")
        if region is None:
            break
        if not region.strip():
            continue
        member = {**before.get(region.strip(), {}), "region": region.strip()}
        for part in ("weight", "share"):
            given = form.get(f"member:{index}:{part}", "").strip()
            member.pop(part, None)
            if given:
                member[part] = _number(given)
        made.append(member)
    return made


def rewritten(kind: str, document: Mapping[str, Any]) -> str:
    """The text of a draft of this document alone; what is wrong is written as it is."""
    try:
        return as_yaml({kind: [document]}, states=True)
    except ValidationError:
        return yamls.dump({kind: [dict(document)]})
