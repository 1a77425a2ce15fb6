"""What the safety rules refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.supply import assess
from gtm.core.change import safety
from gtm.core.change.safety import SafetyRule, SafetyVerdict
from gtm.core.decision.choice import choice
from gtm.core.decision.ranking import classes_of, rank
from gtm.core.demand.cells import cell_of
from gtm.core.model.policy import Places, Policy, Tenant
from gtm.core.model.regions import AdminState, Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import Families, Priority
from gtm.core.model.state import State
from gtm.core.simulate.scenario import SimulatedWorld
from tests import worlds
from tests.core.simulate.test_simulate import BERLIN, BOSTON, CHAT, CORK, POLICY, drained, with_slots, world
from tests.core.strategies import policies, quick, requests, states

DEMAND = {BERLIN: 2.0, CORK: 2.0, BOSTON: 6.0}


def judge(
    before: SimulatedWorld, after: SimulatedWorld, demand: dict[str, float], max_moved: float = 0.3
) -> SafetyVerdict:
    """What the rules say, with the share that control allows unless told otherwise."""
    return safety.judge(before, after, demand, max_moved=max_moved)


def broken(verdict: SafetyVerdict) -> list[SafetyRule]:
    """The rules broken, in order."""
    return [breach.rule for breach in verdict.breaches]


def disabled(policy: Policy, *names: str) -> Policy:
    """The policy with regions out of service."""
    for name in names:
        policy = worlds.changed(policy, "regions", name, admin_state=AdminState.DISABLED)
    return policy


def test_what_changes_nothing_is_safe() -> None:
    """The policy in force may be put in force again, under any demand."""
    verdict = judge(world(POLICY), world(POLICY), DEMAND)
    assert verdict == SafetyVerdict((), (), 0.0, (0.0, 0.0), moved_by_law=0.0)
    assert verdict.safe


def test_nobody_is_left_without_a_region() -> None:
    """Draining the last region inside a fence is refused, also without demand, and names those who would lose it."""
    verdict = judge(world(POLICY, down=("ie",)), world(drained(POLICY, "de"), down=("ie",)), {})
    (breach,) = verdict.breaches
    assert breach.rule is SafetyRule.REACH
    assert breach.message == (
        "service `chat` would have no usable region for clients in DE, FR, IE, NO, unknown places; it has one now"
    )
    assert breach.value == 5
    assert verdict.unchecked == ("capacity and moved: no demand is known",)


def test_everybody_losing_a_service_is_told_shortly() -> None:
    """A service without any region left says so once, not by country."""
    (breach,) = judge(world(POLICY), world(disabled(POLICY, "de", "ie", "us")), {}).breaches
    assert "clients in every country; it has one now" in breach.message


def test_a_family_that_loses_its_regions_is_found() -> None:
    """Where A and AAAA have a pool each, each must keep a usable region."""
    regions = worlds.regions("de ie")
    regions = (*regions, worlds.region("us", Endpoint("https://us.test", (), ("2001:db8::1",))))
    made = worlds.service("chat", "de ie us", families=Families.SEPARATE)
    before = worlds.policy(*regions, made)
    (breach,) = judge(world(before), world(drained(before, "us")), {}).breaches
    assert "clients in every country that ask for AAAA records; it has one now" in breach.message
    assert judge(world(before), world(drained(before, "de")), {}).breaches == ()


def test_a_pool_keeps_an_address_that_is_up() -> None:
    """The endpoint that goes has the last IPv6 address that is up: the region stays up, and the pool has the same members."""
    four, six = (
        Endpoint("https://four.test", ("192.0.2.1",)),
        Endpoint("https://six.test", (), ("2001:db8::1",)),
    )
    dead = Endpoint("https://dead.test", (), ("2001:db8::2",))
    made = worlds.service("chat", "de", families=Families.SEPARATE)
    before = worlds.policy(worlds.region("de", four, six, dead), made)

    def breaches(*left: Endpoint) -> list[SafetyRule]:
        pair = before, worlds.changed(before, "regions", "de", endpoints=left)
        states = (State(health=worlds.health(policy.regions, {dead.url})) for policy in pair)
        old, new = (SimulatedWorld(worlds.view(*each), {}) for each in zip(pair, states, strict=True))
        return broken(judge(old, new, {}))

    assert breaches(four, dead) == [SafetyRule.REACH]
    assert breaches(four, six) == []


def test_kinds_of_requests_are_told_apart() -> None:
    """A new rule about a tenant is refused for those who state that tenant or nothing, and for nobody else."""
    pinned = worlds.rule("clinic", "GB", services="chat", tenants="clinic", acknowledge_empty_fence=True)
    before = replace(POLICY, residency_rules=(), tenants=(Tenant("acme"), Tenant("clinic")))
    (breach,) = judge(world(before), world(replace(before, residency_rules=(pinned,))), {}).breaches
    assert "every country;" in breach.message
    worse = replace(pinned, match=replace(pinned.match, client_countries=("DE",)))
    also = worlds.rule("all", "DE", services="chat", client_countries="DE", acknowledge_empty_fence=True)
    start = replace(before, residency_rules=(also,))
    after = replace(before, residency_rules=(also, worse))
    (breach,) = judge(world(start), world(after), {}).breaches
    assert "clients in DE, unknown places;" in breach.message


def test_capacity_has_to_suffice() -> None:
    """A change that makes the planner refuse present demand is refused with the numbers, and the regions short."""
    before, after = (
        world(with_slots(POLICY, de=5, ie=5)),
        world(drained(with_slots(POLICY, de=5, ie=3), "de")),
    )
    verdict = judge(before, after, DEMAND, max_moved=1.0)
    (breach,) = verdict.breaches
    assert breach.rule is SafetyRule.CAPACITY
    assert (breach.value, breach.limit) == (pytest.approx(1.0), 0.0)
    assert (
        "1 requests/s short of the present demand of 10 (0 now); ie: 1 of 4 requests/s refused"
        in breach.message
    )


def test_what_is_short_already_may_stay_so() -> None:
    """A change that does not make a shortage worse is no concern of the rule's."""
    tight = with_slots(POLICY, de=1, ie=1)
    assert judge(world(tight), world(tight), DEMAND).safe
    assert judge(world(tight), world(with_slots(POLICY, de=2, ie=1)), DEMAND).safe


def test_the_total_has_to_suffice() -> None:
    """Where every bound is known, the sum of them is held against what the demand takes."""
    before = with_slots(POLICY, de=6, ie=6, us=6)
    verdict = judge(world(before), world(with_slots(POLICY, de=4, ie=1, us=4)), DEMAND, max_moved=1.0)
    assert broken(verdict) == [SafetyRule.CAPACITY, SafetyRule.CAPACITY]
    assert "9 usable slots, and the present demand takes 10 (18 now)" in verdict.breaches[1].message


def test_no_more_than_a_share_moves_at_once() -> None:
    """Draining a region that serves more than the set share is refused; below it, it passes."""
    verdict = judge(world(POLICY), world(drained(POLICY, "us")), DEMAND)
    (breach,) = verdict.breaches
    assert (breach.rule, breach.value, breach.limit) == (SafetyRule.MOVED, pytest.approx(0.6), 0.3)
    assert "60.0% of the present requests would leave the region" in breach.message
    assert judge(world(POLICY), world(drained(POLICY, "us")), DEMAND, max_moved=0.6).safe
    assert judge(world(POLICY), world(drained(POLICY, "de")), DEMAND).safe


def test_a_few_requests_may_all_move() -> None:
    """Below a least demand the share that moves is not judged, and that is said."""
    verdict = judge(world(POLICY), world(drained(POLICY, "us")), {BOSTON: 4.9})
    assert (verdict.safe, verdict.moved) == (True, pytest.approx(1.0))
    assert verdict.unchecked == ("moved: the present demand of 4.9 requests/s is below 5",)


def test_recoveries_are_no_moves() -> None:
    """Requests that are refused now and would be served may be as many as they like."""
    verdict = judge(world(disabled(POLICY, "us", "de")), world(disabled(POLICY, "de")), DEMAND, max_moved=0.7)
    assert verdict.safe
    assert judge(world(disabled(POLICY, "de", "ie")), world(POLICY), DEMAND).safe


def test_a_service_with_demand_is_not_deleted() -> None:
    """Deleting a service leaves nobody without one of its regions, but what demand it has counts as moved."""
    web = replace(CHAT, name="web")
    before = replace(POLICY, services=(CHAT, web), residency_rules=())
    assert judge(world(before), world(replace(before, services=(web,))), {}).safe
    assert broken(judge(world(before), world(replace(before, services=(web,))), DEMAND)) == [SafetyRule.MOVED]


def test_without_health_nothing_can_be_lost() -> None:
    """Before the first verdict of a probe nothing is usable: the rules say that they could not be applied."""
    verdict = judge(world(POLICY, down=("de", "ie", "us")), world(disabled(POLICY, "de")), DEMAND)
    assert (verdict.safe, verdict.moved) == (True, None)
    assert verdict.unchecked[0].startswith("reach, capacity and moved: no endpoint is known to be up")


@st.composite
def changes(draw: st.DrawFn) -> tuple[SimulatedWorld, SimulatedWorld, list[Request]]:
    """A random policy, the same with other rules and admin states, and requests, in one state of health."""
    first, second = draw(policies()), draw(policies())
    states_of = draw(st.lists(st.sampled_from(AdminState), min_size=8, max_size=8))
    second = replace(
        first,
        residency_rules=tuple(
            replace(
                rule,
                match=replace(rule.match, services=()),
                allow=replace(rule.allow, regions=()),
                deny=Places(),
            )
            for rule in second.residency_rules
            if rule.allow.jurisdictions or rule.allow.operator_jurisdictions
        ),
        regions=tuple(
            replace(one, admin_state=state) for one, state in zip(first.regions, states_of, strict=False)
        ),
    )
    state = draw(states(first))
    made = [
        SimulatedWorld(worlds.view(one, state, 300), assess(one, state.health, {}, 300).supply)
        for one in (first, second)
    ]
    return made[0], made[1], draw(st.lists(requests(first), min_size=4, max_size=4))


@given(case=changes())
@quick(100)
def test_whoever_loses_a_region_is_found(case: tuple[SimulatedWorld, SimulatedWorld, list[Request]]) -> None:
    """If any located request has a usable region before and none after, the rule is broken."""
    before, after, asked = case
    verdict = judge(before, after, {})
    for request in asked:
        plain = request._replace(
            location=request.location._replace(anonymous=False, source="override"), affinity=None
        )
        had, has = (
            bool(
                choice(
                    side.view, rank(side.view.basis, plain, classes_of(side.view.basis.snapshot)).group
                ).eligible
            )
            for side in (before, after)
        )
        if had and not has and before.view.up:
            assert SafetyRule.REACH in broken(verdict)
    rates = {cell_of(one, Priority.REAL_TIME): 1.0 for one in asked}
    assert judge(before, before, rates).safe
