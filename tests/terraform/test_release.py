"""What `make provider` makes: installed by a real `init`, as the README says, without any registry; and its documentation."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.release import provider as release
from tests.release.provider_docs import schema
from tests.terraform.conftest import DEPLOYED, Control, Terraform, programs, registry
from tests.terraform.test_readme import README
from tests.tools import tool

OTHER = "windows_amd64"
"""A platform that tests do not run on: its program has a name of its own kind."""
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


def shown(about: str) -> list[str]:
    """The commands of the README's block of commands that is about something, in their order."""
    block = next(one for one in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if about in one)
    return re.findall(r"^\$ (.*)$", block, re.MULTILINE)


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What a release has, for this machine and for one of another kind: the other platforms are for `make provider`."""
    tool("go")
    return release.release(tmp_path_factory.mktemp("released"), (release.HERE, OTHER))


@pytest.mark.drill
def test_a_release_is_whole(released: list[Path]) -> None:
    """Each file with its checksum; in each archive a program for its platform, and the licence."""
    *made, sums = released
    checked = subprocess.run(
        ["sha256sum", "-c", sums.name], cwd=sums.parent, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert {path.name for path in made} == {line.split()[1] for line in sums.read_text().splitlines()}
    name = f"terraform-provider-gtm_v{release.version()}"
    for path, program, begins in zip(made, (name, f"{name}.exe"), (b"\x7fELF", b"MZ"), strict=False):
        with zipfile.ZipFile(path) as archive:
            assert set(archive.namelist()) == {program, "LICENSE"}
            assert archive.read(program).startswith(begins)
            assert archive.getinfo(program).external_attr >> 16 == 0o100755


@pytest.mark.drill
def test_the_same_sources_make_the_same_bytes(
    released: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, in another repository, and with other settings of Go."""
    copy = shutil.copytree(release.SOURCES, tmp_path / "elsewhere")
    me = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    for said in (("init", "--quiet"), ("add", "."), (*me, "commit", "--quiet", "--message", "other")):
        subprocess.run(["git", *said], cwd=copy, check=True)
    monkeypatch.setenv("GOFLAGS", "-buildvcs=auto")
    monkeypatch.setenv("GOAMD64", "v2")
    (again, *_) = release.release(tmp_path / "made", (release.HERE,), sources=copy)
    assert again.name == released[0].name
    assert again.read_bytes() == released[0].read_bytes()


@pytest.mark.drill
@programs
def test_it_is_installed_without_a_registry(
    released: list[Path], tmp_path: Path, terraform: Terraform, control: Control, program: str
) -> None:
    """By the commands of the README, in a folder with a release's files: `init` finds it, it works, and a lock file for several platforms can be written."""
    del terraform.environment["TF_CLI_CONFIG_FILE"]
    files = shutil.copytree(
        released[0].parent, tmp_path / "downloads", ignore=shutil.ignore_patterns("mirror")
    )
    commands = [one.replace("linux_amd64", release.HERE) for one in shown("terraform-provider-gtm_")]
    for command in commands:
        said = subprocess.run(
            ["sh", "-ec", command.replace("registry.terraform.io", registry(program))],
            cwd=files,
            env=terraform.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
    terraform.write("main.tf", TENANT)
    assert f"Installed gtm/gtm v{release.version()}" in terraform.ok("init").said
    terraform.apply(**control.environment())
    assert [one["name"] for one in control.policy()["tenants"]] == ["clinic"]

    plugins = tmp_path / ".terraform.d" / "plugins"
    shutil.copytree(released[0].parent / "mirror", plugins, dirs_exist_ok=True)
    (lock,) = shown("providers lock")
    _, *words = shlex.split(lock.replace("$HOME", str(tmp_path)).replace("linux_amd64", release.HERE))
    terraform.ok(*words)
    assert (terraform.folder / ".terraform.lock.hcl").read_text().count('"h1:') == 2
    terraform.ok("init")


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
