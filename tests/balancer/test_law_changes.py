"""The law may change while a request waits, is read, or goes on: nothing of it goes to a backend under a law that is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from gtm.balancer.decide.gate import HandoffReader, LawGate
from gtm.balancer.plane.contracts import PushedRequest, SentRequest
from gtm.balancer.plane.exchange import FIRST, Exchange
from gtm.balancer.wire.refusals import Refusal
from gtm.core.handoff.claims import Claims, client_network, fence_hash
from gtm.core.handoff.verdict import Flaw, Presented, Verdict
from gtm.core.model.policy import Policy
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import SnapshotMessage, StateMessage
from gtm.geoip.client import ClientFinder
from tests import worlds
from tests.balancer.test_gate import MOUNTAIN_VIEW, _Asked, _locate
from tests.balancer.world import Backend, Peer, World, answering, read_head, run, world
from tests.patience import PATIENCE
from tests.system.balancers import policy

_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_LAW = Refusal(421, "wrong_region", "elsewhere", location=b"http://fra.test/")
_GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
_UPGRADE = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
_SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


# --- the data plane, with a gate that a test sets ---


def test_what_waited_is_judged_before_it_is_sent() -> None:
    """It is refused when its turn comes, and no backend hears of it; the next is served."""
    backend = Backend(answering(_OK))

    async def main() -> None:
        async with world(await backend.start()) as w:
            w.admission.holds = True
            client = await w.client()
            client.send(_GET)
            await w.until(lambda: bool(w.admission.waiting))
            w.gate.renewed = _LAW
            w.admission.waiting.pop().admitted()
            answer = await client.response()
            assert (answer.status, answer.get("location")) == (421, b"http://fra.test/")
            assert not w.gate.peers
            await w.nothing_left()
            w.admission.holds, w.gate.renewed = False, None
            assert (await w.ask(_GET)).status == 200

    run(main)


def test_a_body_that_still_comes_stops() -> None:
    """The law changes in the middle of an upload: no further byte goes to the backend, and the client hears why."""
    got, sent = bytearray(), bytes(FIRST + 1)

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        while data := await peer.reader.read(65536):
            got.extend(data)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"POST /audio HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + sent)
            await w.until(lambda: bytes(got) == sent)
            w.gate.renewed = _LAW
            w.proxy.look()
            client.send(b"def")
            assert (await client.response()).status == 421
            await w.nothing_left()
            assert (bytes(got), w.picker.ends, w.picker.failures) == (sent, ["refused"], [])

    run(main)


def test_a_tunnel_ends() -> None:
    """It is no failure of its backend."""
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(_SWITCH + b"hello")
        await peer.reader.read()
        gone.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_UPGRADE)
            assert (await client.response()).status == 101
            assert await client.reader.readexactly(5) == b"hello"
            w.proxy.look()
            w.gate.renewed = _LAW
            w.proxy.look()
            assert await client.end() == b""
            await asyncio.wait_for(gone.wait(), PATIENCE)
            await w.nothing_left()
            assert w.picker.failures == []

    run(main)


def test_what_was_sent_whole_is_answered() -> None:
    """Its data is there already: to cut its answer would bring nothing back."""
    turn = asyncio.Event()

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok")
        await turn.wait()
        peer.send(b"ay")

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await w.until(lambda: bool(w.gate.peers))
            w.gate.renewed = _LAW
            w.proxy.look()
            turn.set()
            assert (await client.response()).body == b"okay"

    run(main)


# --- the gate, with a real View ---

_NOW = 2e9


class _Handoffs(HandoffReader):
    """Reads what a test made, as if it had been verified."""

    claims: Claims

    def read(self, token: bytes, client: bytes | None, now: float) -> Presented | Flaw:  # noqa: ARG002 - the contract
        return Presented(self.claims, _locate(MOUNTAIN_VIEW), _locate(MOUNTAIN_VIEW))


class _Region:
    """The gate of `iad`, with a clock."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.current = CurrentView(lambda: _NOW + self.ahead, boot=lambda: 100.0 + self.ahead)
        self.revision = 0
        self.use(policy({"fra": 1001, "iad": 1002}))
        health = worlds.health(policy({"fra": 1001, "iad": 1002}).regions, since=1.0)
        self.current.apply(StateMessage(State(1, "", health)))
        self.handoffs = _Handoffs(self.current, _locate)
        self.gate = LawGate(self.current, "iad", _locate, ClientFinder(()), self.handoffs)

    def use(self, law: Policy) -> None:
        self.revision += 1
        self.current.apply(SnapshotMessage.of(self.revision, 1.0, law, shipped_jurisdictions()))

    def ask(self, *headers: tuple[bytes, bytes]) -> tuple[Exchange, int]:
        asked = cast("Exchange", _On(MOUNTAIN_VIEW, *headers))
        return asked, _status(self.gate.judge(asked, 0.0))

    def again(self, asked: Exchange) -> int:
        status = _status(self.gate.renew(asked))
        assert _status(self.gate.renew(asked)) == status  # however often it is asked
        return status

    def claims(self, **more: Any) -> Claims:
        """Of this client: what it says, and where it is (the same place)."""
        made = Claims("edge", "iad", "chat", int(_NOW), int(_NOW) + 30, "n1", "", 1, tenant="acme", once=True)
        address = bytes(map(int, MOUNTAIN_VIEW.split(".")))
        return replace(made, client=client_network(address), **more)


class _On(_Asked):
    shown = None
    upstream = None


def _status(refusal: Refusal | None) -> int:
    return 200 if refusal is None else refusal.status


def _forbidding(**more: Any) -> Policy:
    """What Americans ask stays in Germany, too."""
    law = policy({"fra": 1001, "iad": 1002})
    rule = worlds.rule("home", "DE", client_jurisdictions="US", **more)
    return replace(law, residency_rules=(*law.residency_rules, rule))


@pytest.mark.parametrize("handed", [False, True])
def test_a_new_rule_counts_for_what_waits(handed: bool) -> None:
    """With and without a handoff: where it may not be any more, it is sent where it belongs."""
    region = _Region()
    region.handoffs.claims = region.claims()
    asked, status = region.ask(*([(b"gtm-handoff", b"x")] if handed else []))
    assert (status, region.again(asked)) == (200, 200)
    region.use(_forbidding())
    assert region.again(asked) == 421
    assert region.ask()[1] == 421


def test_a_handoff_that_is_over_counts_no_more() -> None:
    """What a handoff adds is remembered for as long as the handoff counts."""
    region = _Region()
    region.handoffs.claims = region.claims(once=False, fence=fence_hash(("fra", "iad")))
    first, _ = region.ask((b"gtm-handoff", b"x"))
    for _ in range(2):
        assert _status(region.gate.judge(first, 0.0)) == 200
        assert isinstance(first.verdict, Verdict)
        assert first.verdict.believed is not None
    router, region.ahead = region.current.router, 40.0
    region.gate.judge(first, 0.0)
    assert region.current.router is router
    assert isinstance(first.verdict, Verdict)
    assert first.verdict.believed is None


def test_a_service_that_is_no_more_is_served_no_more() -> None:
    """Nor is what waits for it: there is no law to judge it by."""
    region = _Region()
    asked, _ = region.ask()
    region.use(replace(policy({"fra": 1001, "iad": 1002}), services=()))
    assert region.again(asked) == 404


def test_a_rule_that_begins_meanwhile_counts() -> None:
    """No message comes: the passing of time alone makes the law another, and a process that slept finds out by itself."""
    region = _Region()
    region.use(_forbidding(effective_from=datetime.fromtimestamp(_NOW + 3600, UTC)))
    asked, status = region.ask()
    assert status == 200
    region.ahead = 3600.0
    assert region.again(asked) == 421


def test_the_same_request_uses_its_handoff_once() -> None:
    """Judged again, what it states still counts; that of a replay still does not."""
    region = _Region()
    region.handoffs.claims = region.claims()
    first, _ = region.ask((b"gtm-handoff", b"x"))
    replay, _ = region.ask((b"gtm-handoff", b"x"))
    for revision in (2, 3):
        region.use(policy({"fra": 1001, "iad": 1002}))
        assert region.revision == revision
        assert (region.again(first), region.again(replay)) == (200, 200)
        assert _tenant(first) == "acme"
        assert _tenant(replay) is None


def test_a_handoff_is_as_old_as_when_it_came() -> None:
    """In a queue it may end; whose request it is, was said in time. A new request with it is another matter."""
    region = _Region()
    region.handoffs.claims = region.claims(once=False, fence=fence_hash(("fra", "iad")))
    asked, _ = region.ask((b"gtm-handoff", b"x"))
    region.ahead = 300.0
    region.use(policy({"fra": 1001, "iad": 1002}))
    assert region.again(asked) == 200
    assert _tenant(asked) == "acme"
    late, _ = region.ask((b"gtm-handoff", b"x"))
    assert _tenant(late) is None


def test_nothing_is_judged_twice_under_one_law() -> None:
    """Health and load change each second; what may be served where does not."""
    region = _Region()
    asked, _ = region.ask()
    before = asked.verdict
    down = EndpointHealth(HealthStatus.DOWN, 2.0)
    region.current.apply(StateMessage(State(2, "", {"fra": {"http://127.0.0.1:1001": down}})))
    assert region.again(asked) == 200
    assert asked.verdict is before


def _tenant(asked: Exchange) -> str | None:
    return asked.verdict.routing.request.tenant  # type: ignore[attr-defined,no-any-return]


def test_a_peer_chosen_by_another_law_gets_nothing() -> None:
    """A push whose connection came about after the law changed is not sent."""
    backend = Backend(answering(_OK))

    async def main() -> None:
        async with world(await backend.start()) as w:
            await _push_late(w)

    run(main)


async def _push_late(w: World) -> None:
    picked = w.picker.pick

    def pushed(exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:
        sent = picked(exchange, tried, now)
        assert isinstance(sent, SentRequest)
        return SentRequest(sent.route, sent.flight, PushedRequest("r2", b"peer", b""))

    def another_law(exchange: Exchange) -> Refusal | None:
        exchange.verdict = object()
        return None

    w.picker.pick = pushed  # type: ignore[method-assign]
    w.gate.renew = another_law  # type: ignore[method-assign]
    answer = await w.ask(_GET)
    assert answer.status == 503
    assert b"law_changed" in answer.body
    assert not w.gate.peers
