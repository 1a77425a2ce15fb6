"""Where requests may be corrected to: never outside the fence, whatever the world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.spill.corrector import Corrector, SendingWorker
from gtm.core.balance.spill.edge import REFUSED, correct, ways
from gtm.core.balance.spill.room import OpenSlots, Sender, SentBeyond
from gtm.core.decision.ranking import classes_of, rank
from gtm.core.decision.view import Window, view_of
from gtm.core.latency.table import LatencyTable
from gtm.core.model.outcomes import FenceError, Reason
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.requests import Request
from gtm.core.model.services import Affinity, Steering
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.quota.names import QuotaText
from tests import worlds
from tests.core.decision.test_choice import BERLIN, NOW, REGIONS, SERVICE, _ranking, _up, _view
from tests.core.strategies import World, questions, quick


@given(questions(), st.integers(REFUSED, 8))
@quick(300)
def test_nothing_goes_outside_the_fence(asked: tuple[World, list[Request]], drawn: int) -> None:
    """With room everywhere and every quota paid, a correction ends in a region that is allowed, willing and up."""
    world, several = asked
    view = world.view
    everywhere = Sender(
        lambda number: OpenSlots(0.0 if number == drawn else 9.0, 9.0, 0.0, 0.0, 1),
        SentBeyond(),
        1.0,
        lambda _: True,
    )
    for request in several:
        if request.tenant is not None and request.tenant not in view.snapshot.tenants:
            continue
        if request.data_class is not None and request.data_class not in view.snapshot.data_classes:
            continue
        group = rank(view.basis, request, classes_of(view.basis.snapshot)).group
        found = ways(view, group, "worker")
        within = group.allowed & group.willing & view.up
        assert all(within >> way.number & 1 for way in found)
        assert [way.added_ms for way in found] == sorted(way.added_ms for way in found)
        way, _ = correct(drawn, found, everywhere, 0.0)
        assert way is None or within >> way.number & 1
        if group.outside or group.service.service.steering in (Steering.WEIGHTED, Steering.FAILOVER):
            assert not found


def _names(**changes: object) -> list[str]:
    view = _view(**changes)  # type: ignore[arg-type]
    return [view.snapshot.regions[way.number].name for way in ways(view, _ranking(view).group, "worker")]


def test_regions_that_are_down_or_in_slow_start_are_left_out() -> None:
    """The nearest first, of those that are up and have ramped up."""
    assert _names() == ["de", "ie", "us"]
    assert _names(health=_up(down=("ie",))) == ["de", "us"]
    assert _names(health=_up(recovered=("us",)), now=1_001.0) == ["de", "ie"]


@pytest.mark.parametrize(
    "changed", [{"steering": Steering.WEIGHTED}, {"steering": Steering.FAILOVER}, {"affinity": Affinity.KEY}]
)
def test_where_another_region_is_no_equal_there_are_none(changed: dict[str, object]) -> None:
    """Weights, a fixed order, and affinity."""
    assert _names(service=replace(SERVICE, **changed)) == []  # type: ignore[arg-type]


def test_an_edge_outside_of_a_rule_has_none() -> None:
    """It answers nothing that the rule concerns."""
    view = _view()
    group = _ranking(view).group
    assert ways(view, group, "worker")
    assert ways(view, replace(group, outside=True), "worker") == ()


def test_the_least_latency_from_home_comes_first_whatever_the_order_of_preference() -> None:
    """Where steering is by geography, the next in order may be slower to reach than the one after."""
    mutual = {"de": {"ie": 90.0, "us": 30.0}, "ie": {"de": 90.0}, "us": {"de": 30.0}}
    for steering, expected in ((Steering.GEO, [0, 2, 1]), (Steering.LATENCY, [0, 1, 2])):
        policy = worlds.policy(*REGIONS, replace(SERVICE, steering=steering))
        snapshot = compile_policy(policy, ())
        table = LatencyTable(1, mutual=mutual if steering is Steering.GEO else {})
        view = view_of(snapshot, State(1, health=_up()), Window(NOW, NOW), table)
        group = rank(view.basis, Request("chat", BERLIN), classes_of(snapshot)).group
        assert [way.number for way in ways(view, group, "worker")] == expected


def test_spillover_rules_lead_and_their_quotas_are_owed() -> None:
    """Home is free; a region to which no rule of the home leads is left out; a bound on what comes in is a quota too."""
    regions = (
        *REGIONS[:1],
        replace(REGIONS[1], spill_in=replace(REGIONS[1].spill_in, max_requests_per_second=5.0)),
        REGIONS[2],
    )
    view = _view(SERVICE, SpilloverRule("abroad", "de", ("ie",), max_share=0.5), regions=regions)
    found = ways(view, _ranking(view).group, "worker")
    assert [(way.number, way.quotas) for way in found] == [
        (0, ()),
        (1, (QuotaText("share:abroad"), QuotaText("spill_in:ie"))),
    ]


def test_a_region_outside_the_fence_is_never_named() -> None:
    """If what is eligible were wrong, there would be no way rather than that one."""
    view = _view()
    group = _ranking(view).group

    class Broken(type(group)):  # type: ignore[misc]
        def eligible(self, up: int) -> int:
            return int(self.willing & up)

    fields = {name: getattr(group, name) for name in type(group).__dataclass_fields__}
    with pytest.raises(FenceError, match="us"):
        ways(view, Broken(**{**fields, "allowed": 0b011}), "worker")


def test_a_correction_s_option_is_the_same_each_time_and_counts_against_its_way_s_quotas() -> None:
    """Answers are remembered by it; its reason is its own."""
    view = _view(SERVICE, SpilloverRule("abroad", "de", ("ie",), max_share=0.5))
    group = _ranking(view).group
    corrector = Corrector(view, SendingWorker("worker", 1, lambda _: True, 0.0))
    home, abroad = ways(view, group, "worker")
    option = corrector.option(group, abroad)
    assert corrector.option(group, abroad) is option
    assert (option.region, option.reason, option.quotas) == (
        "ie",
        Reason.FREE_SLOTS,
        (QuotaText("share:abroad"),),
    )
    assert corrector.option(group, home).region == "de"
