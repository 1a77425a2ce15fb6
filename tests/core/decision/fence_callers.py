"""What each module that asks the fence says of one small world: `python -m tests.core.decision.fence_callers [MUTANT]`.

A mutant changes one of the two functions that decide whether a rule concerns a request, before anything has imported them.
"""

from __future__ import annotations

import json
import sys

from gtm.core.decision import fence
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.requests import LocationFacts
from gtm.dns.zone.leads import leads_of

CALLERS = ("ranking", "reach", "openings", "coverage", "pinned", "shadows")
BY_PLACE = frozenset(CALLERS)
"""Those that ask where clients are."""
BY_STATEMENT = frozenset(CALLERS) - {"shadows"}
"""Those that ask about what requests state; of shadows, rules' tenants are compared as sets."""

_matches_place = fence.matches_place


def _blind(settings: ResidencyRule, countries: frozenset[str], facts: LocationFacts) -> str | None:
    """As if clients of unknown country were in none."""
    return None if None in facts.countries else _matches_place(settings, countries, facts)


def _deaf(wanted: frozenset[str] | None, said: str | None) -> bool:
    """As if what is not stated were stated otherwise."""
    return wanted is None or said in wanted


def mutate(name: str) -> None:
    """Put a mutant in place."""
    if name == "place":
        fence.matches_place = _blind
    elif name == "statement":
        fence.matches_statement = _deaf


def verdicts() -> dict[str, str]:
    """What each caller says."""
    # Late: these import from the fence, and must get the mutant.
    from gtm.core.change.openings import openings
    from gtm.core.change.safety import judge
    from gtm.core.findings.coverage import coverage
    from gtm.core.findings.report import pinned
    from gtm.core.findings.shadows import find_shadows
    from tests.core.decision import fence_world as world

    told = {
        "ranking": [world.allowed(request) for request in world.UNSURE],
        "reach": judge(world.STATES[0], world.STATES[1], {}, max_moved=1.0).breaches,
        "openings": openings(world.RULED, world.FREE, 0.0, leads=leads_of).found,
        "coverage": list(coverage(world.CONTRADICTORY, 0.0)),
        "pinned": list(pinned(world.RULED, 0.0)),
        "shadows": find_shadows(world.ALIKE, 0.0).found,
    }
    return {name: str(said) for name, said in told.items()}


if __name__ == "__main__":
    mutate(*sys.argv[1:] or ("",))
    json.dump(verdicts(), sys.stdout)
