"""`gtm export --format hcl` → the real terraform with the provider → control: random policies come back as they were, and plans are empty."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import shutil
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from gtm.control.policy.apart import Apart
from gtm.control.policy.drafts import answer
from gtm.documents.folders import load_document
from gtm.documents.schema import PolicyDocument
from gtm.documents.terraform.export import files
from tests.documents.policy_worlds import documents
from tests.effort import ALL
from tests.terraform.conftest import DEPLOYED, Control, Terraform, programs
from tests.terraform.test_nested_values import earlier

pytestmark = pytest.mark.drill

DEMO = Path(__file__).parents[2] / "policies" / "demo"
MEANT = {"force": "true", "force_reason": "the next", "on_managed": "override", "managed_reason": "the next"}
IMPORTS = re.compile(r"Plan: ([0-9]+) to import, 0 to add, 0 to change, 0 to destroy")
WORLDS = settings(
    max_examples=int(os.environ.get("ROUND_TRIPS", "12" if ALL else "1")),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a smaller one takes as long
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@cache
def _fields() -> dict[str, Any]:
    """Kind → field → what the provider knows of it."""
    spec = json.loads((DEPLOYED / "provider/internal/spec/spec.json").read_text())
    return {kind["field"]: {"attributes": kind["attributes"]} for kind in spec["kinds"]}


def _settled(value: Any, attribute: dict[str, Any]) -> Any:
    """A value with its texts in NFC, and lists whose order means nothing in one order: both are Terraform's."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        items = [_settled(item, attribute["element"]) for item in value]
        return sorted(items, key=json.dumps) if attribute["type"] == "set" else items
    if isinstance(value, dict):
        known = {each["name"]: each for each in attribute["attributes"]}
        return {key: _settled(item, known[key]) for key, item in value.items()}
    return value


def _policy(policy: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Kind → name → document, to be compared."""
    kept = PolicyDocument.model_validate(policy).model_dump(mode="json", exclude_defaults=True)
    return {
        kind: {item["name"]: _settled(item, fields) for item in kept.get(kind, ())}
        for kind, fields in _fields().items()
    }


def _put(control: Control, policy: dict[str, Any]) -> None:
    answer = control.admin.post("/v1/policy:apply", json={"policy": policy}, params=MEANT)
    assert answer.status_code == 200, answer.text


def _root(terraform: Terraform, policy: PolicyDocument, *, imports: bool) -> Terraform:
    """A new folder with the configuration."""
    shutil.rmtree(terraform.folder)
    for name, text in files(policy, imports=imports).items():
        terraform.write(name, text)
    return terraform


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control looks at plans in its own process: another interpreter for each takes longer than all else."""

    async def said(_: Apart, job: bytes) -> bytes:
        return await asyncio.to_thread(lambda: answer(pickle.loads(job)))  # noqa: S301 - its own

    monkeypatch.setattr(Apart, "_said", said)


@programs
@pytest.mark.usefixtures("inside")
@WORLDS
@given(documents())
@example(load_document(DEMO))
def test_an_export_comes_back(terraform: Terraform, control: Control, policy: PolicyDocument) -> None:
    """By applying it to nothing, and by taking over what there is."""
    terraform.environment |= control.environment()
    _put(control, {})
    _applied_to_nothing(_root(terraform, policy, imports=False), control, policy)
    _put(control, {})
    _put(control, policy.model_dump(mode="json"))
    there = PolicyDocument.model_validate(control.policy())
    _taken_over(_root(terraform, there, imports=True), control)


def _applied_to_nothing(root: Terraform, control: Control, policy: PolicyDocument) -> None:
    """It validates, control has an equal policy after it, and there is nothing left to plan; nor would there be by a state of the earlier provider."""
    root.ok("validate")
    root.apply("-parallelism=10")
    assert _policy(control.policy()) == _policy(policy.model_dump(mode="json"))
    again = root("plan", "-detailed-exitcode", "-parallelism=10")
    assert again.code == 0, again.out + again.err
    state = root.folder / "terraform.tfstate"
    state.write_text(json.dumps(earlier(json.loads(state.read_text()), control.policy())))
    upgraded = root("plan", "-detailed-exitcode", "-parallelism=10")
    assert upgraded.code == 0, upgraded.out + upgraded.err


def _taken_over(root: Terraform, control: Control) -> None:
    """The first plan imports everything and changes nothing; nor does applying it, and then the plan is empty."""
    before = control.policy()
    first = root.ok("plan")
    found = IMPORTS.search(first.said)
    assert found is not None, first.out
    assert int(found[1]) == sum(map(len, before.values()))
    root.apply()
    assert control.policy() == before
    again = root("plan", "-detailed-exitcode")
    assert again.code == 0, again.out + again.err


@pytest.mark.usefixtures("inside")
def test_what_needs_each_other_is_made_in_one_change(terraform: Terraform, control: Control) -> None:
    """A zone whose name servers are services in it: no order of single resources would do."""
    region = {
        "name": "r",
        "lat": 1,
        "lon": 1,
        "country": "DE",
        "endpoints": [{"url": "https://r.test", "ipv4": ["192.0.2.1"]}],
    }
    hosts = [f"ns{number}.a.test" for number in range(3)]
    zone = {
        "name": "a.test",
        "primary_ns": hosts[0],
        "hostmaster": "h.a.test",
        "name_servers": [{"name": host} for host in hosts],
    }
    services = [
        {
            "name": host[:3],
            "members": [{"region": "r"}],
            "zone": "a.test",
            "hostnames": [host],
            "refusal": {"ipv4": ["192.0.2.2"]},
        }
        for host in hosts
    ]
    others = [{"name": f"t{number}"} for number in range(20)]
    policy = PolicyDocument.model_validate(
        {"regions": [region], "zones": [zone], "services": services, "tenants": others}
    )
    terraform.environment |= control.environment()
    root = _root(terraform, policy, imports=False)
    root.write("main.tf", 'provider "gtm" {\n  allow_fence_change = "all of it goes"\n}\n')
    root.apply()
    assert _policy(control.policy()) == _policy(policy.model_dump(mode="json"))
    root.ok("destroy", "-auto-approve")
    assert control.policy() == {}
