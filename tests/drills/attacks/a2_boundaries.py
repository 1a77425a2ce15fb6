"""A rule begins in a few seconds, and many ask: nothing outside the fence after it began, and no answer that outlives it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dns.message
import dns.rdatatype
import httpx

from tests.drills.arena import Arena, attack, held
from tests.system.harness import System, eventually

_NAME = "drill-boundary"
_FROM_NOW = 6.0
"""Seconds until the rule begins: long enough for it to reach the edge."""
_LONG = 86_400
_FORCE = "force=true&force_reason=drill"


@contextmanager
def _world(system: System) -> Iterator[tuple[str, str, float]]:
    """A service whose answers are kept for a day, and a rule about it; its host name, the region left, the beginning."""
    services = system.api("GET", "/v1/services").json()["items"]
    chat = next(item for item in services if item["name"] == "chat")
    regions = [member["region"] for member in chat["members"]]
    service = {
        key: value
        for key, value in chat.items()
        if key not in {"name", "version", "created_at", "updated_at"}
    }
    host = f"{_NAME}.{chat['zone']}"
    service |= {
        "hostnames": [host],
        "ttl": _LONG,
        "min_ttl": _LONG,
        "steering": "weighted",
        "affinity": "none",
    }
    try:
        _put(system, f"/v1/services/{_NAME}", service)
        eventually(lambda: system.route(service=_NAME).status_code == 200, "the edge knows the service")
        usual = system.region(service=_NAME)
        only = next(region for region in regions if region != usual)
        begins = round(time.time() + _FROM_NOW, 3)
        effective_from = datetime.fromtimestamp(begins, UTC).isoformat()
        rule = {
            "match": {"services": [_NAME]},
            "allow": {"regions": [only]},
            "effective_from": effective_from,
        }
        _put(system, f"/v1/residency-rules/{_NAME}", rule)
        revision = max(item["number"] for item in system.api("GET", "/v1/revisions").json()["items"])
        eventually(
            lambda: f"revision={revision}" in str(system.resolve(host, kind="TXT")), "DNS has the rule"
        )
        held(time.time() < begins - 2.2, "the machine is too slow to put a rule in force before it begins")
        yield host, only, begins
    finally:
        system.api("DELETE", f"/v1/residency-rules/{_NAME}?{_FORCE}")
        system.api("DELETE", f"/v1/services/{_NAME}?{_FORCE}")


def _put(system: System, path: str, document: dict[str, Any]) -> None:
    made = system.api("PUT", f"{path}?{_FORCE}", json=document)
    held(made.is_success, f"{path} was not accepted: {made.text}")


def _query(name: str) -> bytes:
    return dns.message.make_query(name, "A").to_wire()


@attack("A2", "DNS and look-ups at full rate across the beginning of a rule")
def across_a_beginning(arena: Arena) -> str:
    """Until the rule begins no answer's TTL reaches beyond that moment; from then on all are inside the fence."""
    system = arena.shared
    with _world(system) as (host, only, begins):
        allowed = _addresses_of(system, only)
        asked = late = kept = 0
        outside_last = 0.0
        packet = _query(host)
        with socket.socket(type=socket.SOCK_DGRAM) as client, httpx.Client(timeout=10) as http:
            client.settimeout(5)
            client.connect(("127.0.0.1", system.dns_port))
            while (before := time.time()) < begins + 1.0:
                client.send(packet)
                answer = dns.message.from_wire(client.recv(4096))
                looked = (
                    http.get(f"{system.edge}/v1/route", params={"service": _NAME}).json()
                    if asked % 20 == 0
                    else None
                )
                after = time.time()
                asked += 1
                (rrset,) = [item for item in answer.answer if item.rdtype == dns.rdatatype.A]
                outside = not {item.address for item in rrset} <= allowed
                if outside:
                    outside_last = max(outside_last, after)
                    late += after >= begins
                    kept += after + rrset.ttl > begins
                if looked is not None and looked["region"] not in {only, None}:
                    late += after >= begins
                    kept += after + looked["ttl"] > begins
                held(before < begins + 5, "the clock stands")
        held(outside_last > 0, "nothing was ever outside: the drill saw no beginning")
        held(not late, f"{late} of {asked} answers outside the fence after the rule began")
        held(not kept, f"{kept} of {asked} answers may be kept beyond the beginning")
        return f"{asked} questions, the last answer outside {begins - outside_last:.2f} s before the beginning, none kept beyond"


def _addresses_of(system: System, region: str) -> set[str]:
    """What may be answered once nothing but a region is lawful: its addresses, or those of a refusal."""
    found = system.api("GET", f"/v1/regions/{region}").json()
    service = system.api("GET", f"/v1/services/{_NAME}").json()
    return {address for endpoint in found["endpoints"] for address in endpoint["ipv4"]} | set(
        service["refusal"]["ipv4"]
    )


def _stopped(pid: int) -> bool:
    """Whether all threads of a process are: on a busy machine one may answer for a while after the signal."""
    states = (status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status"))
    return all("\nState:\tT" in state for state in states)


@attack("A4", "an edge that is stopped by the scheduler across a beginning")
def frozen(arena: Arena) -> str:
    """Its workers get no time from before the beginning until after it; the first answers then are inside the fence."""
    system = arena.shared
    with _world(system) as (host, only, begins):
        allowed = _addresses_of(system, only)
        workers = system.processes("gtm.runtime.edge.worker")
        packet = _query(host)
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.settimeout(20)
            client.connect(("127.0.0.1", system.dns_port))
            time.sleep(max(0.0, begins - 2.0 - time.time()))
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            try:
                eventually(lambda: all(map(_stopped, workers)), "no thread of a worker goes on")
                for _ in range(200):
                    client.send(packet)
                time.sleep(max(0.0, begins + 0.5 - time.time()))
            finally:
                for pid in workers:
                    os.kill(pid, signal.SIGCONT)
            outside = 0
            for _ in range(200):
                answer = dns.message.from_wire(client.recv(4096))
                outside += any(
                    item.address not in allowed
                    for rrset in answer.answer
                    if rrset.rdtype == dns.rdatatype.A
                    for item in rrset
                )
        held(not outside, f"{outside} of 200 answers outside the fence")
        return f"200 questions waited for {len(workers)} stopped workers; all answers inside"
