"""What a change does not touch is not worked out again: with and without that, the same is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.capacity.supply import assess
from gtm.core.change import openings as opening
from gtm.core.change import safety
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.view import Window, view_of
from gtm.core.demand.cells import cell_of
from gtm.core.latency.table import LatencyTable
from gtm.core.model.policy import Policy, SpilloverRule, Tenant
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import AdminState
from gtm.core.model.services import HostName, OnUnusable, Priority
from gtm.core.policy.compile import compile_policy
from gtm.core.simulate.scenario import Ranked, SimulatedWorld
from gtm.dns.zone.leads import leads_of
from tests import worlds as usual
from tests.core.strategies import SHIPPED, policies, quick, requests, rules, states

NOW = 300.0


def _first(kind: str, **changes: object) -> Callable[[Policy], Policy]:
    """What changes the first resource of a kind."""
    return lambda policy: usual.changed(policy, kind, getattr(policy, kind)[0].name, **changes)


def _weightless(policy: Policy) -> Policy:
    first, *rest = policy.services[0].members
    return _first("services", members=(replace(first, weight=0.0, share=None), *rest))(policy)


EDITS: dict[str, Callable[[Policy], Policy]] = {
    "nothing": lambda policy: policy,
    "drain": _first("regions", admin_state=AdminState.DRAINING, draining_since=None),
    "activate": _first("regions", admin_state=AdminState.ACTIVE),
    "move": _first("regions", lat=1.0, country="SG"),
    "models": _first("regions", models=("small",)),
    "reorder": lambda policy: replace(policy, regions=policy.regions[::-1]),
    "weight": _weightless,
    "unusable": _first("services", on_unusable=OnUnusable.IGNORE_HEALTH),
    "host": _first("services", hostnames=(HostName("other.test"),)),
    "fewer services": lambda policy: replace(policy, services=policy.services[1:] or policy.services),
    "fewer rules": lambda policy: replace(policy, residency_rules=policy.residency_rules[1:]),
    "tenants": _first("tenants", country=None),
    "near": lambda policy: replace(
        policy,
        spillover_rules=(
            SpilloverRule(
                "near",
                policy.regions[0].name,
                tuple(one.name for one in policy.regions[1:]),
                max_share=0.5,
                max_added_latency_ms=20.0,
            ),
        )
        if policy.regions[1:]
        else (),
    ),
    "fewer tenants": lambda policy: replace(policy, tenants=policy.tenants[1:]),
}
"""Small changes, each of something that one of the short ways looks at."""


@st.composite
def edited(draw: st.DrawFn) -> tuple[Policy, Policy]:
    """A random policy, and the same with one or two edits or another rule."""
    first = second = draw(policies())
    for name in draw(st.lists(st.sampled_from(sorted(EDITS)), min_size=1, max_size=2)):
        event(name)
        second = EDITS[name](second)
    if draw(st.booleans()):
        more = draw(rules("more", first.regions, tuple(one.name for one in first.services)))
        second = replace(second, residency_rules=(*second.residency_rules, more))
    return first, second


@st.composite
def worlds(draw: st.DrawFn) -> tuple[SimulatedWorld, SimulatedWorld, list[str]] | None:
    """Both of them in the world, with cells of requests to the first; None: one does not compile."""
    pair = draw(edited())
    state = draw(states(pair[0]))
    processing = draw(st.sampled_from(({}, {pair[0].regions[0].name: {"": 40.0}})))
    table = LatencyTable(processing_ms=processing)
    other = draw(st.sampled_from((state, draw(states(pair[0])))))
    asked = draw(st.lists(requests(pair[0]), min_size=1, max_size=8))
    found = []
    for policy, seen in zip(pair, (state, other), strict=True):
        try:
            snapshot = compile_policy(policy, SHIPPED)
        except PolicyError:
            return None
        view = view_of(snapshot, seen, Window(NOW, NOW), table)
        found.append(SimulatedWorld(view, assess(policy, seen.health, {}, NOW).supply))
    cells = list(dict.fromkeys(cell_of(one, Priority.REAL_TIME) for one in asked))
    return found[0], found[1], cells


def plain(rankings: Iterable[tuple[str, Ranking]]) -> dict[str, object]:
    """Rankings as values."""
    return {
        cell: (
            [getattr(one.group, field.name) for field in fields(one.group)],
            one.within,
            one.paths,
            one.request.tenant,
            one.cell,
        )
        for cell, one in rankings
    }


@given(case=worlds())
@quick(300)
def test_what_both_rank_alike_is_ranked_once(
    case: tuple[SimulatedWorld, SimulatedWorld, list[str]] | None,
) -> None:
    """The rankings are those that the second world finds by itself."""
    if case is None:
        return
    before, after, cells = case
    known = Ranked(before, cells)
    found, alone = Ranked(after, cells, known), Ranked(after, cells)
    event(f"taken over: {any(found.rankings.get(cell) is one for cell, one in known.rankings.items())}")
    assert plain(found.rankings.items()) == plain(alone.rankings.items())


def test_why_a_rule_matched_is_not_taken_over() -> None:
    """Nobody knows any more where the tenant is established: the rule matches, and allows the same, for another reason."""
    before = usual.policy(
        usual.region("de"),
        usual.service("chat", "de"),
        usual.rule("eu", "EU", tenant_jurisdictions="EU"),
        Tenant("clinic", country="DE"),
    )
    cells = ["chat||||clinic|||real_time||"]
    worlds = [SimulatedWorld(usual.view(one, now=NOW), {}) for one in (before, EDITS["tenants"](before))]
    known = Ranked(worlds[0], cells)
    reasons = [
        match.because
        for ranked in (known, Ranked(worlds[1], cells, known))
        for match in ranked.rankings[cells[0]].within.matched
    ]
    assert reasons == [("tenant clinic established in DE",), ("tenant clinic of unknown establishment",)]


@given(case=worlds())
@quick(300)
def test_reach_looks_at_all_that_may_be_lost(
    case: tuple[SimulatedWorld, SimulatedWorld, list[str]] | None,
) -> None:
    """The breaches are those that are found if each service is looked at."""
    if case is None:
        return
    before, after, _ = case
    found = list(safety.reach(before.view, after.view))
    with patch.object(safety, "alike_services", lambda *_: frozenset()):
        everywhere = list(safety.reach(before.view, after.view))
    event(f"breaks: {bool(everywhere)}")
    assert found == everywhere


@given(pair=edited())
@quick(300)
def test_the_same_law_opens_nothing(pair: tuple[Policy, Policy]) -> None:
    """Where the search is left out it would find nothing."""
    try:
        before, after = (compile_policy(one, SHIPPED) for one in pair)
    except PolicyError:
        return
    found = opening.openings(before, after, NOW, leads=leads_of)
    with patch.object(opening, "law", lambda _: object()):
        searched = opening.openings(before, after, NOW, leads=leads_of)
    event(f"the same law: {opening.law(before) == opening.law(after)}")
    assert (found.found, found.unknown or {}) == (searched.found, searched.unknown or {})


@given(
    names=st.frozensets(st.sampled_from("abcdef")),
    scopes=st.lists(st.one_of(st.none(), st.frozensets(st.sampled_from("abcdefgh")))),
)
@quick(200)
def test_names_are_grouped_by_the_scopes_that_hold_them(
    names: frozenset[str], scopes: list[frozenset[str] | None]
) -> None:
    """Told slowly: two names are in a group if every scope has both or neither."""
    found: dict[tuple[bool, ...], list[str]] = {}
    for name in sorted(names):
        found.setdefault(tuple(scope is not None and name in scope for scope in scopes), []).append(name)
    assert safety.groups(names, scopes) == [(group[0], tuple(group)) for group in found.values()]
