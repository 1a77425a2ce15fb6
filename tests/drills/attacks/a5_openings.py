"""A5: ways to open a fence, or to delete much, without anybody meaning it."""

from __future__ import annotations

from typing import Any

import httpx

from tests.drills.arena import Arena, attack, held
from tests.system.harness import Process, System

_RULE = "/v1/residency-rules/gdpr-chat"
_FORCE = {"force": "true", "force_reason": "a drill"}


def _token(running: System, name: str, role: str) -> str:
    """A token's text, made anew."""
    running.api("DELETE", f"/v1/tokens/{name}")
    made = running.api("POST", "/v1/tokens", json={"name": name, "role": role})
    made.raise_for_status()
    return str(made.json()["token"])


def _beside(running: System, name: str) -> str:
    """The text of somebody else's token, which no other token made."""
    log = running.data_dir.with_suffix(f".{name}.log")
    words = ["token", "create", name, "--role", "fence-admin", "--owner", name, "--direct"]
    command = Process([*words, "--data-dir", str(running.data_dir)], log)
    command.popen.wait(60)
    return command.output.strip().splitlines()[-1]


def _refused(answer: httpx.Response, rule: str, status: int = 409) -> None:
    held(answer.status_code == status, f"answered {answer.status_code}: {answer.text[:300]}")
    named = [one["path"] for one in answer.json()["errors"]]
    held(rule in named, f"refused for {named}")


@attack("A5", "an admin's DELETE, monitor mode and wider allow, without force")
def loosened(arena: Arena) -> str:
    """No way to write a rule opens it by accident, at a moment without traffic."""
    running = arena.shared
    rule: dict[str, Any] = running.api("GET", _RULE).json()
    wider = {"jurisdictions": ["EEA", "US"], "regions": [], "operator_jurisdictions": []}
    for answer in (
        running.api("DELETE", _RULE),
        running.api("PUT", _RULE, json={**rule, "mode": "monitor"}),
        running.api("PUT", _RULE, json={**rule, "allow": wider}),
    ):
        _refused(answer, "fence")
    held(running.api("GET", _RULE).json() == rule, "the rule is another")
    return "409 fence, three times"


@attack("A5", "a roll-back to before a rule, and a region declared to be elsewhere")
def rolled_back(arena: Arena) -> str:
    """What opens a fence without touching its rule today is refused likewise."""
    running = arena.shared
    tight = {"match": {"services": ["web"]}, "allow": {"jurisdictions": ["EEA"]}}
    before = running.api("GET", "/v1/policy").json()["revision"]
    running.api("PUT", "/v1/residency-rules/drill", params=_FORCE, json=tight).raise_for_status()
    try:
        _refused(running.api("POST", f"/v1/revisions/{before}:rollback"), "fence")
        region = running.api("GET", "/v1/regions/us-east").json()
        _refused(running.api("PUT", "/v1/regions/us-east", json={**region, "country": "FR"}), "fence")
    finally:
        running.api("DELETE", "/v1/residency-rules/drill", params=_FORCE).raise_for_status()
    return "409 fence, twice"


@attack("A5", "another tenant stated by a host name, and by a new name below a wildcard")
def stated(arena: Arena) -> str:
    """Whose requests come by a name decides which rules concern them, so it opens fences as rules do."""
    running = arena.shared
    url = "/v1/services/records"
    service: dict[str, Any] = running.api("GET", url).json()
    name = service["hostnames"][0]
    running.api("PUT", "/v1/tenants/drill", json={}).raise_for_status()
    try:
        other = {"name": name, "tenant": "drill"}
        _refused(running.api("PUT", url, json={**service, "hostnames": [other]}), "fence")
        wild = [name, f"*.{name}"]
        running.api("PUT", url, json={**service, "hostnames": wild}).raise_for_status()
        below = {"name": f"drill.{name}", "tenant": "drill"}
        answer = running.api("PUT", url, json={**service, "hostnames": [*wild, below]})
        _refused(answer, "fence")
        held(f"`drill.{name}`" in answer.text, answer.text[:300])
    finally:
        running.api("PUT", url, json=service).raise_for_status()
        running.api("DELETE", "/v1/tenants/drill").raise_for_status()
    return "409 fence, twice, naming the name"


@attack("A5", "gtm apply of a wrong folder")
def wrong_folder(arena: Arena) -> str:
    """A policy without anything in it deletes nothing."""
    running = arena.shared
    answer = running.api("POST", "/v1/policy:apply", json={"policy": {}})
    _refused(answer, "deletion")
    held("this would delete 7 regions, 1 zone" in answer.text, answer.text[:300])
    held(running.api("GET", "/v1/zones").json()["items"], "the zone is gone")
    return "409 deletion, with what would go"


@attack("A5", "an operator's token with force")
def operator(arena: Arena) -> str:
    """Force and a reason are not enough for who may not open fences."""
    running = arena.shared
    text = _token(running, "drill-operator", "operator")
    headers = {"Authorization": f"Bearer {text}"}
    answer = httpx.delete(f"{running.control}{_RULE}", params=_FORCE, headers=headers, trust_env=False)
    _refused(answer, "fence", 403)
    held("fence-admin" in answer.json()["detail"], answer.text)
    empty = {"policy": {}}
    url = f"{running.control}/v1/policy:apply"
    answer = httpx.post(url, params=_FORCE, headers=headers, json=empty, trust_env=False)
    _refused(answer, "deletion", 403)
    return "403, twice, naming the role"


@attack("A5", "approving of one's own change with another token, and of another than the one approved")
def own_approval(arena: Arena) -> str:
    """Where a second person has to approve, one person cannot do it alone, nor use an approval twice."""
    with arena.own("--demo", "--fence-approvals", "1") as running:
        texts = {name: _token(running, name, "fence-admin") for name in ("first", "puppet")}
        texts["second"] = _beside(running, "second")

        def call(who: str, method: str, path: str, **given: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {texts[who]}"}
            return httpx.request(
                method, f"{running.control}{path}", headers=headers, trust_env=False, timeout=30, **given
            )

        def approve(who: str, sha256: str) -> None:
            body = {"sha256": sha256, "reason": "a drill"}
            call(who, "POST", "/v1/fence-approvals", json=body).raise_for_status()

        refused = call("first", "DELETE", _RULE, params=_FORCE)
        _refused(refused, "fence")
        for mine in ("first", "puppet"):
            approve(mine, refused.json()["fingerprint"])
            _refused(call("first", "DELETE", _RULE, params=_FORCE), "fence")
        approve("second", refused.json()["fingerprint"])
        other = _RULE.replace("gdpr-chat", "clinic-records")
        _refused(call("first", "DELETE", other, params=_FORCE), "fence")
        done = call("first", "DELETE", _RULE, params=_FORCE)
        held(done.status_code == 200, f"the approved change: {done.text[:300]}")
        _refused(call("first", "DELETE", other, params=_FORCE), "fence")
    return "409 until somebody else approved of just that"
