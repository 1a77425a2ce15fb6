"""What is generated is of today's API, and fits what control answers."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, get_type_hints

import msgspec

from gtm.client import AsyncControl, Control, calls, types
from gtm.client.objects import JsonObject
from gtm.core.model.state import HealthStatus
from tests.api.conftest import Api
from tests.api.test_feed import report
from tests.release.client_code import TARGET, control_document, operations, sources, type_name

_NOT_JSON = {"metrics", "export_audit", "handoff_keys"}
_NOT_THERE = {"get_recorded_demand"}
"""Control has recorded none, and says so by a 404."""


@cache
def required() -> dict[str, tuple[str, ...]]:
    """Type → its members that are always there."""
    schemas = control_document()["components"]["schemas"]
    return {type_name(name): tuple(schema.get("required", ())) for name, schema in schemas.items()}


def test_it_is_what_would_be_written() -> None:
    """`make client` changes nothing."""
    found = sources()
    assert sorted(found) == sorted(path.name for path in TARGET.glob("*.py"))
    for name, text in found.items():
        assert (TARGET / name).read_text() == text, f"{name} is not of today's API: run `make client`"


def test_both_clients_can_ask_all() -> None:
    """For threads and for asyncio, with the arguments of the call."""
    names = {one.name for one in operations(control_document())}
    assert len(names) > 80
    controls = (Control("http://127.0.0.1:1", "gtm_x_y"), AsyncControl("http://127.0.0.1:1", "gtm_x_y"))
    for name in names:
        asked = inspect.signature(getattr(calls, name)).parameters
        for control in controls:
            assert inspect.signature(getattr(control, name)).parameters == asked


def test_values_are_of_their_types(world: Api, control: Control) -> None:
    """Each reading call that needs no more than it has, of a control with a policy that an edge reports to."""
    seen = 0
    for one in operations(control_document()):
        needs = [given for given in one.parameters if given.required]
        if one.method != "GET" or one.name in _NOT_JSON | _NOT_THERE:
            continue
        given: dict[str, Any] = {}
        for parameter in needs:
            known = {"number": 1, "name": _some(one.path), "kind": "regions"}
            if parameter.name not in known:
                break
            given[parameter.name] = known[parameter.name]
        if len(given) < len(needs) or None in given.values():
            continue
        reported = report(world, "edge-1", HealthStatus.UP)  # what an edge says counts for some seconds
        assert reported.status_code == 200, reported.text
        answer = control.send(getattr(calls, one.name)(**given)).value
        kind = getattr(types, type_name(one.value.removeprefix("types.")))
        msgspec.convert(answer, kind, strict=True, dec_hook=_record)
        seen += 1
    assert seen > 40


def _record(kind: type[JsonObject], value: JsonObject) -> JsonObject:
    """A value as its type, of which each member is what its annotation says."""
    for name, annotation in get_type_hints(kind).items():
        if name.removesuffix("_") in value or name.removesuffix("_") in required()[kind.__name__]:
            msgspec.convert(getattr(value, name), annotation, strict=True, dec_hook=_record)
    return kind(value)


def _some(path: str) -> str | None:
    """The name of something that is there, by where it is."""
    there = {"regions": "eu-central", "zones": "demo.test", "services": "chat", "residency-rules": "gdpr"}
    there |= {"tenants": "clinic", "jurisdictions": "EEA"}
    return there.get(path.split("/")[2])
