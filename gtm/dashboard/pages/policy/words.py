"""How resources of the policy are written: their YAML, and a sentence for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gtm.client.objects import JsonObject
from gtm.core.model.kinds import KINDS
from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.rendering import count, share
from gtm.documents import yamls
from gtm.documents.schema import DOCUMENTS

SLUGS = {kind: kind.replace("_", "-") for kind in KINDS}
"""Kind → its name in addresses."""
TITLES = {kind: kind.replace("_", " ").capitalize() for kind in KINDS}
"""Kind → its name in headings."""
_KINDS = {slug: kind for kind, slug in SLUGS.items()}
_FEW = 4
"""Names that a sentence lists."""
_STATES = ("admin_state", "draining_since", "challenges")


def kind_of(slug: str) -> str:
    """The kind that an address names.

    Raises:
        ApiProblem: 404, since there is no such kind.
    """
    if slug not in _KINDS:
        raise ApiProblem(404, {"title": "not found", "detail": "the policy has no such kind of resource"})
    return _KINDS[slug]


def as_yaml(resources: Mapping[str, Iterable[Mapping[str, Any]]], *, states: bool = False) -> str:
    """Documents by kind as `gtm export` writes them: without defaults and, unless told otherwise, without regions' admin states and zones' challenges."""
    return yamls.dump(
        {kind: [concise(kind, one, states=states) for one in items] for kind, items in resources.items()}
    )


def concise(kind: str, document: Mapping[str, Any], *, states: bool = False) -> dict[str, Any]:
    """A document of the API without what is the default anyway, and without what people do not write unless they did (`states`)."""
    return _dumped(kind, document, states=states, exclude_defaults=True)


def complete(kind: str, document: Mapping[str, Any], *, states: bool = False) -> dict[str, Any]:
    """The same with every default, so that an object that is there with nothing but defaults differs from none."""
    return _dumped(kind, document, states=states, exclude_defaults=False)


def _dumped(
    kind: str, document: Mapping[str, Any], *, states: bool, exclude_defaults: bool
) -> dict[str, Any]:
    model = DOCUMENTS[kind]
    left_out = () if states else _STATES
    known = {
        key: value for key, value in document.items() if key in model.model_fields and key not in left_out
    }
    made: dict[str, Any] = model.model_validate(known).model_dump(
        mode="json", exclude_defaults=exclude_defaults
    )
    return made


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_FEW])
    return f"{shown} and {len(names) - _FEW} more" if len(names) > _FEW else shown


def _region(one: JsonObject) -> str:
    ends = len(one.endpoints)
    return f"In {one.country}, with {ends} endpoint{'' if ends == 1 else 's'}."


def _zone(one: JsonObject) -> str:
    sets = len(one.records)
    signed = ", signed" if one.dnssec else ""
    return f"Primary {one.primary_ns}, {sets} record set{'' if sets == 1 else 's'} beside services{signed}."


def _service(one: JsonObject) -> str:
    hosts = [host if isinstance(host, str) else host.name for host in one.hostnames]
    served = f"Served in {some([member.region for member in one.members])}"
    return f"{served}, as {some(hosts)}." if hosts else f"{served}."


def _residency(one: JsonObject) -> str:
    match = one.match
    clients = [*match.client_jurisdictions, *match.client_countries]
    tenants = [
        *match.tenants,
        *(f"those established in {place}" for place in match.tenant_jurisdictions),
    ]
    who = f"Clients in {some(clients)}" if clients else "All clients"
    whom = [
        f"{word} {some(names)}"
        for word, names in (
            ("of service", match.services),
            ("of tenant", tenants),
            ("with data of class", match.data_classes),
        )
        if names
    ]
    return f"{', '.join([who, *whom])}: {_where(one.allow, one.deny)}."


def _where(allow: JsonObject, deny: JsonObject) -> str:
    said = []
    for places, word in ((allow, "only"), (deny, "not")):
        named = [*places.jurisdictions, *places.regions]
        operators = places.operator_jurisdictions
        if named:
            said.append(f"{word} in {some(named)}")
        if operators:
            said.append(f"{word} with operators of {some(operators)}")
    return ", ".join(said) or "anywhere"


def _spillover(one: JsonObject) -> str:
    limits = []
    if one.max_share is not None:
        limits.append(f"at most {share(one.max_share)} of its demand")
    if one.max_requests_per_second is not None:
        limits.append(f"at most {count(one.max_requests_per_second)} requests/s")
    if one.max_added_latency_ms is not None:
        limits.append(f"at most {count(one.max_added_latency_ms)} ms longer")
    way = f"From {one.from_region} to {some(one.to_regions)}"
    return f"{', '.join([way, *limits])}."


def _jurisdiction(one: JsonObject) -> str:
    return f"Members: {some(one.members)}."


def _tenant(one: JsonObject) -> str:
    where = f"Established in {one.country}" if one.country else "Where it is established is not stated"
    return f"{where}, weight {count(one.weight)}."


def _data_class(_: JsonObject) -> str:
    return "What rules may be about."


SENTENCES: Mapping[str, Callable[[JsonObject], str]] = {
    "regions": _region,
    "zones": _zone,
    "services": _service,
    "residency_rules": _residency,
    "spillover_rules": _spillover,
    "jurisdictions": _jurisdiction,
    "tenants": _tenant,
    "data_classes": _data_class,
}
"""Kind → what a resource says, in a sentence."""
