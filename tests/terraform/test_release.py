"""What `make provider` makes: installed by a real `terraform init` from its mirror, without any registry; and its documentation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.release import provider as release
from tests.release.provider_docs import schema
from tests.terraform.conftest import DEPLOYED, Control, Terraform
from tests.tools import tool

TENANT = """
terraform {
  required_providers {
    gtm = { source = "gtm/gtm" }
  }
}

resource "gtm_tenant" "clinic" {
  name = "clinic"
}
"""


@pytest.mark.drill
def test_the_mirror_needs_no_registry(tmp_path: Path, terraform: Terraform, control: Control) -> None:
    """`init` finds the provider there by its checksum, and it works."""
    made = release.release(tmp_path / "made", (release.HERE,))
    sums = made[-1]
    checked = subprocess.run(
        ["sha256sum", "-c", sums.name], cwd=sums.parent, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert {path.name for path in made} == {line.split()[1] for line in sums.read_text().splitlines()} | {
        sums.name
    }
    with zipfile.ZipFile(made[0]) as archive:
        assert {one.filename for one in archive.infolist()} == {
            f"terraform-provider-gtm_v{release.version()}",
            "LICENSE",
        }
    mirror = made[0].parent / "mirror"
    Path(terraform.environment["TF_CLI_CONFIG_FILE"]).write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n'
    )
    terraform.write("main.tf", TENANT)
    assert f"v{release.version()}" in terraform.ok("init").said
    terraform.apply(**control.environment())
    assert [one["name"] for one in control.policy()["tenants"]] == ["clinic"]


@pytest.fixture(scope="module")
def described(provider: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The provider's schema, as Terraform has it."""
    found: dict[str, Any] = json.loads(schema(provider, tmp_path_factory.mktemp("schema")))
    (told,) = found["provider_schemas"].values()
    return dict(told)


def _attributes(block: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every attribute by its name, those of nested ones as well."""
    found = dict(block["attributes"])
    for one in block["attributes"].values():
        if "nested_type" in one:
            found |= {f"{name} ": inner for name, inner in _attributes(one["nested_type"]).items()}
    return found


@pytest.mark.drill
def test_everything_is_documented(described: dict[str, Any]) -> None:
    """A page and an example for each; every attribute with its description: else `make provider-docs`."""
    docs, examples = DEPLOYED / "provider" / "docs", DEPLOYED / "provider" / "examples"
    for what, folder in (("resource_schemas", "resources"), ("data_source_schemas", "data-sources")):
        names = {name.removeprefix("gtm_") for name in described[what]}
        assert names == {path.stem for path in (docs / folder).iterdir()}
        assert {f"gtm_{name}" for name in names} == {path.name for path in (examples / folder).iterdir()}
        for name, told in described[what].items():
            page = (docs / folder / f"{name.removeprefix('gtm_')}.md").read_text()
            for attribute, one in _attributes(told["block"]).items():
                assert f"- `{attribute.strip()}` (" in page, (name, attribute)
                assert one.get("description"), f"{name}.{attribute} has no description"
                assert one["description"] in page, (name, attribute)
    assert {path.stem for path in (docs / "functions").iterdir()} == set(described["functions"])


@pytest.mark.drill
def test_examples_are_valid(terraform: Terraform) -> None:
    """Each with those that it refers to; and as `terraform fmt` would have them."""
    examples = DEPLOYED / "provider" / "examples"
    terraform.at(DEPLOYED).ok("fmt", "-check", "-recursive")
    text = (examples / "provider" / "provider.tf").read_text()
    for path in sorted(examples.glob("*/*/*.tf")):
        if "import" not in path.name and "gtm_token" not in path.parent.name:
            text += path.read_text()
    others = 'resource "gtm_region" "dub" {\n  name = "dub"\n  lat = 1\n  lon = 1\n  country = "IE"\n  endpoints = [{ url = "https://dub.example.com" }]\n}\n'
    terraform.write("main.tf", text + others)
    terraform.ok("validate")


@pytest.mark.drill
def test_the_code_is_vetted() -> None:
    """`gofmt` and `go vet` have nothing to say."""
    go = tool("go")
    sources = DEPLOYED / "provider"
    gofmt = shutil.which("gofmt") or str(Path(go).parent / "gofmt")
    said = subprocess.run([gofmt, "-l", "."], cwd=sources, capture_output=True, text=True, check=False)
    assert said.stdout == ""
    vetted = subprocess.run([go, "vet", "./..."], cwd=sources, capture_output=True, text=True, check=False)
    assert vetted.returncode == 0, vetted.stderr


@pytest.mark.drill
def test_the_code_s_own_tests_pass() -> None:
    """What the provider's parts promise one another, with control and time as the tests say."""
    clean = {name: value for name, value in os.environ.items() if name != "TF_ACC"}
    tested = subprocess.run(
        [tool("go"), "test", "./..."],
        cwd=DEPLOYED / "provider",
        capture_output=True,
        text=True,
        check=False,
        env=clean,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
