"""Worlds made of the modules of policy, and models of what their READMEs say of them."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import product
from typing import Any

from tests.terraform.conftest import DEPLOYED

MODULES = DEPLOYED / "modules"
NEEDS = {"required_providers": {"gtm": {"source": "gtm/gtm"}}}

# Where regions stand, and who runs them. That Norway is in the EEA, Britain and Japan have an adequacy decision for all, and the
# US for some recipients only, is what docs/residency.md says of the shipped jurisdictions.
REGIONS: dict[str, tuple[str, str | None]] = {
    "fra": ("DE", "DE"),
    "dub": ("IE", "US"),
    "osl": ("NO", "NO"),
    "lon": ("GB", "GB"),
    "tyo": ("JP", None),
    "iad": ("US", "US"),
}
EEA = {"DE", "IE", "NO"}
ADEQUATE = {"GB", "JP"}
TENANTS: dict[str, str | None] = {"bank": "DE", "acme": "US", "nomad": None}
CLASSES = ("personal", "public")
REQUESTS = [*product(("NO", "US", None), (None, *TENANTS), (None, "public"))]
"""Where the client is, on whose behalf, and with what: what is left out is not stated."""


def root(modules: dict[str, dict[str, Any]], **more: Any) -> str:
    """A root module's text (JSON), with the provider that it needs."""
    return json.dumps({"terraform": NEEDS, "module": modules, **more})


def region_module(name: str, country: str, operator: str | None = None, **more: Any) -> dict[str, Any]:
    """What is said to the module of a region."""
    endpoints = [{"url": f"https://{name}.example.com"}]
    stands = {"country": country, "lat": 50, "lon": 8, "operator_country": operator}
    probe = {"json_field": "model.loaded", "json_value": True}
    return {
        "source": str(MODULES / "region"),
        "name": name,
        "endpoints": endpoints,
        "probe": probe,
        **stands,
        **more,
    }


def _pools(draw: random.Random) -> dict[str, Any]:
    """Accelerators of one to three kinds."""
    bounds = draw.choice([["slots"], ["rate"], ["slots", "rate"]])
    pools = {}
    for kind in draw.sample(["h100", "a100", "mi300"], draw.randint(1, 3)):
        per_server = draw.choice([1, 2, 8])
        pool: dict[str, Any] = {
            "count": draw.choice([0, draw.randint(per_server, 64)]),
            "per_server": per_server,
        }
        if "slots" in bounds:
            pool["slots"] = draw.randint(0, 256)
        if "rate" in bounds:
            pool[draw.choice(["requests_per_second", "tokens_per_second"])] = draw.choice([0, 4, 2500.5])
        pools[kind] = pool
    return pools


def capacity(pools: dict[str, Any], tokens_per_request: int) -> dict[str, float | None]:
    """The model: whole servers only; what a server takes, times their number, summed up."""
    slots: int | None = None
    rate: Fraction | None = None
    for pool in pools.values():
        servers = pool["count"] // pool["per_server"]
        if "slots" in pool:
            slots = (slots or 0) + servers * pool["slots"]
        if "requests_per_second" in pool:
            rate = (rate or Fraction(0)) + servers * Fraction(pool["requests_per_second"])
        if "tokens_per_second" in pool:
            rate = (rate or Fraction(0)) + servers * Fraction(pool["tokens_per_second"]) / tokens_per_request
    return {"outstanding": slots, "requests_per_second": None if rate is None else float(rate)}


def _some(draw: random.Random, of: Any) -> list[str]:
    return draw.choice([[], draw.sample(sorted(of), 1), draw.sample(sorted(of), 1)])


def _rules(draw: random.Random, service: str) -> dict[str, Any]:
    """What is said to the module of the GDPR."""
    applies = draw.choice(["everyone", "people", "people_and_tenants"])
    said: dict[str, Any] = {
        "name": f"gdpr-{service}",
        "services": [service],
        "applies_to": applies,
        "scope": draw.choice(["eea", "eea_and_adequacy"]),
        "data_classes": draw.choice([[], ["personal"]]),
        "exclude_jurisdictions": draw.choice([[], ["JP"], ["IE"]]),
        "operators": draw.choice(["anyone", "in_scope"]),
        "mode": draw.choice(["enforce", "enforce", "enforce", "monitor"]),
    }
    if applies == "people_and_tenants":
        said["established_tenants"] = _some(draw, ["acme"])
    else:
        said["tenants"] = _some(draw, TENANTS)
    if applies != "everyone":
        said["on_unknown_location"] = draw.choice(["match", "ignore"])
    if said["operators"] == "anyone":
        said["transfers"] = draw.choice([{}, {"iad": "Art. 46(2)(c): standard contractual clauses"}])
    over, before = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
    said |= draw.choice(
        [
            {},
            {},
            {},
            {"effective_until": over},
            {"effective_from": before},
            {"effective_from": over, "effective_until": before},
        ]
    )
    return said


def binds(said: dict[str, Any], client: str | None, tenant: str | None, data_class: str | None) -> bool:
    """The model: whether the GDPR concerns a request, as the module was told. What is not stated counts as a match."""
    if said["mode"] == "monitor" or said.get("effective_until", "3").startswith("2020"):
        return False
    if said.get("effective_from", "1").startswith("2099"):
        return False
    if said["data_classes"] and data_class is not None and data_class not in said["data_classes"]:
        return False
    there = said.get("on_unknown_location") == "match" if client is None else client in EEA
    named = not said.get("tenants") or tenant is None or tenant in said["tenants"]
    country = None if tenant is None else TENANTS[tenant]
    established = country is None or country in EEA or tenant in said.get("established_tenants", [])
    return {
        "everyone": named,
        "people": named and there,
        "people_and_tenants": there or established,
    }[said["applies_to"]]


def lawful(said: dict[str, Any], region: str) -> bool:
    """The model: whether a request that it concerns may be served there."""
    country, operator = REGIONS[region]
    places = EEA | (ADEQUATE if said["scope"] == "eea_and_adequacy" else set())
    if country in said["exclude_jurisdictions"]:
        return False
    if said["operators"] == "in_scope" and operator not in places:
        return False
    return country in places or region in said.get("transfers", {})


def _spills(draw: random.Random) -> dict[str, dict[str, float]]:
    return {
        region: {to: draw.choice([0, 0.25, 1]) for to in draw.sample(sorted(set(REGIONS) - {region}), 2)}
        for region in draw.sample(sorted(REGIONS), 2)
    }


class World:
    """A root module of all three modules, and what they were told."""

    def __init__(self, seed: int, services: int = 8) -> None:
        draw = random.Random(seed)
        names = [f"s{number}" for number in range(services)]
        self.pools = {name: _pools(draw) for name in REGIONS}
        self.tokens = draw.choice([100, 350])
        self.rules = {name: _rules(draw, name) for name in names}
        self.spills = _spills(draw)
        self.orders = {name: draw.sample(sorted(REGIONS), len(REGIONS)) for name in names}
        self.canaries = {name: draw.choice([None, draw.choice(sorted(REGIONS))]) for name in names}
        self.weights = {
            name: {}
            if self.canaries[name]
            else {region: draw.choice([0, 2.5]) for region in _some(draw, REGIONS)}
            for name in names
        }

    def text(self) -> str:
        """The configuration."""
        modules = {
            name: region_module(
                name, *REGIONS[name], accelerators=self.pools[name], tokens_per_request=self.tokens
            )
            for name in REGIONS
        }
        for number, (name, order) in enumerate(self.orders.items()):
            modules[name] = {
                "source": str(MODULES / "inference-service"),
                "name": name,
                "regions": [f"${{module.{region}.name}}" for region in order],
                "weights": self.weights[name],
            }
            if canary := self.canaries[name]:
                modules[name]["canary"] = {"region": canary, "share": 0.05}
            if number == 0:
                modules[name] |= {"spillover": self.spills, "spillover_max_added_latency_ms": 80}
            said = {**self.rules[name], "services": [f"${{module.{name}.name}}"]}
            named = [
                f"gtm_{kind}.{one}"
                for kind, ones in (("tenant", TENANTS), ("data_class", CLASSES))
                for one in ones
            ]
            modules[f"gdpr_{name}"] = {"source": str(MODULES / "gdpr"), **said, "depends_on": named}
        resources = {
            "gtm_tenant": {name: {"name": name, "country": country} for name, country in TENANTS.items()},
            "gtm_data_class": {name: {"name": name} for name in CLASSES},
        }
        given = {"gtm": {"allow_fence_change": "${var.why}"}}
        return root(modules, resource=resources, provider=given, variable={"why": {"default": None}})
