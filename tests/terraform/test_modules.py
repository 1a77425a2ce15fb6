"""`deploy/terraform/modules` of policy, held against models of what their READMEs say, by the real terraform and a real control."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.effort import ALL
from tests.terraform.conftest import DEPLOYED, Control, Terraform

MODULES = DEPLOYED / "modules"
NEEDS = {"required_providers": {"gtm": {"source": "gtm/gtm"}}}

# Where regions stand, and who runs them. That Ireland is in the EEA, Britain and Japan have an adequacy decision for all, and the
# US for some recipients only, is what docs/residency.md says of the shipped jurisdictions.
REGIONS: dict[str, tuple[str, str | None]] = {
    "fra": ("DE", "DE"),
    "dub": ("IE", "US"),
    "lon": ("GB", "GB"),
    "tyo": ("JP", None),
    "iad": ("US", "US"),
}
EEA = {"DE", "IE", "FR"}
ADEQUATE = {"GB", "JP"}
TENANTS: dict[str, str | None] = {"bank": "DE", "acme": "US", "nomad": None}
CLASSES = ("personal", "public")
CLIENTS = ("DE", "FR", "GB", "US", None)


def _root(modules: dict[str, dict[str, Any]], **more: Any) -> str:
    return json.dumps({"terraform": NEEDS, "module": modules, **more})


def _region(name: str, country: str, operator: str | None = None, **more: Any) -> dict[str, Any]:
    endpoints = [{"url": f"https://{name}.example.com"}]
    stands = {"country": country, "lat": 50, "lon": 8, "operator_country": operator}
    return {"source": str(MODULES / "region"), "name": name, "endpoints": endpoints, **stands, **more}


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


def _capacity(pools: dict[str, Any], tokens_per_request: int) -> dict[str, float | None]:
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
    return draw.choice([[], draw.sample(sorted(of), 1)])


def _rules(draw: random.Random, service: str) -> dict[str, Any]:
    """What is said to the module of the GDPR."""
    applies = draw.choice(["everyone", "people", "people_and_tenants"])
    said: dict[str, Any] = {
        "name": f"gdpr-{service}",
        "services": [service],
        "applies_to": applies,
        "scope": draw.choice(["eea", "eea_and_adequacy"]),
        "data_classes": draw.choice([[], ["personal"]]),
        "exclude_jurisdictions": draw.choice([[], ["JP"]]),
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
    if draw.random() < 0.2:
        said[draw.choice(["effective_until", "effective_from"])] = draw.choice(
            ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"]
        )
    return said


def _binds(said: dict[str, Any], client: str | None, tenant: str | None, data_class: str | None) -> bool:
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


def _lawful(said: dict[str, Any], region: str) -> bool:
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

    def __init__(self, seed: int, services: int = 6) -> None:
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
            name: _region(name, *REGIONS[name], accelerators=self.pools[name], tokens_per_request=self.tokens)
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
        return _root(modules, resource=resources, provider=given, variable={"why": {"default": None}})


@pytest.mark.parametrize("seed", range(20 if ALL else 1))
def test_modules_do_what_they_say(seed: int, terraform: Terraform, control: Control) -> None:
    """Capacities, members, spillover and every fence are those of the models; then nothing is left to do; then nothing is left."""
    world = World(seed)
    terraform.environment |= control.environment(Role.FENCE_ADMIN)
    terraform.write("main.tf.json", world.text())
    terraform.ok("get")
    terraform.apply()
    policy = control.policy()
    for region in policy["regions"]:
        assert region["capacity"] == pytest.approx(_capacity(world.pools[region["name"]], world.tokens))
        assert region["probe"]["type"] == "https"
    for service in policy["services"]:
        name = service["name"]
        assert [member["region"] for member in service["members"]] == world.orders[name]
        assert service["steering"] == ("weighted" if world.weights[name] else "latency")
        for member in service["members"]:
            assert member["share"] == (0.05 if member["region"] == world.canaries[name] else None)
            assert member["weight"] == world.weights[name].get(member["region"], 1)
    assert {
        (rule["from_region"], *rule["to_regions"], rule["max_share"], rule["max_added_latency_ms"])
        for rule in policy["spillover_rules"]
    } == {(home, to, share, 80) for home, row in world.spills.items() for to, share in row.items()}
    for name, said in world.rules.items():
        _check_fences(control, name, said)
    again = terraform("plan", "-detailed-exitcode")
    assert again.code == 0, again.out
    terraform.ok("destroy", "-auto-approve", TF_VAR_why="the test is over")
    assert control.policy() == {}


def _check_fences(control: Control, service: str, said: dict[str, Any]) -> None:
    for client in CLIENTS:
        for tenant in (None, *TENANTS):
            for data_class in (None, *CLASSES):
                asked = {"service": service, "country": client, "tenant": tenant, "data_class": data_class}
                answer = control.admin.post(
                    "/v1/route:explain", json={key: value for key, value in asked.items() if value}
                )
                assert answer.status_code == 200, answer.text
                allowed = {
                    one["region"] for one in answer.json()["candidates"] if one["excluded"] != "residency"
                }
                bound = _binds(said, client, tenant, data_class)
                expected = {region for region in REGIONS if not bound or _lawful(said, region)}
                assert allowed == expected, (asked, said)


def _wrong_region(**said: Any) -> dict[str, Any]:
    return {**_region("fra", "DE"), **said}


def _wrong_service(**said: Any) -> dict[str, Any]:
    return {"source": str(MODULES / "inference-service"), "name": "chat", "regions": ["fra", "dub"], **said}


def _wrong_rules(**said: Any) -> dict[str, Any]:
    told = {"services": [], "applies_to": "people", "scope": "eea"}
    return {"source": str(MODULES / "gdpr"), **told, **said}


_H100 = {"count": 8, "per_server": 8}
WRONG: list[tuple[dict[str, Any], str]] = [
    (_wrong_region(name="Frankfurt"), "name: `Frankfurt` is no name: write 1 to 63 lower-case letters"),
    (_wrong_region(country="Germany"), "country: `Germany` is no country code"),
    (_wrong_region(country=None), "say where it stands: `city`, or else `country`, `lat` and `lon`"),
    (_wrong_region(city="Frankfurt", lon=None), "`lat` and `lon` are stated together"),
    (_wrong_region(lat=139.7), "lat: it is between -90 and 90. Are latitude and longitude swapped?"),
    (_wrong_region(lon=181), "lon: it is between -180 and 180"),
    (_wrong_region(operator_country="de"), "operator_country: write ISO 3166-1 alpha-2 in upper case"),
    (_wrong_region(endpoints=[]), "endpoints: a region needs one at least"),
    (_wrong_region(endpoints=[{"url": "fra.example.com"}]), "each `url` begins with http:// or https://"),
    (
        _wrong_region(endpoints=[{"url": "http://a.example"}, {"url": "https://b.example"}]),
        "Region fra has endpoints of http and of https: say by which they are probed",
    ),
    (_wrong_region(accelerators={"h100": {"count": 1.5, "slots": 1}}), "`count` is a whole number from 0"),
    (
        _wrong_region(accelerators={"h100": {**_H100, "count": 4, "slots": 1}}),
        "h100 has 4, which is less than one model server takes (`per_server`)",
    ),
    (_wrong_region(accelerators={"h100": {**_H100, "slots": -1}}), "`slots` is a whole number from 0"),
    (_wrong_region(accelerators={"h100": _H100}), "h100 says nothing of what one model server takes"),
    (
        _wrong_region(accelerators={"h100": {**_H100, "requests_per_second": 1, "tokens_per_second": 1}}),
        "state either `requests_per_second` or `tokens_per_second` of a kind, not both",
    ),
    (
        _wrong_region(
            accelerators={"h100": {**_H100, "slots": 1}, "a100": {**_H100, "requests_per_second": 1}}
        ),
        "state slots of all kinds or of none, and likewise rates",
    ),
    (
        _wrong_region(accelerators={"h100": {**_H100, "tokens_per_second": 1}}),
        "say how many tokens a request generates (`tokens_per_request`)",
    ),
    (_wrong_region(tokens_per_request=0), "tokens_per_request: it must be above 0"),
    (_wrong_region(probe={"type": "ping"}), "probe: `type` is http, https or tcp"),
    (_wrong_region(probe={"type": "tcp", "body_regex": "ok"}), "probe: tcp only connects"),
    (_wrong_region(probe={"json_field": "status"}), "`json_field` and `json_value` are stated together"),
    (_wrong_region(probe={"interval": 2}), "`timeout` (3 s, if left out) is at most `interval`"),
    (_wrong_service(name="Chat!"), "name: `Chat!` is no name"),
    (_wrong_service(regions=[]), "regions: a service needs one at least"),
    (_wrong_service(regions=["fra", "fra"]), "regions: one of them is named twice: fra, fra"),
    (
        _wrong_service(capacity={"fra": {"slots": 5}}),
        "fra has neither `outstanding` nor `requests_per_second`",
    ),
    (
        _wrong_service(capacity={"iad": {"outstanding": 5}}),
        "iad stands in `capacity`, `weights`, `canary` or `spillover`, but not in `regions` (fra, dub)",
    ),
    (
        _wrong_service(spillover={"fra": {"tyo": 0.5}}),
        "tyo stands in `capacity`, `weights`, `canary` or `spillover`",
    ),
    (_wrong_service(weights={"fra": -1}), "weights: they are numbers from 0"),
    (_wrong_service(weights={"fra": 2}, steering="geo"), "weights decide nothing under steering geo"),
    (_wrong_service(steering="nearest"), "steering: it is latency, geo, weighted or failover"),
    (
        _wrong_service(canary={"region": "dub", "share": 0}),
        "`share` is above 0 and 1 at most: 0.05 is every twentieth client",
    ),
    (_wrong_service(regions=["dub"], canary={"region": "dub", "share": 0.1}), "has a canary alone"),
    (
        _wrong_service(canary={"region": "dub", "share": 0.1}, weights={"dub": 2}),
        "the canary has a share of all clients, and no weight beside it",
    ),
    (
        _wrong_service(hostnames=[{"name": "a.b"}], refusal={"ipv4": ["192.0.2.1"]}),
        "say in which zone they lie",
    ),
    (_wrong_service(hostnames=[{"name": "a.b"}], zone="b"), "so it needs `refusal` addresses"),
    (_wrong_service(hostnames=[{"name": "a.b"}, {"name": "A.b."}]), "one of them is there twice: a.b, A.b."),
    (_wrong_service(service_time_ms=0), "service_time_ms: it is above 0"),
    (_wrong_service(spillover={"fra": {"dub": 30}}), "shares are between 0 and 1 (0.3 is 30 %)"),
    (_wrong_service(spillover={"fra": {"fra": 1}}), "fra spills to itself"),
    (_wrong_service(spillover={"fra": {}}), "spillover: fra leads nowhere"),
    (_wrong_service(name="c" * 60, spillover={"fra": {"dub": 1}}), "would have more than 63 characters"),
    (_wrong_rules(applies_to="us"), "Who is established in the EEA? You: `everyone`"),
    (_wrong_rules(scope="us"), "`us` is neither `eea` nor `eea_and_adequacy`"),
    (_wrong_rules(name="GDPR"), "`GDPR` is no beginning of a name"),
    (_wrong_rules(transfers={"iad": "contract"}), "iad has no ground of Chapter V: name the article"),
    (_wrong_rules(operators="eea"), "operators: it is `anyone` or `in_scope`"),
    (
        _wrong_rules(operators="in_scope", transfers={"iad": "Art. 45"}),
        'operators = "in_scope" would take the regions of `transfers` out again',
    ),
    (_wrong_rules(mode="off"), "mode: it is `enforce` or `monitor`"),
    (_wrong_rules(edges="inside"), "edges: it is `anywhere` or `in_fence`"),
    (_wrong_rules(max_policy_age=5), "max_policy_age: less than 10 s"),
    (_wrong_rules(on_unknown_location="trust"), "on_unknown_location: it is `match` or `ignore`"),
    (_wrong_rules(on_anonymous="ignore"), "on_anonymous: it is `match` or `trust`"),
    (_wrong_rules(on_doubtful_location="ignore"), "on_doubtful_location: it is `match` or `trust`"),
    (
        _wrong_rules(on_unknown_location="ignore", max_accuracy_km=100),
        "max_accuracy_km and on_doubtful_location decide nothing",
    ),
    (
        _wrong_rules(applies_to="everyone", on_anonymous="trust", max_accuracy_km=5),
        "nobody looks at where clients are: leave out on_anonymous, max_accuracy_km",
    ),
    (
        _wrong_rules(applies_to="people_and_tenants", tenants=["bank"]),
        "`tenants` does not go with applies_to",
    ),
    (_wrong_rules(established_tenants=["acme"]), "`established_tenants` go with applies_to"),
    (_wrong_rules(effective_from="2027-01-01"), "effective_from: write a time with its zone"),
    (_wrong_rules(effective_until="soon"), "effective_until: write a time with its zone"),
    (
        _wrong_rules(effective_from="2027-01-01T00:00:00Z", effective_until="2026-01-01T00:00:00Z"),
        "The rules would end (2026-01-01T00:00:00Z) before they begin (2027-01-01T00:00:00Z)",
    ),
    (_wrong_rules(note="n" * 1001), "note: it has 1001 characters; the most is 1000"),
]


def test_wrong_inputs_are_told(terraform: Terraform, control: Control) -> None:
    """Each at the module that it stands in, in words that say what to write.

    What is wrong with variables Terraform says before it looks at anything else: two plans tell all.
    """
    terraform.environment |= control.environment(Role.VIEWER)
    left = {f"wrong{number}": case for number, case in enumerate(WRONG)}
    for _ in range(2):
        terraform.write("main.tf.json", _root({name: said for name, (said, _) in left.items()}))
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
