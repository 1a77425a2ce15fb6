"""What the safety rules say of a change in a moment."""

from __future__ import annotations

from gtm.control.live.compiled import compiled
from gtm.control.policy.gone import Remembered
from gtm.control.policy.simulation import Situation
from gtm.control.policy.trial import Rules
from gtm.core.change.safety import SafetyRule, SafetyVerdict
from gtm.core.model.state import State
from gtm.core.simulate.scenario import all_up
from tests.core.simulate.test_simulate import BERLIN, CORK, POLICY, drained, with_slots

NOW = 1_800_000_000.0
ROOMY = with_slots(POLICY, de=100, ie=100)


def verdict(demand: dict[str, float]) -> SafetyVerdict:
    """Of a change that leaves both regions a slot each, while all is up."""
    situation = Situation(NOW, State(health=all_up(ROOMY, NOW)), demand=demand)
    after = compiled(with_slots(POLICY, de=1, ie=1))
    return Rules(1.0).verdict(situation, ROOMY, after, 1, Remembered())


def test_capacity_is_judged_where_demand_is_known() -> None:
    """What a change leaves short of capacity breaks a rule as soon as anybody asks for it."""
    (breach,) = verdict({BERLIN: 60.0, CORK: 30.0}).breaches
    assert breach.rule is SafetyRule.CAPACITY
    assert verdict({}) == SafetyVerdict(unchecked=("capacity and moved: no demand is known",))


def test_reach_is_judged_without_demand() -> None:
    """Whoever loses the last region counts, although nobody asks for it now."""
    situation = Situation(NOW, State(health=all_up(ROOMY, NOW)))
    after = compiled(drained(drained(ROOMY, "de"), "ie"))
    found = Rules(1.0).verdict(situation, ROOMY, after, 1, Remembered())
    assert [breach.rule for breach in found.breaches] == [SafetyRule.REACH]
