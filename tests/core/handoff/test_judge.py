"""What a balancer makes of requests, against the page (docs/handoff.md) in random worlds.

Mutants of the code that it was tried on, all killed; see the table in `docs/decisions/0022-handoff.md`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from gtm.core.handoff.verdict import Code, Flaw, Verdict
from tests.core.handoff.model import Case, Expected
from tests.core.handoff.worlds import REQUESTS, World
from tests.effort import examples

SERVED = "carried by an edge, and served", "pushed, and served"
WORLDS = int(os.environ.get("TEST_WORLDS", "2500"))


def _differs(world: World, case: Case, expected: Expected, verdict: Verdict) -> list[str]:
    """What of a verdict is not as the page says."""
    snapshot = world.view.snapshot
    named = verdict.region is not None and verdict.endpoint is not None
    number = snapshot.region_numbers.get(verdict.region or "", -1)
    credible = case.claims is not None and world.page.wrong(case, case.claims) is None
    right = {
        "code": verdict.code.value == expected.code,
        "flaws": {flaw.value for flaw in verdict.flaws} == expected.told,
        "allowed": set(snapshot.names(verdict.allowed)) == expected.fence,
        "reach": set(snapshot.names(verdict.reach)) == expected.pushed,
        "named": named is (verdict.code is Code.WRONG_REGION),
        "region": not named or verdict.region in expected.sent,
        "endpoint": not named or verdict.endpoint in snapshot.regions[number].endpoints,
        "believed": (verdict.believed is not None) is credible,
    }
    return [what for what, holds in right.items() if not holds]


@pytest.mark.endurance
def test_nothing_outside_the_fence_is_served_or_sent_anywhere() -> None:
    """Stale answers, forged subnets, stolen and replayed handoffs, clocks apart, rules that begin, regions outside."""
    met: Counter[str] = Counter()
    for seed in range(examples(WORLDS, few=70)):
        world = World(seed)
        for _ in range(REQUESTS):
            case = world.case()
            expected, verdict = world.page.answer(case), world.judged(case)
            wrong = _differs(world, case, expected, verdict)
            assert not wrong, f"world {seed}: {wrong}\n{case}\n{expected}\n{verdict}"
            met.update([verdict.code.value, *(flaw.value for flaw in verdict.flaws)])
            if verdict.code is Code.SERVE and verdict.believed is not None and verdict.believed.carried:
                met[SERVED[verdict.believed.hop]] += 1
            met["believed"] += verdict.believed is not None
            met["narrowed by it"] += (
                verdict.believed is not None
                and verdict.routing is not None
                and verdict.allowed != world.router.routing(verdict.routing.request).ranking.within.allowed
            )
    by_form = {Flaw.MALFORMED, Flaw.UNKNOWN_KEY, Flaw.BAD_SIGNATURE, Flaw.UNVERIFIED, Flaw.WRONG_ISSUER}
    never = {*Code, *(set(Flaw) - by_form), "believed", *SERVED, "narrowed by it"} - met.keys()
    assert not never, "the worlds are too tame"
