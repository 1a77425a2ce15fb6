"""`deploy/terraform/modules` of policy, held against models of what their READMEs say, by the real terraform and a real control."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.effort import ALL
from tests.terraform.conftest import Control, Terraform, programs
from tests.terraform.module_worlds import (
    MODULES,
    REGIONS,
    REQUESTS,
    World,
    binds,
    capacity,
    lawful,
    root,
)

TELLING = 274
"""A world in which every input of the modules decides something, but for one: of `people_and_tenants` the rule about tenants alone would pass."""


@programs
@pytest.mark.drill
@pytest.mark.parametrize("seed", [TELLING, *range(19 if ALL else 0)])
def test_modules_do_what_they_say(seed: int, terraform: Terraform, control: Control) -> None:
    """Capacities, members, spillover and every fence are those of the models; then nothing is left to do; then nothing is left."""
    world = World(seed)
    terraform.environment |= control.environment(Role.FENCE_ADMIN)
    terraform.write("main.tf.json", world.text())
    terraform.ok("get")
    terraform.apply()
    policy = control.policy()
    for region in policy["regions"]:
        assert region["capacity"] == pytest.approx(capacity(world.pools[region["name"]], world.tokens))
        assert (region["probe"]["type"], region["probe"]["json_value"]) == ("https", True)
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
    for client, tenant, data_class in REQUESTS:
        asked = {"service": service, "country": client, "tenant": tenant, "data_class": data_class}
        answer = control.admin.post(
            "/v1/route:explain", json={key: value for key, value in asked.items() if value}
        )
        assert answer.status_code == 200, answer.text
        allowed = {one["region"] for one in answer.json()["candidates"] if one["excluded"] != "residency"}
        bound = binds(said, client, tenant, data_class)
        expected = {region for region in REGIONS if not bound or lawful(said, region)}
        assert allowed == expected, (asked, said)


_DECLARED = re.compile(r'^(variable|output) "(\w+)"', re.MULTILINE)
_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)
_BLOCK = re.compile(r"^```hcl\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PUBLISHED = re.compile(
    r'"git::https://git\.example\.com/gtm\.git//deploy/terraform/modules/([\w-]+)\?ref=[^"]*"'
)
POLICY = ("region", "inference-service", "gdpr")


@pytest.mark.parametrize("name", POLICY)
def test_readmes_tell_every_input_and_output(name: str) -> None:
    """And none that there is not; what has no default has none in the table either, unless it says when it is needed."""
    folder = MODULES / name
    code = "".join(path.read_text() for path in sorted(folder.glob("*.tf")))
    declared: dict[str, set[str]] = {"variable": set(), "output": set()}
    for kind, found in _DECLARED.findall(code):
        declared[kind].add(found)
    _, _, tables = (folder / "README.md").read_text().partition("## Inputs")
    inputs, _, outputs = tables.partition("## Outputs")
    for kind, table in (("variable", inputs), ("output", outputs)):
        told = [one.strip("`") for row in _ROW.findall(table) for one in row.split(", ")]
        assert sorted(told) == sorted(declared[kind])
    required = {
        one for row in re.findall(r"^\| (.*?) \| .* \| \|$", inputs, re.MULTILINE) for one in row.split(", ")
    }
    blocks = {
        found: code.split(f'variable "{found}" {{')[1].split("\n}\n")[0] for found in declared["variable"]
    }
    assert required == {f"`{found}`" for found, block in blocks.items() if "\n  default " not in block}


@pytest.mark.drill
def test_what_readmes_show_works(terraform: Terraform, control: Control) -> None:
    """All of it together, in a folder of one's own: regions, the service that names them, its rules."""
    text = 'terraform {\n  required_version = ">= 1.8"\n  required_providers {\n    gtm = { source = "gtm/gtm" }\n  }\n}\n'
    for name in POLICY:
        block = _BLOCK.search((MODULES / name / "README.md").read_text())
        assert block
        text += _PUBLISHED.sub(lambda found: json.dumps(str(MODULES / found[1])), block[1])
    terraform.environment |= control.environment(Role.OPERATOR)
    terraform.write("main.tf", text)
    terraform.ok("fmt", "-check")
    terraform.ok("get")
    terraform.apply()
    assert terraform("plan", "-detailed-exitcode").code == 0
    policy = control.policy()
    slots = {region["name"]: region["capacity"] for region in policy["regions"]}
    assert slots["frankfurt"] == {"outstanding": 2560, "requests_per_second": 220}
    (rule,) = policy["residency_rules"]
    assert (rule["name"], rule["legal_basis"]) == (
        "gdpr-people",
        (
            "Regulation (EU) 2016/679 (GDPR), Art. 3(2) and Chapter V, Art. 44-46: personal data of people in the European Economic Area "
            "are transferred to third countries only on the conditions of that chapter. Requests are served in the European Economic Area."
        ),
    )


@pytest.mark.drill
def test_rules_about_all_services_come_first(terraform: Terraform, control: Control) -> None:
    """As the module of the GDPR says of `services = []`: they stand before there is any service."""
    rules = {
        "source": str(MODULES / "gdpr"),
        "services": [],
        "applies_to": "everyone",
        "scope": "eea",
    }
    terraform.environment |= control.environment(Role.OPERATOR)
    terraform.write("main.tf.json", root({"gdpr": rules}))
    terraform.ok("get")
    terraform.apply()
    assert set(control.policy()) == {"residency_rules"}
