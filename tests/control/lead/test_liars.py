"""A stolen token of an edge, or of a balancer, against a whole control process, in random worlds (`tests/drills/liars`): what others notice."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead import planner
from gtm.control.lead.reports import PushedWay
from gtm.core.capacity import load as load_report
from gtm.core.capacity import processing
from gtm.core.decision.router import Router
from gtm.core.handoff.keys import key_text
from gtm.core.health.history import Probed
from gtm.core.latency.aggregates import AggregateSettings
from gtm.core.latency.doubt import Witness, claim_of
from gtm.core.latency.estimator import Estimator
from gtm.core.model.requests import Request
from gtm.core.policy.edges import EdgePlace
from gtm.core.quota import ledger
from gtm.core.quota.leases import LeaseUse
from gtm.core.quota.ledger import MOST_INSTANCES, shares
from gtm.core.quota.names import QuotaName
from gtm.feed.reports import DnsLimits, EdgeReport
from tests.core.strategies import quick
from tests.drills.liars import balancer, edge
from tests.drills.liars.arena import NONE, climb
from tests.drills.liars.balancer import BalancerArena
from tests.drills.liars.edge import CLIENTS, DRAWS, REGIONS, EdgeArena, Setting, World, draw_lie, run

EDGE, BALANCER, UNSHELTERED = EdgeArena(), BalancerArena(), BalancerArena(sheltered=False)
MOST_REFUSED = 0.05
"""Of others' requests: regions are drawn up to seven tenths full, and a burst of the liar's own may fill one."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Alarms that lies raise are not for the log of tests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@quick(100)
@given(st.integers(0, 2**32))
def test_no_lie_leaves_the_fence_or_refuses_the_world(seed: int) -> None:
    """In every field at once: no answer beyond the fence, and hardly anybody refused."""
    rng = random.Random(seed)
    worst, lie = climb(EDGE, rng, EDGE.setting(rng), "dhlp", 2)
    assert worst.outside == 0, lie
    assert worst.refused <= MOST_REFUSED, lie


@quick(100)
@given(st.integers(0, 2**32), st.sampled_from("hp"))
def test_lies_about_health_and_plans_change_nothing(seed: int, kind: str) -> None:
    """One vote of two or more decides nothing against honest edges that agree, and a made-up plan is nobody's."""
    rng = random.Random(seed)
    worst, lie = climb(EDGE, rng, EDGE.setting(rng), kind, 2)
    assert worst == NONE, lie


@quick(100)
@given(st.integers(0, 2**32))
def test_lies_about_round_trips_lead_nowhere_far(seed: int) -> None:
    """Clients without a plan's help go to a region that is at most twice `alone_ms` farther than geography's nearest."""
    rng = random.Random(seed)
    setting = Setting.drawn(rng)
    idle = Setting(dict.fromkeys(setting.rates, setting.rates["liar"]), setting.down)
    lied = run(idle, draw_lie(rng, "l"))
    world = World(idle)
    estimator = Estimator(world.snapshot.regions)
    usable = [number for number, region in enumerate(world.snapshot.regions) if region.name not in idle.down]
    for (_, client), found in lied.items():
        paths = estimator.paths(CLIENTS[client], usable)
        fenced = [
            number
            for number in usable
            if CLIENTS[client].country not in ("DE", "FR")
            or world.snapshot.regions[number].country in ("DE", "IE", "FR")
        ]
        nearest = min(paths[number].estimate_ms for number in fenced)
        for region in found:
            number = world.snapshot.region_numbers[region]
            assert paths[number].estimate_ms <= nearest + 2 * AggregateSettings().alone_ms + 3.0


def test_a_world_answers() -> None:
    """The yardstick itself: without a lie everybody is served near, where there is room."""
    setting = Setting({"edge-0": dict.fromkeys(CLIENTS, 10.0), "liar": {"boston": 1.0}}, frozenset())
    router = World(setting).router()
    for (_, client), found in run(setting, None).items():
        nearest = router.decide(Request("chat", CLIENTS[client]), 0.5).region
        assert found == {nearest: len(DRAWS)}


def test_what_an_edge_tells_beside_moves_nobody() -> None:
    """Each field that nothing goes by but words for people, and witnesses in the names of balancers that there are none of.

    Asked because of https://github.com/coder/coder/pull/26144, where of two fields of one message the first was looked at, and who was
    sent where went by the second.
    """
    rng = random.Random(5)
    setting = replace(EDGE.setting(rng), down=frozenset())
    claims = {name: (one.network or "", claim_of(one) or "") for name, one in CLIENTS.items()}

    class Telling(World):
        def lying(self, lie: edge.Lie, report: EdgeReport, router: Router) -> EdgeReport:  # noqa: ARG002 - the contract
            endpoints = [
                (region.name, one.url) for region in self.snapshot.regions for one in region.endpoints
            ]
            return replace(
                report,
                witnesses=tuple(
                    Witness(network, claim, "jp", who, 10**6, 0, 0.1, edge.NOW + self.now)
                    for network, claim in claims.values()
                    for who in ("x", "y", "z")
                ),
                overruled=REGIONS,
                place=EdgePlace("JP", "JP", "de"),
                handoff_keys=(key_text(bytes(32)),),
                corrections={f"{one}\t{other}": 1e11 for one in ("", *REGIONS) for other in REGIONS},
                dns={"answered\tA\tNOERROR\tudp": 1e11},
                dns_limits=DnsLimits(1, 1, 1),
                probed=tuple(Probed(*one, 3e3, 500, "down") for one in endpoints),
                kept=0,
                revision=0,
                epoch=0,
            )

    def answers(lie: edge.Lie | None) -> edge.Answers:
        world = Telling(setting)
        with edge.quick():
            for _ in range(25):
                world.second(lie)
        return world.answers()

    assert answers(edge.Lie()) == answers(None)


def test_lives_of_an_edge_of_the_same_name_keep_no_other_token_s_from_its_leases() -> None:
    """Names are told apart by tokens: eight instances of one are eight of that token's."""
    world = World(Setting({"fra": {"berlin": 10.0}, "liar": {"boston": 1.0}}, frozenset()))
    reports, quota = world.active.reports, QuotaName("de", into=True).text
    held: dict[str, float] = {}
    for second in range(40):
        world.now += 1.0
        world.active.leases.apportion({quota: 100.0})
        told = [("liar", f"i{number}") for number in range(MOST_INSTANCES)] + [("fra", "honest")]
        for token, instance in told:
            use = LeaseUse(instance, second + 1, 2**53 - 1, denied={quota: 100 * second})
            report = EdgeReport("1", 1, 1, world.truth, seconds=1.0, leases=use)
            grant = reports.take("fra-1", "192.0.2.1", report, token, token).leases
            assert grant is not None
            held[token] = sum(lease.rate for lease in grant.leases)
    assert held["fra"] >= 50.0, "its equal part"


# --- a balancer's token ---


def _by_dns(rng: random.Random) -> balancer.Setting:
    """A world with clients who come by DNS, of regions whose capacity the policy declares."""
    return replace(UNSHELTERED.setting(rng), declared="rate", busy=frozenset())


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_no_lie_of_a_balancer_leaves_the_fence_or_fills_others(seed: int) -> None:
    """In every field at once. Its own region looks quick, near, full or empty: it gets no more than the policy says that it can serve."""
    rng = random.Random(seed)
    worst, lie = climb(BALANCER, rng, BALANCER.setting(rng), "lpqr", 2)
    assert worst.outside == 0, lie
    assert worst.refused <= MOST_REFUSED, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_what_a_balancer_says_of_pushes_refuses_nobody(seed: int) -> None:
    """It adds to what is asked of its own region, up to twice what that can serve, and takes nothing from its peers': some of whom serve its guests."""
    rng = random.Random(seed)
    worst, lie = climb(UNSHELTERED, rng, _by_dns(rng), "p", 2)
    assert worst.refused <= 2 * MOST_REFUSED, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_a_balancer_leaves_each_other_its_equal_part_of_quotas(seed: int) -> None:
    """Whatever it asks for, under however many names, whether or not it proves what it holds; and no answer changes for that."""
    rng = random.Random(seed)
    worst, lie = climb(BALANCER, rng, BALANCER.setting(rng), "q", 2)
    assert (worst.refused, worst.changed) == (0.0, 0.0), lie
    assert worst.taken <= 0.1, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_free_slots_move_nobody_who_has_one(seed: int) -> None:
    """A million free slots take what found none elsewhere. Who came by DNS, or whose region has room, stays where he is."""
    rng = random.Random(seed)
    setting = UNSHELTERED.setting(rng)
    honest, lied = BALANCER.run(setting, None), BALANCER.run(setting, BALANCER.lie(rng, setting, "s"))
    asked = {client: rate for rates in setting.rates.values() for client, rate in rates.items()}
    for client, before in honest.answers.items():
        planned = honest.planned[client]
        if client in setting.by_dns or not setting.busy & {setting.liar, *planned} or not asked[client]:
            assert lied.answers[client] == before


def test_a_million_free_slots_are_as_many_as_the_policy_says() -> None:
    """Where it says how many a region has, whoever claims more moves what that many would, and a claim of that many moves something."""
    setting = replace(UNSHELTERED.setting(random.Random("s 3")), declared="slots")
    claimed = ({"free": many, "limit": many, "waiting": 0} for many in (balancer.SLOTS, 1e6))
    lies = [balancer.Lie(rooms=({"started": 5.0, "age": 0.0, "whole": whole},) * 3) for whole in claimed]
    honest, *lied = (BALANCER.run(setting, lie) for lie in (None, *lies))
    assert lied[0].answers == lied[1].answers != honest.answers


def test_a_world_of_balancers_answers() -> None:
    """The yardstick itself: without a lie everybody is served near, and balancers have leases that they prove."""
    rng = random.Random(3)
    found = BALANCER.run(replace(BALANCER.setting(rng), down=frozenset()), None)
    assert all(not answers[""] for answers in found.answers.values())
    assert max(found.full.values()) < MOST_REFUSED
    assert sum(found.leases.values()) > 30


CROWDED = balancer.Setting(
    {"edge-0": {"berlin": 55.0, "lyon": 65.0, "boston": 10.0, "osaka": 10.0, "sydney": 10.0}},
    frozenset(),
    by_dns=frozenset({"berlin", "lyon"}),
    declared="rate",
    liar="jp",
    wants=dict.fromkeys(REGIONS, 20.0),
    into=balancer.MOST_INTO,
    busy=frozenset(),
)
"""More comes to `de` by DNS than it can serve, so that others take some of it; nobody comes to the liar's region by DNS."""
OTHERS: dict[str, balancer.Lie] = {
    "its speed": balancer.Lie(
        loads=(
            {
                "region": "jp",
                "source": "x",
                "service": "chat",
                "service_time_ms": 0,
                "requests_per_second": 1e9,
                "limit": 0,
            },
        )
    ),
    "pushes": balancer.Lie(pushes={"chat\tde\tmoved": 1e9}),
    "load": balancer.Lie(loads=({"region": "de", "source": "bal-de", "service": "chat", "limit": 0},)),
    "round trips": balancer.Lie(latency=tuple((country, "de", 2900.0) for country in ("DE", "FR"))),
    "quotas": balancer.Lie(denied=10**9, names=8),
}
"""What a balancer's token can say of what is not its region's, or of its region against others."""


@pytest.mark.parametrize("about", OTHERS)
def test_what_a_balancer_says_of_others_changes_nothing(about: str) -> None:
    """Not a single answer, and of quotas it leaves everybody an equal part."""
    honest, lied = BALANCER.run(CROWDED, None), BALANCER.run(CROWDED, OTHERS[about])
    worst = BALANCER.damage(CROWDED, honest, lied)
    assert replace(worst, taken=0.0) == NONE
    assert worst.taken <= 0.05


def _pushes_take_from_peers(pushed: Mapping[PushedWay, float]) -> dict[tuple[str, str], float]:
    """What one says that a peer took is taken off that peer's demand."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one, rate in pushed.items():
        if one.region and one.why not in {"came", "failed"}:
            found[one.service, one.home] += rate
            found[one.service, one.region] -= rate
    return dict(found)


def _by_name(
    demand: Mapping[str, float], total: float, holding: Collection[str], _: object
) -> dict[str, float]:
    """Each name is an owner of its own, whoever's token it is."""
    return shares(demand, total, holding)


MUTANTS: dict[str, tuple[str, object, str, object]] = {
    "what is said of peers counts": ("pushes", planner, "beside", _pushes_take_from_peers),
    "load of any region is taken": ("load", load_report, "matches", lambda *_: True),
    "round trips to any region are taken": ("round trips", balancer, "report_problems", lambda *_: []),
    "the quickest is what all are held against": (
        "its speed",
        processing,
        "_middle_without",
        lambda times, _: times[0],
    ),
    "quotas are divided by name": ("quotas", ledger, "shares", _by_name),
}


@pytest.mark.drill
@pytest.mark.parametrize("bound", MUTANTS)
def test_without_a_bound_others_notice(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound on what a balancer says of others is felt: without it the same lie changes their answers, or takes their part."""
    about, where, name, value = MUTANTS[bound]
    monkeypatch.setattr(where, name, value)
    worst = BALANCER.damage(CROWDED, BALANCER.run(CROWDED, None), BALANCER.run(CROWDED, OTHERS[about]))
    assert max(worst.changed, worst.taken) > 0.1
