"""An edge that has lost control: how long it follows a policy, and believes tokens (docs/residency.md, docs/operations.md)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from gtm.core.model.access import Role
from gtm.core.model.policy import Policy
from gtm.feed.current import CurrentView
from gtm.feed.wire import HeartbeatMessage
from gtm.http.app import EdgeApp, EdgeOptions
from tests import worlds
from tests.http.world import NOW, TOKENS, Edge, locate

AGE = 900.0
OTHER = "198.51.100.77"


class Cut(Edge):
    """An edge whose time passes by hand."""

    def __init__(self, change: Any, token_max_age: float = 86_400.0) -> None:
        super().__init__(EdgeOptions(token_max_age=token_max_age))
        self.boot = 100.0
        self.current = CurrentView(lambda: NOW + self.boot - 100.0, boot=lambda: self.boot)
        self.app = EdgeApp(
            self.current,
            locate,
            EdgeOptions(token_max_age=token_max_age),
            self.counts,
            str,
            clock=lambda: NOW,
        )
        self.load(change=change)

    def hear(self) -> None:
        """A heartbeat of control's."""
        self.current.hear(HeartbeatMessage(NOW + self.boot - 100.0))

    def ask(self, **headers: str) -> tuple[int, dict[str, Any]]:
        """A look-up for somebody else: status and document."""
        return self._get(b"service=chat&explain=1&client_ip=" + OTHER.encode(), headers)

    def _get(self, query: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/route",
            "raw_path": b"/v1/route",
            "query_string": query,
            "headers": [(b"host", b"edge"), *((k.encode(), v.encode()) for k, v in headers.items())],
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(self.app(scope, receive, send))
        return sent[0]["status"], json.loads(b"".join(part["body"] for part in sent[1:]))


def bounded(before: Policy) -> Policy:
    """The world with one rule that accepts no policy older than AGE."""
    rule = worlds.rule("fresh", before.regions[0].name, services="chat", max_policy_age=AGE)
    services = tuple(replace(one, ttl=600, min_ttl=600) for one in before.services)
    return replace(before, residency_rules=(rule,), services=services, zones=before.zones)


def unbounded(before: Policy) -> Policy:
    """The same rule without a bound."""
    (rule,) = bounded(before).residency_rules
    return replace(bounded(before), residency_rules=(replace(rule, max_policy_age=None),))


TOKEN = {"authorization": f"Bearer {TOKENS[Role.VIEWER]}"}


def test_what_the_rule_concerns_is_refused_once_the_policy_is_too_old() -> None:
    """With a reason, never later than it says, and not before its last second; until control is heard again."""
    edge = Cut(bounded)
    status, document = edge.ask(**TOKEN)
    assert status != 200  # it has never heard from control
    edge.hear()
    assert edge.ask(**TOKEN)[0] == 200
    edge.boot += AGE - 1.5
    edge.current.tick()
    status, document = edge.ask(**TOKEN)
    assert (status, document["ttl"]) == (200, 0)
    edge.boot += 0.6
    edge.current.tick()
    status, document = edge.ask(**TOKEN)
    assert (status, document["reason"]) == (451, "fence_empty")
    assert "policy is older than max_policy_age" in document["rules"][0]["because"]
    assert any("policy is older than max_policy_age" in text for text in document["reasons"])
    edge.hear()
    assert edge.ask(**TOKEN)[0] == 200


def test_a_rule_without_the_bound_refuses_nothing() -> None:
    """However long control is gone."""
    edge = Cut(unbounded, token_max_age=1e9)
    edge.hear()
    edge.boot += 30 * 86_400
    edge.current.tick()
    assert edge.ask(**TOKEN)[0] == 200


def test_no_answer_outlives_the_bound() -> None:
    """Its TTL gets shorter towards the end, and longer again as soon as control is heard."""
    edge = Cut(bounded)
    edge.hear()
    kept = []
    for left in (AGE - 2, 500.0, 300.0, 100.0, 10.0, 2.0):
        edge.boot = 100.0 + AGE - left
        edge.current.tick()
        ttl = edge.ask(**TOKEN)[1]["ttl"]
        assert ttl <= left
        kept.append(ttl)
    assert kept == [512, 256, 256, 64, 8, 0]
    edge.hear()
    edge.current.tick()
    assert edge.ask(**TOKEN)[1]["ttl"] in {512, 0}
    edge.boot += 5.0
    edge.current.tick()
    assert edge.ask(**TOKEN)[1]["ttl"] == 512


@pytest.mark.parametrize("age", [60.0, 86_400.0])
def test_tokens_are_believed_for_so_long(age: float) -> None:
    """After that 401 says why; nothing else changes, and control's next word brings them back."""
    edge = Cut(unbounded, token_max_age=age)
    assert edge.ask(**TOKEN)[0] == 401
    edge.hear()
    assert edge.ask(**TOKEN)[0] == 200
    edge.boot += age - 1.5
    assert edge.ask(**TOKEN)[0] == 200
    edge.boot += 1.0
    status, document = edge.ask(**TOKEN)
    assert status == 401
    assert "has not heard from control" in document["detail"]
    assert "GTM_TOKEN_MAX_AGE" in document["detail"]
    edge.hear()
    assert edge.ask(**TOKEN)[0] == 200
