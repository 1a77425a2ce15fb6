"""Forms for the commonest kinds of resource. A form is a view of a draft's text: what it does not show stays as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gtm.core.model.policy import RuleMode
from gtm.core.model.services import Families, OnOverload, OnUnusable, Priority, Steering
from gtm.dashboard.inside import Inside
from gtm.dashboard.pages.policy.words import as_yaml
from gtm.documents import yamls
from gtm.documents.resources import MAX_RESOURCES

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
    suggested. What is empty is left out of the document.
    """

    path: str
    label: str
    written: str = "text"
    hint: str = ""
    options: tuple[str, ...] = ()
    offers: str = ""


_NAME = Field("name", "Name", hint="Lower-case letters, digits and hyphens.")
_MOMENT = "A day and time such as 2026-01-31T00:00:00Z; empty: no bound."
FORMS: Mapping[str, tuple[Field, ...]] = {
    "residency_rules": (
        _NAME,
        Field("match.services", "Of services", "names", "Empty: of all.", offers="services"),
        Field(
            "match.client_jurisdictions",
            "Clients in jurisdictions",
            "names",
            "Such as EEA.",
            offers="jurisdictions",
        ),
        Field(
            "match.client_countries",
            "Clients in countries",
            "names",
            "Codes such as DE. With no jurisdiction either: all clients.",
        ),
        Field("match.tenants", "Of tenants", "names", "Empty: of all.", offers="tenants"),
        Field("match.data_classes", "Data of classes", "names", "Empty: of all.", offers="data_classes"),
        Field(
            "allow.jurisdictions",
            "May be served in",
            "names",
            "Jurisdictions or countries. Empty: anywhere.",
            offers="jurisdictions",
        ),
        Field(
            "allow.regions",
            "And only in regions",
            "names",
            "Empty: in all regions that stand there.",
            offers="regions",
        ),
        Field("deny.jurisdictions", "May not be served in", "names", offers="jurisdictions"),
        Field(
            "mode",
            "Mode",
            "choice",
            "Monitor only records what the rule would have refused.",
            tuple(RuleMode),
        ),
        Field("effective_from", "In force from", hint=_MOMENT),
        Field("effective_until", "In force until", hint=_MOMENT),
        Field(
            "legal_basis", "Legal basis", "long", "The law behind the rule: it is handed out with refusals."
        ),
    ),
    "spillover_rules": (
        _NAME,
        Field("from_region", "From region", offers="regions"),
        Field("to_regions", "To regions", "names", offers="regions"),
        Field("max_share", "At most this share of its demand", "number", "0 to 1; empty: no bound."),
        Field("max_requests_per_second", "At most requests per second", "number", "Empty: no bound."),
        Field("max_added_latency_ms", "At most longer on the way, in ms", "number", "Empty: no bound."),
    ),
    "services": (
        _NAME,
        Field("display_name", "Shown as"),
        Field("members", "Regions that serve it", "members"),
        Field("steering", "Steering", "choice", options=tuple(Steering)),
        Field("priority", "Priority", "choice", options=tuple(Priority)),
        Field("on_unusable", "If no region of the fence is usable", "choice", options=tuple(OnUnusable)),
        Field("on_overload", "What does not fit", "choice", options=tuple(OnOverload)),
        Field("families", "A and AAAA are decided", "choice", options=tuple(Families)),
        Field("ttl", "Answers may be kept, in seconds", "number"),
        Field("min_ttl", "The same while traffic moves", "number"),
    ),
    "regions": (
        _NAME,
        Field("display_name", "Shown as"),
        Field("country", "Country", hint="A code such as DE: its jurisdictions derive from it."),
        Field(
            "operator_country",
            "Its operator's country",
            hint="Empty: unknown, and so in no fence by operator.",
        ),
        Field("lat", "Latitude, in degrees north", "number"),
        Field("lon", "Longitude, in degrees east", "number"),
        Field("capacity.outstanding", "Requests at once", "number", "Empty: not stated."),
        Field("capacity.requests_per_second", "Requests per second", "number", "Empty: not stated."),
        Field("reserve", "Share that no plan uses", "number", "0 to 0.95."),
        Field("models", "Models served here", "names"),
    ),
}
"""Kind → its form."""
DEFAULTS: Mapping[str, Any] = {
    "mode": "enforce",
    "steering": "latency",
    "priority": "real_time",
    "on_unusable": "refuse",
    "on_overload": "shed",
    "families": "together",
}
"""What a choice is where a document does not say it."""


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


def placed(kind: str, called: str, problems: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What is wrong, by the path of the field of the form that it is about."""
    found: dict[str, list[str]] = {}
    for one in problems:
        way = one["path"].removeprefix(f"{kind}.{called}.")
        for field in FORMS[kind]:
            if way == field.path or way.startswith((f"{field.path}.", f"{field.path}[")):
                found.setdefault(field.path, []).append(one["message"])
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
        return str(DEFAULTS.get(field.path, ""))
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
    kinds = ("services", "regions", "tenants", "data_classes")
    *found, shipped = await asyncio.gather(
        *(api.get("/v1/resources", kind=kind, limit=_KNOWN) for kind in kinds),
        api.get("/v1/jurisdictions", limit=_KNOWN),
    )
    names = {kind: [one["name"] for one in page["items"]] for kind, page in zip(kinds, found, strict=True)}
    return {**names, "jurisdictions": [one["name"] for one in shipped["items"]]}


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
