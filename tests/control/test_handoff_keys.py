"""Which keys of handoffs count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gtm.control.errors import Conflict
from gtm.control.handoff_keys import EdgeKeys, HandoffKeys, counting, reached
from gtm.control.lead.balancers import MOST, Balancers, ToldKeys
from gtm.control.lead.vantages import LiveEdge
from gtm.control.live.present import Current, Present
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import PublicKey
from gtm.core.model.access import Role
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.state import State
from gtm.core.quota.leases import Lease, LeaseUse
from gtm.core.quota.names import QuotaText
from gtm.feed.reports import BalancerReport, EdgeReport
from gtm.feed.wire import Peer
from gtm.storage.tokens import Token
from tests import worlds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW.timestamp() + 60


def token(number: str, edges: str | None, role: Role = Role.EDGE, ends: datetime | None = None) -> Token:
    """A token that speaks for some edges."""
    return Token(number, f"token-{number}", role, NOW, ends, None, edges)


def present(*tokens: Token) -> Present:
    """A moment with these tokens."""
    return Present(State(), tokens={one.id: one for one in tokens})


def edge(name: str, token_id: str, *keys: str) -> LiveEdge:
    """An edge that told keys."""
    report = EdgeReport("1.0", 1, 1, {}, handoff_keys=keys)
    return LiveEdge(name, "192.0.2.1", report, 0.0, NOW, token_id=token_id)


def test_keys_count_while_their_token_speaks_for_their_edge() -> None:
    """Not those of a token that has ended, is gone, is of another role, or of another edge's name."""
    told = {
        "fra-1": [EdgeKeys(("a",), "1")],
        "fra-2": [EdgeKeys(("b",), "1")],
        "lon-1": [EdgeKeys(("c",), "2")],
        "par-1": [EdgeKeys(("d",), "3")],
        "ams-1": [EdgeKeys(("e",), "4")],
        "ber-1": [EdgeKeys(("f",), "")],
        "vie-1": [EdgeKeys(("g",), "5")],
    }
    now = present(
        token("1", "fra-1"),
        token("2", "lon-*", ends=NOW),
        token("3", None, Role.ADMIN),
        token("", None, Role.VIEWER),
        token("5", "*", Role.REPORTER),
    )
    assert counting(told, now, LATER) == (PublicKey("fra-1", "a"),)
    assert counting(told, now, NOW.timestamp() - 1) == (PublicKey("fra-1", "a"), PublicKey("lon-1", "c"))


def _book(current: Current, heard: list[LiveEdge]) -> HandoffKeys:
    """A book that has loaded what one edge told before."""
    book = HandoffKeys(cast("Any", _Stored()), current, lambda: heard, lambda: LATER)
    asyncio.run(book.load())
    return book


class _Stored:
    """A database that has one edge."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(edges=self)

    async def list(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="old-1", handoff_keys=["kept"], handoff_token="1")]


def test_silence_withdraws_nothing_and_forgetting_does() -> None:
    """An edge that was heard, fell silent for a day, and is forgotten at last."""
    current = Current(present(token("1", "*")))
    heard = [edge("fra-1", "1", "a")]
    book = _book(current, heard)
    book.look()
    both = {PublicKey("fra-1", "a"), PublicKey("old-1", "kept")}
    assert set(current.now.handoff_keys.keys) == both
    heard.clear()
    version = current.now.handoff_keys.version
    book.look()
    assert set(current.now.handoff_keys.keys) == both
    assert current.now.handoff_keys.version == version, "what is as before is not told anew"
    book.forget("old-1")
    after = current.now.handoff_keys
    assert set(after.keys) == {PublicKey("fra-1", "a")}
    assert after.version > version


def test_an_edge_that_tells_others_takes_its_old_keys_back() -> None:
    """And two that run under one name have each their own."""
    current = Current(present(token("1", "*")))
    heard = [edge("fra-1", "1", "a", "b")]
    book = _book(current, heard)
    book.forget("old-1")
    heard[:] = [edge("fra-1", "1", "b"), edge("fra-1", "1", "c")]
    book.look()
    assert current.now.handoff_keys.keys == (PublicKey("fra-1", "b"), PublicKey("fra-1", "c"))


def test_nothing_is_published_of_what_is_not_known() -> None:
    """Neither before the tokens are read, nor before what edges told."""
    current = Current(present())
    book = _book(current, [edge("fra-1", "1", "a")])
    book.look()
    assert not current.now.handoff_keys.version
    current.become(replace(current.now, tokens={"1": token("1", "*")}))
    book = HandoffKeys(cast("Any", None), current, lambda: [edge("fra-1", "1", "a")], lambda: LATER)
    book.look()
    book.forget("fra-1")
    assert not current.now.handoff_keys.version


def test_balancers_keys_count_under_their_tokens_names_alone() -> None:
    """While the token that they were told with is one of role balancer, and is not over; an edge's of the same name is another's."""
    now = present(token("1", None, Role.BALANCER), token("2", None, Role.BALANCER, ends=NOW), token("3", "*"))
    told = [
        ToldKeys("token-1", "1", ("a", "b"), 0.0),
        ToldKeys("token-2", "1", ("c",), 0.0),
        ToldKeys("token-2", "2", ("d",), 0.0),
        ToldKeys("token-3", "3", ("e",), 0.0),
        ToldKeys("token-4", "4", ("f",), 0.0),
    ]
    edges = {"token-1": [EdgeKeys(("g",), "3")]}
    assert set(counting(edges, now, LATER, told)) == {
        PublicKey("token-1", "a", Issuer.BALANCER),
        PublicKey("token-1", "b", Issuer.BALANCER),
        PublicKey("token-1", "g"),
    }


def test_balancers_reach_those_whose_tokens_speak_for_the_region() -> None:
    """With an address and keys, by a token of role balancer that is for the region and is not over."""
    live, over, edges = (
        replace(token("1", None, Role.BALANCER), regions="fra"),
        replace(token("2", None, Role.BALANCER, ends=NOW), regions="fra"),
        replace(token("3", "*"), regions="fra"),
    )
    place = "192.0.2.1:8088"
    told = [
        ToldKeys("token-1", "1", ("a", "b"), 0.0, "b1", BalancerReport(region="fra", address=place)),
        ToldKeys("token-1", "1", ("c",), 0.0, "b2", BalancerReport(region="iad", address=place)),
        ToldKeys("token-1", "1", ("d",), 0.0, "b3", BalancerReport(region="fra", address="")),
        ToldKeys("token-1", "1", (), 0.0, "b4", BalancerReport(region="fra", address=place)),
        ToldKeys("token-2", "2", ("e",), 0.0, "b5", BalancerReport(region="fra", address=place)),
        ToldKeys("token-3", "3", ("f",), 0.0, "b6", BalancerReport(region="fra", address=place)),
        ToldKeys("token-1", "4", ("g",), 0.0, "b7", BalancerReport(region="fra", address=place)),
    ]
    assert reached(present(live, over, edges), LATER, told) == (Peer("fra", "token-1/b1", place, ("a", "b")),)


def test_what_balancers_tell_is_bounded_and_forgotten() -> None:
    """So many of one token; a token that ended makes no room for itself; silence for an hour ends it."""
    times = [0.0]
    leases: Any = SimpleNamespace(answer=lambda *args, **_: args[0])
    latency: Any = SimpleNamespace(take=lambda *_: None)
    book = Balancers(leases, latency, lambda: times[0])
    for number in range(MOST):
        book.take("fra", "1", f"b{number}", BalancerReport(None, ("k",)), "r")
    with pytest.raises(Conflict):
        book.take("fra", "1", "one-more", BalancerReport(None, ("k",)), "r")
    times[0] = 3000.0
    reply = book.take("fra", "1", "b0", BalancerReport(None, ("k2",)), "r")
    assert reply.leases == "fra/b0", "no edge has such a name"
    times[0] = 3700.0
    assert [(one.issuer, one.keys) for one in book.told()] == [("fra", ("k2",))]


def test_keys_that_change_all_the_time_are_published_once_a_second() -> None:
    """Whoever tells others with each report makes nobody judge anew ten times a second; what a token's end withdraws goes at once."""

    async def main() -> None:
        current = Current(present(token("1", None, Role.BALANCER), token("2", None, Role.BALANCER)))
        clock, told = [100.0], [ToldKeys("token-1", "1", ("a",), 0.0), ToldKeys("token-2", "2", ("b",), 0.0)]
        stored: Any = _Stored()
        book = HandoffKeys(stored, current, list, lambda: LATER, lambda: told, monotonic=lambda: clock[0])
        running = asyncio.create_task(book.run())

        async def settle() -> frozenset[str]:
            current.wake()
            for _ in range(20):
                await asyncio.sleep(0)
            return frozenset(key.x for key in current.now.handoff_keys.keys)

        while not current.now.handoff_keys.version:
            await settle()
        first = current.now.handoff_keys.version
        for number in range(50):
            told[0] = ToldKeys("token-1", "1", (f"{number}",), 0.0)
            assert await settle() == {"a", "b"}
        assert current.now.handoff_keys.version == first
        current.become(replace(current.now, tokens={"1": current.now.tokens["1"]}))
        assert await settle() == {"49"}, "a token has ended"
        told[0] = ToldKeys("token-1", "1", ("last",), 0.0)
        assert await settle() == {"49"}
        clock[0] += 1.0
        assert await settle() == {"last"}
        running.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_many_keys_that_change_all_the_time_are_published_in_as_many_seconds() -> None:
    """One token's edges may tell 24,000, 2.4 MB for each who follows: sent each second that was a fifth of a processor of every balancer."""

    async def main() -> None:
        current = Current(present(token("1", "edge-*")))
        clock, told = [100.0], "first"
        stored: Any = _Stored()

        def heard() -> list[LiveEdge]:
            return [
                edge(f"edge-{number}", "1", *(f"{told}-{number}-{key}" for key in "abc"))
                for number in range(1000)
            ]

        book = HandoffKeys(stored, current, heard, lambda: LATER, monotonic=lambda: clock[0])
        running = asyncio.create_task(book.run())

        async def published() -> set[str]:
            current.wake()
            for _ in range(20):
                await asyncio.sleep(0)
            return {key.x.partition("-")[0] for key in current.now.handoff_keys.keys}

        while not await published():
            pass
        told = "second"
        clock[0] += 2.9
        assert await published() == {"first"}
        clock[0] += 0.2
        assert await published() == {"second"}
        running.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_balancer_s_leases_are_of_its_region() -> None:
    """Of what it tells of others nothing is taken in, however much it is; and it is counted."""
    asked: list[LeaseUse] = []
    leases: Any = SimpleNamespace(answer=lambda _name, use, _now, **_: asked.append(use))
    latency: Any = SimpleNamespace(take=lambda *_: None)
    rules = (
        SpilloverRule("us-out", "us", ("de",), max_requests_per_second=9.0),
        SpilloverRule("de-out", "de", ("fr",), max_requests_per_second=9.0),
    )
    policy = replace(worlds.policy(*worlds.regions("de fr us")), spillover_rules=rules)
    book = Balancers(leases, latency, lambda: 0.0, policy=lambda: policy)
    counts = dict.fromkeys(("us-out", "de-out", *map(str, range(1000))), 5)
    held = tuple(Lease(QuotaText(name), 1.0) for name in ("us-out", "de-out"))
    use = LeaseUse("i", 1, used=counts, denied=counts, held=held)
    book.take("bal-us", "1", "us-1", BalancerReport(use, ("k",), "us"), "r")
    one = {"us-out": 5}
    assert asked == [LeaseUse("i", 1, used=one, denied=one, held=held[:1])]
    assert book.dropped == {"leases": 1001}
