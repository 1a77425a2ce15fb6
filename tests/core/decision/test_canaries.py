"""Members with a share: so many clients, always the same ones, inside the fence, whatever else goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.choice import choice, pick
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Reason
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.problems import PolicyError
from gtm.core.model.requests import Request
from gtm.core.model.services import Affinity, Member, Service, Steering
from gtm.core.model.state import ClassPlan, Plan, State
from tests import worlds
from tests.core.decision.test_choice import BERLIN, NOW, REGIONS, _ranking, _up
from tests.core.strategies import quick

SHARE = 0.05
CANARY = Service("chat", (Member("de"), Member("us"), Member("ie", share=SHARE)))
CLIENTS = [
    Request("chat", BERLIN._replace(network=f"10.{number >> 8}.{number & 255}.0/24"))
    for number in range(6000)
]


def _view(
    service: Service = CANARY, *rules: ResidencyRule, down: tuple[str, ...] = (), plan: Plan | None = None
) -> View:
    state = State(1, health=_up(down=down), plan=plan or Plan())
    return worlds.view(worlds.policy(*REGIONS, service, *rules), state, NOW)


def _served(view: View) -> dict[str, str | None]:
    """Client network → the region it is sent to, by draws that differ from client to client."""
    made = choice(view, _ranking(view, CLIENTS[0]).group)
    found = {}
    for number, client in enumerate(CLIENTS):
        option = pick(made, client, number / len(CLIENTS))
        found[client.location.network or ""] = option.region
        assert (option.reason is Reason.CANARY) == (option.region == "ie")
    return found


@pytest.mark.parametrize("steering", list(Steering))
@pytest.mark.parametrize("affinity", [Affinity.NONE, Affinity.CLIENT_NETWORK])
def test_a_canary_serves_its_share_under_any_steering(steering: Steering, affinity: Affinity) -> None:
    """A twentieth of the clients (three standard deviations), and exactly so by the odds that are told."""
    view = _view(replace(CANARY, steering=steering, affinity=affinity))
    served = Counter(_served(view).values())
    assert served["ie"] / len(CLIENTS) == pytest.approx(SHARE, abs=3 * (SHARE * 0.95 / len(CLIENTS)) ** 0.5)
    made = choice(view, _ranking(view, CLIENTS[0]).group)
    shares = {view.snapshot.regions[number].name: share for number, share in made.shares.items()}
    assert shares["ie"] == pytest.approx(SHARE)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_the_same_clients_whatever_becomes_of_the_others() -> None:
    """A plan that splits the others, and one that moves, leave the canary's clients where they are."""
    view = _view()
    mine = {client for client, region in _served(view).items() if region == "ie"}
    key = _ranking(view, CLIENTS[0]).group.key
    for weights in ({"de": 0.5, "us": 0.5}, {"de": 0.1, "us": 0.9}):
        served = _served(_view(plan=Plan(NOW, {key: ClassPlan(weights)})))
        assert {client for client, region in served.items() if region == "ie"} == mine
        others = Counter(region for region in served.values() if region != "ie")
        assert others["us"] / sum(others.values()) == pytest.approx(weights["us"], abs=0.03)
    assert {client for client, region in _served(_view(down=("de",))).items() if region == "ie"} == mine


def test_more_share_keeps_those_who_were_there() -> None:
    """Raising a share adds clients and exchanges none."""
    sets = []
    for share in (0.05, 0.2):
        members = (Member("de"), Member("us"), Member("ie", share=share))
        served = _served(_view(replace(CANARY, members=members)))
        sets.append({client for client, region in served.items() if region == "ie"})
    assert sets[0] < sets[1]


def test_a_canary_that_fails_gives_its_clients_back_and_stands_in_for_all_others() -> None:
    """Down: nobody is sent there. The only one left: everybody is."""
    assert set(_served(_view(down=("ie",))).values()) == {"de"}
    view = _view(down=("de", "us"))
    made = choice(view, _ranking(view, CLIENTS[0]).group)
    assert {pick(made, client, 0.5).region for client in CLIENTS[:100]} == {"ie"}


def test_the_fence_is_a_canarys_too() -> None:
    """Clients that may not be served there are not, share or no share."""
    rule = worlds.rule("home", "de us", client_countries="DE")
    assert "ie" not in set(_served(_view(CANARY, rule)).values())


@given(st.lists(st.floats(0.01, 0.3), min_size=1, max_size=2), st.floats(0, 1, exclude_max=True))
@quick(100)
def test_draws_of_unknown_clients_follow_the_odds(shares: list[float], draw: float) -> None:
    """A client without a network or key is drawn: the canaries' part of draws is their share."""
    members = [
        Member("de"),
        *(Member(name, share=share) for name, share in zip(("ie", "us"), shares, strict=False)),
    ]
    view = _view(replace(CANARY, members=tuple(members)))
    nobody = Request("chat", BERLIN._replace(network=None))
    made = choice(view, _ranking(view, nobody).group)
    option = pick(made, nobody, draw)
    assert (option.region != "de") == (draw >= 1 - sum(shares) and draw >= made.cumulative[0])


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ((Member("de", share=0.5), Member("us", share=0.2)), "missing"),
        ((Member("de"), Member("us", share=0.7), Member("ie", share=0.7)), "out_of_range"),
        ((Member("de"), Member("us", share=0.1, weight=3.0)), "overlap"),
    ],
)
def test_shares_that_cannot_be_meant(members: tuple[Member, ...], code: str) -> None:
    """Nobody left for all others, more than all clients, a weight that decides nothing."""
    with pytest.raises(PolicyError) as refused:
        _view(replace(CANARY, members=members))
    assert [problem.code for problem in refused.value.problems] == [code]
