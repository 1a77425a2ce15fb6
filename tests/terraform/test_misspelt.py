"""A field of a nested value whose name is misspelt is refused at `terraform validate`, by an error that names it and the field that was meant.

Terraform itself drops fields that an object's type does not have: `deny = { operator_jurisdiction = ["US"] }` would deny nothing, and nobody would be told.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.misspelling import Tree, misspelt, objects
from tests.misspelling import fields as fields_of
from tests.release.provider_docs import schema
from tests.terraform.conftest import DEPLOYED, Control, Terraform
from tests.terraform.module_worlds import MODULES, NEEDS, region_module, root

pytestmark = pytest.mark.drill

SPEC = json.loads((DEPLOYED / "provider/internal/spec/spec.json").read_text())["kinds"]
NEEDED: dict[str, dict[str, Any]] = {
    "gtm_region": {
        "name": "r",
        "country": "DE",
        "lat": 1,
        "lon": 1,
        "endpoints": [{"url": "https://r.test"}],
    },
    "gtm_zone": {"name": "a.test", "primary_ns": "ns.a.test", "hostmaster": "h.a.test"},
    "gtm_service": {"name": "s", "members": [{"region": "r"}]},
    "gtm_residency_rule": {"name": "l", "allow": {"jurisdictions": ["DE"]}, "legal_basis": "a law"},
    "gtm_jurisdiction": {"name": "j", "members": ["DE"]},
}
"""What resources with nested attributes need besides."""


@dataclass(frozen=True)
class Nested:
    """An attribute of a provider block, a resource or a data source that is made of objects."""

    kind: str
    name: str
    name_of_attribute: str
    listed: bool
    fields: Tree


def told_fields(description: str) -> Tree:
    """The fields that an attribute's description lists, which is what people read: two blanks more are a field's own fields."""
    found: Tree = {}
    path: list[Tree] = [found]
    for indent, name in re.findall(r"^( +)- `(\w+)` \(", description, re.MULTILINE):
        depth = len(indent) // 2
        path = path[:depth]
        path[-1][name] = {}
        path.append(path[-1][name])
    return found


def configurable(told: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Whatever one may write in a configuration: kind of block, its name, attribute, its schema."""
    (provider,) = told["provider_schemas"].values()
    blocks = [("provider", "gtm", provider["provider"])]
    blocks += [("resource", name, one) for name, one in provider["resource_schemas"].items()]
    blocks += [("data", name, one) for name, one in provider["data_source_schemas"].items()]
    for kind, name, one in blocks:
        assert not one["block"].get("block_types"), name
        for attribute, what in one["block"]["attributes"].items():
            if what.get("required") or what.get("optional"):
                yield kind, name, attribute, what


@pytest.fixture
def nested(provider: Path, tmp_path: Path) -> list[Nested]:
    """All of them, as the provider's program tells its schema; none has a type, by which Terraform would drop fields."""
    folder = tmp_path / "schema"
    folder.mkdir()
    found = []
    for kind, name, attribute, what in configurable(json.loads(schema(provider, folder))):
        assert "nested_type" not in what, (name, attribute)
        assert "object" not in json.dumps(what["type"]), (name, attribute)
        if what["type"] == "dynamic":
            fields = told_fields(what["description"])
            assert fields, (name, attribute)
            listed = bool(re.search(r"(List|Set) of objects, made of:", what["description"]))
            found.append(Nested(kind, name, attribute, listed, fields))
    return found


def test_what_is_described_is_what_the_api_has(nested: list[Nested]) -> None:
    """Of every kind all nested attributes, with all of their fields."""
    expected = {
        (f"gtm_{kind['name']}", attribute["name"]): fields
        for kind in SPEC
        for attribute in kind["attributes"]
        if (fields := fields_of(attribute))
    }
    assert {
        (one.name, one.name_of_attribute): one.fields for one in nested if one.kind == "resource"
    } == expected
    assert {(one.kind, one.name_of_attribute) for one in nested if one.kind != "resource"} == {
        ("provider", "wait_for_sync"),
        ("data", "wait_for_sync"),
    }


def test_every_field_of_the_provider(nested: list[Nested], terraform: Terraform) -> None:
    """Of each object in each attribute every field is written wrong in two ways; each is told, with what was meant."""
    resources: dict[str, dict[str, Any]] = {}
    data: dict[str, dict[str, Any]] = {}
    providers: list[dict[str, Any]] = [{}]
    wanted: list[tuple[str, str]] = []
    for attribute in nested:
        for number, (way, fields) in enumerate(objects(attribute.fields)):
            value: Any = {wrong: None for field in fields for wrong in misspelt(field)}
            for name in reversed(way):
                value = {name: value}
            value = [value] if attribute.listed else value
            label = f"{attribute.name_of_attribute}{number}"
            block = {**NEEDED.get(attribute.name, {}), attribute.name_of_attribute: value}
            address = f"{attribute.name}.{label}"
            if attribute.kind == "resource":
                resources.setdefault(attribute.name, {})[label] = block
            elif attribute.kind == "data":
                data.setdefault(attribute.name, {})[label] = block
                address = f"data.{address}"
            else:
                providers.append({"alias": label, **block})
                resources.setdefault("gtm_tenant", {})[label] = {"name": "t", "provider": f"gtm.{label}"}
                address = f'provider["registry.terraform.io/gtm/gtm"].{label}'
            place = ".".join((attribute.name_of_attribute + "[0]" * attribute.listed, *way))
            wanted += [
                (address, f"{place}.{wrong}: there is no such field: did you mean `{field}`?")
                for field in fields
                for wrong in misspelt(field)
            ]
    assert len(wanted) > 120
    text = {"terraform": NEEDS, "provider": {"gtm": providers}, "resource": resources, "data": data}
    terraform.write("main.tf.json", json.dumps(text))
    assert faults(terraform) >= set(wanted)


def faults(terraform: Terraform) -> set[tuple[str | None, str]]:
    """What `terraform validate` refuses: where, and what it says."""
    read = json.loads(terraform("validate", "-json").out)
    return {(one.get("address"), one["detail"]) for one in read["diagnostics"] if one["severity"] == "error"}


HCL = """
terraform {{
  required_providers {{
    gtm = {{ source = "gtm/gtm" }}
  }}
}}
variable "deny" {{
  type    = any
  default = null
}}
resource "gtm_residency_rule" "it" {{
  name        = "it"
  allow       = {{ jurisdictions = ["DE", "US"] }}
  deny        = {deny}
  legal_basis = "a law"
}}
"""


def test_what_is_known_later_is_refused_later(terraform: Terraform, control: Control) -> None:
    """A value that `validate` does not know, a variable's, is refused by the plan; one that is partly known, by `validate`."""
    terraform.environment |= control.environment()
    meant = "deny.operator_jurisdiction: there is no such field: did you mean `operator_jurisdictions`?"
    terraform.write("main.tf", HCL.format(deny="{ operator_jurisdiction = var.deny }"))
    assert meant in terraform("validate").said
    terraform.write("main.tf", HCL.format(deny="var.deny"))
    terraform.ok("validate")
    refused = terraform("plan", "-var", 'deny={ operator_jurisdiction = ["US"] }')
    assert refused.code == 1
    assert meant in refused.said
    assert "deny" in terraform.ok("plan", "-var", 'deny={ operator_jurisdictions = ["US"] }').said


def test_values_of_other_types(terraform: Terraform) -> None:
    """Are turned as Terraform turns them, or refused with what is wanted; bounds hold inside."""
    cases = {
        "ok": {
            "probe": {
                "interval": "20",
                "verify_tls": "false",
                "json_field": "a",
                "json_value": 1,
                "expected_status": ["204"],
            }
        },
        "text": {"probe": {"interval": "often"}},
        "half": {"probe": {"port": 1.5}},
        "bool": {"probe": {"verify_tls": "maybe"}},
        "list": {"probe": {"expected_status": 200}},
        "whole": {"probe": ["http"]},
        "null": {"endpoints": [None]},
        "missing": {"endpoints": [{"ipv4": ["192.0.2.1"]}]},
        "address": {"endpoints": [{"url": "https://r.test", "ipv4": ["here"]}]},
        "none": {"endpoints": []},
        "bound": {"probe": {"port": 70000}},
        "kind": {"probe": {"type": "ping"}},
        "scalar": {"probe": {"json_value": ["a"]}},
    }
    resources = {name: {**NEEDED["gtm_region"], **case} for name, case in cases.items()}
    terraform.write("main.tf.json", json.dumps({"terraform": NEEDS, "resource": {"gtm_region": resources}}))
    assert {(address, detail) for address, detail in faults(terraform)} == {
        ("gtm_region.text", 'probe.interval: this is the text "often" where a number is wanted'),
        ("gtm_region.half", "probe.port: this is 1.5 where a whole number is wanted"),
        ("gtm_region.bool", 'probe.verify_tls: this is the text "maybe" where true or false is wanted'),
        ("gtm_region.list", "probe.expected_status: this is 200 where a list, `[ … ]`, is wanted"),
        ("gtm_region.whole", "probe: this is a list where an object, `{ … }`, is wanted"),
        ("gtm_region.null", "endpoints[0]: this is null where an object, `{ … }`, is wanted"),
        ("gtm_region.missing", "endpoints[0]: the field `url` is missing"),
        ("gtm_region.none", "endpoints: it has 0 elements; the least is 1"),
        ("gtm_region.bound", "probe.port: it is 70000; the most is 65535"),
        ("gtm_region.kind", "probe.type: `ping` is none of `http`, `https`, `tcp`"),
        (
            "gtm_region.scalar",
            "probe.json_value: this is a list where a text, a number, true or false is wanted",
        ),
    }


KEYED = {
    ("control", "environment"),
    ("edge", "environment"),
    ("gdpr", "transfers"),
    ("inference-service", "spillover"),
    ("inference-service", "weights"),
    ("machine", "files"),
    ("machine", "given"),
    ("machine", "settings"),
}
"""Variables of modules that are maps by names of the user's own, not by fields."""
BASES: dict[str, dict[str, Any]] = {
    "region": region_module("fra", "DE"),
    "inference-service": {"name": "chat", "regions": ["fra"]},
    "edge": {
        "control_url": "https://c.test",
        "token_file": "/t",
        "package": {"version": "0.1.0"},
    },
    "control": {
        "database_url_file": "/u",
        "package": {"version": "0.1.0"},
    },
    "machine": {
        "service": "s",
        "folder": "s",
        "unit": "",
        "settings": {},
        "package": {},
        "python": None,
        "pip_arguments": [],
        "install_packages": True,
        "listens": [],
        "on_change": "restart",
        "start_timeout": 1,
    },
}
MIRRORED = {("region", name): ("region", name) for name in ("endpoints", "capacity", "spill_in", "probe")} | {
    ("inference-service", name): ("service", name) for name in ("hostnames", "refusal")
}
"""Variables that a resource's attribute is made of."""


def module_variables() -> Iterator[tuple[str, str, str, list[str]]]:
    """Each variable of each module that may hold objects: module, name, type, the fields that it takes."""
    for path in sorted(MODULES.glob("*/variables.tf")):
        text = path.read_text()
        assert not re.search(r"\bobject\(", text), (
            f"{path}: Terraform drops fields that an object's type does not have"
        )
        for name, body in re.findall(r'^variable "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL):
            (kind,) = re.findall(r"^  type += (.*)$", body, re.MULTILINE)
            if kind != "any" and "map(" not in kind:
                continue
            if (path.parent.name, name) in KEYED:
                continue
            fields = re.search(r"length\(setsubtract\(.*, \[(\"[^]]*\")\]\)\) == 0$", body, re.MULTILINE)
            assert fields is not None, f"{path}: {name} may hold fields, and does not say which"
            yield path.parent.name, name, kind, json.loads(f"[{fields[1]}]")


def test_every_field_of_the_modules(terraform: Terraform) -> None:
    """Of each variable of each module every field is written wrong in two ways; each is told, and all the fields that there are."""
    spec = {(kind["name"], one["name"]): list(fields_of(one)) for kind in SPEC for one in kind["attributes"]}
    calls: dict[str, dict[str, Any]] = {}
    wanted: dict[str, tuple[str, list[str]]] = {}
    for module, name, kind, fields in module_variables():
        if (module, name) in MIRRORED:
            assert fields == spec[MIRRORED[module, name]], (module, name)
        for number, wrong in enumerate(zip(*map(misspelt, fields), strict=True)):
            value: Any = dict.fromkeys(wrong, 1 if "number" in kind else ["a"] if "set" in kind else "a")
            if name in {"endpoints", "hostnames"}:
                value = [value]
            if kind.startswith("map(map("):
                value = {"one": value}
            label = f"{module}_{name}_{number}"
            source = os.path.relpath(MODULES / module, terraform.folder.resolve())
            calls[label] = {**BASES[module], name: value, "source": source}
            listed = ", ".join(f"`{field}`" for field in fields[:-1]) + f" and `{fields[-1]}`"
            wanted[label] = (f"; the fields are {listed}.", sorted(wrong))
    assert len(wanted) > 35
    terraform.write("main.tf.json", root(calls))
    terraform.ok("get")
    told: dict[str, str] = {}
    for one in json.loads(terraform("validate", "-json").out)["diagnostics"]:
        if one["severity"] == "warning":
            continue
        (label,) = re.findall(r"module\.([\w-]+)", one["snippet"]["context"])
        told[label] = told.get(label, "") + one["detail"]
    for label, (listed, wrong) in wanted.items():
        name = label.split("_", 1)[1].rsplit("_", 1)[0]
        unknown = "`, `".join(wrong)
        assert f"{name}: there is no field `{unknown}`{listed}" in told.get(label, ""), label
