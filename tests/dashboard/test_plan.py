"""The page of the plan: what it says of a plan, of none, and the picture of its flows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.services import Priority
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.plan.problem import ClassDemand, Solution
from gtm.core.quota.names import QuotaText
from gtm.dashboard.pages import plan as page
from gtm.dashboard.pages.plan import HEIGHT, MOST, OTHERS, picture
from tests.api.conftest import Api
from tests.dashboard.conftest import People, assert_inert

HOSTILE = "<script>alert(1)</script>\"'\u202e"
KEY = "chat|real_time|eu-central>eu-west|1f2e3d4c"


def set_plan(api: Api, weights: dict[str, float], *, shed: float = 0.0, error: str = "") -> None:
    """The planner has made this of 10 requests/s whose home is eu-central, and makes no other."""
    planner = api.server.app.state.context.replica.active.planning.planner
    planner.tick = lambda _: planner.latest
    demand = ClassDemand(KEY, "chat", Priority.REAL_TIME, ("eu-central", "eu-west"), (1.0, 20.0), 10.0)
    quota = SpilloverRule("to-dublin", "eu-central", ("eu-west",))
    problem = replace(planner.latest.problem, classes=(demand,), quotas=(quota,))
    solution = Solution(
        flow={KEY: weights},
        shed={},
        shed_tenants={},
        prices={"eu-central": 12.5},
        quota_rates={QuotaText("to-dublin"): 4.0},
        binding=("eu-central", "to-dublin"),
    )
    plan = Plan(
        made=1.0,
        classes={KEY: ClassPlan(weights, shed, {HOSTILE: 0.5} if shed else {})},
        prices={"eu-central": 12.5},
    )
    planner.latest = replace(planner.latest, plan=plan, problem=problem, solution=solution, error=error)


def test_without_a_plan_it_says_so(people: People, world: Api) -> None:
    """Nobody asks, nothing is exhausted."""
    text = people(Role.VIEWER).page("/plan")
    assert_inert(text)
    for words in ("<h1>Plan</h1>", "Nothing is exhausted", "Nobody asks", "None asks now"):
        assert words in text


def test_what_is_full_comes_first(people: People, world: Api) -> None:
    """With its price, the quota that is used up, the flows as a picture and as numbers, and who is refused."""
    set_plan(world, {"eu-central": 0.5, "eu-west": 0.5}, shed=0.2, error=HOSTILE)
    text = people(Role.VIEWER).page("/plan")
    assert_inert(text)
    for words in (
        "What is exhausted",
        "would cost all others 12.5 ms",
        "lets no more than 4/s leave eu-central for eu-west",
        "eu-central → eu-west: 4/s",
        "eu-central → refused: 2/s",
        "<b>2/s</b><span>refused",
        "Tenants whose share differs",
        "&lt;script&gt;alert(1)",
        "The planner failed",
        KEY.replace(">", "&gt;"),
    ):
        assert words in text, words
    assert text.index("What is exhausted") < text.index("Quotas") < text.index("Classes")


def test_it_can_be_narrowed(people: People, world: Api) -> None:
    """To one service; a name that nothing has shows nothing, and does no harm."""
    set_plan(world, {"eu-central": 1.0})
    person = people(Role.VIEWER)
    assert "10/s" in person.page("/plan?service=chat")
    for name in ("nothing", HOSTILE, "x" * 10_000):
        answer = person.client.get("/plan", params={"service": name}, headers={"Accept": "text/html"})
        assert answer.status_code == 200
        assert "Nobody asks" in answer.text
        assert_inert(answer.text)


def test_it_moves(people: People, world: Api) -> None:
    """The stream has the same as the page."""
    set_plan(world, {"eu-central": 1.0})
    person = people(Role.VIEWER)
    with person.client.stream("GET", "/live/plan") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert "event: plan" in lines
        first = next(line for line in lines if "tiles" in line)
    assert_inert(first.removeprefix("data: "))


def test_what_waits_is_told_apart() -> None:
    """It is at home, and not served yet; what is below notice is not drawn."""
    one = {
        "class": "a",
        "home": "x",
        "requests_per_second": 10.0,
        "planned": {"x": 4.5, "y": 4.5, "z": 0.0},
    }
    found = page.flows_of(as_answered([one]), {"a": 1.5})
    assert found == pytest.approx(
        {("x", "x"): 3.0, ("x", "y"): 4.5, ("x", page.REFUSED): 1.0, ("x", page.WAITS): 1.5}
    )


@pytest.mark.parametrize("count", [0, 1, 5, 60])
def test_the_picture_stays_in_its_frame(count: int) -> None:
    """However many flows there are: bars do not overlap, the smallest places are one, and nothing is lost."""
    flows: dict[tuple[str, str], float] = {
        (f"home{one}", f"region{other}"): 1.0 + one + other for one in range(count) for other in range(count)
    }
    flows |= {(f"home{one}", "refused"): 1.0 for one in range(count)}
    found = picture(flows, {"refused": "refused"})
    for column in (found.left, found.right):
        _check(column, sum(flows.values()))
    if count > MOST:
        assert OTHERS in [bar.name for bar in found.left]
    if count:
        assert found.right[-1].name == "refused"
        assert {band.kind for band in found.bands} == {"away", "refused"}


def _check(column: Any, total: float) -> None:
    assert sum(bar.rate for bar in column) == pytest.approx(total)
    assert len(column) <= MOST + 1
    y = 0.0
    for bar in column:
        assert bar.y >= y - 0.11
        y = bar.y + bar.height
    assert y <= HEIGHT * 1.05


def test_one_region_that_takes_all_fills_it() -> None:
    """And a flow of nothing is none."""
    found = picture({("a", "a"): 5.0, ("a", "b"): 0.0}, {})
    assert [(bar.name, bar.height) for bar in found.left] == [("a", HEIGHT)]
    assert [band.kind for band in found.bands] == ["home"]
    assert picture({}, {}).bands == ()
