"""What waits at a server that is judged down, without a byte of its answer: it is answered by another or refused, and never left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.exchange import ANSWERING, CONNECTING, SENT, WAITING
from gtm.balancer.plane.proxy import MAY_RETURN
from gtm.balancer.plane.timeouts import HEAD_HELD
from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.choosing.values import ChoosingSettings as Choosing
from gtm.core.balance.choosing.values import Pick, Score
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings, Thresholds
from gtm.core.balance.health.values import Check
from gtm.core.health.verdicts import ProbeResult
from tests.balancer.world import Backend, Message, Peer, World, answering, ended_exchange, run, world

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Of: %b\r\n\r\n"
)
_TOKEN = b"9\r\ndata: %b\n\n\r\n"
_END = b"0\r\n\r\n"
_CHAT, _RESPONSES = b"/v1/chat/completions", b"/v1/responses"
_PING = b"8\r\n: ping\n\n\r\n"


def _post(path: bytes = _CHAT, *lines: bytes, body: bytes = b"{}") -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), more, body)


def _whole(name: bytes) -> bytes:
    return _HEAD % name + _TOKEN % name + _END


class _Frozen:
    """Takes requests, and says what a test has it say."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, Peer]] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            self.asked.append((await peer.request(), peer))

    async def waits(self, w: World, raw: bytes, said: bytes = b"") -> Peer:
        """A client whose request is here, and has heard of the balancer what the server said."""
        number, client = len(self.asked), await w.client()
        client.send(raw)
        await w.until(lambda: len(self.asked) > number)
        self.asked[-1][1].send(said)
        return client


def _current(w: World, number: int = -1) -> object:
    return w.gate.judged[number].phase


async def _heard_head(w: World, number: int = -1) -> None:
    await w.until(lambda: w.gate.judged[number].unsaid is not None)


def _judged_down(w: World, number: int = 0) -> None:
    """The backend is judged down now: it fails its checks, and nobody else is sent there."""
    route = w.picker.routes()[number]
    w.picker.failing[route.url] = w.clock()
    w.proxy.take_from(route)
    w.pass_time(MAY_RETURN)


def test_a_chat_is_asked_of_another_at_once() -> None:
    """Whether nothing came, or the head of a stream, which servers send before an engine has done anything: the client gets one answer, the other's."""

    async def main() -> None:
        frozen, other = _Frozen(), Backend(answering(_whole(b"b")))
        async with world(await Backend(frozen).start(), await other.start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            silent = await frozen.waits(w, _post())
            headed = await frozen.waits(w, _post(), _HEAD % b"a")
            await _heard_head(w)
            assert [one.phase for one in w.gate.judged] == [SENT, SENT]
            _judged_down(w)
            for client in silent, headed:
                answer = await client.response()
                assert answer.status == 200
                assert answer.get("x-of") == b"b"
                assert answer.body == b"data: b\n\n"
            assert (
                w.picker.ends.count("refused") == 2
            )  # at the first: it says nothing of how requests end there
            assert w.proxy.stats.taken == {(w.picker.routes()[0].url, "moved"): 2}
            assert not w.proxy.stats.refusals
            # The server sees that nobody waits any more.
            for _, peer in frozen.asked:
                assert await peer.end() == b""

    run(main)


def test_what_has_begun_stays() -> None:
    """Who has had a byte of an answer goes on where it is, as do others at other servers."""

    async def main() -> None:
        frozen, other = _Frozen(), _Frozen()
        async with world(await Backend(frozen).start(), await Backend(other).start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            client = await frozen.waits(w, _post(), _HEAD % b"a" + _TOKEN % b"1")
            await client.reader.readuntil(b"data: 1\n\n\r\n")
            w.picker.configure(w.picker.routes()[::-1])
            elsewhere = await other.waits(w, _post())
            w.picker.configure(w.picker.routes()[::-1])
            _judged_down(w)
            assert [one.phase for one in w.gate.judged] == [ANSWERING, SENT]
            frozen.asked[0][1].send(_TOKEN % b"2", _END)
            assert (await client.reader.readuntil(b"0\r\n\r\n")).count(b"data: 2") == 1
            other.asked[0][1].send(_whole(b"b"))
            assert (await elsewhere.response()).body == b"data: b\n\n"
            assert not w.proxy.stats.taken

    run(main)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (_post(b"/v1/responses/resp_1/cancel"), "it may not be done twice"),
        (
            _post(b"/v1/responses/resp_1/cancel", b"Idempotency-Key: 1"),
            "it goes on with what that server has",
        ),
        (_post(_RESPONSES), "it may not be done twice"),
        (_post(b"/v1/unheard-of"), "it may not be done twice"),
        (_post(body=b"x" * 70_000), "it is longer than what is kept for another try (65536 bytes)"),
    ],
)
def test_what_may_not_be_asked_again_is_refused(raw: bytes, why: str) -> None:
    """And says why."""

    async def main() -> None:
        frozen, other = _Frozen(), Backend(answering(_whole(b"b")))
        async with world(await Backend(frozen).start(), await other.start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            client = await frozen.waits(w, raw)
            _judged_down(w)
            answer = await client.response()
            assert answer.status == 504
            assert b"backend_failing" in answer.body
            assert why.encode() in answer.body
            assert answer.get("retry-after") == b"1"
            assert not other.connections
            assert w.proxy.stats.taken == {(w.picker.routes()[0].url, "refused"): 1}

    run(main)


def test_nothing_is_done_twice_where_the_file_says_so() -> None:
    """`repeats: false`: but for what may be by its method or its key."""

    async def main() -> None:
        frozen, other = _Frozen(), Backend(answering(_whole(b"b")))
        async with world(await Backend(frozen).start(), await other.start()) as w:
            w.proxy.keeps_heads = True
            chat = await frozen.waits(w, _post(), _HEAD % b"a")
            assert b"text/event-stream" in await chat.reader.readuntil(b"\r\n\r\n")  # not kept back
            plain = await frozen.waits(w, _post())
            keyed = await frozen.waits(w, _post(_CHAT, b"Idempotency-Key: 1"))
            _judged_down(w)
            assert (await plain.response()).status == 504
            assert (await keyed.response()).body == b"data: b\n\n"

    run(main)


def test_it_is_taken_from_a_server_once() -> None:
    """What two servers did not answer is asked of no third."""

    async def main() -> None:
        first, second, third = _Frozen(), _Frozen(), Backend(answering(_whole(b"c")))
        async with world(
            await Backend(first).start(), await Backend(second).start(), await third.start()
        ) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            client = await first.waits(w, _post())
            _judged_down(w)
            await w.until(lambda: len(second.asked) == 1)
            _judged_down(w, 1)
            answer = await client.response()
            assert answer.status == 504
            assert b"it was asked of another once already" in answer.body
            assert not third.connections

    run(main)


def test_who_waits_for_a_connection_is_taken_too() -> None:
    """It cannot have begun there: whatever it is, another is asked."""

    async def main() -> None:
        dumb, other = _Frozen(), Backend(answering(_whole(b"b")))
        url = (await Backend(dumb).start()).replace("http:", "https:")  # takes connections, and no TLS begins
        async with world(url, await other.start()) as w:
            client = await w.client()
            client.send(_post(_RESPONSES))
            await w.until(lambda: bool(w.gate.judged) and _current(w) is CONNECTING)
            _judged_down(w)
            assert (await client.response()).body == b"data: b\n\n"

    run(main)


def test_where_no_slot_is_free_it_waits_for_one() -> None:
    """As who comes now does: its own slot is given back first. Then it goes to a server that it was not at."""

    async def main() -> None:
        frozen, other = _Frozen(), Backend(answering(_whole(b"b")))
        async with world(await Backend(frozen).start(), await other.start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            client = await frozen.waits(w, _post())
            w.picker.room, w.admission.holds = False, True
            _judged_down(w)
            assert _current(w) is WAITING
            assert w.proxy.stats.taken == {(w.picker.routes()[0].url, "queued"): 1}
            assert not w.picker.in_flight
            w.admission.waiting.pop().admitted()
            assert (await client.response()).body == b"data: b\n\n"

    run(main)


def test_a_server_that_returns_keeps_what_waits_there() -> None:
    """A server that stood still for less than it answers after all; where it stays away, nobody waits longer than that."""

    async def main() -> None:
        still = _Frozen()
        async with world(await Backend(still).start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            w.picker.usable = lambda: 0  # type: ignore[method-assign]
            back, gone = [await still.waits(w, raw) for raw in (_post(), _post(_RESPONSES))]
            (route,) = w.picker.routes()
            w.picker.failing[route.url] = w.clock()
            for _ in range(2):
                w.proxy.take_from(route)
            w.pass_time(MAY_RETURN - 0.1)
            assert not w.proxy.stats.taken
            still.asked[0][1].send(_whole(b"a"))
            assert (await back.response()).body == b"data: a\n\n"
            w.pass_time(0.2)
            assert (await gone.response()).status == 504
            assert w.proxy.stats.taken == {(route.url, "refused"): 1}
            after = await still.waits(w, _post())
            w.proxy.take_from(route)
            w.picker.failing.clear()
            w.pass_time(MAY_RETURN)
            still.asked[-1][1].send(_whole(b"a"))
            assert (await after.response()).body == b"data: a\n\n"

    run(main)


def test_where_all_are_down_it_is_refused() -> None:
    """So that an edge that carries asks another region; whether others were there or not."""

    async def main() -> None:
        frozen = _Frozen()
        async with world(await Backend(frozen).start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            client = await frozen.waits(w, _post(), _HEAD % b"a")
            await _heard_head(w)
            _judged_down(w)
            answer = await client.response()
            assert answer.status == 502
            assert b'"code":"backend_failed"' in answer.body
            w.picker.usable = lambda: 0  # type: ignore[method-assign] - as where a check fails that others passed
            client = await frozen.waits(w, _post())
            _judged_down(w)
            assert b'"code":"backend_failed"' in (await client.response()).body

    run(main)


def test_what_dies_with_its_server_takes_no_budget_once_that_is_judged() -> None:
    """Each connection of a killed server breaks at once: beyond the budget they would all be refused, though others have room."""

    async def main() -> None:
        frozen, other = _Frozen(), Backend(answering(_whole(b"b")))
        async with world(await Backend(frozen).start(), await other.start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            clients = [await frozen.waits(w, _post(), _HEAD % b"a" if odd else b"") for odd in [0, 1] * 8]
            w.proxy._budget.most = w.proxy._budget.floor = 0.0  # noqa: SLF001 - nothing is left of it
            w.picker.failing[w.picker.routes()[0].url] = w.clock()
            for _, peer in frozen.asked:
                peer.abort()
            for client in clients:
                assert (await client.response()).body == b"data: b\n\n"

    run(main)


def test_a_head_alone_goes_on_with_what_follows() -> None:
    """Byte for byte as the server says it; comments and pings are no token; and a head that nothing follows goes on by itself in the end."""

    async def main() -> None:
        frozen = _Frozen()
        async with world(await Backend(frozen).start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            (route,) = w.picker.routes()
            client = await frozen.waits(w, _post(), _HEAD % b"a")
            await _heard_head(w)
            assert route.heard > 0 > route.work.heard
            frozen.asked[-1][1].send(_PING)
            assert (await client.reader.readuntil(_PING)).count(b"HTTP/1.1 200") == 1
            assert route.work.heard < 0
            frozen.asked[-1][1].send(_TOKEN % b"1", _END)
            await client.reader.readuntil(b"0\r\n\r\n")
            assert route.work.heard > 0
            late = await frozen.waits(w, _post(), _HEAD % b"a")
            await _heard_head(w)
            w.pass_time(HEAD_HELD - 1)
            assert _current(w) is SENT
            w.pass_time(2)
            assert b"X-Of: a" in await late.reader.readuntil(b"\r\n\r\n")
            frozen.asked[-1][1].send(_TOKEN % b"1", _END)
            assert await late.reader.readuntil(b"0\r\n\r\n") == _TOKEN % b"1" + _END
            # One that breaks off without a byte is asked again, or refused by a status.
            broken = await frozen.waits(w, _post(), _HEAD % b"a")
            await _heard_head(w)
            frozen.asked[-1][1].abort()
            assert (await broken.response()).status == 502

    run(main)


_ERROR = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'


def test_a_stream_that_begins_with_an_error_is_asked_of_another() -> None:
    """As of a server whose engine has died. Once; where nobody else is there, or the budget is out, the client gets the error as the server says it."""

    async def main() -> None:
        here: list[World] = []

        async def dead(peer: Peer) -> None:
            while True:
                await peer.request()
                peer.send(_HEAD % b"a")
                await _heard_head(here[0])
                peer.send(b"%x\r\n%b\r\n" % (len(_ERROR), _ERROR), _END)

        first, other = Backend(dead), Backend(answering(_whole(b"b")))
        async with world(await first.start(), await other.start()) as w:
            here.append(w)
            w.proxy.repeats = w.proxy.keeps_heads = True
            assert (await w.ask(_post())).body == b"data: b\n\n"
            assert w.picker.ends == ["failed", "answered"]
            w.proxy._budget.most = w.proxy._budget.floor = 0.0  # noqa: SLF001 - nothing is left of it
            assert (await w.ask(_post())).body == _ERROR
            w.proxy._budget.floor = 1000.0  # noqa: SLF001 - and now there is some
            w.picker.configure(w.picker.routes()[:1])
            assert (await w.ask(_post())).body == _ERROR

    run(main)


# --- who is told, and when ---


def _picker(told: list[str], *, checks: Sequence[Check] = (Check.HEALTH,)) -> PoolPicker:
    servers = [Server("http://a", slots=2), Server("http://b", slots=2)]
    loop = asyncio.get_running_loop()
    health = BackendHealth(
        HealthSettings(checks={one: Thresholds(1, 2) for one in checks}), servers, loop.time()
    )
    picker = PoolPicker(servers, Choosing(), health, loop=loop, lost=lambda route: told.append(route.url))
    for server in servers:
        for check in checks:
            _checked(picker, server.name, check, ok=True)
    return picker


def _checked(picker: PoolPicker, name: str, check: Check, *, ok: bool, late: bool = True) -> None:
    now = picker.loop.time()
    picker.health.checked(name, check, ProbeResult(ok, now, "", None), now, late=late and not ok)
    picker.conditions(picker.health.tick(now))


def _picked(picker: PoolPicker, tried: tuple[str, ...] = ()) -> SentRequest:
    found = picker.pick(ended_exchange(), tried, picker.loop.time())
    assert isinstance(found, SentRequest)
    return found


def test_a_verdict_is_told_once() -> None:
    """Of a check that fails as often as its threshold says; not of a check that is to be made first, for none has failed."""

    async def main() -> None:
        told: list[str] = []
        picker = _picker(told)
        _checked(picker, "http://a", Check.HEALTH, ok=False)
        await asyncio.sleep(0)
        assert not told
        for _ in range(3):
            _checked(picker, "http://a", Check.HEALTH, ok=False)
        assert not told  # after the caller has resized what admission lets begin
        await asyncio.sleep(0)
        assert told == ["http://a"]
        more = {Check.HEALTH: Thresholds(1, 2), Check.COMPLETION: Thresholds(1, 2)}
        picker.health.update(HealthSettings(checks=more), [one.backend for one in picker.pool.candidates])
        picker.conditions(picker.health.tick(picker.loop.time()))
        await asyncio.sleep(0)
        assert told == ["http://a"]

    run(main)


def test_who_says_why_keeps_what_it_has() -> None:
    """A server that drains fails its check, or takes no connection, and ends what it has (envoyproxy/envoy#2295: connections that were closed then were too many)."""

    async def main() -> None:
        told: list[str] = []
        picker = _picker(told)
        for late in (True, False, False):  # what it said last counts
            _checked(picker, "http://a", Check.HEALTH, ok=False, late=late)
        await asyncio.sleep(0)
        assert not told

    run(main)


def test_a_server_that_is_out_and_silent_is_told() -> None:
    """Of requests that stalled: whoever waits there is taken from it, and so is who waits at a server that is gone from the file, for no check speaks of it."""

    async def main() -> None:
        told: list[str] = []
        picker = _picker(told)
        waiting = [_picked(picker, ("http://b",)) for _ in range(3)]
        now = picker.loop.time()
        for _ in range(10):  # the other one works
            _picked(picker, ("http://a",)).flight.end(ended_exchange(), "answered")
        picker.silent(waiting[0], now, now)
        await asyncio.sleep(0)
        assert not told
        assert not picker.is_down(waiting[0])
        picker.silent(waiting[1], now, now)
        await asyncio.sleep(0)
        assert told == ["http://a"]
        assert picker.is_down(waiting[0])
        gone = waiting[2]
        assert isinstance(gone.route, Route)
        picker.configure([picker.pool.candidates[1].backend], Choosing())
        assert picker.is_down(gone)
        for _ in range(100):  # as many as wait there find it in one look at all of them
            picker.silent(gone, now, now)
        await asyncio.sleep(0)
        assert told == ["http://a"] * 2

    run(main)


def test_room_is_a_free_slot_of_a_server_that_was_not_tried() -> None:
    """A server without known slots has room."""

    async def main() -> None:
        picker = _picker([])
        exchange = ended_exchange()
        assert picker.has_room(exchange, ("http://a",))
        assert not picker.has_room(exchange, ("http://a", "http://b"))
        flights = [_picked(picker, ("http://a",)) for _ in range(2)]
        assert not picker.has_room(exchange, ("http://a",))
        assert picker.has_room(exchange, ("http://b",))
        flights[0].flight.end(exchange, "answered")
        assert picker.has_room(exchange, ("http://a",))
        _checked(picker, "http://b", Check.HEALTH, ok=False)
        _checked(picker, "http://b", Check.HEALTH, ok=False)
        assert not picker.has_room(exchange, ("http://a",))
        for one in flights:
            one.flight.end(exchange, "answered")
        picker.configure([Server("http://a"), Server("http://b", models=frozenset({"other"}))], Choosing())
        assert picker.has_room(exchange, ("http://b",))
        assert not picker.has_room(exchange, ("http://a",))

    run(main)


def test_slots_are_given_back_once_and_filled_by_who_waits() -> None:
    """With the real admission and choice: two servers of two slots each, all filled. One is judged down: what waited there has the other's slots as they become free."""

    async def main() -> None:
        frozen, other = _Frozen(), _Frozen()
        async with world(await Backend(frozen).start(), await Backend(other).start()) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            loop = asyncio.get_running_loop()
            servers = [Server(route.url, slots=2) for route in w.picker.routes()]
            health = BackendHealth(
                HealthSettings(checks={Check.HEALTH: Thresholds(1, 2)}), servers, loop.time()
            )
            choosing = Choosing(pick=Pick.SCAN, score=Score.REQUESTS)
            picker = PoolPicker(servers, choosing, health, loop=loop, lost=w.proxy.take_from)
            limits = TenantLimits(requests_per_second=1e-6, burst=4.0)  # whoever waits anew has paid
            admission = QueueAdmission(AdmissionSettings(without_tenant=limits), loop=loop, cost=picker.cost)
            for server in servers:
                _checked(picker, server.name, Check.HEALTH, ok=True)
            admission.resize(picker.slots())
            w.proxy.picker, w.proxy.admission = picker, admission
            clients = []
            for number in range(1, 5):
                clients.append(await w.client())
                clients[-1].send(_post())
                await w.until(lambda count=number: len(frozen.asked) + len(other.asked) == count)
            assert len(frozen.asked) == len(other.asked) == 2
            for _ in range(2):
                _checked(picker, servers[0].name, Check.HEALTH, ok=False)
            admission.resize(picker.slots())

            def taken() -> bool:
                w.pass_time(MAY_RETURN / 4)
                return admission.has_waiting

            await w.until(taken)
            assert (admission.admission.running, admission.admission.waiting) == (2, 2)
            assert w.proxy.stats.taken == {(servers[0].name, "queued"): 2}
            while admission.admission.running:  # each end lets one begin
                other.asked.pop(0)[1].send(_whole(b"b"))
                before = admission.admission.running + admission.admission.waiting
                await w.until(
                    lambda was=before: admission.admission.running + admission.admission.waiting < was
                )
                await w.until(lambda: len(other.asked) == admission.admission.running)
            for client in clients:
                assert (await client.response()).body == b"data: b\n\n"
            assert [one.flight.requests for one in picker.pool.candidates] == [0, 0]
            assert not admission.has_waiting
            for route in picker.routes():
                route.close()

    run(main)


# --- never left ---


@dataclass(frozen=True)
class _Asked:
    """A request, and what its server has said of an answer: nothing, the head of a stream, or a token."""

    raw: bytes
    may_be_asked_again: bool
    said: int


_asked = st.builds(
    _Asked,
    raw=st.sampled_from([_post()]),
    may_be_asked_again=st.just(value=True),
    said=st.integers(0, 2),
) | st.sampled_from(
    [
        _Asked(_post(_RESPONSES), may_be_asked_again=False, said=0),
        _Asked(_post(_RESPONSES, b"Idempotency-Key: 1"), may_be_asked_again=True, said=1),
        _Asked(_post(body=b"x" * 70_000), may_be_asked_again=False, said=0),
    ]
)


@settings(max_examples=12, deadline=None)
@given(
    requests=st.lists(_asked, min_size=1, max_size=6),
    room=st.booleans(),
    other=st.sampled_from(["answers", "dies", "is down"]),
)
def test_nobody_without_a_byte_is_left(requests: list[_Asked], room: bool, other: str) -> None:
    """Whatever waits, whatever was said, and whatever the other server does: each is answered in full or refused, but for who has had a byte."""

    async def main() -> None:
        async def dies(peer: Peer) -> None:
            await peer.request()
            peer.abort()

        frozen = _Frozen()
        urls = [await Backend(frozen).start()]
        if other != "is down":
            urls.append(await Backend(answering(_whole(b"b")) if other == "answers" else dies).start())
        async with world(*urls) as w:
            w.proxy.repeats = w.proxy.keeps_heads = True
            clients = []
            for number, one in enumerate(requests):
                said = [b"", _HEAD % b"a", _HEAD % b"a" + _TOKEN % b"1"][one.said]
                clients.append(await frozen.waits(w, one.raw, said))
                if one.said == 2:
                    await clients[-1].reader.readuntil(b"data: 1\n\n\r\n")
                elif one.said:
                    await _heard_head(w, number)
            w.picker.room = room
            _judged_down(w)
            for one, client in zip(requests, clients, strict=True):
                if one.said == 2:
                    continue
                answer = await client.response()
                assert answer.whole
                assert (b'"code":"backends_failed"' in answer.body) == (
                    other == "dies" and one.may_be_asked_again
                )
                if not one.may_be_asked_again:
                    assert answer.status == 504
                else:
                    assert answer.status == {"answers": 200, "dies": 502, "is down": 502}[other]
            assert [one.phase is ANSWERING for one in w.gate.judged if one.phase is ANSWERING] == [
                True for one in requests if one.said == 2
            ]

    run(main)
