"""deploy/terraform/README.md is followed, step by step, with what stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.terraform.conftest import DEPLOYED, Control, Terraform, programs

README = (DEPLOYED / "README.md").read_text()


def block(file: str) -> str:
    """The text of a file that the document shows."""
    found = re.search(rf"```hcl file={file}\n(.*?)```", README, re.DOTALL)
    assert found is not None, file
    return found[1]


def quoted(pattern: str) -> str:
    """A part of the document that is compared with what is printed, on one line."""
    found = re.search(pattern, README, re.DOTALL)
    assert found is not None, pattern
    return " ".join(found[0].split())


@programs
@pytest.mark.drill
def test_the_first_world(terraform: Terraform, control: Control) -> None:
    """Made, planned again, refused where it opens a fence, a city less, and destroyed for a reason."""
    told = control.environment()
    terraform.write("main.tf", block("main.tf"))
    applied = terraform.apply(**told)
    assert quoted(r"Apply complete! Resources: 5 added, 0 changed, 0 destroyed\.") in applied.said
    assert quoted(r"where_berlin_may_be_served = toset\(\[.*?\]\)") in applied.said
    assert "No changes." in terraform.ok("plan", "-detailed-exitcode", **told).said

    opened = block("main.tf").replace(
        'jurisdictions = ["EEA"] }\n  legal', 'jurisdictions = ["EEA", "US"] }\n  legal'
    )
    assert opened != block("main.tf")
    terraform.write("main.tf", opened)
    refused = terraform("plan", **told)
    assert refused.code == 1
    assert (
        quoted(r"Error: This plan opens a residency fence\s+with gtm_residency_rule\.gdpr,") in refused.said
    )
    assert (
        quoted(r"rule `gdpr-chat` \(changed\) would no longer keep service `chat`, for clients in AT,")
        in refused.said
    )

    smaller = block("main.tf").replace(', us-east = "Ashburn"', "")
    assert smaller != block("main.tf")
    terraform.write("main.tf", smaller)
    applied = terraform.apply(**told)
    assert quoted(r"Plan: 0 to add, 1 to change, 1 to destroy\.") in applied.said
    assert quoted(r"Apply complete! Resources: 0 added, 1 changed, 1 destroyed\.") in applied.said
    assert "No changes." in terraform.ok("plan", "-detailed-exitcode", **told).said
    assert "opens a residency fence" in terraform("destroy", "-auto-approve", **told).said
    why = '  workspace          = "world"\n  allow_fence_change = "end of the trial"\n'
    assert why in README
    terraform.write("main.tf", smaller.replace('  workspace = "world"\n', why))
    gone = terraform.ok("destroy", "-auto-approve", **told)
    assert quoted(r"Destroy complete! Resources: 4 destroyed\.") in gone.said
    assert control.policy() == {}
    assert "Resources: 4 added" in terraform.apply(**told).said


def test_what_it_links_to_is_there() -> None:
    """Files, and headings of files of the documentation."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        if "://" not in target:
            assert (DEPLOYED / target).exists(), target
    headings = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-")
        for one in re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= headings


def test_the_command_line_is_that_of_the_makefile() -> None:
    """Targets that it names exist."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z-]+)", README)):
        assert f"\n{target}:" in makefile, target
