"""What edges' votes can do, against a model written from docs/concepts.md#health, in worlds where some tokens lie."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.errors import Conflict
from gtm.control.lead.reports import ReportIntake
from gtm.control.lead.vantages import (
    GATHERING,
    MAX_AGE,
    MAX_EDGES,
    MAX_INSTANCES,
    MAX_SCOPES,
    OVERLAP,
    Vantages,
    scopes,
)
from gtm.core.health.alarm import HOLD, WINDOW
from gtm.core.health.verdicts import followed, up_regions
from gtm.core.model.policy import Match, Places, Policy, ResidencyRule
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import Member, Service
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.leases import LeaseUse
from gtm.feed.reports import EdgeReport
from tests.core.strategies import quick

URL = "http://192.0.2.1/"
Seen = dict[str, bool]


def table(seen: Seen, at: float = 0.0) -> dict[str, dict[str, EndpointHealth]]:
    """A table of health, from whether each region is up."""
    statuses = {True: HealthStatus.UP, False: HealthStatus.DOWN}
    return {region: {URL: EndpointHealth(statuses[up], at)} for region, up in seen.items()}


@cache
def policy(
    regions: tuple[str, ...], services: tuple[tuple[str, ...], ...], fences: tuple[tuple[str, ...], ...] = ()
) -> Snapshot:
    """A policy with services of these members, each with all the fences."""
    return compile_policy(
        Policy(
            regions=tuple(Region(name, 0.0, 0.0, "DE", (Endpoint(URL),)) for name in regions),
            services=tuple(
                Service(f"s{number}", tuple(map(Member, names))) for number, names in enumerate(services)
            ),
            residency_rules=tuple(
                ResidencyRule(f"f{number}", Match(), Places(regions=names))
                for number, names in enumerate(fences)
            ),
        ),
        (),
    )


@dataclass
class Control:
    """A control process, with its clock in the test's hands."""

    regions: list[str]
    now: float = 1000.0
    services: list[list[str]] = field(default_factory=list)
    fences: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self.vantages = Vantages(lambda: self.now, lambda: self.now)

    def report(self, token: str, edge: str, seen: Seen, instance: str = "") -> Any:
        """Take in a report, and judge at once."""
        use = LeaseUse(instance, 1) if instance else None
        found = self.vantages.take(token, edge, "192.0.2.9", EdgeReport("1", 1, 1, table(seen), leases=use))
        self.judge()
        return found

    def judge(self) -> Any:
        """What the votes say now."""
        services, fences = (tuple(map(tuple, sets)) for sets in (self.services, self.fences))
        return self.vantages.judge(policy(tuple(self.regions), services, fences))

    def usable(self, seen: Seen) -> frozenset[str]:
        """What an edge that sees this answers with."""
        return up_regions(followed(self.vantages.judgement.told, table(seen), table(seen)))

    def settled(self) -> None:
        """Let a control that starts have heard everybody."""
        self.now += GATHERING
        self.judge()


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[str], list[list[str]], list[tuple[str, str]], list[str]]:
    """Regions, members of services, honest edges (token, name), lying tokens: no more than half."""
    regions = [f"r{number}" for number in range(draw(st.integers(1, 7)))]
    services = draw(st.lists(st.lists(st.sampled_from(regions), min_size=1, unique=True), max_size=2))
    honest = draw(st.integers(1, 4))
    edges = [(f"h{n}", f"h{n}-{m}") for n in range(honest) for m in range(draw(st.integers(1, 3)))]
    liars = [f"l{number}" for number in range(draw(st.integers(0, honest)))]
    return regions, services, edges, liars


@quick(400)
@given(worlds(), st.data())
def test_half_of_the_tokens_decide_nothing(world: Any, data: st.DataObject) -> None:
    """What all honest edges see up stays in the answers of each, and what they all see down leaves, whatever others say.

    Flapping, stale reports of liars, restarts of control in the middle, and reports in any order are among it.
    """
    regions, services, edges, liars = world
    control = Control(regions, services=services)
    truth: Seen = dict.fromkeys(regions, True)
    for _ in range(data.draw(st.integers(1, 5))):
        before = truth
        truth = {region: data.draw(st.booleans()) for region in regions}
        if data.draw(st.booleans()):
            control.restart()
        lies = [
            (
                liar,
                f"{liar}-{data.draw(st.integers(0, 5))}",
                {one: data.draw(st.booleans()) for one in regions},
            )
            for liar in liars
            for _ in range(data.draw(st.integers(0, 3)))
        ]
        told: set[str] = set()
        for token, edge, seen in data.draw(
            st.permutations([*((token, edge, None) for token, edge in edges), *lies])
        ):
            control.report(token, edge, truth if seen is None else seen)
            told |= {edge} if seen is None else set()
            for region in regions:
                if truth[region] == before[region]:
                    assert (region in control.usable(truth)) is truth[region]
        control.now += data.draw(st.sampled_from([0.1, 1.0, GATHERING, MAX_AGE - 1.0]))
        control.judge()
        assert control.usable(truth) == {region for region in regions if truth[region]}


@quick(300)
@given(worlds(), st.data())
def test_no_number_of_tokens_empties_an_edge(world: Any, data: st.DataObject) -> None:
    """Even where every other token lies, an edge keeps half of the regions that it sees up."""
    regions, services, _, _ = world
    control = Control(regions, services=services)
    seen = {region: data.draw(st.booleans()) for region in regions}
    up = {region for region in regions if seen[region]}
    for _ in range(data.draw(st.integers(1, 6))):
        control.report("honest", "honest", seen)
        for liar in range(data.draw(st.integers(1, 5))):
            control.report(f"l{liar}", f"l{liar}", {one: data.draw(st.booleans()) for one in regions})
        control.now += data.draw(st.sampled_from([0.1, 1.0, 5.0, MAX_AGE + 1, WINDOW + 1, HOLD + 1]))
        control.judge()
        assert 2 * len(control.usable(seen) & up) >= len(up)


@quick(100)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.booleans(), min_size=3), min_size=1, max_size=8))
def test_an_edge_that_is_alone_goes_by_what_it_sees(rounds: list[Seen]) -> None:
    """With one edge, as with `gtm serve`, every failure and every recovery acts as soon as the edge has reported it."""
    control = Control(list("abc"), services=[["a", "b"], ["c"]])
    for seen in rounds:
        control.report("serve-edge", "local", seen)
        assert control.usable(seen) == {region for region in seen if seen[region]}
        control.now += 1.0


@pytest.mark.parametrize("regions", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_one_region_of_a_small_world_fails_at_once(regions: list[str]) -> None:
    """An edge that has not noticed yet leaves a region that most others see down."""
    control = Control(regions, services=[regions, ["a"]])
    up = dict.fromkeys(regions, True)
    for edge in ("one", "two", "three"):
        control.report(edge, edge, up)
    control.settled()
    for edge in ("one", "two"):
        control.report(edge, edge, {**up, "a": False})
    assert up_regions(control.vantages.judgement.told) == set(regions) - {"a"}
    assert "a" in control.vantages.judgement.told
    assert control.usable(up) == (set(regions) - {"a"} or {"a"}), "the last region is the edge's own to judge"
    assert not control.vantages.alarm_words()


def test_all_names_of_a_token_have_one_vote() -> None:
    """Twenty ghosts take no region from two honest edges, and a group's vote is that of most of its edges."""
    control = Control(list("abc"))
    up = dict.fromkeys("abc", True)
    for number in range(20):
        control.report("bad", f"ghost-{number}", {**up, "a": False})
    for edge in ("one", "two"):
        control.report(edge, edge, up)
    control.settled()
    assert control.usable(up) == set("abc")
    control.report("one", "one", {**up, "a": False})
    assert control.usable(up) == set("bc"), "two of three tokens"
    for number in range(11):
        control.report("bad", f"ghost-{number}", up)
    assert control.usable(up) == set("abc"), "most edges of the group see it up now"


def test_many_at_once_are_an_alarm_and_no_action() -> None:
    """Verdicts on more than half that go down at once are withdrawn; plans go by those who see them up."""
    regions = list("abcde")
    control = Control(regions)
    up = dict.fromkeys(regions, True)
    control.report("good", "good", up)
    control.report("bad", "bad", up)
    control.settled()
    control.report("good", "good", up)
    lie = {**up, "a": False, "b": False}
    control.report("bad", "bad", lie)
    control.report("ugly", "ugly", lie)
    assert set(control.vantages.judgement.told) == set(regions)
    assert up_regions(control.vantages.judgement.told) == {"c", "d", "e"}, "two of five may be down"
    control.report("bad", "bad", {**lie, "c": False})
    control.report("ugly", "ugly", {**lie, "c": False})
    judged = control.vantages.judgement
    assert (set(judged.told), set(judged.alarm.disputed)) == ({"d", "e"}, {"a", "b", "c"})
    assert up_regions(judged.presumed) == set(regions)
    assert "`a`, `b`, `c`" in (words := control.vantages.alarm_words())
    assert "say down: `bad`, `ugly`; up: `good`" in words
    for _ in range(10):  # for as long as somebody sees them up
        control.now += HOLD / 8
        control.report("good", "good", up)
        for liar in ("bad", "ugly"):
            control.report(liar, liar, {**lie, "c": False})
    assert set(control.vantages.judgement.alarm.disputed) == {"a", "b", "c"}
    control.report("bad", "bad", up)
    assert not control.vantages.judgement.alarm.disputed
    assert not control.vantages.alarm_words()
    assert up_regions(control.vantages.judgement.told) == set(regions)


def test_one_of_two_tokens_decides_nothing() -> None:
    """A tie leaves what was in the common verdict, and each edge goes by its own probes: nothing dies, nothing rises.

    Two sites that cannot see each other took both offline (keycloak/keycloak#29303).
    """
    control = Control(list("abcde"))
    seen = {**dict.fromkeys("abcde", True), "e": False}
    for edge in ("good", "bad"):
        control.report(edge, edge, seen)
    control.settled()
    control.report("good", "good", seen)
    control.report("bad", "bad", {**seen, "a": False, "e": True})
    told = control.vantages.judgement.told
    assert {name: (one[URL].status.value, one[URL].tied) for name, one in told.items()} == {
        **dict.fromkeys("bcd", ("up", False)),
        "a": ("up", True),
        "e": ("down", True),
    }
    assert control.usable(seen) == set("abcd")
    assert up_regions(control.vantages.judgement.presumed) == set("abcde"), "plans are for who sees them up"
    assert "regions `a`, `e` are up as say down" in control.vantages.tie_words()
    assert control.usable({**seen, "a": False}) == set("bcd"), "an edge that sees it down leaves it at once"
    control.report("good", "good", {**seen, "a": False})
    assert not control.vantages.judgement.told["a"][URL].tied
    assert control.usable(seen) == set("bcd"), "both say down"
    assert "regions `e` are up" in control.vantages.tie_words()
    control.report("bad", "bad", {**seen, "a": False})
    assert not control.vantages.tie_words()


def test_plans_are_made_for_what_somebody_sees_up_in_a_tie() -> None:
    """Also where nothing was agreed before: a liar who speaks from the start takes no region out of the plans."""
    control = Control(list("abc"))
    for token, seen in (
        ("good", {"a": True, "b": True, "c": False}),
        ("bad", {"a": False, "b": False, "c": True}),
    ):
        control.vantages.take(token, token, "", EdgeReport("1", 1, 1, table(seen)))
    control.settled()
    told = control.vantages.judgement.told
    assert {one[URL] for one in told.values()} == {EndpointHealth(tied=True)}
    assert up_regions(control.vantages.judgement.presumed) == set("abc")
    assert control.usable({"a": True, "b": True, "c": False}) == set("ab"), "who sees it down leaves it out"


@pytest.mark.parametrize(
    ("clients", "planned"), [({}, "ab"), ({"good": 9.0, "bad": 1.0}, "a"), ({"good": 1.0, "bad": 9.0}, "b")]
)
def test_plans_are_made_for_where_most_clients_can_be_sent(clients: dict[str, float], planned: str) -> None:
    """In a tie each edge goes by its own probes: those with most clients say what a plan has to reckon with."""
    control = Control(list("ab"))
    for token, seen in (("good", {"a": True, "b": False}), ("bad", {"a": False, "b": True})):
        control.vantages.take(token, token, "", EdgeReport("1", 1, 1, table(seen)))
    judged = control.vantages.judge(policy(("a", "b"), ()), lambda: clients)
    assert up_regions(judged.presumed) == set(planned)


def test_a_token_whose_edges_are_split_does_not_vote() -> None:
    """Two edges of one token that contradict each other leave the verdict to others, or as it was."""
    control = Control(list("ab"))
    up = dict.fromkeys("ab", True)
    for edge in ("one", "two"):
        control.report("group", edge, up)
    control.settled()
    control.report("group", "two", {**up, "a": False})
    assert control.vantages.judgement.told["a"][URL].tied
    control.report("other", "other", {**up, "a": False})
    assert control.vantages.judgement.told["a"][URL].status is HealthStatus.DOWN


def test_nobody_reports_a_tie() -> None:
    """Only control says that votes are split: of a report the mark is dropped."""
    tied = {"a": {URL: EndpointHealth(HealthStatus.UP, tied=True)}}
    read = ReportIntake(policy(("a",), ()), Counter()).read(EdgeReport("1", 1, 1, tied), 1.0)
    assert not read.health["a"][URL].tied


def test_a_fence_is_a_world_of_its_own() -> None:
    """Both regions that a residency rule leaves fall at once: an alarm, though five others are up."""
    regions = list("abcdefg")
    control = Control(regions, services=[regions], fences=[["a", "b", "c"], ["a", "b", "d"]])
    up = dict.fromkeys(regions, True)
    for edge in ("one", "two"):
        control.report(edge, edge, up)
    control.report("bad", "bad", {**up, "a": False, "b": False})
    control.settled()
    control.report("one", "one", {**up, "a": False, "b": False})
    assert set(control.vantages.judgement.alarm.disputed) == {"a", "b"}, "the two that both rules leave"
    assert control.usable(up) == set(regions)
    control.fences = []
    control.restart()
    for edge in ("one", "two"):
        control.report(edge, edge, up)
    control.settled()
    for edge in ("bad", "one"):
        control.report(edge, edge, {**up, "a": False, "b": False})
    assert control.usable(up) == set("cdefg")


def test_an_alarm_says_if_only_one_token_votes() -> None:
    """Where nobody else can tell, its word counts at once at its edges, and people are told."""
    control = Control(list("abc"))
    control.report("t", "edge", dict.fromkeys("abc", True))
    control.settled()
    control.report("t", "edge", dict.fromkeys("abc", False))
    assert control.usable(dict.fromkeys("abc", False)) == frozenset()
    assert control.vantages.alarm_words().endswith("Only one token's edges vote, so nobody else can tell.")


def test_sets_of_regions_are_bounded() -> None:
    """Hundreds of fences make no more than so many sets, those of the services among them."""
    regions = tuple(f"r{number}" for number in range(40))
    fences = tuple(
        tuple(name for name in regions if name not in (one, two)) for one, two in combinations(regions[1:], 2)
    )
    found = scopes(policy(regions, (regions,), fences))
    assert len(found) == MAX_SCOPES
    assert {frozenset(regions), *map(frozenset, fences)} <= {*found}


def test_half_at_once_is_no_alarm() -> None:
    """Two of four may be down; the third is one too many."""
    control = Control(list("abcd"))
    up = dict.fromkeys("abcd", True)
    control.report("t", "edge", up)
    control.settled()
    control.report("t", "edge", {**up, "a": False, "b": False})
    assert not control.vantages.judgement.alarm.disputed
    control.report("t", "edge", {**up, "a": False, "b": False, "c": False})
    assert set(control.vantages.judgement.alarm.disputed) == set("abc")


def test_a_start_in_the_middle_of_an_outage_is_no_alarm() -> None:
    """What was down when control started, and nobody sees up, fell at another time."""
    control = Control(list("abc"))
    control.report("t", "edge", {"a": False, "b": False, "c": True})
    control.settled()
    assert not control.vantages.judgement.alarm.disputed
    assert set(control.vantages.judgement.told) == set("abc")


def test_regions_that_nobody_reports_on_for_a_while_fall_from_up() -> None:
    """Silence between two votes does not make a fall of most regions less of one."""
    control = Control(list("abc"))
    control.report("good", "good", dict.fromkeys("abc", True))
    control.settled()
    control.now += MAX_AGE + 1.0
    control.judge()
    control.report("bad", "bad", dict.fromkeys("abc", False))
    assert set(control.vantages.judgement.alarm.disputed) == set("abc")


def test_an_alarm_outlasts_its_last_witness() -> None:
    """Who sees the regions up may fall silent: the alarm then ends a minute after, not with it."""
    control = Control(list("abc"))
    up, down = dict.fromkeys("abc", True), dict.fromkeys("abc", False)
    control.report("good", "good", up)
    control.settled()
    for _ in range(10):
        control.report("good", "good", up)
        for liar in ("bad", "ugly"):
            control.report(liar, liar, down)
        control.now += HOLD / 7
    control.report("bad", "bad", down)
    assert set(control.vantages.judgement.alarm.disputed) == set("abc")
    control.now += HOLD
    control.report("bad", "bad", down)
    assert not control.vantages.judgement.alarm.disputed


def test_an_outage_that_nobody_denies_ends_the_alarm() -> None:
    """When nobody has seen the regions up for a while, they are down, and that is no alarm any more."""
    control = Control(list("abc"))
    up, down = dict.fromkeys("abc", True), dict.fromkeys("abc", False)
    control.report("t", "edge", up)
    control.settled()
    control.report("t", "edge", down)
    assert set(control.vantages.judgement.alarm.disputed) == set("abc")
    assert control.usable(down) == frozenset()
    for _ in range(int(HOLD)):
        control.now += 1.0
        control.report("t", "edge", down)
    assert not control.vantages.judgement.alarm.disputed
    assert set(control.vantages.judgement.told) == set("abc")
    control.report("late", "late", up)
    control.now += 1.0
    control.report("late", "late", up)
    assert not control.vantages.judgement.alarm.disputed, "what went down long ago is not at once"


def test_members_of_a_service_are_a_world_of_their_own() -> None:
    """A service that would lose most of its members is reason enough, however many regions are left."""
    control = Control(list("abcdefg"), services=[["a", "b", "c"]])
    up = dict.fromkeys("abcdefg", True)
    control.report("good", "good", up)
    control.settled()
    for liar in ("bad", "ugly"):
        control.report(liar, liar, {**up, "a": False, "b": False})
    assert set(control.vantages.judgement.alarm.disputed) == {"a", "b"}
    control.services = []
    control.restart()
    control.report("good", "good", up)
    control.settled()
    control.report("bad", "bad", {**up, "a": False, "b": False})
    assert not control.vantages.judgement.alarm.disputed


def test_a_restart_in_the_middle_of_an_attack_keeps_the_alarm() -> None:
    """A control that has just started saw nothing fall, but hears some say up and others down."""
    control = Control(list("abc"))
    up, down = dict.fromkeys("abc", True), dict.fromkeys("abc", False)
    control.report("bad", "bad", down)
    control.report("good", "good", up)
    control.settled()
    assert set(control.vantages.judgement.alarm.disputed) == set("abc")


def test_what_went_down_before_does_not_lift_later_verdicts() -> None:
    """Regions that fail one at a time are down, each at once."""
    control = Control(list("abcde"))
    seen = dict.fromkeys("abcde", True)
    control.report("t", "edge", seen)
    control.settled()
    for region in "abcd":
        seen = {**seen, region: False}
        control.report("t", "edge", seen)
        assert control.vantages.judgement.told[region][URL].status is HealthStatus.DOWN
        for _ in range(int(WINDOW) + 1):
            control.now += 1.0
            control.report("t", "edge", seen)
    assert not control.vantages.judgement.alarm.disputed


def test_two_edges_of_one_name_are_found() -> None:
    """Both count, and each is told of the other; an edge that was started anew replaces the one before."""
    control = Control(["a"])
    first = control.report("t", "fra", {"a": True}, "one")
    control.now += 1.0
    second = control.report("t", "fra", {"a": True}, "two")
    assert [edge.instance for edge in control.vantages.live()] == ["two"]
    assert (control.vantages.notice(second), second.source) == ("", first.source), "demand goes on"
    control.now += OVERLAP
    control.report("t", "fra", {"a": True}, "one")
    assert [edge.instance for edge in control.vantages.live()] == ["two"], (
        "a last word of the one that was replaced"
    )
    control.now += 1.0
    again = control.report("t", "fra", {"a": True}, "one")
    assert [edge.instance for edge in control.vantages.live()] == ["one", "two"]
    assert "another edge named `fra`" in control.vantages.notice(again)
    assert "another edge named `fra`" in control.vantages.notice(second)
    assert again.source != second.source
    control.now += MAX_AGE + 1
    alone = control.report("t", "fra", {"a": True}, "two")
    assert not control.vantages.notice(alone)


def test_edges_of_one_name_and_two_tokens_are_two_sources() -> None:
    """What one says is not added to what the other does, so that each is judged by its own history."""
    control = Control(["a"])
    sources = {control.report(token, "fra", {"a": True}).source for token in ("good", "bad")}
    assert len(sources) == 2


def test_one_token_fills_no_memory() -> None:
    """Names and instances of one token are bounded, and others are not kept out by them."""
    control = Control(["a"])
    for number in range(MAX_INSTANCES):
        control.report("t", "fra", {"a": True}, str(number))
    with pytest.raises(Conflict, match="a name of its own"):
        control.report("t", "fra", {"a": True}, "one too many")
    report = EdgeReport("1", 1, 1, {})
    for number in range(MAX_EDGES - 1):
        control.vantages.take("t", f"edge-{number}", "", report)
    with pytest.raises(Conflict, match="1000 names"):
        control.vantages.take("t", "one-too-many", "", report)
    assert control.vantages.take("u", "fra", "", report).name == "fra"
    control.now += MAX_AGE + 1
    control.judge()
    assert all(not edge.report.health for edge in control.vantages.all()), (
        "what edges said is dropped with their vote"
    )


def test_nothing_is_told_before_all_edges_had_the_time_to_report() -> None:
    """The first edge that a new control hears of is not most of them: until the others could have spoken, none decides."""
    control = Control(["a", "b", "c"])
    control.report("t", "t-1", {"a": False, "b": True, "c": True})
    control.now += GATHERING - 0.1
    assert control.judge().told == {}
    control.now += 0.2
    assert control.judge().told.keys() == {"a", "b", "c"}
