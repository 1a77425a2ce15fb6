"""What a credential that may only read can do, by whatever it sends: nothing; and what one person can do to fences by one change (docs/security.md)."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.conftest import Api
from tests.api.test_roles import _routes
from tests.core.strategies import quick
from tests.drills.liars.people import Control, Lie, PersonArena
from tests.effort import ALL

READERS = ("viewer", "reporter", "balancer", "edge", "anonymous")
"""Roles that change nothing of what is written down: policy, tokens, approvals, keys, managers, sessions of others."""
KEPT = ("policy", "revisions", "tokens", "fence-approvals", "managers", "dnssec")
_NAMES = ("x", "chat", "eu-central", "edge-one", "viewer-one", "admin-one", "", "..", "%2e%2e", "a" * 300)
_BODIES: tuple[Any, ...] = (
    None,
    {},
    [],
    "x",
    {"policy": {}},
    {"policy": {"regions": []}, "force": True},
    {"name": "mine", "role": "admin"},
    {"name": "viewer-one", "role": "admin", "owner": "me"},
    {"token": "edge-one"},
    {"admin_state": "disabled"},
    {"reason": "because", "fence": "x", "expires_in": 1e308},
)


def _written(world: Api) -> dict[str, Any]:
    """All that is written down, as an admin reads it."""
    return {path: world.admin.get(f"/v1/{path}").text for path in KEPT}


@pytest.mark.drill
def test_who_may_only_read_changes_nothing(world: Api) -> None:
    """Any method on any path with names that there are, and with bodies that would change something from others' hands."""
    routes = sorted(
        {(method, path) for method, path in _routes(world) if "feed" not in path and "room" not in path}
    )
    before = _written(world)
    tried: list[object] = []

    @quick(100)
    @given(st.integers(0, 2**32))
    def drawn(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(10):
            client: httpx.Client = getattr(world, rng.choice(READERS))
            method, path = rng.choice(routes)
            method = rng.choice((method, method, "PUT", "POST", "DELETE", "PATCH"))
            path = "/".join(rng.choice(_NAMES) if part == "x" else part for part in path.split("/"))
            body = rng.choice(_BODIES)
            query = rng.choice(({}, {"force": "true"}, {"dry_run": "false"}, {"role": "admin"}))
            headers = rng.choice(
                ({}, {"X-HTTP-Method-Override": "DELETE"}, {"If-Match": "*"}, {"X-Forwarded-User": "admin"})
            )
            tried.append(client.request(method, path, json=body, params=query, headers=headers).status_code)
        assert _written(world) == before

    drawn()
    assert not ALL or {401, 403} <= set(tried), "some of it was meant to be refused"


@pytest.mark.drill
@pytest.mark.parametrize("admin", [False, True], ids=["operator", "admin"])
def test_one_person_s_change_opens_no_fence(prepared_url: str, admin: bool) -> None:
    """Any change of an operator, or of one admin of two, who forces it and approves of it with tokens of their own."""
    codes = Counter[int]()
    with ExitStack() as stack:
        control = Control(stack, prepared_url)
        arena = PersonArena(admin=admin, here=lambda: control)

        @quick(100)
        @given(st.integers(0, 2**32))
        def drawn(seed: int) -> None:
            rng = random.Random(seed)
            setting = arena.setting(rng)
            lie = Lie(arena.lie(rng, setting, "c").first)
            found = arena.run(setting, lie)
            codes.update(found.codes)
            assert found.outside == 0, lie

        drawn()
    assert not ALL or {200, 409} <= set(codes), "some of it was taken, and some refused"
    assert 500 not in codes
