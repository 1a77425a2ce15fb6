"""How long silence may last, by the rules of docs/balancer.md ("Timeouts"): a small model of them, with a clock that is set.

From vllm-project/agentic-api#220, Blaizzy/mlx-vlm#1068, github/copilot-cli#4286, BerriAI/litellm#34819, BlockRunAI/Franklin#74 (late first tokens are cut);
dstackai/dstack#4239 (a hard-wired 300 s between two reads cuts streams whose head came at once); BerriAI/litellm#9551 (long answers that are not streamed get 504);
azrtydxb/Fastllm-proxy#19, vllm-project/vllm#39863, jundot/omlx#1883 (an engine is dead while `/health` and `/v1/models` say 200: 85 minutes in rotation).
"""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from gtm.balancer.config import checked
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.plane.backend.backends import KEEPALIVE
from gtm.balancer.plane.backend.upstream import KEEPS_ALIVE, keeps_alive
from gtm.balancer.plane.contracts import Limits, SentRequest
from gtm.balancer.plane.timeouts import TimeoutRules, Timeouts, wish
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.backends import Condition
from gtm.core.balance.choosing.values import ChoosingSettings as Choosing
from gtm.core.balance.choosing.values import Pick
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendState, Check
from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.problems import PolicyError
from tests.balancer.world import Backend, Peer, World, answering, ended_exchange, run, world

_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TOKEN = b"9\r\ndata: 1\n\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_HOUR = 3600.0


def _chat(*lines: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n%b\r\n{}" % (path, more)


class _Server:
    """Says what a test has it say: `heads` are said at once, and all else when a test speaks by its connections."""

    def __init__(self, at_once: bytes = b"") -> None:
        self.at_once = at_once
        self.asked: list[Peer] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(self.at_once)
            self.asked.append(peer)


async def _asks(w: World, server: _Server, request: bytes) -> tuple[Peer, Peer]:
    """A request that is at the server, and heard of what that says at once."""
    number, client = len(server.asked), await w.client()
    client.send(request)
    await w.until(lambda: len(server.asked) > number)
    if server.at_once:
        await client.reader.readuntil(b"\r\n\r\n")
    return client, server.asked[-1]


def test_what_shows_that_an_engine_works() -> None:
    """What a model has made: no head of a stream, which servers send before their engine has done anything, no refusal, and no count of tokens."""

    async def main() -> None:
        server = _Server()
        async with world(await Backend(server).start()) as w:
            (route,) = w.picker.routes()
            for path, said in (
                (b"/tokenize", _OK),
                (b"/v1/chat/completions", _OK.replace(b"200 OK", b"422 No")),
            ):
                client, peer = await _asks(w, server, _chat(path=path))
                peer.send(said)
                await client.response()
                assert route.heard > 0 > route.work.heard
            client, peer = await _asks(w, server, _chat())
            peer.send(_EVENTS)
            await client.reader.readuntil(b"\r\n\r\n")
            assert route.work.heard < 0
            peer.send(_TOKEN)
            await client.reader.readuntil(_TOKEN[-4:])
            assert route.work.heard >= route.heard > 0
            w.clock.ahead += 5
            before = route.work.heard
            client, peer = await _asks(w, server, _chat(path=b"/v1/embeddings"))
            peer.send(_OK)
            await client.response()
            assert route.work.heard >= before + 5

    run(main)


# --- the model ---


@dataclass
class _Case:
    """What is known of a request at a server; seconds."""

    times: Timeouts
    head: bool
    """The head of its answer has come, and nothing else."""
    failing: float | None
    """For so long a check of the server has failed; None: all pass."""
    silent: float
    """For so long nothing has come of its answer."""
    other: bool
    """Another request there has just got a token."""

    @property
    def ends(self) -> str:
        """What docs/balancer.md says becomes of it: nothing, or why it ends and whether that counts against the server."""
        bound = self.times.between if self.head else self.times.first_byte
        if bound is not None and self.silent > bound:
            return "not its fault" if self.other else "fault"
        if self.failing is not None and min(self.silent, self.failing) > self.times.failing:
            return "fault"
        return ""


def _cases(draw: random.Random) -> _Case:
    times = Timeouts(
        first_byte=draw.choice((None, None, 30.0, 300.0)),
        between=draw.choice((None, 30.0, 600.0)),
        failing=draw.choice((10.0, 60.0)),
    )
    return _Case(
        times,
        head=draw.random() < 0.5,
        failing=draw.choice((None, None, 5.0, 20.0, 70.0, _HOUR)),
        silent=draw.choice((5.0, 20.0, 75.0, 250.0, 620.0, 5 * _HOUR)),
        other=draw.random() < 0.3,
    )


def test_silence_ends_a_request_as_the_model_says() -> None:
    """Drawn worlds: late tokens of a server that passes its checks come; what is set is a bound; who fails its checks is given up."""
    draw = random.Random(11)
    seen: set[str] = set()

    async def one(case: _Case) -> None:
        server = _Server(_EVENTS if case.head else b"")
        rules = TimeoutRules(case.times, case.times)
        async with world(await Backend(server).start(), timeouts=rules) as w:
            client, peer = await _asks(w, server, _chat())
            url = w.picker.routes()[0].url
            if case.failing is not None:
                w.picker.failing[url] = w.clock() + case.silent - case.failing
            w.clock.ahead += case.silent - 0.5
            if case.other:
                other, its = await _asks(w, server, _chat())
                its.send(b"" if case.head else _EVENTS)
                its.send(_TOKEN)
                await other.reader.readuntil(_TOKEN[-4:])
            w.pass_time(0.6)
            ends = case.ends
            seen.add(ends)
            if not ends:
                assert not w.picker.ends, case
                peer.send(b"" if case.head else _EVENTS, _TOKEN + b"0\r\n\r\n")
                await client.reader.readuntil(_TOKEN + b"0\r\n\r\n")
                await w.until(lambda: w.picker.ends == ["answered"])
                return
            assert w.picker.ends == ["failed" if ends == "fault" else "refused"], case
            said = await client.end() if case.head else (await client.response()).body
            assert b"backend_" in said, case

    for _ in range(60):
        run(lambda: one(_cases(draw)))
    assert seen == {"", "fault", "not its fault"}


def test_what_is_not_set() -> None:
    """On inference paths no time runs before the first byte; on others 600 s. A stream may be silent for 600 s; a backend has 5 s to take a connection."""
    head = _Server(_EVENTS)
    slow = _Server()

    async def main() -> None:
        async with world(await Backend(slow).start()) as w:
            client, peer = await _asks(w, slow, _chat())
            other, _ = await _asks(w, slow, _chat(path=b"/v1/anything"))
            w.pass_time(599)
            assert not w.picker.ends
            w.pass_time(2)
            assert (await other.response()).status == 504
            w.pass_time(5 * _HOUR)
            peer.send(_OK)
            assert (await client.response()).body == b"ok"
        async with world(await Backend(head).start()) as w:
            client, peer = await _asks(w, head, _chat())
            w.pass_time(75)
            peer.send(_TOKEN)
            await client.reader.readuntil(_TOKEN)
            w.pass_time(599)
            assert not w.picker.ends
            w.pass_time(2)
            assert b"sent nothing for 600 s" in await client.end()
            (exchange,) = w.ends
            assert exchange.times.connect == 5

    run(main)


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        ([], 100.0),
        ([b"gtm-timeout: 300;whole=40"], 40.0),
        ([b"gtm-timeout: 300; whole=400"], 100.0),
        ([b"gtm-timeout: 300"], 100.0),
    ],
)
def test_the_whole_time(lines: list[bytes], whole: float) -> None:
    """From its arrival to the end of its answer: in the queue, at a backend, amid tokens; nobody's fault, and a client may be less patient, not more."""

    async def main() -> None:
        server = _Server()
        rules = TimeoutRules(Timeouts(whole=100.0))
        async with world(await Backend(server).start(), timeouts=rules) as w:
            client, _ = await _asks(w, server, _chat(*lines))
            streams, peer = await _asks(w, server, _chat(*lines))
            peer.send(_EVENTS + _TOKEN)
            await streams.reader.readuntil(_TOKEN)
            w.admission.holds = True
            waits = await w.client()
            waits.send(_chat(*lines))
            await w.until(lambda: len(w.admission.waiting) == 1)
            w.pass_time(whole - 5)
            assert not w.picker.ends
            peer.send(_TOKEN)
            await streams.reader.readuntil(_TOKEN)
            w.pass_time(5)
            for one in (client, waits):
                answer = await one.response()
                assert answer.status == 504
                assert b'"code":"deadline"' in answer.body
            assert b"ran out" in await streams.end()
            assert w.picker.ends == ["refused"] * 2

    run(main)


_ALIVE = (
    b": ping\n\n",
    b":\n\n",
    b": OPENROUTER PROCESSING\r\n\r\n",
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n',
)
"""What fronts send while nothing comes of an engine (theopenco/llmgateway#1541, modelcontextprotocol/go-sdk#1232; Anthropic's `ping`)."""
_TOKENS = (
    b"data: 1\n\n",
    b": ping\n\ndata: 1\n\n",
    b"event: ping\ndata: 1\n\nevent: x\ndata: 2\n\n",
    b"event: pinged\ndata: 1\n\n",
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_which_pieces_say_that_a_connection_is_alive_and_no_more() -> None:
    """In chunks or not, one or several of them: and nothing with a token in it."""
    for said in (*_ALIVE, _ALIVE[0] + _ALIVE[3]):
        for data in (said, _chunk(said), _chunk(said) * 2):
            assert len(data) <= KEEPS_ALIVE
            assert keeps_alive(data), data
    for said in _TOKENS:
        for data in (said, _chunk(said), _chunk(_ALIVE[0]) + _chunk(said), _chunk(said) + _chunk(_ALIVE[0])):
            assert not keeps_alive(data), data
    assert not keeps_alive(b"0\r\n\r\n")
    assert not keeps_alive(b"")


@pytest.mark.parametrize("alive", _ALIVE)
def test_what_keeps_a_connection_alive_is_no_progress_of_a_stream(alive: bytes) -> None:
    """The front of a dead engine says it for as long as one listens: the client gets it, and the stream has its time all the same."""

    async def main() -> None:
        server = _Server(_EVENTS)
        rules = TimeoutRules(Timeouts(between=60.0), Timeouts())
        async with world(await Backend(server).start(), timeouts=rules) as w:
            client, peer = await _asks(w, server, _chat())
            live, its = await _asks(w, server, _chat())
            for _ in range(5):
                for one, said in ((peer, alive), (its, _TOKENS[0])):
                    one.send(_chunk(said))
                assert await client.reader.readexactly(len(_chunk(alive))) == _chunk(alive)
                await live.reader.readexactly(len(_chunk(_TOKENS[0])))
                assert not w.picker.ends
                w.pass_time(11)
            w.pass_time(6)
            await w.until(lambda: bool(w.picker.ends))
            assert w.picker.ends == ["refused"]  # another's tokens came: it is no fault of the server's
            assert b"backend_" in await client.end()
            assert not live.reader.at_eof()

    run(main)


def test_what_a_client_says_of_its_patience() -> None:
    """Its field's number is for the queue, as ever; what its parameters say is a bound, if it is less than what is set; what cannot be read is refused."""
    times = Timeouts(first_byte=None, between=600.0, whole=50.0)
    assert times.within(b"2.5") == times
    assert times.within(b"2.5;first-byte=30;between=700;whole=10.5") == Timeouts(
        first_byte=30.0, between=600.0, whole=10.5
    )
    assert [wish(said) for said in (b"2.5", b"2.5;whole=3", b"-1", b"x", b"", b"nan", b"1" * 400)] == [
        *(2.5, 2.5, 0.0),
        *(None, None, None, None),
    ]

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            for said in (
                b"5;whole",
                b"5;whole=-1",
                b"5;whole=x",
                b"5;all=3",
                b"5;",
                b"5;whole=1e9",
                b"5;connect=1",
                b"5" + b";whole=1" * 4,
                *(b"soon", b"", b"nan", b"30s"),
            ):
                answer = await w.ask(_chat(b"gtm-timeout: " + said))
                assert (answer.status, b"timeout_unread" in answer.body) == (400, True), said
            for said in (b"5", b"-1", b"5;first-byte=9;between=1 ; whole=1.5"):
                assert (await w.ask(_chat(b"gtm-timeout: " + said))).status == 200

    run(main)


def test_a_server_that_says_nothing_to_anybody() -> None:
    """Each request that waits as long as its whole server is silent is told of once, and goes on; where somebody gets a token, none is."""

    async def main() -> None:
        server = _Server()
        limits = Limits()
        async with world(await Backend(server).start(), limits=limits) as w:
            url = w.picker.routes()[0].url
            first, its = await _asks(w, server, _chat())
            await _asks(w, server, _chat())
            w.pass_time(limits.silence - 10)
            await _asks(w, server, _chat())  # it has not waited as long
            for _ in range(3):
                w.pass_time(4)
            assert w.picker.silences == [url] * 2
            its.send(_OK)
            assert (await first.response()).status == 200
            w.pass_time(limits.silence - 10)  # nor has the server been silent as long
            assert w.picker.silences == [url] * 2
            w.pass_time(11)
            assert w.picker.silences == [url] * 3
            assert w.picker.ends == ["answered"]
        heard = _Server(_EVENTS)
        async with world(await Backend(heard).start(), limits=limits) as w:
            await _asks(w, heard, _chat())
            w.pass_time(limits.silence - 1)
            await _asks(w, heard, _chat())
            w.pass_time(2)
            assert not w.picker.silences

    run(main)


def test_an_engine_that_is_dead_behind_its_checks_is_found() -> None:
    """Two of its requests wait, and none got a byte for long, while its peers answer: it is ejected. One long request ejects nobody."""
    servers = [Server(f"http://10.0.0.{number}:8000") for number in range(3)]
    dead = servers[0].name
    for waits, ejected in ((1, False), (2, True)):
        health = BackendHealth(HealthSettings(), servers, 0.0)
        for one in servers:
            health.checked(one.name, Check.HEALTH, ProbeResult(ok=True, at=0.0), 0.0)
        loop = cast("asyncio.AbstractEventLoop", SimpleNamespace(time=lambda: 200.0))
        draw = random.Random(5)
        picker = PoolPicker(servers, Choosing(pick=Pick.RANDOM), health, loop=loop, draw=draw.random)
        picker.conditions({one.name: Condition(healthy=True) for one in servers})
        waiting: list[SentRequest] = []
        for _ in range(200):
            exchange = ended_exchange()
            sent = picker.pick(exchange, (), 50.0)
            assert isinstance(sent, SentRequest)
            if sent.route.url == dead and len(waiting) < waits:
                waiting.append(sent)
            else:
                sent.flight.end(exchange, "answered" if sent.route.url != dead else "cancelled")
        assert len(waiting) == waits
        for sent in waiting:
            picker.silent(sent, 50.0, 400.0)
        states = {one.name: one.state for one in health.snapshot(400.0)}
        assert (states[dead] is BackendState.EJECTED) == ejected
        for sent in waiting:  # they go on, and may end well
            sent.flight.end(exchange, "answered")


def test_since_when_a_server_fails() -> None:
    """From the verdict of the first check that fails; not while none was made, nor while it is held back though its checks pass."""
    health = BackendHealth(HealthSettings(), [Server("a")], 0.0)
    assert health.failing_since("a") is None
    assert health.failing_since("nobody") is None
    at = 0.0
    for ok in (True, False, False):
        at += 1
        health.checked("a", Check.HEALTH, ProbeResult(ok=ok, at=at), at)
    assert health.failing_since("a") == 3
    for ok in (False, True, True):
        at += 1
        health.checked("a", Check.HEALTH, ProbeResult(ok=ok, at=at), at)
    assert health.failing_since("a") is None
    for ok in (False, False, True, True):
        at += 1
        health.checked("a", Check.HEALTH, ProbeResult(ok=ok, at=at), at)
    assert health.snapshot(at)[0].state is BackendState.HELD
    assert health.failing_since("a") is None
    assert BackendHealth(HealthSettings(checks={}), [Server("a")], 0.0).failing_since("a") is None


def test_the_kernel_asks_on_silent_connections() -> None:
    """So that no NAT forgets one that is silent for minutes, and one whose other machine has died ends (docs/limits.md)."""

    async def main() -> None:
        server = _Server()
        async with world(await Backend(server).start()) as w:
            await _asks(w, server, _chat())
            (client,) = w.proxy.clients
            (exchange,) = w.admission.inside
            assert exchange.client is client
            assert exchange.upstream is not None
            connection = exchange.upstream.transport.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE

    run(main)


# --- the file ---


def _rules(**timeouts: object) -> TimeoutRules:
    document = {"backends": [{"url": "http://127.0.0.1:1"}], "timeouts": timeouts}
    return checked(document, "balancer.yaml", None).timeouts.settings()


def test_the_file_says_times_by_service_and_path() -> None:
    """The first rule that is met; what it does not say is as it would be without it, which differs by path."""
    rules = _rules(
        connect=2,
        between=90,
        rules=[
            {"service": "batch", "first_byte": None, "whole": 7200},
            {"paths": ["POST /v1/embeddings", "GET /v1/models"], "whole": 30},
            {"service": "chat", "paths": ["inference"], "between": None, "failing": 20},
        ],
    )
    usual = Timeouts(connect=2, between=90)
    other = Timeouts(connect=2, between=90, first_byte=600)
    for service, method, path, expected in (
        (None, b"POST", b"/v1/chat/completions?x", usual),
        (None, b"POST", b"/v1/chat/x", other),
        ("chat", b"POST", b"/v1/chat/completions", Timeouts(connect=2, between=None, failing=20)),
        ("chat", b"POST", b"/v1/embeddings", Timeouts(connect=2, between=90, whole=30)),
        ("chat", b"GET", b"/other", other),
        ("batch", b"POST", b"/other", Timeouts(connect=2, between=90, whole=7200)),
        ("batch", b"POST", b"/v1/embeddings", Timeouts(connect=2, between=90, whole=7200)),
    ):
        assert rules.of(service, method, path) == expected, (service, path)
    assert _rules().of(None, b"POST", b"/v1/completions") == Timeouts()
    assert _rules(first_byte=None).of(None, b"GET", b"/other") == Timeouts()


@pytest.mark.parametrize(
    ("timeouts", "words"),
    [
        ({"connect": None}, "always a bound"),
        ({"failing": None}, "always a bound"),
        ({"whole": 0}, "greater than 0"),
        ({"between": 1e9}, "less than or equal"),
        ({"rules": [{"whole": 3}]}, "needs `service` or `paths`"),
        ({"rules": [{"service": "chat"}]}, "needs a time"),
        ({"rules": [{"paths": ["nope"], "whole": 3}]}, "has an entry that is none"),
        ({"stall": 3}, "stall"),
    ],
)
def test_what_the_file_cannot_say(timeouts: dict[str, object], words: str) -> None:
    """It is refused, with the reason."""
    with pytest.raises(PolicyError) as error:
        _rules(**timeouts)
    assert words in str(error.value)
