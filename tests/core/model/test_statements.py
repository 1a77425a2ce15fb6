"""Host names that state whose requests come by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import decide
from gtm.core.decision.fence import fence
from gtm.core.findings.coverage import coverage
from gtm.core.findings.report import findings
from gtm.core.model.policy import DataClass, Match, Places, Policy, ResidencyRule, Tenant
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import ContradictionError, Request, agreed
from gtm.core.model.services import HostName, Member, RefusalAddress, Service, Zone
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from tests.core.reference import Reference
from tests.core.strategies import DATA_CLASSES, SHIPPED, TENANTS, World, draws, quick, requests, worlds

STATED = st.sampled_from([None, *TENANTS])
CLASSES = st.sampled_from([None, *DATA_CLASSES])


@quick(200)
@given(
    worlds().flatmap(lambda world: st.tuples(st.just(world), requests(world.policy))), STATED, CLASSES, draws
)
def test_a_name_narrows_and_never_loosens(
    asked: tuple[World, Request], tenant: str | None, data_class: str | None, draw: float
) -> None:
    """By a name, a request is inside the fence of what both state; a rule that it states itself into is never left."""
    world, request = asked
    host = HostName("h.test", tenant, data_class)
    differs = (tenant and request.tenant and tenant != request.tenant) or (
        data_class and request.data_class and data_class != request.data_class
    )
    if differs:
        with pytest.raises(ContradictionError):
            agreed(host, request.tenant, request.data_class)
        return
    both = agreed(host, request.tenant, request.data_class)
    assert both == (tenant or request.tenant, data_class or request.data_class)
    reference = Reference(world.policy, SHIPPED, world.state, world.window)
    named = request._replace(tenant=both[0], data_class=both[1])
    rules, mask = world.view.rules[request.service], world.view.snapshot.services[request.service].mask
    assert set(world.view.snapshot.names(fence(rules, mask, named).allowed)) == reference.fence(named)
    decision = decide(world.view, named, draw)
    assert decision.region is None or decision.region in reference.fence(named)
    stating_all = request.tenant is not None and request.data_class is not None
    if stating_all:  # the name adds nothing, and takes nothing away
        assert named == request


def _region(name: str, country: str) -> Region:
    return Region(name, 0.0, 0.0, country, (Endpoint(f"https://{name}.test", ("192.0.2.1",)),))


BANK, PUBLIC = HostName("bank.test", "bank"), HostName("test", "public")
PAYMENTS = HostName("*.pay.test", "bank", "payment")
CHAT = Service(
    "chat",
    (Member("de"), Member("us")),
    hostnames=("plain.test", BANK, PUBLIC, PAYMENTS),
    zone="test",
    refusal=RefusalAddress(("192.0.2.9",)),
)
RULE = ResidencyRule("bank", Match(tenants=("bank",)), Places(regions=("de",)))
POLICY = Policy(
    (_region("de", "DE"), _region("us", "US")),
    (Zone("test", "ns.example.net", "hostmaster.test"),),
    (CHAT,),
    (RULE,),
    tenants=(Tenant("bank"), Tenant("public")),
    data_classes=(DataClass("payment"),),
)


def _snapshot(*hosts: str | HostName, rule: ResidencyRule = RULE) -> Snapshot:
    services = (replace(CHAT, hostnames=hosts or CHAT.hostnames),)
    return compile_policy(replace(POLICY, services=services, residency_rules=(rule,)), SHIPPED)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("plain.test", HostName("plain.test")),
        ("bank.test", BANK),
        ("test", PUBLIC),
        ("a.b.pay.test", PAYMENTS),
        ("*.pay.test", PAYMENTS),
        ("nope.test", None),
        ("pay.test", None),
        ("elsewhere.example", None),
    ],
)
def test_the_name_that_answers(asked: str, found: HostName | None) -> None:
    """Wildcards state for all names that they stand for; strings state nothing."""
    snapshot = _snapshot()
    assert snapshot.host_of(asked) == found
    assert snapshot.service_of(asked) == (None if found is None else "chat")
    assert set(snapshot.stated) == {"bank.test", "test", "*.pay.test"}


def test_what_is_wrong_with_names() -> None:
    """Unknown tenants and data classes are errors at their place, and so is a name given twice, whatever it states."""
    wrong = (HostName("a.test", "bnak"), HostName("b.test", None, "paper"), "bank.test", BANK)
    with pytest.raises(PolicyError) as caught:
        _snapshot(*wrong)
    found = {(item.path, item.code) for item in caught.value.problems}
    assert found == {
        ("services.chat.hostnames[0].tenant", "unknown_reference"),
        ("services.chat.hostnames[1].data_class", "unknown_reference"),
        ("services.chat.hostnames[3]", "duplicate"),
    }


def test_only_names_that_state_nothing_are_pinned() -> None:
    """The finding names the host names that a rule holds for want of a statement, and what they would have to state."""
    pins = [item.message for item in findings(_snapshot(), 0.0) if item.code == "dns_pinned"]
    assert len(pins) == 1
    assert pins[0].startswith(
        "DNS states no tenant: by residency rule `bank` it answers, for `plain.test`, any client with de"
    )
    assert not [item for item in findings(_snapshot(BANK, PUBLIC), 0.0) if item.code == "dns_pinned"]
    payments = replace(RULE, match=Match(tenants=("bank",), data_classes=("payment",)))
    (pin,) = [
        item for item in findings(_snapshot(BANK, PUBLIC, rule=payments), 0.0) if item.code == "dns_pinned"
    ]
    assert pin.message.startswith(
        "DNS states no data class: by residency rule `bank` it answers, for `bank.test`, any"
    )


def test_coverage_looks_at_what_names_state() -> None:
    """A name whose tenant no region may serve is told; one of another tenant is not."""
    shut = replace(RULE, allow=Places(jurisdictions=("NOWHERE",)), acknowledge_empty_fence=True)
    snapshot = _snapshot(BANK, PUBLIC, rule=replace(shut, acknowledge_empty_fence=True))
    assert list(coverage(snapshot, 0.0)) == []  # acknowledged
    rules = tuple(
        replace(rule, rule=replace(rule.rule, acknowledge_empty_fence=False))
        for rule in snapshot.services["chat"].rules
    )
    open_ = replace(snapshot, services={"chat": replace(snapshot.services["chat"], rules=rules)})
    assert [str(item) for item in coverage(open_, 0.0)] == [
        "services.chat: none of its regions may serve any client (asked by `bank.test`)"
    ]
