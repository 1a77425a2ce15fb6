"""A model server that lies, and a client that does, in random regions (`tests/drills/liars`): what other clients and tenants notice.

Each bound that holds them is taken away in turn (`test_without_a_bound_others_notice`), so that none is there for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.wire.usage import Bounds
from gtm.core.balance.admission.settings import TenantLimits
from gtm.core.balance.health.health import BackendHealth
from tests.core.strategies import quick
from tests.drills.liars import region
from tests.drills.liars.arena import Arena, Damage, climb
from tests.drills.liars.client import ClientArena
from tests.drills.liars.server import ServerArena

LITTLE = 0.05
"""Of others' requests: what is sent to a server before it is ejected, and what was under way there."""


class _Unlimited(ClientArena):
    """No tenant has a limit: the turns of who waits are all that holds one back."""

    limits = TenantLimits()


SERVER, CLIENT, UNLIMITED = ServerArena(), ClientArena(), _Unlimited()


def _worst(arena: Arena[Any, Any, Any], seed: int, kinds: str) -> tuple[Damage, Any]:
    rng = random.Random(seed)
    return climb(arena, rng, arena.setting(rng), kinds, 2)


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32), st.sampled_from(["u", "l", "ul"]))
def test_what_a_server_says_refuses_nobody(seed: int, kinds: str) -> None:
    """Tokens that it says were used, loads and lists of models, however large, many or malformed: others are served, and none is ejected."""
    worst, lie = _worst(SERVER, seed, kinds)
    assert worst.refused <= LITTLE, lie
    assert worst.taken == worst.changed == 0, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_a_server_that_answers_at_once_draws_few(seed: int) -> None:
    """Whatever status it answers with, it is left alone soon; one that holds what it gets keeps as many as it has slots."""
    worst, lie = _worst(SERVER, seed, "s")
    assert worst.taken == 0, lie
    assert worst.changed <= 2 * LITTLE, lie
    assert worst.refused <= 0.25, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_no_client_s_lie_costs_other_tenants(seed: int) -> None:
    """A hundred requests a second of any priority, wait, size, session, model, and some that crash servers: others are served.

    Where all of them crash servers, the idlest gets most of them, and may be ejected for a time: each once in this while at the most.
    """
    worst, lie = _worst(CLIENT, seed, "pbnc")
    assert worst.changed == 0, lie
    assert worst.refused <= LITTLE, lie
    assert worst.taken <= 20 * LITTLE, lie


@pytest.mark.drill
@quick(100)
@given(st.integers(0, 2**32))
def test_priorities_and_names_gain_nothing_without_limits(seed: int) -> None:
    """Where nobody has a limit either."""
    worst, lie = _worst(UNLIMITED, seed, "pn")
    assert worst <= Damage(refused=LITTLE), lie


Patch = Callable[[pytest.MonkeyPatch], None]


def _patched(where: object, name: str, value: object) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(where, name, value)


MUTANTS: dict[str, tuple[Arena[Any, Any, Any], str, Patch]] = {
    "usage is not cut to what can be": (
        SERVER,
        "u",
        _patched(region, "bounds_of", lambda *_: Bounds(hidden=True)),
    ),
    "nothing is ejected": (SERVER, "s", _patched(BackendHealth, "_may_eject", lambda *_: False)),
    "priorities are as stated": (
        UNLIMITED,
        "p",
        _patched(region, "priority_of", lambda own, stated, *_: stated or own),
    ),
    "failures are not set against peers'": (
        CLIENT,
        "c",
        _patched(BackendHealth, "_by_itself", lambda *_: True),
    ),
    "tenants have no limits": (
        CLIENT,
        "b",
        lambda monkeypatch: monkeypatch.setattr(ClientArena, "limits", TenantLimits()),
    ),
}


@pytest.mark.drill
@pytest.mark.parametrize("bound", MUTANTS)
def test_without_a_bound_others_notice(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound is felt: without it a lie of twelve worlds does what the drills above do not let pass."""
    arena, kinds, patch = MUTANTS[bound]
    patch(monkeypatch)
    found = [_worst(arena, seed, kinds)[0] for seed in range(12)]
    assert max(max(one.refused, one.changed / 2, one.taken / 20) for one in found) > LITTLE


def test_a_region_answers() -> None:
    """The yardstick itself: nobody lies, and everybody is served, whoever asks how often."""
    setting = SERVER.setting(random.Random(1))
    found = SERVER.run(setting, None)
    assert set(found.ends.values()) == {"ok"}
    assert found.ejected == 0
    crashing = replace(setting, calls=tuple(replace(call, crashes=True) for call in setting.calls))
    assert set(SERVER.run(crashing, None).ends.values()) == {"failed"}
