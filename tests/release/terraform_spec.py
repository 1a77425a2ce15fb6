"""Writes what the Terraform provider knows of gtm's resources, from control's OpenAPI document (`make provider-spec`).

A test fails while what is there is not what would be written: a kind or a field that the API has and the provider lacks. What the document cannot say is decided here: lists
in which order means nothing are sets in Terraform, and what is not a part of a resource as code (a region's admin state, which operators change by hand) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gtm.documents.cities import CITIES_FILE
from tests.release.client_code import control_document

FOLDER = Path("deploy/terraform/provider/internal/spec")

KINDS = {
    "regions": "region",
    "zones": "zone",
    "services": "service",
    "residency_rules": "residency_rule",
    "spillover_rules": "spillover_rule",
    "jurisdictions": "jurisdiction",
    "tenants": "tenant",
    "data_classes": "data_class",
}
"""Field of a policy → what a resource of it is called in Terraform, behind `gtm_`."""

LEFT_OUT = {
    "region.admin_state": "gtm_region_state has it: a region is drained by hand in an incident, and no plan undoes that",
    "region.draining_since": "likewise",
    "zone.challenges": "ACME clients write them one by one, and no plan deletes what a certificate authority is about to ask for",
}
ORDERED = {
    "service.members": "steering `failover` goes by the order, and where a client's place is unknown all do",
    "region.endpoints": "answers name them in this order",
    "zone.name_servers": "as above",
    "zone.records.data": "texts of one TXT record are in order",
    "service.https_record.alpn": "preferred first",
    "spillover_rule.to_regions": "as above",
}
"""Lists in which order means something, and why; in all others it means nothing."""


@cache
def spec() -> dict[str, Any]:
    """All kinds, as the provider reads them."""
    document = control_document()
    schemas = document["components"]["schemas"]
    return {"kinds": [_kind(document, schemas, field, name) for field, name in KINDS.items()]}


def _kind(document: Mapping[str, Any], schemas: Mapping[str, Any], field: str, name: str) -> dict[str, Any]:
    items = schemas["PolicyDocument"]["properties"][field]["items"]
    schema = schemas[items["$ref"].rpartition("/")[2]]
    path = f"/v1/{field.replace('_', '-')}"
    assert path in document["paths"], path
    return {
        "field": field,
        "name": name,
        "path": path,
        "description": schema["description"],
        "attributes": _attributes(schemas, schema, name),
    }


def _attributes(schemas: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    required = set(schema.get("required", ()))
    found = []
    for name, what in schema["properties"].items():
        path = f"{where}.{name}"
        if path in LEFT_OUT:
            continue
        attribute = {"name": name, **_attribute(schemas, what, path)}
        if name in required:
            attribute["required"] = True
        elif "default" in what:
            attribute["default"] = what["default"]
        found.append(attribute)
    return found


def _attribute(schemas: Mapping[str, Any], what: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Type, bounds and words of one value."""
    resolved, nullable = _resolved(schemas, what)
    found: dict[str, Any] = {}
    said = what.get("description") or resolved.get("description")
    if said:
        found["description"] = said
    if nullable:
        found["nullable"] = True
    kind = resolved.get("type")
    if "properties" in resolved:
        found["type"] = "object"
        found["attributes"] = _attributes(schemas, resolved, path)
    elif kind == "array":
        found["type"] = "list" if path in ORDERED else "set"
        found["element"] = _attribute(schemas, resolved["items"], path)
    elif "anyOf" in resolved:
        found |= _either(schemas, resolved["anyOf"], path)
    else:
        found["type"] = {"boolean": "bool"}.get(str(kind), str(kind))
    bounds = {
        "minimum": "minimum",
        "maximum": "maximum",
        "exclusiveMinimum": "above",
        "minLength": "min_length",
        "maxLength": "max_length",
        "minItems": "min_items",
        "maxItems": "max_items",
        "pattern": "pattern",
        "enum": "enum",
        "format": "format",
    }
    return found | {name: resolved[key] for key, name in bounds.items() if key in resolved}


def _either(schemas: Mapping[str, Any], ways: list[Mapping[str, Any]], path: str) -> dict[str, Any]:
    """A name or an object with that name is an object here, whose other fields may be left out; of several scalars any will do."""
    resolved = [_resolved(schemas, way)[0] for way in ways]
    objects = [way for way in resolved if "properties" in way]
    if not objects:
        return {"type": "dynamic"}
    (whole,) = objects
    return {"type": "object", "short": whole["required"][0], "attributes": _attributes(schemas, whole, path)}


def _resolved(schemas: Mapping[str, Any], what: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A schema without references, and whether null is one of its values."""
    if "$ref" in what:
        return {
            **schemas[what["$ref"].rpartition("/")[2]],
            **{k: v for k, v in what.items() if k != "$ref"},
        }, False
    if "oneOf" in what:
        what = {**{k: v for k, v in what.items() if k != "oneOf"}, "anyOf": what["oneOf"]}
    ways = what.get("anyOf", [])
    others = [way for way in ways if way.get("type") != "null"]
    if ways and len(others) < len(ways):
        if len(others) == 1:
            resolved, _ = _resolved(schemas, {**others[0], **{k: v for k, v in what.items() if k != "anyOf"}})
            return resolved, True
        return {**what, "anyOf": others}, True
    return dict(what), False


def written() -> dict[Path, str]:
    """File → what is in it."""
    described = json.dumps(spec(), indent=1, ensure_ascii=False) + "\n"
    return {FOLDER / "spec.json": described, FOLDER / "cities.csv": CITIES_FILE.read_text()}


def main() -> None:
    """Write it."""
    for path, text in written().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
