"""Who may be served where: each cell is what the fence says, each coming change is one, each watched request is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf, nextafter

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.fence import fence
from gtm.core.findings.calendar import What, causes, coming
from gtm.core.findings.coverage import CLIENTS, UNKNOWN
from gtm.core.findings.matrix import Inquiry, Matrix, clients_named, column, columns, unruled
from gtm.core.findings.monitored import monitored
from gtm.core.findings.report import findings
from gtm.core.model.policy import Policy, RuleMode
from gtm.core.model.requests import Location, Request
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import CompiledService, Snapshot
from tests import worlds
from tests.core.strategies import DATA_CLASSES, MOMENTS, SHIPPED, TENANTS, policies, quick, requests

REGIONS = worlds.regions("de gb us")
CHAT = worlds.service("chat", "de gb us")
TENANT = st.sampled_from([None, *TENANTS])
DATA_CLASS = st.sampled_from([None, *DATA_CLASSES])


def _by_fence(service: CompiledService, asked: Inquiry, country: str) -> int:
    """The regions that the fence leaves a client who is located for certain."""
    where = Location(country or None, accuracy_km=0.0)
    request = Request(service.service.name, where, asked.tenant, asked.data_class)
    rules = [rule for rule in service.rules if rule.starts <= asked.now < rule.ends]
    return fence(rules, service.mask, request).allowed


@quick(100)
@given(policies(), st.sampled_from(MOMENTS), TENANT, DATA_CLASS)
def test_a_cell_is_what_the_fence_says(
    policy: Policy, now: float, tenant: str | None, data_class: str | None
) -> None:
    """For every client of every column; together the columns hold every client, and no part is there twice."""
    snapshot = compile_policy(policy, SHIPPED)
    asked = Inquiry(now, tenant, data_class)
    clients, left = columns(snapshot, clients_named(snapshot), now, 100)
    assert left == 0
    assert frozenset().union(*(one.countries for one in clients)) == frozenset(CLIENTS)
    matrix = Matrix(asked)
    for service in snapshot.services.values():
        for one in clients:
            parts = matrix.cell(service, one)
            assert sum(len(part.countries) for part in parts) == len(one.countries)
            for part in parts:
                for country in part.countries:
                    assert part.allowed == _by_fence(service, asked, country), (one.name, country)


@quick(100)
@given(policies(), st.sampled_from(MOMENTS), TENANT, DATA_CLASS)
def test_the_calendar_has_all_that_changes_and_nothing_else(
    policy: Policy, now: float, tenant: str | None, data_class: str | None
) -> None:
    """Just before each moment and from it on; between the moments nothing changes."""
    snapshot = compile_policy(policy, SHIPPED)
    asked = Inquiry(now, tenant, data_class)
    events, left = coming(snapshot, causes(snapshot), asked, most=1000, services=1000)
    assert left == 0
    assert [one.at for one in events] == sorted({one.at for one in events})
    assert {at for at in (*snapshot.beginnings, *snapshot.endings) if at > now} <= {one.at for one in events}
    for event in events:
        assert event.at > now
        assert event.causes
        before, after = replace(asked, now=nextafter(event.at, -inf)), replace(asked, now=event.at)
        found = {
            (name, country): (change.before, change.after)
            for change in event.changes
            for name in change.services
            for country in change.countries
        }
        for name, service in snapshot.services.items():
            for country in CLIENTS:
                pair = _by_fence(service, before, country), _by_fence(service, after, country)
                assert found.get((name, country)) == (pair if pair[0] != pair[1] else None)


@st.composite
def watched_worlds(draw: st.DrawFn) -> tuple[Policy, list[tuple[Request, float]]]:
    """Policies with half of their rules in monitor mode, and requests."""
    policy = draw(policies())
    rules = tuple(
        replace(rule, mode=RuleMode.MONITOR) if draw(st.booleans()) else rule
        for rule in policy.residency_rules
    )
    policy = replace(policy, residency_rules=rules)
    return policy, draw(st.lists(st.tuples(requests(policy), st.sampled_from([1.0, 2.0])), max_size=8))


@quick(100)
@given(watched_worlds(), st.sampled_from(MOMENTS))
def test_what_a_watching_rule_would_have_done(
    world: tuple[Policy, list[tuple[Request, float]]], now: float
) -> None:
    """As if it alone of them had been enforced."""
    policy, sample = world
    snapshot = compile_policy(policy, SHIPPED)
    for one in monitored(snapshot, now, sample):
        assert one.rule.mode is RuleMode.MONITOR
        enforced = replace(one.rule, mode=RuleMode.ENFORCE, acknowledge_empty_fence=True)
        changed = tuple(enforced if rule is one.rule else rule for rule in policy.residency_rules)
        after = _compiled(replace(policy, residency_rules=changed))
        if after is None:
            continue
        narrowed = refused = 0.0
        for request, count in sample:
            was, becomes = (_allowed(compiled, request, now) for compiled in (snapshot, after))
            if becomes != was:
                narrowed += count if becomes else 0.0
                refused += 0.0 if becomes else count
        assert (one.narrowed, one.refused) == (narrowed, refused)
        assert one.concerned >= narrowed + refused
        assert sum(one.countries.values()) == refused


def _compiled(policy: Policy) -> Snapshot | None:
    """A policy compiled; None if rules leave a service no region."""
    try:
        return compile_policy(policy, SHIPPED)
    except ValueError:
        return None


def _allowed(snapshot: Snapshot, request: Request, now: float) -> int:
    service = snapshot.services[request.service]
    rules = [rule for rule in service.rules if rule.starts <= now < rule.ends]
    return fence(rules, service.mask, request).allowed


def test_a_decision_that_lapses_is_told_with_what_follows() -> None:
    """From its end on, regions there serve nobody whom a rule concerns that rested on it."""
    policy = worlds.policy(*REGIONS, CHAT, worlds.rule("gdpr", "ADEQUATE", services="chat"))
    snapshot = compile_policy(policy, SHIPPED)
    events, _ = coming(snapshot, causes(snapshot), Inquiry(0.0), most=100, services=10)
    lapse = next(one for one in events if one.at == 300.0)
    assert [(one.what, one.name, one.countries, one.rules) for one in lapse.causes] == [
        (What.MEMBERSHIP_ENDS, "ADEQUATE", ("GB",), ("gdpr",))
    ]
    (change,) = lapse.changes
    assert change.countries == frozenset(CLIENTS)
    assert (snapshot.names(change.before), snapshot.names(change.after)) == (("de", "gb"), ("de",))


def test_rules_that_watch_begin_and_change_nothing() -> None:
    """They are told as such; services beyond those looked at are counted."""
    begins = datetime.fromtimestamp(100, UTC)
    services = tuple(replace(CHAT, name=f"chat{number}") for number in range(3))
    rules = tuple(
        worlds.rule(name, "EU", mode=mode, effective_from=begins)
        for name, mode in (("one", RuleMode.ENFORCE), ("two", RuleMode.MONITOR))
    )
    snapshot = compile_policy(worlds.policy(*REGIONS, *services, *rules), SHIPPED)
    events, left = coming(snapshot, causes(snapshot), Inquiry(0.0), most=1, services=2)
    assert left > 0
    (event,) = events
    assert [(one.name, one.monitor) for one in event.causes] == [("one", False), ("two", True)]
    assert [one.services for one in event.changes] == [("chat0", "chat1")]
    assert event.left_out == 1
    only = compile_policy(worlds.policy(*REGIONS, *services, *rules[1:]), SHIPPED)
    assert coming(only, causes(only), Inquiry(0.0), most=1, services=2)[0][0].changes == ()


def test_columns_are_those_that_most_rules_name() -> None:
    """Then everybody else, and who is nowhere; one can be asked for by its name."""
    rules = (
        worlds.rule("one", "EU", client_jurisdictions="EU"),
        worlds.rule("two", "EU", client_jurisdictions="EU", client_countries="US"),
        worlds.rule("three", "EU", client_countries="BR"),
    )
    snapshot = compile_policy(worlds.policy(*REGIONS, CHAT, *rules), SHIPPED)
    found, left = columns(snapshot, clients_named(snapshot), 0.0, 2)
    assert [one.name for one in found] == ["EU", "BR", "", UNKNOWN]
    assert left == 1
    assert column(snapshot, "EEA", 0.0).countries == {"DE", "FR", "IE", "NO"}


def test_services_that_no_rule_concerns() -> None:
    """As `gtm check` has them; and whether a rule watches them."""
    other = replace(CHAT, name="other")
    rule = worlds.rule("watch", "EU", services="chat", mode=RuleMode.MONITOR)
    snapshot = compile_policy(worlds.policy(*REGIONS, CHAT, other, rule), SHIPPED)
    assert list(unruled(snapshot, 0.0)) == [("chat", True), ("other", False)]
    said = [one.message for one in findings(snapshot, 0.0) if one.code == "no_rule"]
    assert [("only watch" in one) for one in said] == [True, False]
    nothing = compile_policy(worlds.policy(*REGIONS, CHAT), SHIPPED)
    assert list(unruled(nothing, 0.0)) == []
