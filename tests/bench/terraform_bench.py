"""What Terraform costs with a large policy: `python tests/bench/terraform_bench.py [--regions 100 --services 500 --rules 500 --parallelism 10]`.

A real control with an embedded Postgres, the provider as built here, the real `terraform`; beside `gtm apply` of the same policy as a folder.

For each step seconds by the clock, requests that control answered, and revisions that it made:

  gtm apply        the folder into an empty control
  create plan      the same as Terraform configuration (as `gtm export --format hcl` writes it) into an empty control
  create apply     that plan
  no change        a plan when nothing has changed
  one change       plan and apply when one service has
  destroy          all of it
  peer             the same number of Terraform's own `terraform_data`, that refer to one another likewise: what a plan without changes takes of
                   Terraform alone, with small values

The last line is JSON: {step: {"seconds", "requests", "revisions"}}.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import httpx

from gtm.documents import yamls
from gtm.documents.schema import PolicyDocument, concise_policy, to_document
from gtm.documents.terraform.export import files
from tests.bench.scale_bench import large_policy
from tests.ports import free_port
from tests.release import provider as release
from tests.system.harness import Process

COUNTED = re.compile(r"^gtm_control_requests_total\{[^}]*\} ([0-9.e+]+)", re.MULTILINE)
WHY = 'provider "gtm" {\n  allow_fence_change = "benchmark"\n}\n'


class Control:
    """A running control, and how much it was asked."""

    def __init__(self, home: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = Process(
            ["control", "--data-dir", str(home / "data"), "--control-port", str(port)], home / "log"
        )
        while not (found := re.search(r"gtm_[0-9a-f]{10}_\S+", self.process.output)) or not self._ready():
            time.sleep(0.1)
        self.environment = {**os.environ, "GTM_CONTROL_URL": self.url, "GTM_TOKEN": found[0]}
        headers = {"Authorization": f"Bearer {found[0]}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=600)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def asked(self) -> int:
        """Requests so far, but for those of this question."""
        text = self.client.get("/metrics").text
        return round(sum(float(found) for found in COUNTED.findall(text)))

    def revision(self) -> int:
        """The one in force."""
        return int(self.client.get("/v1/policy").headers["ETag"].strip('"'))

    def empty(self) -> None:
        """Delete everything."""
        forced = {"force": "true", "force_reason": "benchmark"}
        self.client.post("/v1/policy:apply", params=forced, json={"policy": {}}).raise_for_status()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("regions", 100),
        ("services", 500),
        ("rules", 500),
        ("members", 5),
        ("parallelism", 10),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    policy = large_policy(given.regions, given.services, given.members, given.rules)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        control = Control(home)
        try:
            found = measure(control, home, policy, given.parallelism)
        finally:
            control.process.stop()
    print(json.dumps(found))


def measure(control: Control, home: Path, policy: Any, parallelism: int) -> dict[str, dict[str, float]]:
    """Every step in turn."""
    document = PolicyDocument.model_validate(to_document(policy))
    folder, root, program = home / "folder", home / "root", home / "bin" / "terraform-provider-gtm"
    for path in (folder, root, program.parent):
        path.mkdir()
    (folder / "policy.yaml").write_text(yamls.dump(concise_policy(policy)))
    for file, text in files(document).items():
        (root / file).write_text(text)
    (root / "why.tf").write_text(WHY)
    release.build(program, release.HERE)
    settings = home / "terraformrc"
    settings.write_text(
        f'provider_installation {{\n  dev_overrides {{ "gtm/gtm" = "{program.parent}" }}\n  direct {{}}\n}}\n'
    )
    environment = {**control.environment, "TF_CLI_CONFIG_FILE": str(settings), "CHECKPOINT_DISABLE": "1"}
    terraform, many = shutil.which("terraform") or "terraform", f"-parallelism={parallelism}"
    found: dict[str, dict[str, float]] = {}

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")

    def step(title: str, work: Callable[[], None]) -> None:
        asked, revision, began = control.asked(), control.revision(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        # This step's own questions: /v1/policy before it, and /metrics after.
        found[title] = {
            "seconds": round(seconds, 1),
            "requests": control.asked() - asked - 2,
            "revisions": control.revision() - revision,
        }
        print(
            f"{title:<14} {seconds:8.1f} s {found[title]['requests']:7} requests {found[title]['revisions']:5} revisions",
            flush=True,
        )

    gtm = [sys.executable, "-m", "gtm.cli"]
    step("gtm apply", lambda: run(*gtm, "apply", str(folder), "--yes", "--no-wait"))
    control.empty()
    step("create plan", lambda: run(terraform, "plan", many, "-out", "plan"))
    step("create apply", lambda: run(terraform, "apply", many, "plan"))
    step("no change", lambda: run(terraform, "plan", many, "-detailed-exitcode"))
    changed = next(path for path in root.glob("*.tf") if '"s0"' in path.read_text())
    changed.write_text(re.sub(r'(resource "gtm_service" "s0" \{\n)', r"\1  ttl = 45\n", changed.read_text()))
    step("one change", lambda: run(terraform, "apply", many, "-auto-approve"))
    step("destroy", lambda: run(terraform, "destroy", many, "-auto-approve"))
    found["peer"] = {"seconds": peer(home / "peer", policy, terraform, many)}
    print(
        f"{'peer':<14} {found['peer']['seconds']:8.1f} s; no change is {found['no change']['seconds'] / found['peer']['seconds']:.2f} of it"
    )
    return found


def peer(root: Path, policy: Any, terraform: str, many: str) -> float:
    """Seconds of a plan without changes of a policy's shape, without any provider."""
    root.mkdir()
    text = [
        f'resource "terraform_data" "{region.name}" {{\n  input = "{region.name}"\n}}\n'
        for region in policy.regions
    ]
    for service in policy.services:
        members = ", ".join(f"terraform_data.{member.region}.output" for member in service.members)
        text.append(f'resource "terraform_data" "{service.name}" {{\n  input = [{members}]\n}}\n')
    for rule in policy.residency_rules:
        named = [*rule.match.services, *rule.deny.regions]
        inputs = ", ".join(f"terraform_data.{name}.output" for name in named)
        text.append(f'resource "terraform_data" "{rule.name}" {{\n  input = [{inputs}]\n}}\n')
    (root / "main.tf").write_text("".join(text))
    for command in (["init"], ["apply", many, "-auto-approve"]):
        subprocess.run([terraform, *command], cwd=root, capture_output=True, check=True)
    began = time.perf_counter()
    subprocess.run([terraform, "plan", many, "-detailed-exitcode"], cwd=root, capture_output=True, check=True)
    return round(time.perf_counter() - began, 1)


if __name__ == "__main__":
    main()
