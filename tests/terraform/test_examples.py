"""`deploy/terraform/examples`, applied by the real terraform to a real control, and taken away again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gtm.core.model.access import Role
from gtm.documents.folders import load_document
from tests.terraform.conftest import DEPLOYED, Control, Terraform, programs

pytestmark = pytest.mark.drill

POLICIES = Path(__file__).parents[2] / "policies"
WHY = "TF_VAR_allow_fence_change"
EXAMPLES = sorted(path.name for path in (DEPLOYED / "examples").iterdir() if path.is_dir())


@pytest.fixture
def deployed(terraform: Terraform, control: Control, tmp_path: Path) -> Terraform:
    """Terraform beside a copy of modules and examples, with an operator's token."""
    for name in ("modules", "examples"):
        shutil.copytree(
            DEPLOYED / name, tmp_path / name, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
        )
    terraform.environment |= control.environment(Role.OPERATOR) | {"TF_VAR_utc_hour": "12"}
    return terraform


def _demo(_: Terraform, control: Control) -> None:
    """It is what `policies/demo` is."""
    folder = load_document(POLICIES / "demo").model_dump(mode="json", exclude_unset=True)
    answer = control.admin.post("/v1/policy:plan", json={"policy": folder})
    assert answer.status_code == 200, answer.text
    for change in answer.json()["changes"]:
        assert (change["kind"], [field["path"] for field in change["fields"]]) == ("zones", ["records"])
        (records,) = change["fields"]
        assert sorted(map(str, records["before"])) == sorted(map(str, records["after"])), (
            "their order means nothing"
        )


def _active_passive(example: Terraform, control: Control) -> None:
    """Until edges have probed the regions, nobody is served, and the check says so."""
    (service,) = control.policy()["services"]
    assert service["steering"] == "failover"
    assert [member["region"] for member in service["members"]] == ["frankfurt", "dublin"]
    said = example.ok("plan").said
    assert "Service api is not served by frankfurt now: refused: no region of the service is usable" in said


def _follow_the_sun(example: Terraform, control: Control) -> None:
    """Hours later only capacities change; whoever sleeps keeps a quarter, in whole servers of eight accelerators."""
    before = control.policy()
    assert example.outputs()["awake"] == ["frankfurt"]
    assert example.outputs()["slots"] == {"ashburn": 24 * 8, "frankfurt": 64 * 8, "tokyo": 16 * 8}
    example.apply(TF_VAR_utc_hour="3")
    assert example.outputs()["awake"] == ["tokyo"]
    after = control.policy()
    assert {one["name"]: one["capacity"]["outstanding"] for one in after["regions"]} == {
        "ashburn": 24 * 8,
        "frankfurt": 16 * 8,
        "tokyo": 64 * 8,
    }
    for policy in (before, after):
        for region in policy["regions"]:
            del region["capacity"]
    assert before == after
    said = example("plan", TF_VAR_utc_hour="24")
    assert said.code == 1
    assert "utc_hour: it is a whole number from 0 to 23" in said.said


def _multi_tenant(example: Terraform, control: Control) -> None:
    """Its assertions hold, and do not once a rule only looks on."""
    german, european = ["berlin", "frankfurt"], ["berlin", "dublin", "frankfurt"]
    assert example.outputs()["served_in"] == {
        "the bank's clients in Munich": european,
        "the bank's clients in New York": european,
        "the clinic's patients abroad": german,
        "the same over DNS": german,
        "acme's people in Paris": european,
        "acme's people in New York": ["ashburn", *european],
        "who says nothing, from New York": german,
    }
    file = example.folder / "main.tf"
    text = file.read_text()
    assert "Check block assertion failed" not in example.ok("plan").said
    file.write_text(
        text.replace('  name = "health"\n  match', '  name = "health"\n  mode = "monitor"\n  match')
    )
    admin = control.environment(Role.FENCE_ADMIN)
    said = example.apply(**admin, **{WHY: "to see what the check says"}).said
    assert (
        "the clinic's patients abroad: the rules (gdpr-establishment, health) allow berlin, dublin, frankfurt; expected berlin, frankfurt"
        in said
    )
    file.write_text(text)
    example.apply()


MORE = {
    "active-passive": _active_passive,
    "demo": _demo,
    "follow-the-sun": _follow_the_sun,
    "multi-tenant": _multi_tenant,
}


@programs
@pytest.mark.parametrize(
    "name", [one if one == "demo" else pytest.param(one, marks=pytest.mark.drill) for one in EXAMPLES]
)
def test_an_example_comes_and_goes(name: str, deployed: Terraform, control: Control, tmp_path: Path) -> None:
    """An operator applies it by what its README asks for; then there is nothing to do; a fence-admin destroys it whole."""
    example = deployed.at(tmp_path / "examples" / name)
    example.ok("get")
    example.apply()
    again = example("plan", "-detailed-exitcode")
    assert again.code == 0, again.out
    MORE[name](example, control)
    if "residency_rules" in control.policy():
        kept = control.policy()
        refused = example("destroy", "-auto-approve")
        assert refused.code == 1
        assert "allow_fence_change" in refused.said
        assert control.policy() == kept, "it is refused as a whole"
    admin = control.environment(Role.FENCE_ADMIN)
    example.ok("destroy", "-auto-approve", **admin, **{WHY: "the example is over"})
    assert control.policy() == {}
