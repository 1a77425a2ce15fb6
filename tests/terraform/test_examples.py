"""`deploy/terraform/examples`, applied by the real terraform to a real control, and taken away again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gtm.core.model.access import Role
from tests.terraform.conftest import DEPLOYED, Control, Terraform

WHY = "TF_VAR_allow_fence_change"
EXAMPLES = sorted(path.name for path in (DEPLOYED / "examples").iterdir() if path.is_dir())


@pytest.fixture
def deployed(terraform: Terraform, control: Control, tmp_path: Path) -> Terraform:
    """Terraform beside a copy of modules and examples, with an operator's token."""
    for name in ("modules", "examples"):
        shutil.copytree(
            DEPLOYED / name, tmp_path / name, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
        )
    terraform.environment |= control.environment(Role.OPERATOR)
    return terraform


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_comes_and_goes(name: str, deployed: Terraform, control: Control, tmp_path: Path) -> None:
    """An operator applies it by what its README asks for; then there is nothing to do; a fence-admin destroys it whole."""
    example = deployed.at(tmp_path / "examples" / name)
    example.ok("get")
    example.apply()
    assert control.policy(), "it made nothing"
    again = example("plan", "-detailed-exitcode")
    assert again.code == 0, again.out
    if "residency_rules" in control.policy():
        kept = control.policy()
        refused = example("destroy", "-auto-approve")
        assert refused.code == 1
        assert "fence" in refused.said
        assert control.policy()["residency_rules"] == kept["residency_rules"], "no fence is opened by the way"
    admin = control.environment(Role.FENCE_ADMIN)
    example.ok("destroy", "-auto-approve", **admin, **{WHY: "the example is over"})
    assert control.policy() == {}
