"""The provider, built once, and the real `terraform` with it, before a real control tier."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gtm.control.policy.apart import Apart
from gtm.control.policy.drafts import DraftJob, DraftText, answer, understood
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Server
from tests.release import provider as release
from tests.tools import tool

DEPLOYED = Path(__file__).parents[2] / "deploy" / "terraform"
"""The provider, modules and examples."""


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the provider's program, built by whichever test process comes first."""
    tool("go")
    tool("terraform")
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / "terraform-provider"
    folder.mkdir(exist_ok=True)
    program = folder / "terraform-provider-gtm"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            release.build(program, release.HERE)
    return folder


@dataclass(frozen=True)
class Ran:
    """How a run of terraform ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What it printed, on one line: boxes and line breaks depend on the terminal's width."""
        return " ".join((self.out + self.err).replace("│", " ").split())


@dataclass
class Terraform:
    """Runs `terraform` in a folder. `environment` holds what it sees besides PATH."""

    program: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def at(self, folder: Path) -> Terraform:
        """The same in another folder."""
        return Terraform(self.program, folder, self.environment)

    def write(self, name: str, text: str) -> None:
        """Write a file of the configuration."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        """Run `terraform ARGUMENTS`; keyword arguments are further variables of its environment."""
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "panic:" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, **environment: str) -> Ran:
        """A run that has to succeed."""
        done = self(*arguments, **environment)
        assert done.code == 0, done.out + done.err
        return done

    def apply(self, *arguments: str, **environment: str) -> Ran:
        """Apply without being asked."""
        return self.ok("apply", "-auto-approve", *arguments, **environment)

    def outputs(self) -> dict[str, Any]:
        """The root's outputs."""
        read = json.loads(self.ok("output", "-json").out)
        return {name: output["value"] for name, output in read.items()}


programs = pytest.mark.parametrize("program", ["terraform", "tofu"], indirect=True)
"""Tests that are run with Terraform and with OpenTofu; the others with whichever `tests.tools.find` finds for Terraform."""


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """Where Terraform is, or OpenTofu, if the test is of `programs`."""
    return tool(getattr(request, "param", "terraform"))


def registry(program: str) -> str:
    """Where a program looks for a provider whose source names no host."""
    return f"registry.{'opentofu.org' if Path(program).name == 'tofu' else 'terraform.io'}"


@pytest.fixture
def terraform(provider: Path, program: str, tmp_path: Path) -> Terraform:
    """The real program in an empty folder, with the provider as built, and nothing of this machine's settings."""
    settings = tmp_path / "terraformrc"
    settings.write_text(
        f'provider_installation {{\n  dev_overrides {{ "gtm/gtm" = "{provider}" }}\n  direct {{}}\n}}\n'
    )
    folder = tmp_path / "root"
    folder.mkdir()
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(tmp_path),
        "TF_CLI_CONFIG_FILE": str(settings),
        "TF_CLI_ARGS": "-no-color",
        "TF_IN_AUTOMATION": "1",
        "CHECKPOINT_DISABLE": "1",
    }
    return Terraform(program, folder, environment)


@dataclass
class Control:
    """A running control tier, and an admin's client for it."""

    url: str
    admin: httpx.Client

    def environment(self, role: Role = Role.ADMIN) -> dict[str, str]:
        """What the provider needs to know of it."""
        return {"GTM_CONTROL_URL": self.url, "GTM_TOKEN": TOKENS[role]}

    def policy(self) -> dict[str, list[dict[str, Any]]]:
        """What there is, by kind; kinds of which there is nothing are left out."""
        answer = self.admin.get("/v1/policy")
        assert answer.status_code == 200, answer.text
        return {kind: found for kind, found in answer.json()["policy"].items() if found}


async def _here(_: Apart, job: DraftJob | DraftText) -> bytes:
    return understood(await asyncio.to_thread(answer, job))


@pytest.fixture
def control(prepared_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """A control tier on a database of the test's own, with the empty policy.

    Its dry runs are made in this process: to start one for each takes a second of a processor, and every plan asks for some.
    """
    monkeypatch.setattr(Apart, "run", _here)
    headers = {"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
    with (
        Server(prepared_url) as server,
        httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as admin,
    ):
        yield Control(server.url, admin)
