"""What is wrong with the inputs of `deploy/terraform/modules` is said at the module, in words that say what to write."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.terraform.conftest import Control, Terraform
from tests.terraform.module_worlds import MODULES, region_module, root

pytestmark = pytest.mark.drill


def _region_with(**said: Any) -> dict[str, Any]:
    return {**region_module("fra", "DE"), **said}


def _service_with(**said: Any) -> dict[str, Any]:
    return {"source": str(MODULES / "inference-service"), "name": "chat", "regions": ["fra", "dub"], **said}


def _rules_with(**said: Any) -> dict[str, Any]:
    told = {"services": [], "applies_to": "people", "scope": "eea"}
    return {"source": str(MODULES / "gdpr"), **told, **said}


_H100 = {"count": 8, "per_server": 8}
WRONG: list[tuple[dict[str, Any], str]] = [
    (_region_with(name="Frankfurt"), "name: `Frankfurt` is no name: write 1 to 63 lower-case letters"),
    (_region_with(country="Germany"), "country: `Germany` is no country code"),
    (_region_with(country=None), "say where it stands: `city`, or else `country`, `lat` and `lon`"),
    (_region_with(city="Frankfurt", lon=None), "`lat` and `lon` are stated together"),
    (_region_with(lat=139.7), "lat: it is between -90 and 90. Are latitude and longitude swapped?"),
    (_region_with(lon=181), "lon: it is between -180 and 180"),
    (_region_with(operator_country="de"), "operator_country: write ISO 3166-1 alpha-2 in upper case"),
    (_region_with(endpoints=[]), "endpoints: a region needs one at least"),
    (_region_with(endpoints=[{"url": "fra.example.com"}]), "each `url` begins with http:// or https://"),
    (
        _region_with(endpoints=[{"url": "http://a.example"}, {"url": "https://b.example"}]),
        "Region fra has endpoints of http and of https: say by which they are probed",
    ),
    (_region_with(accelerators={"h100": {"count": 1.5, "slots": 1}}), "`count` is a whole number from 0"),
    (
        _region_with(accelerators={"h100": {**_H100, "count": 4, "slots": 1}}),
        "h100 has 4, which is less than one model server takes (`per_server`)",
    ),
    (_region_with(accelerators={"h100": {**_H100, "slots": -1}}), "`slots` is a whole number from 0"),
    (_region_with(accelerators={"h100": _H100}), "h100 says nothing of what one model server takes"),
    (
        _region_with(accelerators={"h100": {**_H100, "requests_per_second": 1, "tokens_per_second": 1}}),
        "state either `requests_per_second` or `tokens_per_second` of a kind, not both",
    ),
    (
        _region_with(
            accelerators={"h100": {**_H100, "slots": 1}, "a100": {**_H100, "requests_per_second": 1}}
        ),
        "state slots of all kinds or of none, and likewise rates",
    ),
    (
        _region_with(accelerators={"h100": {**_H100, "tokens_per_second": 1}}),
        "say how many tokens a request generates (`tokens_per_request`)",
    ),
    (_region_with(tokens_per_request=0), "tokens_per_request: it must be above 0"),
    (_region_with(probe={"type": "ping"}), "probe: `type` is http, https or tcp"),
    (_region_with(probe={"type": "tcp", "body_regex": "ok"}), "probe: tcp only connects"),
    (_region_with(probe={"json_field": "status"}), "`json_field` and `json_value` are stated together"),
    (_region_with(probe={"interval": 2}), "`timeout` (3 s, if left out) is at most `interval`"),
    (_service_with(name="Chat!"), "name: `Chat!` is no name"),
    (_service_with(regions=[]), "regions: a service needs one at least"),
    (_service_with(regions=["fra", "fra"]), "regions: one of them is named twice: fra, fra"),
    (
        _service_with(capacity={"fra": {"slots": 5}}),
        "fra has neither `outstanding` nor `requests_per_second`",
    ),
    (
        _service_with(capacity={"iad": {"outstanding": 5}}),
        "iad stands in `capacity`, `weights`, `canary` or `spillover`, but not in `regions` (fra, dub)",
    ),
    (
        _service_with(spillover={"fra": {"tyo": 0.5}}),
        "tyo stands in `capacity`, `weights`, `canary` or `spillover`",
    ),
    (_service_with(weights={"fra": -1}), "weights: they are numbers from 0"),
    (_service_with(weights={"fra": 2}, steering="geo"), "weights decide nothing under steering geo"),
    (_service_with(steering="nearest"), "steering: it is latency, geo, weighted or failover"),
    (
        _service_with(canary={"region": "dub", "share": 0}),
        "`share` is above 0 and 1 at most: 0.05 is every twentieth client",
    ),
    (_service_with(regions=["dub"], canary={"region": "dub", "share": 0.1}), "has a canary alone"),
    (
        _service_with(canary={"region": "dub", "share": 0.1}, weights={"dub": 2}),
        "the canary has a share of all clients, and no weight beside it",
    ),
    (
        _service_with(hostnames=[{"name": "a.b"}], refusal={"ipv4": ["192.0.2.1"]}),
        "say in which zone they lie",
    ),
    (_service_with(hostnames=[{"name": "a.b"}], zone="b"), "so it needs `refusal` addresses"),
    (_service_with(hostnames=[{"name": "a.b"}, {"name": "A.b."}]), "one of them is there twice: a.b, A.b."),
    (_service_with(service_time_ms=0), "service_time_ms: it is above 0"),
    (_service_with(spillover={"fra": {"dub": 30}}), "shares are between 0 and 1 (0.3 is 30 %)"),
    (_service_with(spillover={"fra": {"fra": 1}}), "fra spills to itself"),
    (_service_with(spillover={"fra": {}}), "spillover: fra leads nowhere"),
    (_service_with(name="c" * 60, spillover={"fra": {"dub": 1}}), "would have more than 63 characters"),
    (_rules_with(applies_to="us"), "Who is established in the EEA? You: `everyone`"),
    (_rules_with(scope="us"), "`us` is neither `eea` nor `eea_and_adequacy`"),
    (_rules_with(name="GDPR"), "`GDPR` is no beginning of a name"),
    (_rules_with(transfers={"iad": "contract"}), "iad has no ground of Chapter V: name the article"),
    (_rules_with(operators="eea"), "operators: it is `anyone` or `in_scope`"),
    (
        _rules_with(operators="in_scope", transfers={"iad": "Art. 45"}),
        'operators = "in_scope" would take the regions of `transfers` out again',
    ),
    (_rules_with(mode="off"), "mode: it is `enforce` or `monitor`"),
    (_rules_with(edges="inside"), "edges: it is `anywhere` or `in_fence`"),
    (_rules_with(max_policy_age=5), "max_policy_age: less than 10 s"),
    (_rules_with(on_unknown_location="trust"), "on_unknown_location: it is `match` or `ignore`"),
    (_rules_with(on_anonymous="ignore"), "on_anonymous: it is `match` or `trust`"),
    (_rules_with(on_doubtful_location="ignore"), "on_doubtful_location: it is `match` or `trust`"),
    (
        _rules_with(on_unknown_location="ignore", max_accuracy_km=100),
        "max_accuracy_km and on_doubtful_location decide nothing",
    ),
    (
        _rules_with(applies_to="everyone", on_anonymous="trust", max_accuracy_km=5),
        "nobody looks at where clients are: leave out on_anonymous, max_accuracy_km",
    ),
    (
        _rules_with(applies_to="people_and_tenants", tenants=["bank"]),
        "`tenants` does not go with applies_to",
    ),
    (_rules_with(established_tenants=["acme"]), "`established_tenants` go with applies_to"),
    (_rules_with(effective_from="2027-01-01"), "effective_from: write a time with its zone"),
    (_rules_with(effective_until="soon"), "effective_until: write a time with its zone"),
    (
        _rules_with(effective_from="2027-01-01T00:00:00Z", effective_until="2026-01-01T00:00:00Z"),
        "The rules would end (2026-01-01T00:00:00Z) before they begin (2027-01-01T00:00:00Z)",
    ),
    (_rules_with(note="n" * 1001), "note: it has 1001 characters; the most is 1000"),
]


def test_wrong_inputs_are_told(terraform: Terraform, control: Control) -> None:
    """Each at the module that it stands in, in words that say what to write.

    What is wrong with variables Terraform says before it looks at anything else: two plans tell all.
    """
    terraform.environment |= control.environment(Role.VIEWER)
    left = {f"wrong{number}": case for number, case in enumerate(WRONG)}
    for _ in range(2):
        terraform.write("main.tf.json", root({name: said for name, (said, _) in left.items()}))
        terraform.ok("get")
        told = _told(terraform)
        for name in told.keys() & left:
            _, message = left.pop(name)
            assert message in told[name], name
    assert not left


def _told(terraform: Terraform) -> dict[str, str]:
    """What a plan says is wrong, by module: the diagnostic has it in one place or another."""
    lines = map(json.loads, terraform("plan", "-json").out.splitlines())
    found: dict[str, str] = {}
    for one in (line["diagnostic"] for line in lines if line["type"] == "diagnostic"):
        if one["severity"] == "error":
            snippet = one.get("snippet") or {}
            places = [one.get("address"), snippet.get("context"), one.get("range", {}).get("filename")]
            (name,) = set(re.findall(r"\bwrong\d+\b", json.dumps(places)))
            found[name] = found.get(name, "") + one["detail"]
    return found
