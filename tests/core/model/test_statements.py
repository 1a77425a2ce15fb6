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
from gtm.core.model.policy import DataClass, ResidencyRule, Tenant
from gtm.core.model.problems import PolicyError
from gtm.core.model.requests import ContradictionError, Request, agreed
from gtm.core.model.services import HostName, Zone
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from tests import worlds as usual
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


BANK, PUBLIC = HostName("bank.test", "bank"), HostName("test", "public")
PAYMENTS = HostName("*.pay.test", "bank", "payment")
RULE = usual.rule("bank", "de", tenants="bank")


def _snapshot(*hosts: str | HostName, law: ResidencyRule = RULE) -> Snapshot:
    chat = usual.service(
        "chat", "de us", hostnames=hosts or ("plain.test", BANK, PUBLIC, PAYMENTS), zone="test"
    )
    zone = Zone("test", "ns.example.net", "hostmaster.test")
    stated = (Tenant("bank"), Tenant("public"), DataClass("payment"))
    return compile_policy(usual.policy(*usual.regions("de us"), zone, chat, law, *stated), SHIPPED)


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
    assert found is None or snapshot.hostnames[found.name] == "chat"
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
    snapshot = _snapshot(BANK, PUBLIC, law=usual.rule("bank", "de", tenants="bank", data_classes="payment"))
    (pin,) = [item for item in findings(snapshot, 0.0) if item.code == "dns_pinned"]
    assert pin.message.startswith(
        "DNS states no data class: by residency rule `bank` it answers, for `bank.test`, any"
    )


def test_coverage_looks_at_what_names_state() -> None:
    """A name whose tenant no region may serve is told; one of another tenant is not."""
    shut = usual.rule("bank", "NOWHERE", tenants="bank", acknowledge_empty_fence=True)
    snapshot = _snapshot(BANK, PUBLIC, law=shut)
    assert list(coverage(snapshot, 0.0)) == []  # acknowledged
    rules = tuple(
        replace(one, rule=replace(one.rule, acknowledge_empty_fence=False))
        for one in snapshot.services["chat"].rules
    )
    open_ = replace(snapshot, services={"chat": replace(snapshot.services["chat"], rules=rules)})
    assert [str(item) for item in coverage(open_, 0.0)] == [
        "services.chat: none of its regions may serve any client (asked by `bank.test`)"
    ]
