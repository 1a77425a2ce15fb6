"""A control process that starts: the plan in force stays until demand is known, and planning goes on from it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead import vantages
from gtm.control.lead.takeover import GATHERING, LISTENING, PlanSeal, Takeover, load_seal, plan_problem
from gtm.core.model.state import NO_PLAN, ClassPlan, Plan
from gtm.feed.reports import EdgeReport
from gtm.feed.wire import StateMessage, decode
from gtm.storage.session import Database
from tests.control.lead.test_planner import _inputs
from tests.core.decision.test_choice import NOW
from tests.core.strategies import quick
from tests.worlds import process

KEPT = Plan(5.0, {"class": ClassPlan({"de": 0.7, "ie": 0.3})})


def _with(*weights: float, shed: float = 0.0, **tenants: float) -> Plan:
    named = {f"r{number}": weight for number, weight in enumerate(weights)}
    return Plan(1.0, {"class": ClassPlan(named, shed, tenants)})


def test_nothing_is_planned_before_demand_is_known() -> None:
    """A plan that edges follow stays for as long as smoothed demand needs to show."""
    takeover = Takeover()
    assert not takeover.end(1e6), "nobody has reported yet"
    assert takeover.take("one", None, 100.0)
    assert not takeover.take("one", KEPT, 101.0)
    assert not takeover.end(100.0 + LISTENING - 0.1)
    assert takeover.end(100.0 + LISTENING)
    assert takeover.plan is KEPT
    assert not takeover.take("two", None, 200.0), "what is over asks for no plan"


def test_where_no_edge_follows_a_plan_there_is_none_to_keep() -> None:
    """A first start plans as soon as all edges could have spoken."""
    takeover = Takeover()
    takeover.take("one", None, 100.0)
    takeover.take("one", NO_PLAN, 101.0)
    assert not takeover.end(100.0 + GATHERING - 0.1)
    assert takeover.end(100.0 + GATHERING)
    assert takeover.plan is NO_PLAN


def test_the_latest_plan_of_all_edges_counts() -> None:
    """An edge that was cut off for longer follows an older plan than the others."""
    takeover = Takeover()
    old = Plan(4.0, {"class": ClassPlan({"de": 1.0})})
    for edge, plan in (("one", old), ("two", KEPT), ("three", old), ("four", NO_PLAN)):
        takeover.take(edge, plan, 0.0)
    assert takeover.plan is KEPT


@pytest.mark.parametrize(
    ("plan", "wrong"),
    [
        (KEPT, False),
        (NO_PLAN, False),
        (_with(1.0, shed=1.0, acme=0.5), False),
        (_with(0.5), True),
        (_with(2.0, -1.0), True),
        (_with(1.0, shed=1.5), True),
        (_with(1.0, acme=-0.1), True),
        (_with(float("nan")), True),
    ],
)
def test_shares_that_make_no_sense_are_refused(plan: Plan, *, wrong: bool) -> None:
    """A plan from outside has shares between 0 and 1, and weights that sum to 1."""
    assert bool(plan_problem(plan)) is wrong


SEAL = PlanSeal(b"k" * 32)


@quick(200)
@given(st.data())
def test_only_what_control_made_is_its_own(data: st.DataObject) -> None:
    """A plan that is marked is known again over the wire; with any number of it changed, or another key's, it is not."""
    shares = st.floats(0, 1)
    classes = data.draw(
        st.dictionaries(
            st.text(max_size=5), st.builds(ClassPlan, st.dictionaries(st.text(max_size=3), shares), shares)
        )
    )
    plan = Plan(
        data.draw(st.floats(0, 2e9)), classes, data.draw(st.dictionaries(st.text(max_size=3), shares))
    )
    sealed = msgspec.json.decode(msgspec.json.encode(SEAL.sealed(plan)), type=Plan)
    assert SEAL.made(sealed)
    assert not PlanSeal(b"l" * 32).made(sealed)
    forged = data.draw(
        st.sampled_from(
            [
                replace(sealed, made=sealed.made + 1),
                replace(sealed, classes={**classes, "more": ClassPlan({"de": 1.0}, shed=1.0)}),
                replace(sealed, prices={**sealed.prices, "more": 1.0}),
                replace(sealed, moving={"chat": 1.0}),
                replace(sealed, seal=""),
                replace(sealed, seal="\N{SNOWMAN}"),
            ]
        )
    )
    assert not SEAL.made(forged)


def test_a_plan_that_nobody_made_is_not_taken_over() -> None:
    """An edge that makes one up from a later time is not heard, and those that say what they follow are."""
    control = _Control()
    made_up = replace(
        control.plan,
        made=NOW + control.now + 50,
        classes={control.row.ranking_class: ClassPlan({"ie": 1.0}, 1.0)},
    )
    control.second(made_up)
    assert control.reply.wants_plan, "it is asked again"
    assert control.active.reports.dropped["plan"] == 1
    control.second(replace(made_up, seal=control.plan.seal))
    control.second(control.plan)
    assert not control.reply.wants_plan
    assert control.active.reports.takeover.plan.classes == control.plan.classes


def test_all_processes_of_a_database_have_one_seal(database_url: str) -> None:
    """Whoever starts later knows the plans of the one before."""

    async def seals() -> list[PlanSeal]:
        database = Database(database_url)
        try:
            return list(await asyncio.gather(*(load_seal(database) for _ in range(3))))
        finally:
            await database.dispose()

    one, other, _ = asyncio.run(seals())
    assert other.made(one.sealed(KEPT))
    assert not SEAL.made(one.sealed(KEPT))


class _Control:
    """A control process just started, with one edge that spills 3 of 12 requests a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        inputs = _inputs(12.0)
        (self.row,) = inputs.rates
        self.health = inputs.state.health
        self.plan = SEAL.sealed(Plan(900.0, {self.row.ranking_class: ClassPlan({"de": 0.75, "ie": 0.25})}))
        replica = process.replica(
            Database("postgresql://nobody@127.0.0.1:1/none"),
            process.SETTINGS,
            lambda: NOW + self.now,
            lambda: self.now,
        )
        replica.current.become(replace(replica.now, compiled=inputs.snapshot))
        assert replica.active is not None
        self.active, self.subscribers = replica.active, replica.subscribers
        self.active.reports.takeover.seal = SEAL

    def second(self, plan: Plan | None = None) -> StateMessage:
        """One report with a second's demand, and one plan; what the edge is told next."""
        self.now += 1.0
        demand = {self.row.text: 12.0}
        self.reply = self.active.reports.take(
            "edge", "127.0.0.1", EdgeReport("1", 1, 1, self.health, demand, 1.0, plan=plan)
        )
        self.active.verdicts.judge()
        asyncio.run(self.active.planning.tick())
        return self.told()

    def told(self) -> StateMessage:
        """The state that an edge gets which connects now."""

        async def first() -> bytes:
            return await anext(aiter(self.subscribers.stream("edge", 0)))

        messages = map(decode, asyncio.run(first()).splitlines())
        return next(message for message in messages if isinstance(message, StateMessage))


def test_a_restart_of_control_moves_nobody() -> None:
    """Edges keep what they follow while demand is heard, and then get a plan that differs by no more than a step."""
    control = _Control()
    assert control.told().keep_plan
    told = control.second()
    assert (told.keep_plan, control.reply.wants_plan) == (True, True)
    told = control.second(control.plan)
    assert (told.keep_plan, control.reply.wants_plan) == (True, False)
    while told.keep_plan:
        gathering = control.now < 1001.0 + vantages.GATHERING
        assert bool(told.state.health) is not gathering, "health is told meanwhile"
        told = control.second()
    assert control.now >= 1000.0 + LISTENING
    assert SEAL.made(told.state.plan)
    weights = told.state.plan.classes[control.row.ranking_class].weights
    assert weights == {"de": pytest.approx(0.75, abs=0.03), "ie": pytest.approx(0.25, abs=0.03)}


def test_without_edges_nothing_is_published() -> None:
    """An edge that comes late finds no plan made from no demand."""
    control = _Control()
    for _ in range(3):
        control.now += 60.0
        asyncio.run(control.active.planning.tick())
    assert control.told().keep_plan
    assert control.told().state.plan == NO_PLAN
