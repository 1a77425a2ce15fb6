"""An edge that is cut off keeps an old fence: a change must not look as if it were in force everywhere."""

from __future__ import annotations

import time

from tests.drills.arena import Arena, attack, held
from tests.drills.attacks.b1_votes import post, token
from tests.system.harness import eventually


@attack("A6", "an edge that fell silent with an old policy")
def silent(arena: Arena) -> str:
    """It is named with its revision until it is forgotten, and nobody waits for it."""
    system = arena.shared
    name = f"cut-off-{time.monotonic_ns()}"
    text = token(system, name)
    report = {"version": "1", "revision": 1, "epoch": 1, "health": {}}
    held(post(system, text, name, report).status_code == 200, "the report was refused")
    sync = system.api("GET", "/v1/status").json()["sync"]
    held((sync["state"], name in sync["pending"]) == ("PENDING", True), f"while it lives: {sync}")
    eventually(
        lambda: system.api("GET", "/v1/status").json()["sync"]["state"] != "PENDING",
        "nobody waits for it",
        30,
    )
    found = system.api("GET", "/v1/status").json()
    silent_ones = {one["name"]: one["revision"] for one in found["sync"]["silent"]}
    try:
        held(found["sync"]["state"] == "STALE", f"the state is {found['sync']['state']}")
        held(silent_ones.get(name) == 1, f"silent: {silent_ones}")
        held(any(name in warning for warning in found["warnings"]), f"warnings: {found['warnings']}")
    finally:
        system.api("DELETE", f"/v1/edges/{name}")
        system.api("DELETE", f"/v1/tokens/{name}")
    state = system.api("GET", "/v1/status").json()["sync"]["state"]
    held(state == "IN_SYNC", f"once it is forgotten: {state}")
    return "STALE, named with revision 1 until it was forgotten"
