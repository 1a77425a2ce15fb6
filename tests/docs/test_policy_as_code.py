"""The workflows of docs/policy-as-code.md, step by step, as their shell would run them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api, api, world

pytestmark = pytest.mark.drill

__all__ = ["api", "world"]

_BLOCK = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def files() -> dict[str, Any]:
    """Each file of the document, by its path."""
    text = Path("docs/policy-as-code.md").read_text()
    return {path: yaml.safe_load(body) for path, body in _BLOCK.findall(text)}


class Runner:
    """Runs steps of a workflow in a checkout."""

    def __init__(self, home: Path, control: str) -> None:
        self.home = home
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GTM_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GTM_CONTROL_URL": control,
            "GITHUB_REPOSITORY": "acme/policy",
            "GITHUB_SHA": "0123abc",
            "TRAFFIC": "traffic.csv",
        }

    def run(self, workflow: dict[str, Any], *names: str, role: Role) -> dict[str, int]:
        """Exit code of each step of these names, until one fails."""
        (job,) = workflow["jobs"].values()
        done: dict[str, int] = {}
        for step in job["steps"]:
            if step.get("name") in names:
                environment = {**self._environment, "GTM_TOKEN": TOKENS[role]}
                ran = subprocess.run(
                    ["bash", "-eo", "pipefail", "-c", step["run"]],
                    cwd=self.home,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                done[step["name"]] = ran.returncode
                self.output = ran.stdout + ran.stderr
                if ran.returncode:
                    break
        return done


@pytest.fixture
def runner(world: Api, tmp_path: Path) -> Runner:
    """A repository that holds what is in force."""
    found = Runner(tmp_path, world.url)
    subprocess.run(
        [sys.executable, "-m", "gtm.cli", "export", str(tmp_path / "policy"), "--control", world.url],
        env={**os.environ, "GTM_TOKEN": TOKENS[Role.VIEWER]},
        check=True,
        capture_output=True,
    )
    (tmp_path / "traffic.csv").write_text("service,client,count\nchat,81.2.69.142,1000\n")
    return found


def test_a_change_goes_its_way(runner: Runner, world: Api) -> None:
    """Reviewed with a token that reads, applied with one that writes, no drift then; somebody's change elsewhere is drift."""
    policy, drift = (files()[f".github/workflows/{name}.yaml"] for name in ("policy", "drift"))
    tenants = runner.home / "policy" / "tenants.yaml"
    tenants.write_text(tenants.read_text() + "- name: acme\n")
    assert runner.run(policy, "check", "simulate", role=Role.VIEWER) == {"check": 0, "simulate": 0}, (
        runner.output
    )
    assert "<html" in (runner.home / "simulation.html").read_text()
    assert runner.run(drift, "drift", role=Role.OPERATOR) == {"drift": 1}
    assert runner.run(policy, "apply", role=Role.VIEWER)["apply"] != 0  # a token that reads does not write
    done = runner.run(policy, "plan", "apply", role=Role.OPERATOR)
    assert done == {"plan": 0, "apply": 0}, runner.output
    latest = world.viewer.get("/v1/revisions").json()["items"][0]
    assert "acme/policy@0123abc" in latest["comment"]
    assert runner.run(drift, "drift", role=Role.OPERATOR) == {"drift": 0}, runner.output
    refused = world.put("/v1/tenants/acme", {"weight": 3})
    assert refused.status_code == 409  # it is the repository's
    meant = world.operator.put(
        "/v1/tenants/acme?on_managed=override&managed_reason=incident", json={"weight": 3}
    )
    assert meant.status_code == 200
    assert runner.run(drift, "drift", role=Role.OPERATOR) == {"drift": 1}
    assert "acme" in runner.output


def test_what_is_not_the_repository_s_stays(runner: Runner, world: Api) -> None:
    """What others have made since is not deleted."""
    policy = files()[".github/workflows/policy.yaml"]
    world.must_put("/v1/tenants/others", {})
    assert runner.run(policy, "apply", role=Role.OPERATOR) == {"apply": 0}, runner.output
    assert world.viewer.get("/v1/tenants/others").status_code == 200


def test_what_is_wrong_is_stopped(runner: Runner) -> None:
    """Before it is anywhere: what does not compile, and a decision that is not the expected one."""
    policy = files()[".github/workflows/policy.yaml"]
    expected = runner.home / "policy" / "expect.yaml"
    expected.write_text(
        "expectations:\n  - {service: chat, client_ip: 81.2.69.142, region: us-east}\n", encoding="utf-8"
    )
    assert runner.run(policy, "check", role=Role.VIEWER)["check"] != 0
    expected.unlink()
    regions = runner.home / "policy" / "regions.yaml"
    regions.write_text(regions.read_text().replace("eu-west", "nowhere", 1))
    assert runner.run(policy, "check", "plan", role=Role.VIEWER)["check"] != 0


def test_the_hook_runs_the_check(runner: Runner) -> None:
    """What pre-commit would run."""
    (hook,) = files()[".pre-commit-config.yaml"]["repos"][0]["hooks"]
    gtm = shutil.which("gtm", path=str(Path(sys.executable).parent))
    command = [gtm or "gtm", *shlex.split(hook["entry"])[1:]]
    assert subprocess.run(command, cwd=runner.home, check=False, capture_output=True).returncode == 0
    assert re.compile(hook["files"]).match("policy/regions.yaml")
