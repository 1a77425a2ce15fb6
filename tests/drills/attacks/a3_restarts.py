"""A restart under a clock that is behind, and an edge that is cut off: no rule is lifted, and old policies end."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gtm.feed import clockfile
from tests.drills.arena import Arena, attack, held
from tests.system.harness import System, eventually

_FORCE = "force=true&force_reason=drill"
_BEHIND = 3600.0
"""Seconds by which the clock is behind once the edge starts again."""


def _rule(system: System, name: str, **fields: Any) -> str:
    """Put a rule about `chat` in force that leaves one region, and wait until the edge has it; that region."""
    service = system.api("GET", "/v1/services/chat").json()
    usual = system.region(service="chat", client_ip="192.0.2.1")
    only: str = next(item["region"] for item in service["members"] if item["region"] != usual)
    rule = {
        "match": {"services": ["chat"]},
        "allow": {"regions": [only]},
        "acknowledge_empty_fence": True,
        **fields,
    }
    made = system.api("PUT", f"/v1/residency-rules/{name}?{_FORCE}", json=rule)
    held(made.is_success, f"the rule was not accepted: {made.text}")
    revision = max(item["number"] for item in system.api("GET", "/v1/revisions").json()["items"])
    eventually(lambda: system.route(service="chat").json()["revision"] >= revision, "the edge has the rule")
    return only


def _bound(system: System, name: str) -> bool:
    """Whether a rule is in force for a look-up."""
    return name in {rule["name"] for rule in system.route(service="chat").json()["rules"]}


@attack("A3", "the agent's clock is an hour behind at a restart, and a worker is killed")
def behind(arena: Arena) -> str:
    """What the disk knows of the time binds the first answer after the restart, and every new worker."""
    with arena.own("--demo") as system:
        begins = time.time() + _BEHIND / 2
        _rule(system, "drill-restart", effective_from=datetime.fromtimestamp(begins, UTC).isoformat())
        held(not _bound(system, "drill-restart"), "the rule was in force before its time")
        path = system.data_dir / clockfile.FILE  # the balancers of the demo keep theirs elsewhere
        agents = system.processes("-m gtm.runtime.edge.agent")
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)  # it writes nothing more
        kept = clockfile.load(path)
        # As if all this had been seen an hour from now, before another boot, and the clock were behind since.
        clockfile.save(path, replace(kept, boot_id="another", latest=kept.latest + _BEHIND))
        for pid in (*agents, *system.processes("gtm.runtime.edge.worker")):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: _bound(system, "drill-restart"), "the rule binds after the restart", 20.0)
        for pid in system.processes("gtm.runtime.edge.worker"):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        unbound = 0
        for _ in range(40):
            try:
                unbound += not _bound(system, "drill-restart")
            except OSError:
                time.sleep(0.1)
        held(not unbound, f"{unbound} answers of new workers without the rule")
        return f"a rule that begins in {_BEHIND / 2:.0f} s by the wrong clock bound the first answers, and those of new workers"


@attack("A6", "an edge cut off from control, under a rule that accepts no old policy")
def cut_off(arena: Arena) -> str:
    """Control hangs; the edge refuses what the rule concerns in time, with the reason, until control is back."""
    with arena.own("--demo") as system:
        _rule(system, "drill-age", max_policy_age=8)
        held(system.route(service="chat").status_code == 200, "refused while control is heard")
        (control,) = system.processes("gtm.runtime.serve.control")
        began = time.monotonic()
        os.kill(control, signal.SIGSTOP)
        try:
            late = 0.0
            while (answer := system.route(service="chat")).status_code == 200:
                since = time.monotonic() - began
                held(since < 8.0, f"still answered {since:.1f} s after control fell silent")
                late = max(late, since + answer.json()["ttl"])
                time.sleep(0.05)
            refused = time.monotonic() - began
            held(answer.status_code == 451, f"HTTP {answer.status_code}")
            held("policy is older than max_policy_age" in answer.text, answer.text)
            held(late <= 8.0, f"an answer may be kept until {late:.1f} s after")
        finally:
            os.kill(control, signal.SIGCONT)
        eventually(lambda: system.route(service="chat").status_code == 200, "the edge answers again")
        return f"refused after {refused:.1f} s with the reason, no answer kept beyond {late:.1f} s, and back with control"
