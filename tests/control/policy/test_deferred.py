"""Which deletions may be made together (docs/api.md, "Deletions that wait"): told from what refers to what, in random policies."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.control.policy.changes import freed
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy, SpilloverRule, Tenant
from gtm.storage.resources import Key
from tests import worlds
from tests.effort import examples

REGIONS, SERVICES, TENANTS = ("r0", "r1", "r2", "r3"), ("s0", "s1", "r0"), ("t0", "t1", "s0")
"""Some names are of resources of two kinds."""


def some(names: tuple[str, ...], least: int = 0) -> st.SearchStrategy[list[str]]:
    """A few of some names."""
    return st.lists(st.sampled_from(names), min_size=least, unique=True)


@st.composite
def policies(draw: st.DrawFn) -> tuple[Policy, set[Key], dict[Key, set[Key]]]:
    """A policy, resources of it that are to go, and what each of its resources refers to."""
    refers: dict[Key, set[Key]] = {("regions", name): set() for name in REGIONS}
    refers |= {("tenants", name): set() for name in TENANTS}
    parts = [worlds.region(name, at="de") for name in REGIONS] + [Tenant(name) for name in TENANTS]
    for name in SERVICES:
        members = draw(some(REGIONS, 1))
        parts.append(worlds.service(name, " ".join(members)))
        refers["services", name] = {("regions", one) for one in members}
    for name in ("law0", "r0"):
        services, tenants, denied = draw(some(SERVICES)), draw(some(TENANTS)), draw(some(REGIONS))
        rule = worlds.rule(
            name, deny=" ".join([*denied, "UK"]), services=" ".join(services), tenants=" ".join(tenants)
        )
        parts.append(replace(rule, acknowledge_empty_fence=True))
        refers["residency_rules", name] = {
            *(("services", one) for one in services),
            *(("tenants", one) for one in tenants),
            *(("regions", one) for one in denied),
        }
    for name in ("over",):
        home, *to = draw(some(REGIONS, 2))
        parts.append(SpilloverRule(name, home, tuple(to), max_share=0.5))
        refers["spillover_rules", name] = {("regions", one) for one in (home, *to)}
    gone = draw(st.sets(st.sampled_from(sorted(refers))))
    return worlds.policy(*parts), gone, refers


@settings(max_examples=examples(300))
@given(policies())
def test_what_nothing_left_refers_to_goes(case: tuple[Policy, set[Key], dict[Key, set[Key]]]) -> None:
    """That is the most that can go together: whatever stays keeps what it refers to, and that what it refers to itself."""
    policy, wanted, refers = case
    goes = set(wanted)
    while kept := {key for other in refers.keys() - goes for key in refers[other] & goes}:
        goes -= kept
    snapshot, obstacles = freed(policy, wanted)
    left = {(kind, one.name) for kind in KINDS for one in getattr(snapshot.policy, kind)}
    assert left == refers.keys() - goes
    assert obstacles.keys() == wanted - goes
    assert not any(one.refused for one in obstacles.values())
