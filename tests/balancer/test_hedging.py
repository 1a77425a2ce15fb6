"""A request that is late is asked of a second server: whoever answers first is relayed, whole, and the other is let go (docs/balancer.md, "Hedging")."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gtm.balancer.plane.access import AccessLines, ClientDetail
from gtm.balancer.plane.exchange import SENT
from gtm.balancer.plane.hedging import MOST_PIECES, Hedging, weighed
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.usage import Meter, bounds_of
from gtm.core.balance.hedging import LEAST, KnownWaits, kind_of
from gtm.core.balance.work import AskedWork
from tests.balancer.certificates import Authority
from tests.balancer.world import Backend, Message, Peer, World, answering, run, world
from tests.patience import PATIENCE

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Of: %b\r\n\r\n"
)
_TOKEN = b"9\r\ndata: %b\n\n\r\n"
_END = b"0\r\n\r\n"
_PING = b"8\r\n: ping\n\n\r\n"
_CHAT = b"/v1/chat/completions"
_SOON = 0.001
"""Seconds after which a test's requests are late."""


def _post(path: bytes = _CHAT, *lines: bytes, body: bytes = b"{}") -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), more, body)


def _answer(body: bytes, status: bytes = b"200 OK", *lines: bytes) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


def _stream(name: bytes) -> bytes:
    return _HEAD % name + _TOKEN % name + _END


class _Silent:
    """Takes requests, and says what a test has it say."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, Peer]] = []
        self._gone: dict[Peer, asyncio.Event] = {}

    async def __call__(self, peer: Peer) -> None:
        self._gone[peer] = asyncio.Event()
        try:
            while True:
                self.asked.append((await peer.request(), peer))
        finally:
            self._gone[peer].set()

    def says(self, *said: bytes, number: int = -1) -> None:
        self.asked[number][1].send(*said)

    async def let_go(self, number: int = -1) -> None:
        """Its other side closes the connection, or breaks it off."""
        await asyncio.wait_for(self._gone[self.asked[number][1]].wait(), PATIENCE)


def _hedges(w: World, late: float | None = _SOON, share: float = 0.5, requests: int = 1000) -> Hedging:
    """Requests are hedged; so many were there before, and of each kind it is known when one is late."""
    w.proxy.repeats = w.proxy.keeps_heads = True
    w.proxy.hedge(share)
    hedging = w.proxy.hedging
    assert hedging is not None
    for _ in range(requests):
        hedging.of("").requested(w.clock())
    _late(hedging, late)
    return hedging


def _late(hedging: Hedging, late: float | None) -> None:
    """From now on requests are late after so many seconds, whatever is learned."""
    known = type("Known", (KnownWaits,), {})()  # whose `learn` a test may replace
    known.late = late
    hedging.first_bytes.of = lambda _: known  # type: ignore[assignment,method-assign]


def _outcomes(w: World) -> dict[str, int]:
    return dict(w.proxy.stats.hedges)


@asynccontextmanager
async def _two(late: float | None = _SOON, **more: Any) -> AsyncIterator[tuple[World, _Silent, _Silent]]:
    """A world with two silent servers, in which requests are late at once."""
    first, second = _Silent(), _Silent()
    async with world(await Backend(first).start(), await Backend(second).start(), **more) as w:
        _hedges(w, late)
        yield w, first, second


async def _raced(w: World, *servers: _Silent, raw: bytes = b"") -> Peer:
    """A client whose request is at both servers."""
    client = await w.client()
    client.send(raw or _post())
    counts = [len(one.asked) for one in servers]
    await w.until(lambda: all(len(one.asked) > count for one, count in zip(servers, counts, strict=True)))
    return client


# --- who answers ---


def test_no_client_waits_for_a_server_that_stands_still() -> None:
    """One of three, to which all requests come first: each is answered by another, the server that stands still sees that nobody waits, and no slot is left taken."""

    async def main() -> None:
        still = _Silent()
        async with world(
            await Backend(still).start(),
            await Backend(answering(_stream(b"b"))).start(),
            await Backend(answering(_stream(b"c"))).start(),
        ) as w:
            _hedges(w)
            answers = await asyncio.gather(*(w.ask(_post()) for _ in range(8)))
            assert [one.body for one in answers] == [b"data: b\n\n"] * 8
            assert len(still.asked) == 8
            for number in range(8):
                await still.let_go(number)
            assert _outcomes(w) == {"won": 8}
            assert w.picker.ends.count("refused") == 8  # at the first: neither a success nor a failure
            assert w.picker.ends.count("answered") == 8
            assert not w.picker.failures
            assert not w.proxy.stats.retries
            assert not w.proxy.stats.refusals

    run(main)


def test_the_first_may_answer_after_all() -> None:
    """Then the second one is let go."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"
            await second.let_go()
            assert _outcomes(w) == {"lost": 1}

    run(main)


@pytest.mark.parametrize("whole", [_stream, lambda name: _answer(name * 100_000)])
def test_of_two_that_answer_at_once_one_is_relayed(whole: Callable[[bytes], bytes]) -> None:
    """Whole, and no byte of the other; which one it is nobody says."""

    async def main() -> None:
        async with _two() as (w, first, second):
            for _ in range(20):
                client = await _raced(w, first, second)
                first.says(whole(b"a"))
                second.says(whole(b"b"))
                answer = await client.response()
                assert len(set(answer.body) & set(b"ab")) == 1 or set(answer.body) <= set(b"data: b\n")
                assert answer.body in (b"data: a\n\n", b"data: b\n\n", b"a" * 100_000, b"b" * 100_000)
                client.close()
                await w.until(lambda: not w.picker.in_flight)
            outcomes = _outcomes(w)
            assert set(outcomes) <= {"won", "lost"}
            assert sum(outcomes.values()) == 20

    run(main)


def test_what_wins_is_whole_however_long_it_is() -> None:
    """go-resty/resty#1197, cristalhq/hedgedhttp#8: letting the loser go ended the winner's body, of which more was to come."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            body = bytes(range(256)) * 2048
            whole = _answer(body)
            second.says(whole[:70])
            await first.let_go()
            for at in range(70, len(whole), 4096):
                second.says(whole[at : at + 4096])
            assert (await client.response()).body == body
            second.says(b"")
            client.send(_post())  # the winner's connection goes on
            await w.until(lambda: len(first.asked) == 2)
            first.says(_answer(b"x"))
            assert (await client.response()).body == b"x"

    run(main)


def test_a_head_alone_does_not_win() -> None:
    """Nor do pings: of streams the first token does, whichever server's head came first."""

    async def main() -> None:
        async with _two() as (w, first, second):
            for winner, loser, outcome in ((second, first, "won"), (first, second, "lost")):
                w.proxy.stats.hedges.clear()
                client = await _raced(w, first, second)
                loser.says(_HEAD % b"x")
                winner.says(_HEAD % b"w")
                await asyncio.sleep(0)
                winner.says(_PING)
                one = w.gate.judged[-1]
                await w.until(lambda: one.unsaid is not None or one.phase is not SENT)  # noqa: B023 - it is awaited
                if winner is second:
                    assert one.phase is SENT
                winner.says(_TOKEN % b"w", _END)
                answer = await client.response()
                if winner is second:
                    assert answer.get("x-of") == b"w"
                    assert b"data: w" in answer.body
                    assert _outcomes(w) == {outcome: 1}
                client.close()
                await w.until(lambda: not w.picker.in_flight)

    run(main)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(_answer(b"no", b"500 Internal Server Error"), id="500"),
        pytest.param(_answer(b"{}", b"503 Service Unavailable", b"Retry-After: 1"), id="full"),
        pytest.param(_answer(b"{}", b"429 Too Many Requests"), id="429"),
        pytest.param(_answer(b"{}", b"404 Not Found"), id="404"),
        pytest.param(_answer(b"", b"301 Moved Permanently", b"Location: /"), id="301"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", id="101"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", id="no HTTP"),
        pytest.param(b"x" * 70_000, id="no head"),
        pytest.param(_HEAD % b"b" + b'1f\r\ndata: {"error": {"code": 500}}\n\n\r\n', id="a stream's error"),
        pytest.param(None, id="it ends"),
    ],
)
def test_a_second_that_fails_is_let_go(said: bytes | None) -> None:
    """erpc/erpc#418, envoyproxy/envoy#12983: an error that came first was the client's answer. envoyproxy/envoy#7530: what came after it crashed. The first one is waited for."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            if said is None:
                second.asked[-1][1].close()
            else:
                second.says(said, said)
            await w.until(lambda: _outcomes(w) == {"failed": 1})
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"
            assert sorted(w.picker.ends) == ["answered", "refused"]
            assert not w.picker.failures
            assert not w.proxy.stats.full

    run(main)


def test_a_second_that_begins_in_single_bytes_is_let_go() -> None:
    """Each read looks at all that came before: a head that comes byte by byte would cost its square."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            hedge = w.gate.judged[-1].hedge
            assert hedge is not None
            for _ in range(MOST_PIECES - 1):
                hedge.data_received(b"H")
            assert not _outcomes(w)
            hedge.data_received(b"H")
            await second.let_go()
            assert _outcomes(w) == {"failed": 1}
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"

    run(main)


def test_a_second_that_takes_no_connection_costs_nothing() -> None:
    """Nor is a third one asked."""

    async def main() -> None:
        first, third = _Silent(), Backend(answering(_stream(b"c")))
        gone = Backend(answering(b""))
        url = await gone.start()
        await gone.stop()
        async with world(await Backend(first).start(), url, await third.start()) as w:
            _hedges(w)
            client = await w.client()
            client.send(_post())
            await w.until(lambda: _outcomes(w) == {"failed": 1})
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"
            assert not third.connections
            assert not w.picker.failures

    run(main)


# --- a first server that fails while a second one has the request ---


@pytest.mark.parametrize(
    ("said", "end"),
    [
        pytest.param(None, "failed", id="it ends"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "failed", id="no HTTP"),
        pytest.param(_answer(b"no", b"500 Internal Server Error"), "failed", id="500"),
        pytest.param(_answer(b'{"code":"backend_failed"}', b"502 Bad Gateway"), "failed", id="502"),
        pytest.param(_answer(b"{}", b"503 Service Unavailable", b"Retry-After: 1"), "full", id="full"),
        pytest.param(_answer(b"{}", b"429 Too Many Requests"), "refused", id="429"),
    ],
)
@pytest.mark.parametrize("heads", [False, True])
def test_where_the_first_fails_the_second_goes_on(said: bytes | None, end: str, *, heads: bool) -> None:
    """GRFC A6: an attempt that fails is not the call's end while another is on its way. Whether the second one's head is there already, or nothing of it."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            if heads:
                second.says(_HEAD % b"b")
                await w.until(lambda: any(one._said for one in w.proxy.hedging.racing))  # type: ignore[union-attr] # noqa: SLF001
            if said is None:
                first.asked[-1][1].close()
            else:
                first.says(said)
            await w.until(lambda: _outcomes(w) == {"took_over": 1})
            assert w.picker.ends == [end]
            second.says(_TOKEN % b"b" + _END if heads else _stream(b"b"))
            answer = await client.response()
            assert answer.status == 200
            assert answer.body == b"data: b\n\n"
            assert not w.proxy.stats.retries

    run(main)


def test_a_stream_that_begins_with_an_error_is_a_failure() -> None:
    """The head came alone, so that the client has nothing of it."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(first.asked))
            first.says(_HEAD % b"a")
            await w.until(lambda: bool(second.asked) and w.gate.judged[-1].unsaid is not None)
            first.says(b'1f\r\ndata: {"error": {"code": 500}}\n\n\r\n')
            await w.until(lambda: _outcomes(w) == {"took_over": 1})
            second.says(_stream(b"b"))
            answer = await client.response()
            assert (answer.get("x-of"), answer.body) == (b"b", b"data: b\n\n")
            assert w.picker.ends == ["failed", "answered"]
            assert w.proxy.stats.failures == {w.picker.routes()[0].url: 1}

    run(main)


def test_where_the_first_is_judged_down_the_second_goes_on() -> None:
    """At once, and it is asked of no third one; where the second one is judged down, too, it is refused."""

    async def main() -> None:
        first, second, third = _Silent(), _Silent(), Backend(answering(_stream(b"c")))
        async with world(
            await Backend(first).start(), await Backend(second).start(), await third.start()
        ) as w:
            _hedges(w)
            client = await _raced(w, first, second)
            other = await _raced(w, first, second)
            down, also = w.picker.routes()[:2]
            w.picker.failing[down.url] = w.clock()
            w.gate.judged[0].bereft()
            assert [one.phase for one in w.gate.judged] == [SENT, SENT]
            second.says(_stream(b"b"), number=0)
            assert (await client.response()).body == b"data: b\n\n"
            w.picker.failing[also.url] = w.clock()
            w.gate.judged[1].bereft()
            answer = await other.response()
            assert answer.status == 504
            assert b"it was asked of another once already" in answer.body
            assert not third.connections
            assert _outcomes(w) == {"took_over": 1, "failed": 1}

    run(main)


def test_what_two_have_failed_is_asked_of_no_third() -> None:
    """The second one is a request's last, whichever way it came there."""

    async def main() -> None:
        first, second, third = _Silent(), _Silent(), Backend(answering(_stream(b"c")))
        async with world(
            await Backend(first).start(), await Backend(second).start(), await third.start()
        ) as w:
            _hedges(w)
            client = await _raced(w, first, second)
            first.asked[-1][1].abort()
            await w.until(lambda: _outcomes(w) == {"took_over": 1})
            second.asked[-1][1].abort()
            answer = await client.response()
            assert answer.status == 502
            assert b'"backends_failed"' in answer.body
            assert not third.connections
            assert w.picker.ends == ["failed", "failed"]

    run(main)


# --- ends ---


def test_a_client_that_goes_away_ends_both() -> None:
    """authzed/spicedb#235: those that nobody waited for stayed for ever. ExpediaGroup/styx#333: so did a connection that was being made."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            assert w.picker.in_flight == 2
            client.abort()
            await first.let_go()
            await second.let_go()
            await w.until(lambda: not w.picker.in_flight)
            assert _outcomes(w) == {"ended": 1}
            assert sorted(w.picker.ends) == ["cancelled", "refused"]

    run(main)


def test_a_client_that_goes_away_amid_a_connection() -> None:
    """To a second server that takes it, and says nothing by which TLS could begin."""

    async def main() -> None:
        first, dumb = _Silent(), _Silent()
        url = (await Backend(dumb).start()).replace("http:", "https:")
        async with world(await Backend(first).start(), url) as w:
            hedging = _hedges(w)
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(hedging.racing))
            client.abort()
            await w.until(lambda: _outcomes(w) == {"ended": 1})
            await w.until(lambda: not w.picker.in_flight)

    run(main)


def test_a_time_that_runs_out_ends_both() -> None:
    """envoyproxy/envoy#7192: the time of all ran out after one head had come, and what followed crashed."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second, raw=_post(_CHAT, b"gtm-timeout: 9;whole=30"))
            second.says(_HEAD % b"b")
            w.pass_time(31)
            answer = await client.response()
            assert answer.status == 504
            await first.let_go()
            await second.let_go()
            assert _outcomes(w) == {"ended": 1}
            assert sorted(w.picker.ends) == ["refused", "refused"]

    run(main)


def test_a_balancer_that_ends_ends_both() -> None:
    """Nothing is left behind."""

    async def main() -> None:
        async with _two() as (w, first, second):
            await _raced(w, first, second)
            w.proxy.close()
            await first.let_go()
            await second.let_go()

    run(main)


# --- which requests, and when ---


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(_post(b"/v1/responses"), id="its server keeps what it makes"),
        pytest.param(_post(b"/v1/responses", b"Idempotency-Key: 1"), id="with a key, too"),
        pytest.param(_post(b"/v1/files"), id="a file"),
        pytest.param(
            _post(b"/v1/responses", body=b'{"store": false, "previous_response_id": "r"}'), id="goes on"
        ),
        pytest.param(_post(b"/v1/unheard-of"), id="nobody knows what it does"),
        pytest.param(b"GET /v1/unheard-of HTTP/1.1\r\nHost: a\r\n\r\n", id="no model's work"),
        pytest.param(_post(body=b"x" * 70_000), id="longer than what is kept"),
        pytest.param(
            b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n%b" % (_CHAT, b"x" * 1_100_000),
            id="not all of it is there",
        ),
    ],
)
def test_what_may_not_be_done_twice_is_asked_once(raw: bytes) -> None:
    """Nor what is not kept."""

    async def main() -> None:
        async with _two() as (w, _, second):
            client = await w.client()
            client.send(raw)
            await w.until(lambda: bool(w.gate.judged) and w.gate.judged[-1].phase is SENT)
            plain = await _raced(w, second)  # by which time the first would have been hedged
            assert len(second.asked) == 1
            assert w.gate.judged[0].hedge is None
            plain.abort()
            client.abort()

    run(main)


def test_what_still_comes_is_asked_once() -> None:
    """However much of a body is kept for another try."""

    async def main() -> None:
        async with _two() as (w, _, second):
            w.proxy.replay = 1 << 24
            client = await w.client()
            client.send(
                b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n%b"
                % (_CHAT, b"x" * 1_100_000)
            )
            await w.until(lambda: bool(w.gate.judged) and w.gate.judged[-1].phase is SENT)
            assert w.gate.judged[-1].keeps_body
            assert w.gate.judged[-1].hedge is None
            assert not second.asked
            client.abort()

    run(main)


def test_nothing_is_done_twice_where_the_file_says_so() -> None:
    """`repeats: false`."""

    async def main() -> None:
        async with _two() as (w, first, _):
            w.proxy.repeats = False
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(first.asked))
            assert w.gate.judged[-1].hedge is None
            client.abort()

    run(main)


def test_it_is_learned_when_one_is_late() -> None:
    """From answers of 200 to 299, by how long each client waited. Before enough are known nothing is hedged, nor what was answered sooner."""
    wait = 0.25  # seconds; all of them together are half of the time in which requests count

    async def main() -> None:
        first, second = _Silent(), _Silent()
        async with world(await Backend(first).start(), await Backend(second).start()) as w:
            w.proxy.repeats = True
            w.proxy.hedge(0.5)
            hedging = w.proxy.hedging
            assert hedging is not None
            client = await w.client()

            async def once(answer: bytes) -> None:
                count = len(first.asked)
                client.send(_post())
                await w.until(lambda: len(first.asked) > count)
                w.clock.ahead += wait
                first.says(answer)
                await client.response()

            kind = kind_of("", _CHAT, AskedWork(), streams=False)
            for _ in range(3):
                await once(_answer(b"{}", b"404 Not Found"))
                await once(_answer(b"{}", b"500 Internal Server Error"))
            known = hedging.first_bytes.of(kind)
            assert not known.count
            while known.late is None:
                await once(_answer(b"{}"))
            assert len(first.asked) == 6 + LEAST
            assert known.late >= wait
            assert not second.asked
            assert hedging.of("").requests == len(first.asked)

    run(main)


def test_one_that_was_hedged_counts_as_late() -> None:
    """Whoever answers, and whenever. Else what is learned would lack the slowest, and more and more would be late; or a few that stand still would have all others wait for as long."""

    async def main() -> None:
        async with _two() as (w, first, second):
            hedging = w.proxy.hedging
            assert hedging is not None
            learned: list[float] = []
            hedging.first_bytes.of(kind_of("", b"", AskedWork(), streams=False)).learn = learned.append  # type: ignore[assignment,method-assign]
            for server in (second, first):
                client = await _raced(w, first, second)
                w.clock.ahead += 7.0
                server.says(_stream(b"x"))
                await client.response()
                await w.until(lambda: not w.picker.in_flight)
            w.admission.waiting.append(None)  # type: ignore[arg-type]
            client = await w.client()
            client.send(_post())
            await w.until(lambda: len(first.asked) == 3)
            w.clock.ahead += 7.0
            first.says(_stream(b"x"))
            await client.response()
            w.admission.waiting.clear()
            assert learned[:2] == [_SOON, _SOON]
            assert 7.0 <= learned[2] < 14.0  # it was not hedged

    run(main)


def test_an_answer_that_waits_to_be_read_is_there() -> None:
    """A process that stood still itself finds all of its requests late, with their answers in the kernel."""

    async def main() -> None:
        async with _two(late=3600.0) as (w, first, second):
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(first.asked))
            exchange = w.gate.judged[-1]
            assert exchange.upstream is not None
            assert exchange.hedge is not None
            first.says(_stream(b"a"))
            while exchange.upstream.silent:
                pass
            exchange.hedge._late()  # noqa: SLF001 - as its timer would
            assert (await client.response()).body == b"data: a\n\n"
            assert not second.asked
            assert not w.proxy.stats.hedges

    run(main)


# --- bounds ---


def test_none_while_somebody_waits() -> None:
    """It is looked at again, and counts once; as soon as nobody waits it is hedged."""

    async def main() -> None:
        async with _two() as (w, first, second):
            w.admission.waiting.append(None)  # type: ignore[arg-type]
            client = await w.client()
            client.send(_post())
            await w.until(lambda: _outcomes(w) == {"queue": 1})
            hedge = w.gate.judged[-1].hedge
            assert hedge is not None
            await w.until(lambda: hedge._looks_again > 4 * _SOON)  # noqa: SLF001 - looked at several times
            assert not second.asked
            w.admission.waiting.clear()
            await w.until(lambda: bool(second.asked))
            second.says(_stream(b"b"))
            assert (await client.response()).body == b"data: b\n\n"
            assert _outcomes(w) == {"queue": 1, "won": 1}
            assert len(first.asked) == 1

    run(main)


def test_no_more_than_a_share_of_the_requests() -> None:
    """grafana/loki#4826, Azure/azure-sdk-for-rust#4914: where all are slow, all were hedged. grpc/grpc-java#7222, failsafe-go/failsafe-go#141: what was throttled hung, or was ended. It goes on."""

    async def main() -> None:
        first, second = _Silent(), _Silent()
        async with world(await Backend(first).start(), await Backend(second).start()) as w:
            hedging = _hedges(w, share=0.05, requests=60)
            clients = []
            for _ in range(8):
                client = await w.client()
                client.send(_post())
                clients.append(client)
            await w.until(lambda: _outcomes(w) == {"over_percent": 5} and len(second.asked) == 3)
            assert (hedging.of("").requests, hedging.of("").hedges) == (68, 3)
            for number in range(8):
                first.says(_stream(b"a"), number=number)
            for client in clients:
                assert (await client.response()).body == b"data: a\n\n"
            assert _outcomes(w) == {"over_percent": 5, "lost": 3}

    run(main)


def test_none_where_no_other_has_room() -> None:
    """Nor is one ever queued."""

    async def main() -> None:
        async with _two() as (w, first, second):
            w.picker.room = False
            client = await w.client()
            client.send(_post())
            await w.until(lambda: _outcomes(w) == {"no_room": 1})
            assert not second.asked
            w.picker.room = True
            await w.until(lambda: bool(second.asked))
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"

    run(main)


@pytest.mark.parametrize("waits", [False, True])
def test_hedges_give_way(*, waits: bool) -> None:
    """As soon as a request finds no free slot, or has to wait, all second servers are let go; and the first ones go on."""

    async def main() -> None:
        async with _two() as (w, first, second):
            hedged = [await _raced(w, first, second) for _ in range(2)]
            w.picker.room, w.admission.holds = False, waits
            other = await w.client()
            other.send(_post())
            await w.until(lambda: len(w.gate.judged) == 3)
            for number in range(2):
                await second.let_go(number)
            assert _outcomes(w)["gave_way"] == 2
            assert not w.proxy.hedging.racing  # type: ignore[union-attr]
            w.admission.holds = False
            if waits:
                w.admission.waiting.pop().admitted()
            await w.until(lambda: len(first.asked) == 3)
            for number, client in enumerate([*hedged, other]):
                first.says(_stream(b"a"), number=number)
                assert (await client.response()).body == b"data: a\n\n"

    run(main)


def test_one_second_server_a_request() -> None:
    """Whatever became of it."""

    async def main() -> None:
        first, second, third = _Silent(), _Silent(), _Silent()
        urls = [await Backend(one).start() for one in (first, second, third)]
        async with world(*urls) as w:
            hedging = _hedges(w)
            client = await _raced(w, first, second)
            second.says(_answer(b"no", b"500 Internal Server Error"))
            await w.until(lambda: _outcomes(w) == {"failed": 1})
            await _raced(w, first, second)  # another one: time enough for the first to be asked of a third
            assert not third.asked
            assert hedging.of("").hedges == 2
            first.says(_stream(b"a"), number=0)
            assert (await client.response()).body == b"data: a\n\n"

    run(main)


def test_what_was_asked_of_another_already_is_not_hedged() -> None:
    """Nor what a server had that broke off."""

    async def main() -> None:
        first, second, third = _Silent(), _Silent(), _Silent()
        urls = [await Backend(one).start() for one in (first, second, third)]
        async with world(*urls) as w:
            hedging = _hedges(w, late=3600.0)
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(first.asked))
            _late(hedging, _SOON)
            first.asked[-1][1].abort()
            await w.until(lambda: bool(second.asked))
            other = await _raced(w, first, second)
            assert not third.asked
            assert hedging.of("").requests == 1002  # each once
            second.says(_stream(b"b"), number=0)
            assert (await client.response()).body == b"data: b\n\n"
            other.abort()

    run(main)


def test_the_law_binds_a_hedge() -> None:
    """What the law no longer lets go to a server goes to no second one; the first one, which has all of it, answers."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await w.client()
            client.send(_post())
            await w.until(lambda: bool(first.asked))
            w.gate.renewed = Refusal(451, "refused_residency", "no more")
            await w.until(lambda: _outcomes(w) == {"failed": 1})
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"
            assert not second.asked

    run(main)


def test_a_picker_that_fails_ends_nobody() -> None:
    """The first server goes on."""

    async def main() -> None:
        async with _two() as (w, first, second):

            def raises(*_: object) -> None:
                raise ArithmeticError

            w.picker.second = raises  # type: ignore[assignment,method-assign]
            client = await w.client()
            client.send(_post())
            await w.until(lambda: _outcomes(w) == {"no_room": 1})
            first.says(_stream(b"a"))
            assert (await client.response()).body == b"data: a\n\n"
            assert not second.asked

    run(main)


# --- what it counts, and what is shown ---


def test_a_tenant_is_charged_once() -> None:
    """bircex/llmr#48, ding113/claude-code-hub#1254: the loser's tokens were counted to somebody, or to nobody. By the answer that was relayed, whatever the other said."""

    async def main() -> None:
        async with _two() as (w, first, second):
            client = await _raced(w, first, second)
            exchange = w.gate.judged[-1]
            exchange.meter = meter = Meter(bounds_of(_CHAT, b"{}", None), makes_text=True)
            first.says(_HEAD % b"a")
            await w.until(lambda: exchange.unsaid is not None)
            body = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
            second.says(_answer(body, b"200 OK", b"Content-Type: application/json"))
            assert (await client.response()).body == body
            used = meter.used(len(body), events=False)
            assert (used.inputs, used.outputs) == (3, 4)
            assert w.ends[exchange] == 1

    run(main)


def test_the_access_log_says_it() -> None:
    """Of those that were hedged, and of no others."""
    lines: list[dict[str, Any]] = []

    async def main() -> None:
        log = AccessLines(
            lambda line: lines.append(json.loads(line)), clients=ClientDetail.NONE, find=lambda *_: None
        )
        async with _two(log=log) as (w, first, second):
            for server in (second, first):
                client = await _raced(w, first, second)
                server.says(_stream(b"x"))
                await client.response()
            w.proxy.hedge(None)
            client = await _raced(w, first)
            first.says(_stream(b"x"))
            await client.response()
            urls = [route.url for route in w.picker.routes()]
        assert [one.get("hedged") for one in lines] == ["won", "lost", None]
        assert [one["backend"] for one in lines] == [urls[1], urls[0], urls[0]]

    run(main)


def test_over_tls(tmp_path: Path) -> None:
    """The second connection is handed over beneath and above TLS as any other: a long answer comes whole, and the loser sees that nobody waits."""

    async def main() -> None:
        authority = Authority(tmp_path, "inside")
        certificate = authority.issue("models", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.chain, certificate.key)
        first, second = _Silent(), _Silent()
        urls = [await Backend(one).start(ssl=context) for one in (first, second)]
        trusted = ssl.create_default_context(cafile=str(authority.file))
        async with world(*urls, tls=lambda: trusted) as w:
            _hedges(w)
            body = b"b" * 1_000_000
            for _ in range(2):
                client = await _raced(w, first, second)
                second.says(_answer(body))
                await first.let_go()
                assert (await client.response()).body == body
            client = await _raced(w, first, second)
            second.asked[-1][1].abort()
            await w.until(lambda: _outcomes(w) == {"won": 2, "failed": 1})
            first.says(_answer(body))
            assert (await client.response()).body == body

    run(main)


@pytest.mark.parametrize(
    ("said", "well"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", True),
        (b"HTTP/1.1 299 \r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 300 OK\r\n\r\n", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 No\r\n\r\n", False),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", False),
        (b"HTTP/1.1 099 x\r\n\r\n", False),
        (b"HTTP/2 200\r\n\r\n", False),
        (_HEAD % b"a", None),
        (_HEAD % b"a" + _PING, None),
        (_HEAD % b"a" + _PING + _TOKEN % b"1", True),
        (_HEAD % b"a" + _TOKEN % b"1", True),
        (_HEAD % b"a" + b'1f\r\ndata: {"error": {"code": 400}}\n\n\r\n', False),
    ],
)
def test_what_begins_an_answer(said: bytes, well: bool | None) -> None:
    """And whatever comes first of it decides nothing too soon; of pings nothing is kept, nor of interim answers."""
    found, counts = weighed(said)
    assert found is well
    assert said.endswith(counts) or counts == _HEAD % b"a"
    if well and b"event-stream" not in said:
        assert all(weighed(said[:at])[0] is None for at in range(len(said)))
