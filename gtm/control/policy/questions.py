"""One request to be explained: how it is asked, over DNS or HTTP, and what is the matter with a question nobody could ask.

Over DNS a client states nothing: its resolver says a subnet, and the host name says the service, and a tenant and a data class
if it is made for them. So a question over DNS is about a host name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gtm.control.errors import Invalid
from gtm.control.policy.traffic import PlaceDocument, RequestDocument
from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Option
from gtm.core.handoff.verdict import no_higher
from gtm.core.model.names import WILDCARD
from gtm.core.model.problems import Problem
from gtm.core.model.references import meant, some
from gtm.core.model.requests import ContradictionError, Location, Request, agreed
from gtm.core.model.services import HostName, Service
from gtm.core.policy.snapshot import Snapshot
from gtm.documents import fields as f
from gtm.documents.cities import UnknownCityError, city
from gtm.documents.jurisdictions import APPLICABLE
from gtm.documents.places import Client
from gtm.documents.schema import PolicyDocument

_ANY = "any"
"""A label to ask for below a wildcard."""


def _city(value: str) -> str:
    try:
        return city(value).name
    except UnknownCityError as error:
        said = str(error)
        more = " Otherwise" if said.endswith("?") else ";"
        text = f"{said}{more} give a larger city nearby, its country, or degrees"
        raise f.invalid("unknown_reference", text) from error


def _lawful(value: datetime) -> datetime:
    if value < datetime.fromisoformat(APPLICABLE).replace(tzinfo=UTC):
        text = f"the law of past days is known here from {APPLICABLE} on, when the GDPR began to apply: ask about a later moment"
        raise f.invalid("out_of_range", text)
    return value


class ExplainRequest(RequestDocument):
    """One request, and the draft to decide it by; without one, the policy in force decides."""

    client_ip: Annotated[Client, Field(max_length=64)] | None = None
    """An address, or a subnet as a resolver states it; in place of country and coordinates."""
    city: Annotated[f.Line, Field(min_length=1, max_length=100), AfterValidator(_city)] | None = None
    """A city that is known here, in place of country and coordinates."""
    affinity: Annotated[f.Line, Field(min_length=1)] | None = None
    over: Literal["http", "dns"] = "http"
    """How it is asked. Over DNS nobody states a model, an affinity key or a priority, and the host name alone a tenant and a
    data class; an address is told as the subnet that resolvers tell."""
    host: f.HostName | None = None
    """The host name that is asked for. Left out: over DNS, the service's first that states this tenant and data class."""
    policy: PolicyDocument | None = None
    at: Annotated[f.Moment, AfterValidator(_lawful)] | None = None
    """When, by the law of that day, from 2018-05-25 on; left out: now. Health, plan and latency are those of now."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        stated = PlaceDocument.model_fields.keys() & self.model_fields_set
        names = "`country`, `lat`, `lon`, `anonymous`, `doubtful`, `accuracy_km` and `spans`"
        if self.client_ip is not None and (stated or self.city is not None):
            text = f"give either `client_ip` or `city` or {names}"
            raise f.invalid("overlap", text)
        if self.city is not None and stated & {"country", "lat", "lon", "spans"}:
            text = "give either `city` or `country`, `lat`, `lon` and `spans`"
            raise f.invalid("overlap", text)
        return self

    @property
    def location(self) -> Location:
        """As stated; of a city, where that is."""
        found = super().location
        if self.city is None:
            return found
        there = city(self.city)
        return found._replace(country=there.country, lat=there.lat, lon=there.lon)


@dataclass(frozen=True, slots=True)
class AskedOver:
    """A question as a client could put it. `host` is the name asked for, None: none; `client` an address or, over DNS, a subnet."""

    over: Literal["http", "dns"]
    host: str | None
    client: str | None


Answers = Callable[[Routing, Option, AskedOver], Mapping[str, Any]]
"""What an edge would send, by the code that edges answer with; a function of a module, so that other processes find it."""


def asked(question: ExplainRequest, snapshot: Snapshot, location: Location) -> tuple[Request, AskedOver]:
    """The request as a client could make it.

    Raises:
        Invalid: it could not, or the host name is not the service's, or states another tenant or data class.
    """
    dns = question.over == "dns"
    if dns:
        _stateless(question)
    elif question.family is not None:
        raise _wrong(
            "family", "not_supported", "over HTTP nobody asks for a family: leave it out, or ask over DNS"
        )
    compiled = snapshot.services.get(question.service)
    host = None
    if compiled is not None and (dns or question.host is not None):
        host = _host(question, compiled.service, snapshot)
    tenant, data_class = question.tenant, question.data_class
    if host is not None:
        try:
            tenant, data_class = agreed(host, tenant, data_class)
        except ContradictionError as error:
            raise _wrong("host", "contradiction", str(error)) from error
    priority = None if question.priority is None else no_higher(question.priority, compiled)
    request = Request(
        question.service,
        location,
        tenant,
        data_class,
        question.model,
        question.affinity,
        priority,
        question.family,
    )
    name = question.host if question.host is not None or host is None else _concrete(host.name)
    return request, AskedOver(question.over, name, question.client_ip)


def _stateless(question: ExplainRequest) -> None:
    """Over DNS nothing is stated."""
    for field, what in (("model", "a model"), ("affinity", "an affinity key"), ("priority", "a priority")):
        if getattr(question, field) is not None:
            text = f"over DNS nobody can state {what}: leave it out, or ask over HTTP"
            raise _wrong(field, "not_supported", text)


def _host(question: ExplainRequest, service: Service, snapshot: Snapshot) -> HostName:
    """The service's host name that the question is about."""
    if question.host is not None:
        found = snapshot.host_of(question.host)
        if found is None or snapshot.hostnames[found.name] != service.name:
            names = [one.name for one in service.names]
            known = f": it has {some(names, 'host names')}" if names else ", which has none"
            text = f"`{question.host}` is no host name of service `{service.name}`{known}{meant(question.host, names)}"
            raise _wrong("host", "unknown_reference", text)
        return found
    if not service.hostnames:
        text = f"service `{service.name}` has no host name, so that nobody asks DNS for it: ask over HTTP"
        raise _wrong("over", "not_supported", text)
    stating = [
        one for one in service.names if (one.tenant, one.data_class) == (question.tenant, question.data_class)
    ]
    if stating:
        return min(stating, key=lambda one: one.name.startswith(WILDCARD))
    said = [
        (field, f"{what} `{value}`")
        for field, what, value in (
            ("tenant", "tenant", question.tenant),
            ("data_class", "data class", question.data_class),
        )
        if value is not None
    ]
    if not said:
        text = f"every host name of service `{service.name}` states a tenant or a data class: say which, or give `host`"
        raise _wrong("host", "missing", text)
    text = (
        f"no host name of service `{service.name}` states {' and '.join(words for _, words in said)} and nothing else, and over "
        "DNS nothing else can: leave it out, give `host`, or ask over HTTP"
    )
    raise _wrong(said[0][0], "not_supported", text)


def _concrete(name: str) -> str:
    """A name that a client asks for: of a wildcard, one that it stands for."""
    return f"{_ANY}.{name.removeprefix(WILDCARD)}" if name.startswith(WILDCARD) else name


def _wrong(field: str, code: str, text: str) -> Invalid:
    return Invalid(text, [Problem(field, code, text)])
