"""What a change of policy opens is judged by what can be answered: random policies and changes, asked of the real answerer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

import dns.message
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gtm.core.change.openings import openings
from gtm.core.model.policy import Places, Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import AdminState, Endpoint, Region
from gtm.core.model.services import Member, Service, Steering
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.leads import leads_of
from gtm.telemetry import Counts
from tests import worlds
from tests.core.strategies import quick
from tests.dns.change import policies
from tests.dns.change.answered import CLIENTS, NOW, Memory, Side, opened, owners, told
from tests.dns.change.gone import Control
from tests.dns.change.policies import FREE, PLAIN, RULES, UNIVERSE, Pick, picked_by, settled, zone
from tests.dns.world import query

CHANGES = 20
"""Of one policy: what is known of it serves all of them."""


@st.composite
def changes(draw: st.DrawFn, most: int) -> tuple[Policy, list[Policy]]:
    """A policy, and changes of it."""
    pick = picked_by(draw)
    before = policies.policy(pick)
    return before, [policies.change(before, pick) for _ in range(draw(st.integers(1, most)))]


def compiled(policy: Policy) -> Snapshot | None:
    """Whether it compiles, and as what."""
    try:
        return compile_policy(policy, worlds.SHIPPED)
    except PolicyError:
        event("does not compile")
        return None


@quick(500)
@given(changes(CHANGES))
def test_what_opens_nothing_answers_nothing_that_was_forbidden(case: tuple[Policy, list[Policy]]) -> None:
    """Whatever a change of policy that opens nothing makes of names, what they newly lead to is what the old law permits."""
    snapshot = compiled(case[0])
    assume(snapshot is not None)
    before = Side(case[0], snapshot)
    for policy in case[1]:
        if (after := compiled(policy)) is None:
            continue
        found = openings(before.snapshot, after, NOW, leads=leads_of)
        event(f"opens: {found.any}")
        if not found.any:
            assert [told(each) for each in opened(before, Side(policy, after), UNIVERSE)] == []


@st.composite
def histories(draw: st.DrawFn) -> list[Policy]:
    """A policy, and up to five changes, each of the one before."""
    pick = picked_by(draw)
    found = [policies.policy(pick)]
    for _ in range(draw(st.integers(2, 5))):
        found.append(policies.change(found[-1], pick))
    return found


@quick(800)
@given(histories())
def test_no_row_of_changes_leads_out_of_a_fence_that_none_of_them_opens(history: list[Policy]) -> None:
    """What is gone keeps its rules: after changes that open nothing, each name is inside of every fence that it ever had."""
    snapshot = compiled(history[0])
    assume(snapshot is not None)
    assert snapshot is not None
    sides, control, memory = [Side(history[0], snapshot)], Control(snapshot), Memory()
    for policy in history[1:]:
        after = compiled(policy)
        if after is None or control.judged(after).any:
            continue  # the next is one of what would have been
        control.takes(after)
        new = Side(policy, after)
        memory = memory.after(sides[-1], new, UNIVERSE)
        holders: dict[str, tuple[Region, ...]] = dict(memory.targets)
        for number, old in reversed([*enumerate(sides)]):
            gone = Memory(memory.names if old is sides[-1] else {}, holders)
            assert [told(each) for each in opened(old, new, UNIVERSE, gone, sides[number + 1 :])] == [], (
                len(sides) - number
            )
            # Whoever had an address first goes on counting as having it.
            holders = holders | {
                target: tuple(old.regions[region] for region in had) for target, had in old.owners.items()
            }
        sides.append(new)
    event(f"changes made: {len(sides) - 1}")


# --- what opens nothing ---

_NEW = Endpoint("https://zed.example", ("198.51.100.77",), ("2001:db8:ff::77",))


def _region(before: Policy, pick: Pick) -> Policy:
    """One more region, that may serve all services as far as their rules let it."""
    new = Region("zed", 0.0, 0.0, pick(("DE", "US", "AQ")), (_NEW,))
    services = tuple(replace(each, members=(*each.members, Member("zed"))) for each in before.services)
    # A region whose endpoints are host names of a service leads to all members of it that the rule does not keep from it, too.
    led = any(f".{target}".endswith(".demo.test") for target in owners(before)) and any(
        rule.match.services for rule in before.residency_rules
    )
    led = led or any(host.tenant or host.data_class for each in before.services for host in each.names)
    return replace(
        before,
        regions=(*before.regions, new),
        services=before.services if led else pick((before.services, services)),
    )


def _new_service(before: Policy, pick: Pick) -> Policy:
    names = pick(((), ("new.spare.test",), ("spare.test", "*.spare.test")))
    members = tuple(Member(each.name) for each in before.regions)
    new = Service("extra", members, hostnames=names, refusal=pick(policies.REFUSALS))
    return replace(before, zones=(*before.zones, zone("spare.test")), services=(*before.services, new))


def _tighter(before: Policy, pick: Pick) -> Policy:
    """A rule denies more, or allows less."""
    if not before.residency_rules:
        return before
    at = pick(range(len(before.residency_rules)))
    rules = list(before.residency_rules)
    rule = rules[at]
    if rule.allow.jurisdictions and pick((True, False)):
        rules[at] = replace(rule, allow=replace(rule.allow, jurisdictions=("FR",)))
    else:
        rules[at] = replace(rule, deny=Places((*rule.deny.jurisdictions, "GB"), rule.deny.regions))
    return replace(before, residency_rules=tuple(rules))


def _plain(before: Policy, pick: Pick) -> Policy:
    first, *rest = before.zones
    return replace(before, zones=(replace(first, records=(*first.records, pick(PLAIN))), *rest))


def _elsewhere(before: Policy, pick: Pick) -> Policy:
    """Records of all kinds, outside of every fence."""
    return replace(before, zones=(*before.zones, zone("spare.test", tuple(pick(FREE) for _ in range(3)))))


def _moved(before: Policy, pick: Pick) -> Policy:
    """All endpoints of a region are others, that nobody had."""
    at = pick(range(len(before.regions)))
    regions = list(before.regions)
    regions[at] = replace(regions[at], endpoints=(_NEW,))
    return replace(before, regions=tuple(regions))


def _steered(before: Policy, pick: Pick) -> Policy:
    """What decides within the fence alone."""
    services = tuple(replace(each, ttl=60, steering=pick(tuple(Steering))) for each in before.services)
    first, *rest = before.regions
    regions = (replace(first, admin_state=pick(tuple(AdminState)), lat=7.0), *rest)
    return replace(before, services=services, regions=regions)


def _written_otherwise(before: Policy, _: Pick) -> Policy:
    """The same in other words."""
    zones = tuple(
        replace(
            each,
            records=tuple(
                replace(
                    record,
                    name=f"{each.name}." if record.name == "@" else f"{record.name}.{each.name}.".upper(),
                )
                if not record.name.endswith(".")
                else record
                for record in reversed(each.records)
            ),
        )
        for each in before.zones
    )
    return replace(before, zones=zones, regions=before.regions[::-1], services=before.services[::-1])


def _ruled(before: Policy, pick: Pick) -> Policy:
    return replace(before, residency_rules=(*before.residency_rules, replace(pick(RULES), name="tame")))


TAME: tuple[Callable[[Policy, Pick], Policy], ...] = (
    _region,
    _new_service,
    _tighter,
    _plain,
    _elsewhere,
    _moved,
    _steered,
    _written_otherwise,
    _ruled,
)


@st.composite
def tame(draw: st.DrawFn) -> tuple[Policy, list[tuple[str, Policy]]]:
    """A policy, and changes of it that open nothing."""
    pick = picked_by(draw)
    before = policies.policy(pick)
    found = []
    for _ in range(draw(st.integers(1, 10))):
        kind = pick(TAME)
        found.append((kind.__name__, settled(kind(before, pick))))
    return before, found


@quick(300)
@given(tame())
def test_what_opens_nothing_is_no_opening(case: tuple[Policy, list[tuple[str, Policy]]]) -> None:
    """Lawful regions, services, tighter rules, records that lead nowhere or lie outside of fences, fresh addresses: no opening."""
    snapshot = compiled(case[0])
    assume(snapshot is not None)
    assert snapshot is not None
    more = Service("unasked", (Member(case[0].regions[0].name),))
    turned = compiled(replace(case[0], services=(*case[0].services, more)))
    assert turned is not None
    # Names that HTTPS or SVCB records lead to another service already are told of whenever a service changes:
    # what it may answer then is not compared with what it might before.
    assume(not openings(snapshot, turned, NOW, leads=leads_of).any)
    for kind, policy in case[1]:
        if (after := compiled(policy)) is not None:
            event(kind)
            found = openings(snapshot, after, NOW, leads=leads_of)
            assert (kind, found.found, found.any) == (kind, (), False)


# --- the model asks what the answerer answers ---


@quick(200)
@given(changes(1))
def test_the_model_hears_what_clients_are_told(case: tuple[Policy, list[Policy]]) -> None:
    """All addresses in the replies to packets, whichever region is up, are among those that the model comes to."""
    snapshot = compiled(case[0])
    assume(snapshot is not None)
    side = Side(case[0], snapshot)
    answers = side.answers(NOW)
    for client in CLIENTS[:4]:
        for router in answers.routers.values():
            server = Answerer(router, lambda _, at=client: at, Counts())
            for name in UNIVERSE:
                known = answers.reached(name, client)
                for rdtype in ("A", "AAAA"):
                    reply = server.answer(query(name, rdtype), "192.0.2.200", tcp=True, draw=0.5)
                    assert reply is not None
                    for rrset in dns.message.from_wire(reply).answer:
                        if int(rrset.rdtype) in (wire.A, wire.AAAA):
                            told_ = {str(ip_address(each.to_text())) for each in rrset}
                            mapped = {
                                str(getattr(ip_address(each), "ipv4_mapped", None) or each) for each in told_
                            }
                            assert mapped - {"0.0.0.0", "::"} <= known.keys()
