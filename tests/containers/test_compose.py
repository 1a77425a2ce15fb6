"""`deploy/compose.yaml`: what it tells gtm is what gtm is told, and the policy leads to its balancers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gtm.cli.app import app
from tests.containers.settings import unknown

DEPLOY = Path(__file__).parents[2] / "deploy"
WORLD: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = WORLD["services"]
POLICY = DEPLOY / "compose" / "policy"


@pytest.mark.parametrize("name", SERVICES)
def test_gtm_takes_what_it_is_told(name: str) -> None:
    """Arguments and variables are those of the command."""
    service = SERVICES[name]
    environment = set(service.get("environment", {}))
    arguments = service.get("command", [])  # of control its script says it; its variables are for commands
    assert unknown(arguments, environment) == set()


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_has_more_rights_than_it_needs(name: str) -> None:
    """No capability, a root that is read only, ports for this machine alone."""
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert {place.partition(":")[0] for place in service.get("volumes", ())} <= {
        *WORLD["volumes"],
        "./compose",
    }


def test_the_policy_leads_to_the_balancers() -> None:
    """Each region's endpoint is its balancer, by name and by address; the policy is sound."""
    (file,) = POLICY.iterdir()
    regions = {one["name"]: one["endpoints"] for one in yaml.safe_load(file.read_text())["regions"]}
    balancers = {
        service["environment"]["GTM_REGION"]: [
            {"url": f"http://{name}:8088", "ipv4": [service["networks"]["world"]["ipv4_address"]]}
        ]
        for name, service in SERVICES.items()
        if name.startswith("balancer-")
    }
    assert regions == balancers
    assert CliRunner().invoke(app, ["check", str(POLICY)]).exit_code == 0


def test_every_token_is_made() -> None:
    """Each file of a token that a service reads is one that control's first start writes, of its role."""
    script = (DEPLOY / "compose" / "control.sh").read_text()
    (listed,) = re.findall(
        r"^  for region in ([\w -]+); do token .* --role balancer --regions", script, re.MULTILINE
    )
    made = {*listed.split(), *re.findall(r"^  token (\w+) --role", script, re.MULTILINE)}
    read = {
        Path(service["environment"]["GTM_TOKEN_FILE"]).name
        for service in SERVICES.values()
        if "GTM_TOKEN_FILE" in service.get("environment", {})
    }
    assert read == made
