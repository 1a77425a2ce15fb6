"""Random worlds and requests against a readable reference: the fence holds, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.decision.choice import choice
from gtm.core.decision.decide import Decision, Exclusion, Routing, decide
from gtm.core.decision.fence import fence
from gtm.core.decision.ranking import classes_of, rank
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View, Window, view_of
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.policy import OnAnonymous, OnUnknownLocation, RuleMode
from gtm.core.model.regions import AdminState
from gtm.core.model.requests import UNKNOWN_LOCATION, Location, Request
from gtm.core.model.services import Steering
from tests.core.reference import Reference
from tests.core.strategies import MOMENTS, SHIPPED, World, draws, questions, quick, requests, worlds


def _reference(world: World) -> Reference:
    return Reference(world.policy, SHIPPED, world.state, world.window)


def _fence(view: View, request: Request) -> set[str]:
    allowed = fence(view.rules[request.service], view.snapshot.services[request.service].mask, request)
    return set(view.snapshot.names(allowed.allowed))


def _strict(view: View) -> View:
    """The same with every rule's readings of uncertain locations at their defaults."""
    rules = {
        name: tuple(
            replace(
                compiled,
                rule=replace(
                    compiled.rule,
                    on_unknown_location=OnUnknownLocation.MATCH,
                    on_anonymous=OnAnonymous.MATCH,
                ),
            )
            for compiled in every
        )
        for name, every in view.rules.items()
    }
    return replace(view, basis=replace(view.basis, rules=rules))


@quick(400)
@given(questions(), draws)
def test_no_decision_leaves_the_fence(question: tuple[World, list[Request]], draw: float) -> None:
    """A decision names an eligible region inside the fence, or refuses because there is none."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        decision = decide(world.view, request, draw)
        event(decision.reason)
        assert _fence(world.view, request) == reference.fence(request)
        eligible = reference.eligible(request)
        if decision.region is None:
            assert not eligible
            assert decision.number == -1
            assert decision.outcome is not Outcome.SERVED
        else:
            assert decision.region in reference.fence(request)
            assert decision.region in eligible
            assert world.policy.regions[decision.number].name == decision.region
            assert decision.outcome is Outcome.SERVED


@quick(100)
@given(questions(), draws)
def test_only_healthy_active_regions_serve(question: tuple[World, list[Request]], draw: float) -> None:
    """An unhealthy or unknown region serves only if the service ignores health; a draining or disabled one never."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        decision = decide(world.view, request, draw)
        if decision.region is None:
            continue
        assert world.policy.regions[decision.number].admin_state is AdminState.ACTIVE
        ignored = decision.reason is Reason.HEALTH_IGNORED
        assert reference.healthy(decision.region, request) is not ignored
        assert ignored is not bool(reference.fence(request) & reference.usable(request))
        up = world.view.endpoints[decision.number]
        assert any(reference.can_answer(endpoint, request) for endpoint in up) is not ignored


@quick(100)
@given(questions())
def test_a_refusal_says_whether_the_law_or_availability_is_the_reason(
    question: tuple[World, list[Request]],
) -> None:
    """Empty fence or a usable region outside: the law (451); nothing usable anywhere: availability (503)."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        decision = decide(world.view, request, 0.0)
        if decision.region is not None:
            continue
        if not reference.fence(request):
            expected = (Outcome.REFUSED_RESIDENCY, Reason.FENCE_EMPTY)
        elif reference.usable(request):
            expected = (Outcome.REFUSED_RESIDENCY, Reason.FENCE_UNUSABLE)
        else:
            expected = (Outcome.REFUSED_UNAVAILABLE, Reason.NONE_USABLE)
        assert (decision.outcome, decision.reason) == expected


@quick(100)
@given(questions(), st.booleans(), st.booleans(), st.sampled_from(["all", "country", "invalid", "none"]))
def test_saying_less_never_opens_the_fence(
    question: tuple[World, list[Request]],
    tenant: bool,
    data_class: bool,
    location: str,
) -> None:
    """A request without its tenant, data class or location has a subset of the regions it had with them.

    Except where a rule says that it ignores clients whom nobody can locate.
    """
    world, asked = question
    strict = _strict(world.view)
    for request in asked:
        where: dict[str, Location] = {
            "all": UNKNOWN_LOCATION,
            "country": request.location._replace(country=None),
            "invalid": request.location._replace(country="EU"),
            "none": request.location,
        }
        less = request._replace(
            tenant=None if tenant else request.tenant,
            data_class=None if data_class else request.data_class,
            location=where[location],
        )
        assert _fence(strict, less) <= _fence(strict, request)
        assert _fence(strict, request) <= _fence(world.view, request)


@quick(100)
@given(questions(), draws)
def test_monitoring_rules_change_nothing_and_are_reported(
    question: tuple[World, list[Request]], draw: float
) -> None:
    """Without its monitoring rules a policy answers the same; with them the answer names those that matched."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        decision = decide(world.view, request, draw)
        assert [(rule.name, rule.mode) for rule in decision.rules] == [
            (rule.name, rule.mode.value) for rule in reference.matched(request)
        ]
        assert all(rule.because for rule in decision.rules)
        without = {
            name: tuple(rule for rule in rules if rule.enforced) for name, rules in world.view.rules.items()
        }
        basis = replace(world.view.basis, rules=without)
        bare = decide(replace(world.view, basis=basis), request, draw)
        assert (decision.region, decision.outcome, decision.reason) == (
            bare.region,
            bare.outcome,
            bare.reason,
        )
        assert [item._replace(monitored=()) for item in decision.candidates] == list(bare.candidates)


@quick(150)
@given(st.data())
def test_a_router_answers_what_decide_answers(data: st.DataObject) -> None:
    """Remembered choices, shared by requests that differ in affinity and network only, change nothing at all."""
    world = data.draw(worlds())
    router = Router(world.view, Ranker(world.view.basis, limit=3))
    for _ in range(3):
        request, draw = data.draw(requests(world.policy)), data.draw(draws)
        others = [
            request,
            request._replace(affinity=None),
            request._replace(affinity="carol"),
            request._replace(location=request.location._replace(network="203.0.113.0/24")),
            request._replace(location=request.location._replace(network=None)),
            *(request._replace(service=service.name) for service in world.policy.services),
        ]
        for other in data.draw(st.permutations(others)):
            assert router.decide(other, draw) == decide(world.view, other, draw)


@quick(100)
@given(questions())
def test_shares_sum_to_one(question: tuple[World, list[Request]]) -> None:
    """The eligible regions share all requests among them, in proportion to the odds of each."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        ranking = rank(world.view.basis, request, classes_of(world.view.basis.snapshot))
        chosen = choice(world.view, ranking.group)
        first = Routing(world.view, ranking, chosen, request).explained(chosen.options[0])
        if first.region is None:
            assert len(chosen.options) == 1
            assert all(candidate.share == 0 for candidate in first.candidates)
            continue
        shares = {candidate.region: candidate.share for candidate in first.candidates if candidate.share}
        assert sum(shares.values()) == pytest.approx(1)
        assert shares.keys() <= reference.eligible(request)
        assert shares == {
            option.region: weight for option, weight in zip(chosen.options, chosen.weights, strict=True)
        }
        assert chosen.cumulative[-1] == pytest.approx(1)
        assert all(weight > 0 for weight in chosen.weights)
        service = reference.service(request)
        canaries = {member.region: member.share for member in service.members if member.share is not None}
        weights = {member.region: member.weight for member in service.members if member.share is None}
        eligible = reference.eligible(request)
        if eligible <= canaries.keys() or not eligible & reference.usable(request):
            continue  # nobody is left but canaries, or health is not looked at
        taken = {region: share for region, share in shares.items() if region in canaries}
        assert taken == {region: canaries[region] for region in eligible if region in canaries}
        others = shares.keys() - taken.keys()
        if any(weights[region] for region in eligible - canaries.keys()):
            assert all(weights[region] for region in others)
        if service.steering is not Steering.WEIGHTED:
            assert len(others) == 1


def _excluded(world: World, request: Request, region: str) -> Exclusion | None:
    """What the reference says of a member."""
    reference = _reference(world)
    admin = next(item.admin_state for item in world.policy.regions if item.name == region)
    statuses = {item.status.value for item in world.state.health.get(region, {}).values()}
    for applies, code in (
        (region not in reference.fence(request), Exclusion.RESIDENCY),
        (admin is AdminState.DISABLED, Exclusion.DISABLED),
        (admin is AdminState.DRAINING, Exclusion.DRAINING),
        (not reference.pooled(reference.regions[region], request), Exclusion.NO_ADDRESS),
        (region not in reference.willing(request), Exclusion.MODEL_UNAVAILABLE),
        (region in reference.eligible(request), None),
        (statuses <= {"unknown"}, Exclusion.HEALTH_UNKNOWN),
        (True, Exclusion.UNHEALTHY),
    ):
        if applies:
            return code
    raise AssertionError


@quick(100)
@given(questions(), draws)
def test_every_member_is_accounted_for(question: tuple[World, list[Request]], draw: float) -> None:
    """A decision lists every member once, ranked, each excluded one with its code and the rules against it."""
    world, asked = question
    reference = _reference(world)
    for request in asked:
        decision: Decision = decide(world.view, request, draw)
        members = {region.name: region for region in reference.members(request)}
        assert sorted(candidate.region for candidate in decision.candidates) == sorted(members)
        assert [candidate.rank for candidate in decision.candidates] == list(range(1, len(members) + 1))
        for candidate in decision.candidates:
            against = [
                rule
                for rule in reference.matched(request)
                if reference.excludes(rule, members[candidate.region], request)
            ]
            assert candidate.excluded == _excluded(world, request, candidate.region)
            assert list(candidate.rules) == [rule.name for rule in against if rule.mode is RuleMode.ENFORCE]
            assert list(candidate.monitored) == [
                rule.name for rule in against if rule.mode is RuleMode.MONITOR
            ]
            assert (candidate.distance_km is None) is (request.location.lat is None)
            assert (candidate.estimate_ms is None) is (request.location.lat is None)
        assert (decision.revision, decision.epoch) == (7, world.state.epoch)


@quick(150)
@given(worlds(), st.data())
def test_a_clock_that_steps_back_never_lifts_a_rule(world: World, data: st.DataObject) -> None:
    """Once the clock has stepped back from a moment, the fence is within what it was at that moment."""
    request = data.draw(requests(world.policy))
    before = data.draw(st.sampled_from(MOMENTS))
    back = data.draw(st.sampled_from([moment for moment in MOMENTS if moment <= before]))
    snapshot, state = world.view.snapshot, world.state
    window = Window(before, before)
    then = view_of(snapshot, state, window)
    after = view_of(snapshot, state, Window(back, before))
    assert _fence(after, request) <= _fence(then, request)
    assert _fence(after, request) <= _fence(view_of(snapshot, state, Window(back, back)), request)
