"""The documents of the moment, from a plan made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gtm.control.lead.planner import Planned
from gtm.control.lead.reports import PushedWay, beside
from gtm.control.lead.vantages import LiveEdge
from gtm.control.overview import Moment, plan_document, quantile, top_document
from gtm.core.balance.spill.room import OpenSlots
from gtm.core.capacity.durations import BOUNDS, Took
from gtm.core.capacity.load import Load
from gtm.core.capacity.supply import assess
from gtm.core.demand.rows import Row
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import Capacity
from gtm.core.model.services import Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.problem import ClassDemand, PlanProblem, Solution
from gtm.feed.reports import EdgeReport
from tests import worlds

NOW = 1_800_000_000.0
KEY = "chat|real_time|home>away|00"


REGIONS = worlds.regions("home away", at="de", capacity=Capacity(outstanding=10), reserve=0.0)
POLICY = worlds.policy(*REGIONS, worlds.service("chat", "home away"))
HEALTH = worlds.health(REGIONS)
LOADS = {
    ("home", ""): Load(
        "home", "", NOW - 1, 1, outstanding=8.0, queue=3.0, limit=8.0, requests_per_second=18.0
    )
}
PLANNED = Planned(
    plan=Plan(NOW - 0.5, {KEY: ClassPlan({"home": 0.75, "away": 0.25}, shed=0.2)}, {"home": 12.0}, {}),
    problem=PlanProblem(
        (ClassDemand(KEY, "chat", Priority.REAL_TIME, ("home", "away"), (20.0, 50.0), 50.0),),
        {},
        (SpilloverRule("rule", "home", ("away",), max_share=0.25),),
    ),
    solution=Solution(
        {KEY: {"home": 30.0, "away": 10.0}}, {KEY: 10.0}, {}, {"home": 12.0}, {"rule": 12.5}, ("home",)
    ),
    capacity=assess(POLICY, HEALTH, LOADS, NOW),
    seconds=0.03,
    per_answer={("chat", "away"): 5.0},
)
RATES = {
    Row("chat", "home", "served", "redirect", KEY, "cell"): 25.0,
    Row("chat", "away", "served", "redirect", KEY, "cell"): 4.0,
    Row("chat", "away", "served", "dns", KEY, "cell"): 1.0,
    Row("chat", "", "refused_overload", "redirect", KEY, "cell"): 9.0,
    Row("chat", "away", "served", "lookup", "a class of long ago", "cell"): 2.0,
}
MOMENT = Moment(NOW, 7, 99, REGIONS, HEALTH, PLANNED, RATES)
EDGE = LiveEdge(
    "local", "127.0.0.1", EdgeReport("0.1.0", 7, 99, {}), 0.0, datetime.fromtimestamp(NOW - 2, UTC)
)


def test_top_shows_where_demand_goes() -> None:
    """Spilled is what was decided away from home, a DNS answer counting as the requests that it stands for."""
    found = top_document(MOMENT, [EDGE], database="down")
    assert found["decisions"] == {"dns": 1.0, "lookup": 2.0, "redirect": 38.0, "carry": 0.0, "authorize": 0.0}
    assert found["spill"] == [
        {"from": "home", "to": "away", "requests_per_second": 9.0, "planned": 10.0, "quotas": ["rule"]}
    ]
    assert found["quotas"] == [
        {
            "name": "rule",
            "from": "home",
            "to": ["away"],
            "allowed": 12.5,
            "planned": pytest.approx(10.0),
            "binding": False,
        }
    ]
    assert found["refusals"] == [
        {"service": "chat", "outcome": "refused_overload", "requests_per_second": 9.0}
    ]
    assert found["edges"] == [{"name": "local", "age": 2.0, "revision": 7, "epoch": 99}]
    assert (found["database"], found["revision"], found["requests_per_second"]) == ("down", 7, 50.0)
    assert found["latency_p99_ms"] == 50.0
    assert found["plan"]["age"] == 0.5


def test_top_shows_what_requests_took() -> None:
    """As regions' balancers counted it: of the bucket from 3.3 to 3.6 ms its middle; nothing where none tells."""
    fast, slow = (
        next(place for place, bound in enumerate(BOUNDS) if bound == least) for least in (0.0036, 2.0)
    )
    took = {"home": Took({fast: 1}, {fast: 50, slow: 50})}
    home, away = top_document(replace(MOMENT, took=took), [], database="up")["regions"]
    measured = home["measured"]
    assert (measured.pop("requests"), away["measured"]) == (100, None)
    bounds = {"first_byte_p50_ms": 3.6, "first_byte_p99_ms": 3.6, "p50_ms": 3.6, "p99_ms": 2000.0}
    assert measured.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert bound * 8 / 9 < measured[name] <= bound, name


def test_top_shows_what_regions_say() -> None:
    """Reported, declared and planned stand side by side; what is not reported is null, not 0."""
    home, away = top_document(MOMENT, [], database="up")["regions"]
    told = {name: home[name] for name in ("outstanding", "queue", "limit", "utilisation", "report_age")}
    assert told == {"outstanding": 8.0, "queue": 3.0, "limit": 8.0, "utilisation": 1.0, "report_age": 1.0}
    assert (home["demand"], home["planned"], home["decided"]) == (50.0, 30.0, 25.0)
    assert (home["exhausted"], home["price_ms"], home["latency_p99_ms"]) == (True, 12.0, 20.0)
    assert (home["measured"], away["measured"]) == (None, None)
    assert (away["outstanding"], away["utilisation"], away["freshness"]) == (None, None, "never")
    assert (away["limit"], away["demand"], away["decided"]) == (10, 0.0, 11.0)


def test_top_shows_free_slots_and_what_was_corrected_by_them() -> None:
    """What balancers say, by region; what edges moved, the most first; of what is not known, nothing."""
    told = replace(
        MOMENT,
        corrections={("", "away"): 2.0, ("home", "away"): 7.5},
        slots={"home": OpenSlots(0.0, 8.0, 3.0, -0.25, 4)},
    )
    found = top_document(told, [], database="up")
    assert found["corrections"] == [
        {"from": "home", "to": "away", "requests_per_second": 7.5},
        {"from": None, "to": "away", "requests_per_second": 2.0},
    ]
    home, away = found["regions"]
    assert home["free_slots"] == {"open": 0.0, "counted": 0.0, "limit": 8.0, "waiting": 3.0, "age": 0.25}
    assert away["free_slots"] is None
    assert top_document(MOMENT, [], database="up")["corrections"] == []


def test_top_shows_how_many_free_slots_count() -> None:
    """Those that the policy declares, whatever balancers say beside."""
    told = replace(MOMENT, slots={name: OpenSlots(100.0, 120.0, 0.0, -0.25, 4) for name in ("home", "away")})
    bound, unbound = REGIONS[0], replace(REGIONS[1], capacity=Capacity())
    home, away = top_document(replace(told, regions=(bound, unbound)), [], database="up")["regions"]
    assert home["free_slots"] == {"open": 100.0, "counted": 10.0, "limit": 120.0, "waiting": 0.0, "age": 0.25}
    assert away["free_slots"]["counted"] == 100.0


def test_top_shows_what_balancers_pushed_and_kept() -> None:
    """All services together, by the regions and why; with the rules that it counts against; the most first."""
    told = replace(
        MOMENT,
        pushed={
            PushedWay("home", "chat", "away", "moved"): 2.0,
            PushedWay("home", "web", "away", "moved"): 3.0,
            PushedWay("home", "chat", "", "no_quota"): 7.0,
            PushedWay("away", "chat", "", "came"): 2.0,
        },
    )
    assert top_document(told, [], database="up")["pushes"] == [
        {"from": "home", "to": None, "why": "no_quota", "requests_per_second": 7.0, "quotas": []},
        {"from": "home", "to": "away", "why": "moved", "requests_per_second": 5.0, "quotas": ["rule"]},
    ]
    own = {("chat", "home"): 2.0, ("web", "home"): 3.0, ("chat", "away"): -2.0}
    assert beside(told.pushed) == own
    assert beside({**told.pushed, PushedWay("home", "web", "away", "failed"): 3.0}) == {
        **own,
        ("web", "home"): 0.0,
    }


def test_plan_shows_classes() -> None:
    """Every class of the plan is there, also one that nobody asks for any more."""
    idle = replace(
        PLANNED.plan, classes={**PLANNED.plan.classes, "web|batch|away|11": ClassPlan({"away": 1.0})}
    )
    idle = replace(idle, idle={"web|batch|away|11": NOW - 60})
    found = plan_document(replace(MOMENT, planned=replace(PLANNED, plan=idle)))
    chat, web = found["classes"]
    assert (chat["home"], chat["requests_per_second"], chat["shed"]) == ("home", 50.0, 0.2)
    assert (web["service"], web["home"], web["idle_since"]) == ("web", None, NOW - 60)
    assert found["binding"] == ["home"]


def test_documents_before_the_first_plan() -> None:
    """A control that has just started shows regions, and that it knows nothing of their load yet."""
    fresh = replace(MOMENT, planned=Planned(), rates={})
    found = top_document(fresh, [], database="up")
    assert found["plan"]["age"] is None
    assert [one["freshness"] for one in found["regions"]] == ["never", "never"]
    assert (found["spill"], found["quotas"], found["latency_p99_ms"]) == ([], [], None)
    assert plan_document(fresh)["classes"] == []


def test_quantile_is_weighted() -> None:
    """The value that 99% of the weight does not exceed; without weight there is none."""
    assert quantile([(5.0, 98.9), (70.0, 1.0), (900.0, 0.1)]) == 70.0
    assert quantile([(5.0, 99.0), (70.0, 1.0)]) == 5.0
    assert quantile([(5.0, 0.0)]) is None


def test_what_moves_is_named() -> None:
    """The plan says which services have traffic on its way, and not since when."""
    moving = replace(PLANNED.plan, moving={"web": 2.0, "chat": 1.0})
    found = plan_document(replace(MOMENT, planned=replace(PLANNED, plan=moving)))
    assert found["moving"] == ["chat", "web"]
