"""Nested values in state and plan: as they are written; another way to write the same is no difference, and states of the earlier provider are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.terraform.conftest import DEPLOYED, Control, Terraform
from tests.terraform.module_worlds import NEEDS

pytestmark = pytest.mark.drill

KINDS = json.loads((DEPLOYED / "provider/internal/spec/spec.json").read_text())["kinds"]
REGION: dict[str, Any] = {"name": "r", "country": "DE", "lat": 1, "lon": 1, "models": ["m"]}
FULL = {
    "endpoints": [{"url": "https://r.test", "ipv4": ["192.0.2.1", "192.0.2.2"]}],
    "probe": {"interval": 20, "json_field": "a", "json_value": True, "expected_status": [200, 204]},
    "capacity": {"requests_per_second": 2.5},
}
SAME = {
    "endpoints": [{"url": "https://r.test", "ipv4": ["192.0.2.2", "192.0.2.1", "192.0.2.2"], "cname": None}],
    "probe": {
        "interval": "20",
        "path": "/healthz",
        "json_field": "a",
        "json_value": True,
        "expected_status": ["204", 200],
    },
    "capacity": {"requests_per_second": "2.50", "outstanding": None},
    "spill_in": {},
}
"""The same in other words: another order, a number in quotes, defaults and nulls that are written down, an element twice."""


def earlier(state: dict[str, Any], policy: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A state as the provider wrote it when nested attributes had types: all of their fields, with control's defaults."""
    kinds = {f"gtm_{kind['name']}": kind for kind in KINDS}
    for resource in state["resources"]:
        kind = kinds[resource["type"]]
        documents = {document["name"]: document for document in policy[kind["field"]]}
        for instance in resource["instances"]:
            document = documents[instance["attributes"]["name"]]
            instance["schema_version"] = 0
            for attribute in kind["attributes"]:
                if attribute["type"] == "object" or "attributes" in attribute.get("element", {}):
                    instance["attributes"][attribute["name"]] = _typed(attribute, document[attribute["name"]])
    return state


def _typed(attribute: dict[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(attribute["element"], one) for one in value]
    if attribute["type"] == "dynamic" and value is not None:
        kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
        return {"value": value, "type": kind}
    if isinstance(value, str) and attribute.get("short"):
        value = {attribute["short"]: value}
    if isinstance(value, dict):
        return {one["name"]: _typed(one, value.get(one["name"])) for one in attribute["attributes"]}
    return value


def _plan(terraform: Terraform, **given: Any) -> int:
    text = {"terraform": NEEDS, "resource": {"gtm_region": {"it": {**REGION, **given}}}}
    terraform.write("main.tf.json", json.dumps(text))
    return terraform("plan", "-detailed-exitcode").code


def test_the_same_in_other_words(terraform: Terraform, control: Control) -> None:
    """Is no difference, whichever of them stands in the state; a field that is left out again has its default again."""
    terraform.environment |= control.environment()
    for first, second in ((FULL, SAME), (SAME, FULL)):
        assert _plan(terraform, **first) == 2
        terraform.apply()
        assert _plan(terraform, **first) == 0
        assert _plan(terraform, **second) == 0
        assert _plan(terraform, **{**second, "probe": {"interval": 20}}) == 2
        terraform.apply()
        (region,) = control.policy()["regions"]
        assert (region["probe"]["json_field"], region["probe"]["expected_status"]) == (None, [200])


def test_drift_inside(terraform: Terraform, control: Control) -> None:
    """What somebody changes inside of a nested value is shown field by field, and put back."""
    terraform.environment |= control.environment()
    assert _plan(terraform, **FULL) == 2
    terraform.apply()
    (there,) = control.policy()["regions"]
    changed = {**there, "probe": {**there["probe"], "interval": 30, "path": "/x"}}
    by_hand = {"on_managed": "override", "managed_reason": "a test"}
    control.admin.put("/v1/regions/r", json=changed, params=by_hand).raise_for_status()
    shown = terraform.ok("plan").said
    assert '~ probe = { ~ interval = 30 -> 20 - path = "/x"' in shown
    assert "~ endpoints" not in shown
    terraform.apply()
    assert control.policy()["regions"] == [there]


def test_states_of_the_earlier_provider(terraform: Terraform, control: Control) -> None:
    """Are read, whatever of it is written down in the configuration, and nothing is to be changed."""
    terraform.environment |= control.environment()
    for given in (FULL, SAME, {"endpoints": FULL["endpoints"]}):
        _plan(terraform, **given)
        terraform.apply()
        path = terraform.folder / "terraform.tfstate"
        old = earlier(json.loads(path.read_text()), control.policy())
        assert '"expected_status": [' in json.dumps(old)
        path.write_text(json.dumps(old))
        for refreshed in ("true", "false"):
            done = terraform("plan", "-detailed-exitcode", f"-refresh={refreshed}")
            assert done.code == 0, done.out + done.err
        path.write_text(json.dumps(old))
        assert _plan(terraform, **{**given, "capacity": {"outstanding": 7}}) == 2
        terraform.apply()
        assert control.policy()["regions"][0]["capacity"]["outstanding"] == 7


def test_null_of_a_type(terraform: Terraform, control: Control) -> None:
    """A null that a condition has given a type is as good as any: made, planned again, changed, and taken out again."""
    terraform.environment |= control.environment()
    text = """
    terraform {
      required_providers {
        gtm = { source = "gtm/gtm" }
      }
    }
    variable "on" { default = false }
    resource "gtm_region" "r" {
      name      = "r"
      country   = "DE"
      lat       = 1
      lon       = 1
      endpoints = [{ url = "https://r.test", ipv4 = ["192.0.2.1"] }]
      probe     = var.on ? { interval = 20 } : null
      capacity  = var.on ? tomap({ outstanding = 3 }) : null
    }
    resource "gtm_zone" "z" {
      name       = "a.test"
      primary_ns = "ns.a.test"
      hostmaster = "h.a.test"
    }
    resource "gtm_service" "s" {
      name         = "s"
      zone         = gtm_zone.z.name
      hostnames    = [{ name = "s.a.test" }]
      refusal      = { ipv4 = ["192.0.2.9"] }
      members      = [{ region = gtm_region.r.name, capacity = var.on ? { outstanding = 3 } : null }]
      https_record = var.on ? { alpn = ["h2"] } : null
    }
    """
    terraform.write("main.tf", text)
    for on in ("false", "true", "false"):
        terraform.apply("-var", f"on={on}")
        done = terraform("plan", "-detailed-exitcode", "-var", f"on={on}")
        assert done.code == 0, done.out + done.err
        (service,) = control.policy()["services"]
        assert (service["https_record"] is not None) == (on == "true")
        assert (service["members"][0]["capacity"]["outstanding"] == 3) == (on == "true")
