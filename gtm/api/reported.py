"""Reports of edges and of balancers: how OpenAPI describes them, and what may be wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from itertools import islice
from types import UnionType
from typing import Annotated, Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from gtm.control.lead.latency import delta_problem, witness_problem
from gtm.control.live.tokens import speaks_for
from gtm.core.capacity.durations import BOUNDS
from gtm.core.handoff.keys import key_bytes
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta
from gtm.core.model.certificates import Certificate
from gtm.core.model.problems import Problem
from gtm.core.quota.leases import LeaseUse
from gtm.documents.described import field_texts
from gtm.feed.reports import (
    MAX_SHOWN_TEXT,
    MAX_SHOWN_TEXTS,
    MAX_TIMED,
    OPAQUE,
    BalancerReport,
    EdgeReport,
    FieldBounds,
    RegionShown,
    ServerShown,
    TenantShown,
    TimesTold,
)

_MAX_LISTED = 10
"""Problems listed of one list."""
_MAX_TEXT = 1000
_MAX_NAMES = 100
_MAX_LIMIT = 2**53
_LATEST = 253_402_300_799.0
"""The end of the year 9999, as certificates write that they do not end (RFC 5280 §4.1.2.5)."""
_SHA256 = re.compile("[0-9a-f]{64}", re.ASCII)
_T = TypeVar("_T")

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LENGTHS = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}


def body(report: type[Any], *left_out: str) -> dict[str, Any]:
    """The request body of a report, as OpenAPI has it; fields of these names are not described, at whatever depth."""
    schema = _schema(report, left_out)
    required = [one.name for one in fields(report) if one.default is one.default_factory is MISSING]
    if required:
        schema["required"] = required
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answer(reply: type[Any], description: str) -> dict[str, Any]:
    """The answer to a report, as OpenAPI has it."""
    return {"description": description, "content": {"application/json": {"schema": _schema(reply, ())}}}


def _schema(kind: Any, left_out: Collection[str]) -> dict[str, Any]:
    """JSON Schema of what msgspec reads as a type, with the bounds that stand beside it."""
    origin, given = get_origin(kind), get_args(kind)
    if origin is Annotated:
        if given[1] == OPAQUE:
            return {"type": "object"}
        found, bounds = _schema(given[0], left_out), given[1]
        words = {"minimum": bounds.least, "maximum": bounds.most, "pattern": bounds.pattern}
        if bounds.length is not None:
            words[_LENGTHS[found["type"]]] = bounds.length
        return {**found, **{word: bound for word, bound in words.items() if bound is not None}}
    if origin in (Union, UnionType):
        found = _schema(given[0], left_out)
        return {**found, "type": [found["type"], "null"]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(given[1], left_out)}
    if origin is tuple:
        length = {} if given[1] is Ellipsis else {"minItems": len(given), "maxItems": len(given)}
        return {"type": "array", "items": _schema(given[0], left_out), **length}
    if isinstance(kind, NewType):
        return _schema(kind.__supertype__, left_out)
    if isinstance(kind, type) and is_dataclass(kind):
        texts = field_texts(kind.__module__)[kind.__qualname__]
        hints = get_type_hints(kind, include_extras=True)
        properties = {name: _schema(hint, left_out) for name, hint in hints.items() if name not in left_out}
        for name, schema in properties.items():
            if text := texts.get(name):
                schema["description"] = text
        return {"type": "object", "properties": properties}
    if issubclass(kind, Enum):
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    if issubclass(kind, tuple):
        count = len(get_type_hints(kind))
        return {"type": "array", "minItems": count, "maxItems": count}
    return {"type": _TYPES[kind]}


@cache
def _bounds(report: type[Any]) -> dict[str, FieldBounds]:
    """Field → its own bounds, of those that have some."""
    found = {}
    for name, hint in get_type_hints(report, include_extras=True).items():
        kind = get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint
        if get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], FieldBounds):
            found[name] = kind.__metadata__[0]
    return found


def bound_problems(
    report: EdgeReport | BalancerReport | RegionShown | ServerShown | TenantShown | TimesTold,
) -> Iterator[Problem]:
    """Which fields of a report keep not to their bounds; those of what is in them are looked at elsewhere."""
    kind: Any = type(report)
    for name, bounds in _bounds(kind).items():
        value = getattr(report, name)
        if value is None:
            continue
        if bounds.length is not None and len(value) > bounds.length:
            words = "may have {} characters" if isinstance(value, str) else "a report may have {} of them"
            yield Problem(name, "too_long", words.format(bounds.length))
        elif bounds.pattern is not None and not re.fullmatch(bounds.pattern, value):
            yield Problem(name, "invalid_format", f"must be of the form {bounds.pattern}")
        elif bounds.least is not None and not value >= bounds.least:
            yield Problem(name, "out_of_range", f"must be at least {bounds.least}")
        elif bounds.most is not None and not value <= bounds.most:
            yield Problem(name, "out_of_range", f"must be at most {bounds.most}")


def key_problems(keys: tuple[str, ...]) -> list[Problem]:
    """What is wrong with the public keys that somebody tells."""
    problems = []
    for number, key in enumerate(keys):
        try:
            key_bytes(key)
        except ValueError as error:
            problems.append(Problem(f"handoff_keys[{number}]", "invalid_format", str(error)))
    return problems


def lease_problems(leases: LeaseUse | None) -> list[Problem]:
    """What is wrong with what somebody says of its leases."""
    if leases is not None and len(leases.instance) > 100:
        return [Problem("leases.instance", "too_long", "an instance may have 100 characters")]
    return []


def inside_problems(inside: RegionShown | None, region: str) -> list[Problem]:
    """What is wrong with what a balancer shows of its region: the first of much."""
    return [] if inside is None else list(islice(_inside_problems(inside, region), _MAX_LISTED))


def _inside_problems(inside: RegionShown, region: str) -> Iterator[Problem]:
    if not region:
        yield Problem("region", "required", "an inside is of some region")
    yield from _shown_problems(inside, "inside")
    for number, server in enumerate(inside.servers):
        yield from _shown_problems(server, f"inside.servers[{number}]")
    for number, tenant in enumerate(inside.tenants):
        yield from _shown_problems(tenant, f"inside.tenants[{number}]")
    if inside.texts() > MAX_SHOWN_TEXTS:
        words = f"a report may show {MAX_SHOWN_TEXTS} characters of names and words"
        yield Problem("inside", "too_long", words)


def _shown_problems(shown: RegionShown | ServerShown | TenantShown, where: str) -> Iterator[Problem]:
    for one in bound_problems(shown):
        yield replace(one, path=f"{where}.{one.path}")
    for name in ("models", "adapters"):
        if any(len(text) > MAX_SHOWN_TEXT for text in getattr(shown, name, None) or ()):
            yield Problem(f"{where}.{name}", "too_long", f"each may have {MAX_SHOWN_TEXT} characters")


def time_problems(report: BalancerReport, regions: str | None) -> list[Problem]:
    """What is wrong with what a balancer tells of requests' times, whose token is for these regions (None: all): the first of much."""
    return list(islice(_time_problems(report, regions), _MAX_LISTED))


def _time_problems(report: BalancerReport, regions: str | None) -> Iterator[Problem]:
    if not report.times:
        return
    if not report.number:
        words = "a report that tells times has a number, so that they are counted once"
        yield Problem("number", "required", words)
    if not speaks_for(regions, report.region):
        words = f"the token does not speak for region `{report.region[:253]}`: a balancer tells the times of its own"
        yield Problem("times", "forbidden", words)
    if len({(one.service, one.model) for one in report.times}) < len(report.times):
        yield Problem("times", "duplicate", "each service and model may be there once")
    for number, one in enumerate(report.times):
        where = f"times[{number}]"
        for found in bound_problems(one):
            yield replace(found, path=f"{where}.{found.path}")
        if not one.service or not (one.service + one.model).isprintable():
            yield Problem(where, "invalid_format", "must have a service, and names of printable characters")
        for name, buckets in (("first_byte", one.first_byte), ("end", one.end)):
            if len({bucket for bucket, _ in buckets}) < len(buckets):
                yield Problem(f"{where}.{name}", "duplicate", "each bucket may be there once")
            if not all(0 <= bucket <= len(BOUNDS) and 1 <= count <= MAX_TIMED for bucket, count in buckets):
                words = f"buckets are 0 to {len(BOUNDS)}, and have 1 to {MAX_TIMED} requests"
                yield Problem(f"{where}.{name}", "out_of_range", words)


def learned_problems(deltas: Sequence[Delta], witnesses: Sequence[Witness]) -> list[Problem]:
    """What is wrong with what somebody learned of round trips and of claimed locations."""
    return [
        *_listed("latency", deltas, delta_problem),
        *_listed("witnesses", witnesses, witness_problem),
    ]


def _listed(field: str, items: Sequence[_T], problem: Callable[[_T], str | None]) -> list[Problem]:
    """What is wrong with a list of a report: the first of its items that are wrong."""
    wrong = (
        Problem(f"{field}[{number}]", "out_of_range", text)
        for number, item in enumerate(items)
        if (text := problem(item)) is not None
    )
    return list(islice(wrong, _MAX_LISTED))


def told_problems(found: EdgeReport) -> list[Problem]:
    """What is wrong with what an edge tells of its DNS, its probes and the certificates that it meets: the first of many."""
    return list(islice(_told_problems(found), _MAX_LISTED))


def _told_problems(found: EdgeReport) -> Iterator[Problem]:
    limits = found.dns_limits
    if limits is not None and not all(
        0 <= value <= _MAX_LIMIT
        for value in (limits.replies, limits.excess_bytes, limits.slip, limits.exempt)
    ):
        yield Problem("dns_limits", "out_of_range", f"must be between 0 and {_MAX_LIMIT}")
    for number, one in enumerate(found.probed or ()):
        if len(one.failure) > _MAX_TEXT:
            yield Problem(f"probed[{number}]", "too_long", f"a failure may have {_MAX_TEXT} characters")
    for number, shown in enumerate(found.certificates or ()):
        text = _certificate_problem(shown.certificate)
        if text is not None:
            yield Problem(f"certificates[{number}]", "invalid_format", text)


def _certificate_problem(one: Certificate) -> str | None:
    if not _SHA256.fullmatch(one.sha256):
        return "`sha256` must be 64 hexadecimal digits"
    if not all(-_LATEST <= at <= _LATEST for at in (one.not_before, one.not_after)):
        return "`not_before` and `not_after` must be POSIX times of the years up to 9999"
    if len(one.names) > _MAX_NAMES or any(
        len(text) > _MAX_TEXT for text in (one.subject, one.issuer, *one.names)
    ):
        return f"may have {_MAX_NAMES} names, and texts of {_MAX_TEXT} characters"
    return None
