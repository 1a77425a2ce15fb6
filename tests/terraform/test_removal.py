"""What a configuration takes out goes, whatever still names it while Terraform gets there (deploy/terraform/README.md, "What goes")."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.effort import examples
from tests.terraform.conftest import Control, Terraform, programs
from tests.terraform.test_trouble import VERSIONS, nothing_to_do, provider_block, state

pytestmark = pytest.mark.drill

CITIES = {"fra": ("DE", 50, 8), "dub": ("IE", 53, -6), "iad": ("US", 39, -77), "nrt": ("JP", 35, 140)}
REGIONS = """
variable "cities" { type = map(object({ country = string, lat = number, lon = number })) }
resource "gtm_region" "all" {
  for_each  = var.cities
  name      = each.key
  country   = each.value.country
  lat       = each.value.lat
  lon       = each.value.lon
  endpoints = [{ url = "https://${each.key}.example.com" }]
}
"""
CHAT = """
resource "gtm_service" "chat" {
  name    = "chat"
  members = [for region in gtm_region.all : { region = region.name }]
}
resource "gtm_residency_rule" "gdpr" {
  name  = "gdpr"
  match = { services = [gtm_service.chat.name], client_jurisdictions = ["EEA"] }
  allow = { jurisdictions = ["EEA"] }
}
"""


@pytest.fixture
def terraform(terraform: Terraform, control: Control) -> Terraform:
    """Beside a configuration that says where the provider is from, and that knows control."""
    terraform.write("versions.tf", VERSIONS)
    terraform.environment |= control.environment()
    return terraform


def cities(*names: str) -> str:
    """The variable's value."""
    found = ", ".join(
        f'{name} = {{ country = "{CITIES[name][0]}", lat = {CITIES[name][1]}, lon = {CITIES[name][2]} }}'
        for name in names
    )
    return f"cities = {{ {found} }}\n"


def waiting(control: Control) -> list[str]:
    """What status says of deletions that wait."""
    said = control.admin.get("/v1/status").json()["warnings"]
    return [one for one in said if "is to be deleted since" in one]


def names(control: Control, kind: str) -> set[str]:
    """What there is of a kind."""
    return {one["name"] for one in control.policy().get(kind, [])}


@pytest.mark.parametrize("parallelism", [1, 10])
def test_a_city_less(terraform: Terraform, control: Control, parallelism: int) -> None:
    """A region goes in the plan and the apply that take it out of its service; then it is gone, and the next plan is empty."""
    at_once = f"-parallelism={parallelism}"
    terraform.write("main.tf", REGIONS + CHAT)
    terraform.write("terraform.tfvars", cities("fra", "dub", "iad"))
    terraform.apply(at_once)
    terraform.write("terraform.tfvars", cities("fra", "iad"))
    planned = terraform.ok("plan", at_once)
    assert "1 to change, 1 to destroy" in planned.said, planned.said
    assert "Error" not in planned.said
    applied = terraform.apply(at_once)
    assert "stays until" not in applied.said
    assert names(control, "regions") == {"fra", "iad"}
    assert waiting(control) == []
    nothing_to_do(terraform)
    terraform.write("provider.tf", provider_block(allow_fence_change="the end", allow_disruption="the end"))
    terraform.ok("destroy", "-auto-approve", at_once)
    assert control.policy() == {}


def test_what_names_it_still_keeps_it(terraform: Terraform, control: Control) -> None:
    """A service that names the region by its text is planned as it is: the plan says what names the region that goes."""
    text = CHAT.replace(
        "[for region in gtm_region.all : { region = region.name }]",
        '[{ region = "fra" }, { region = "dub" }]',
    )
    terraform.write(
        "main.tf", REGIONS + text.replace("name    =", "depends_on = [gtm_region.all]\n  name    =")
    )
    terraform.write("terraform.tfvars", cities("fra", "dub"))
    terraform.apply()
    terraform.write("terraform.tfvars", cities("fra"))
    refused = terraform("plan")
    assert refused.code == 1
    assert refused.said.count("services.chat.members[1].region: there is no region `dub`") == 1, refused.said


@pytest.mark.parametrize("parallelism", [1, 10])
def test_a_rule_in_place_of_an_identical_one(
    terraform: Terraform, control: Control, parallelism: int
) -> None:
    """One rule goes and one like it comes under another name, in whatever order."""
    at_once = f"-parallelism={parallelism}"
    terraform.write("main.tf", REGIONS + CHAT)
    terraform.write("terraform.tfvars", cities("fra", "iad"))
    terraform.apply(at_once)
    terraform.write("main.tf", REGIONS + CHAT.replace('"gdpr"', '"eea"'))
    terraform.apply(at_once)
    assert names(control, "residency_rules") == {"eea"}
    assert waiting(control) == []
    nothing_to_do(terraform)


@pytest.mark.parametrize("first", [False, True])
def test_a_region_is_made_anew(terraform: Terraform, control: Control, first: bool) -> None:
    """`-replace` deletes what the service names and makes it again, or the other way round (hashicorp/terraform#30693): it is there in the end."""
    cbd = "\n  lifecycle {\n    create_before_destroy = true\n  }\n}\n"
    regions = REGIONS.removesuffix("}\n") + cbd if first else REGIONS
    terraform.write("main.tf", regions + CHAT)
    terraform.write("terraform.tfvars", cities("fra", "dub", "iad"))
    terraform.apply()
    terraform.apply('-replace=gtm_region.all["dub"]')
    assert names(control, "regions") == {"fra", "dub", "iad"}
    assert waiting(control) == []
    nothing_to_do(terraform)
    terraform.write("terraform.tfvars", cities("fra", "iad"))
    terraform.apply()
    assert names(control, "regions") == {"fra", "iad"}
    assert waiting(control) == []
    nothing_to_do(terraform)


def test_numbers_that_shift(terraform: Terraform, control: Control) -> None:
    """A region out of the middle of a list (`count`) makes Terraform give the others' names to one another: nobody's is lost (hashicorp/terraform#25010)."""

    def listed(*found: str) -> str:
        return (
            f"locals {{\n  cities = {json.dumps(found)}\n}}\n"
            'resource "gtm_region" "all" {\n  count = length(local.cities)\n  name = local.cities[count.index]\n  country = "DE"\n'
            '  lat = 50\n  lon = 8\n  endpoints = [{ url = "https://${local.cities[count.index]}.example.com" }]\n}\n'
            + CHAT
        )

    terraform.write("main.tf", listed("fra", "dub", "iad"))
    terraform.apply()
    terraform.write("main.tf", listed("dub", "iad"))
    for _ in range(3):
        if terraform("apply", "-auto-approve").code == 0:
            break
    assert names(control, "regions") == {"dub", "iad"}
    assert waiting(control) == []
    nothing_to_do(terraform)


def world(chance: Random) -> dict[str, Any]:
    """A random world: regions, services with some of them as members, tenants, and rules on services and tenants."""
    regions = chance.sample(sorted(CITIES), chance.randint(1, 4))
    services = {
        name: chance.sample(regions, chance.randint(1, len(regions)))
        for name in chance.sample(["chat", "web", "api"], chance.randint(0, 3))
    }
    tenants = chance.sample(["clinic", "bank"], chance.randint(0, 2))
    rules = {
        name: (chance.choice(sorted(services)), chance.sample(tenants, chance.randint(0, len(tenants))))
        for name in chance.sample(["gdpr", "pdpa"], chance.randint(0, 2) if services else 0)
    }
    return {"regions": regions, "services": services, "tenants": tenants, "rules": rules}


def nudged(made: dict[str, Any], chance: Random) -> dict[str, Any]:
    """The world with a region less, and with one more tenant: what an operator may do without a reason."""
    gone = chance.choice(made["regions"])
    left = [name for name in made["regions"] if name != gone] or [
        next(name for name in sorted(CITIES) if name != gone)
    ]
    services = {
        name: [one for one in members if one != gone] or left[:1]
        for name, members in made["services"].items()
    }
    return {**made, "regions": left, "services": services, "tenants": [*made["tenants"], "more"]}


def written(made: dict[str, Any], *, each: bool) -> str:
    """The world as a configuration: by `for_each`, or a block for each resource."""
    text = [REGIONS] if each else []
    region = 'gtm_region.all["{}"].name' if each else "gtm_region.{}.name"
    for name in () if each else made["regions"]:
        country, lat, lon = CITIES[name]
        text.append(
            f'resource "gtm_region" "{name}" {{\n  name = "{name}"\n  country = "{country}"\n  lat = {lat}\n'
            f'  lon = {lon}\n  endpoints = [{{ url = "https://{name}.example.com" }}]\n}}\n'
        )
    text += [f'resource "gtm_tenant" "{name}" {{\n  name = "{name}"\n}}\n' for name in made["tenants"]]
    for name, members in made["services"].items():
        listed = ", ".join(f"{{ region = {region.format(one)} }}" for one in sorted(members))
        text.append(f'resource "gtm_service" "{name}" {{\n  name = "{name}"\n  members = [{listed}]\n}}\n')
    for name, (service, tenants) in made["rules"].items():
        of = ", ".join(f"gtm_tenant.{one}.name" for one in sorted(tenants))
        text.append(
            f'resource "gtm_residency_rule" "{name}" {{\n  name = "{name}"\n'
            f"  match = {{ services = [gtm_service.{service}.name], tenants = [{of}] }}\n"
            '  deny = { jurisdictions = ["SG"] }\n}\n'
        )
    return "\n".join(text)


@programs
@pytest.mark.parametrize("seed", range(examples(36, least=6)))
def test_any_world_becomes_any_other(terraform: Terraform, control: Control, seed: int) -> None:
    """In one plan and one apply, by blocks and by `for_each`, one after the other and ten at once; then nothing is left to do."""
    chance = Random(seed)
    at_once, each = f"-parallelism={chance.choice((1, 10))}", chance.random() < 0.5
    first = world(chance)
    worlds = [first, nudged(first, chance)]
    if chance.random() < 0.7:
        terraform.write("provider.tf", provider_block(allow_fence_change="random", allow_disruption="random"))
        worlds = [first, world(chance), {"regions": [], "services": {}, "tenants": [], "rules": {}}]
    for made in worlds:
        terraform.write("main.tf", written(made, each=each))
        terraform.write("terraform.tfvars", cities(*made["regions"]) if each else "")
        terraform.apply(at_once)
        for kind, there in zip(
            ("regions", "services", "tenants", "residency_rules"), made.values(), strict=True
        ):
            assert names(control, kind) == set(there), waiting(control)
        assert waiting(control) == []
        nothing_to_do(terraform)
        assert state(terraform) == {name for there in made.values() for name in there}
