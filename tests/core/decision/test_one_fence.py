"""Whether a rule concerns a request is decided in one place, which everybody asks."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest
from hypothesis import given

from gtm.core.decision.fence import fence
from gtm.core.findings.coverage import client_fences
from gtm.core.model.requests import Location, Request
from tests.core.decision.fence_callers import BY_PLACE, BY_STATEMENT, CALLERS
from tests.core.strategies import World, quick, worlds
from tests.docs.blocks import ROOT
from tests.sources import parsed

SETTINGS = {"on_unknown_location", "on_anonymous", "on_doubtful_location", "max_accuracy_km"}
"""How a rule takes clients of uncertain location."""
READERS = {
    "gtm/core/decision/fence.py": "decides by them",
    "gtm/core/findings/coverage.py": "groups rules that are alike before it asks",
    "gtm/core/findings/shadows.py": "asks about the radii that two rules tell apart",
    "gtm/core/change/ground.py": "asks about the radii that rules tell apart",
    "gtm/core/findings/matrix.py": "tells cells apart by rules before it asks about each",
    "gtm/core/findings/report.py": "says which settings have no effect",
}


def _verdicts(*mutant: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.core.decision.fence_callers", *mutant]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    told: dict[str, str] = json.loads(ran.stdout)
    assert tuple(told) == CALLERS
    return told


@pytest.mark.parametrize(
    ("mutant", "callers"), [("place", BY_PLACE), ("statement", BY_STATEMENT)], ids=["place", "statement"]
)
def test_whoever_decides_asks_the_fence(mutant: str, callers: frozenset[str]) -> None:
    """A fence that decides otherwise changes what everybody says: nobody has one of their own."""
    right, wrong = _verdicts(), _verdicts(mutant)
    assert {name for name in CALLERS if right[name] != wrong[name]} == callers


def test_nobody_else_reads_how_rules_take_uncertain_clients() -> None:
    """A module of the core that looks at these settings may be about to decide by itself."""
    readers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "gtm/core").rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in SETTINGS
    }
    assert readers == READERS.keys(), "ask gtm.core.decision.fence instead"


@quick(100)
@given(worlds())
def test_fences_by_country_are_those_of_requests(world: World) -> None:
    """What findings work out for all countries at once is what the fence says of a client in each."""
    snapshot = world.view.snapshot
    for service in snapshot.services.values():
        rules = [rule for rule in service.rules if rule.enforced]
        everybody = [rule for rule in rules if rule.tenants is rule.data_classes is None]
        for country, mask in client_fences(everybody, len(snapshot.regions)).items():
            location = Location(country or None, source="cell", accuracy_km=0.0)
            request = Request(service.service.name, location)
            assert mask & service.mask == fence(everybody, service.mask, request).allowed
