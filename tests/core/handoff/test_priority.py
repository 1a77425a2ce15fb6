"""Who may claim what priority (`gtm.core.handoff.verdict`): whatever is stated, nobody gets more than somebody grants."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.verdict import PriorityGrant, lower, priority_of
from gtm.core.model.services import Priority
from tests.effort import examples

REAL_TIME, NEAR, BATCH = Priority
PRIORITIES = st.sampled_from(Priority)
MAYBE = st.none() | PRIORITIES


def _claims(hop: int, priority: Priority | None, *, push: bool = False, carried: bool = False) -> Claims:
    return Claims(
        issuer="a",
        region="fra",
        service="chat",
        issued=0,
        expires=60,
        nonce="n",
        fence="f",
        revision=1,
        priority=priority,
        hop=hop,
        once=push,
        pushed="" if push or carried else None,
    )


EDGES = st.builds(_claims, st.just(0), MAYBE, carried=st.booleans())
REDIRECTS = st.builds(_claims, st.just(1), MAYBE)
PUSHES = st.builds(_claims, st.just(1), PRIORITIES, push=st.just(True))


def _rank(priority: Priority) -> int:
    return list(Priority).index(priority)


@settings(max_examples=examples(1000, 300), deadline=None)
@given(PRIORITIES, MAYBE, MAYBE, st.none() | EDGES)
def test_a_stranger_claims_no_more_than_the_service_has(
    service: Priority, stated: Priority | None, setting: Priority | None, claims: Claims | None
) -> None:
    """Nor more than the file leaves to those without a key; what an edge signs is what its client states, also of a request that it carries."""
    found = priority_of(service, stated, PriorityGrant(setting), claims)
    assert _rank(found) >= _rank(service)
    assert setting is None or _rank(found) >= _rank(setting)
    wanted = stated or (claims.priority if claims is not None else None)
    assert wanted is None or _rank(found) >= _rank(wanted)


@settings(max_examples=examples(1000, 300), deadline=None)
@given(PRIORITIES, MAYBE, PRIORITIES, st.none() | EDGES)
def test_a_key_is_worth_what_the_file_says_of_its_tenant(
    service: Priority, stated: Priority | None, setting: Priority, claims: Claims | None
) -> None:
    """More than the service's own too; a header lowers it."""
    found = priority_of(service, stated, PriorityGrant(setting, proven=True), claims)
    wanted = stated or (claims.priority if claims is not None else None)
    assert found is (setting if wanted is None else lower(wanted, setting))


@settings(max_examples=examples(1000, 300), deadline=None)
@given(PRIORITIES, MAYBE, MAYBE, st.booleans())
def test_from_a_network_that_is_listed_any_may_be_claimed(
    service: Priority, stated: Priority | None, setting: Priority | None, proven: bool
) -> None:
    """What is not claimed is as for others."""
    found = priority_of(service, stated, PriorityGrant(setting, proven, free=True), None)
    assert found is (stated or priority_of(service, None, PriorityGrant(setting, proven), None))


@settings(max_examples=examples(1000, 300), deadline=None)
@given(PRIORITIES, MAYBE, st.builds(PriorityGrant, MAYBE, st.booleans(), st.booleans()), PUSHES)
def test_a_push_has_what_its_balancer_granted(
    service: Priority, stated: Priority | None, grant: PriorityGrant, claims: Claims
) -> None:
    """Exactly: the header that its client wrote was judged there."""
    assert priority_of(service, stated, grant, claims) is claims.priority


@settings(max_examples=examples(1000, 300), deadline=None)
@given(PRIORITIES, MAYBE, MAYBE, REDIRECTS)
def test_a_balancers_redirect_grants_what_it_says(
    service: Priority, stated: Priority | None, setting: Priority | None, claims: Claims
) -> None:
    """At the most: the client brings it, and may lower it."""
    alone = priority_of(service, stated, PriorityGrant(setting), None)
    found = priority_of(service, stated, PriorityGrant(setting), claims)
    if claims.priority is None:
        assert found is alone
    elif stated is None:
        assert found is claims.priority
    else:
        own = service if setting is None else lower(setting, service)
        assert found is lower(stated, min(own, claims.priority, key=_rank))


def test_examples() -> None:
    """The page's (docs/balancer.md, "Priorities")."""
    assert priority_of(NEAR, REAL_TIME, PriorityGrant(), None) is NEAR
    assert priority_of(NEAR, BATCH, PriorityGrant(), None) is BATCH
    assert priority_of(NEAR, None, PriorityGrant(REAL_TIME, proven=True), None) is REAL_TIME
    assert priority_of(NEAR, None, PriorityGrant(REAL_TIME), None) is NEAR
    assert priority_of(REAL_TIME, REAL_TIME, PriorityGrant(BATCH), None) is BATCH
    assert priority_of(NEAR, REAL_TIME, PriorityGrant(free=True), None) is REAL_TIME
