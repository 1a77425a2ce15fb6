"""What a request is taken to have used of its tenant's tokens: what its answer says, or its events; written from docs/admission.md."""

from __future__ import annotations

import asyncio
import json
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.facts import read_facts
from gtm.balancer.wire.heads import read_head
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.usage import PART, TEMPLATE, Bounds, Meter, bounds_of
from gtm.core.balance import admission as core
from gtm.core.balance.admission import Arrival, Settings, TenantLimits, Ticket
from tests.balancer.world import Backend, Peer, answering, run, world
from tests.effort import examples
from tests.memory import held

_BODY = json.dumps(
    {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 400}]}
).encode()
_ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_HOSTILE = 'so: "usage": {"completion_tokens": 0, "prompt_tokens": 0}\ndata: {"completion_tokens": 9}'
"""What a model may be asked to write."""


def _whole(outputs: int | None, text: str = "hi") -> bytes:
    found: dict[str, object] = {"id": "1", "choices": [{"message": {"content": text}}]}
    if outputs is not None:
        found["usage"] = {"prompt_tokens": 7, "completion_tokens": outputs, "total_tokens": 7 + outputs}
    body = json.dumps(found).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def _events(texts: list[str], outputs: int | None) -> list[bytes]:
    found = [
        b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"content": one}}]}).encode() for one in texts
    ]
    if outputs is not None:
        usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": outputs}}
        found.append(b"data: %b\n\n" % json.dumps(usage).encode())
    return [*found, b"data: [DONE]\n\n"]


def _stream(events: list[bytes]) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n"
        % chunks
    )


_TEXTS = st.lists(st.sampled_from(["a", "data:", "\n", _HOSTILE, "é"]), max_size=8)


@given(_TEXTS, st.integers(0, 99_999), st.lists(st.integers(1, 200), max_size=20))
def test_what_an_answer_says_counts(texts: list[str], outputs: int, cuts: list[int]) -> None:
    """In whatever pieces it comes, and whatever the model writes: the last words of the server count."""
    for answer in (_whole(outputs, "".join(texts)), b"".join(_events(texts, outputs))):
        meter, at = Meter(), 0
        for cut in [*cuts, len(answer)]:
            if answer[at : at + cut]:
                meter.piece(answer[at : at + cut])
            at += cut
        assert meter.used(10**6, events=answer.startswith(b"data")) == (7, outputs, 0, 0)


@given(_TEXTS, st.integers(1, 60), st.booleans())
def test_else_its_events_count(texts: list[str], cut: int, chunked: bool) -> None:
    """One token each, whatever is written in them and wherever they are cut; of an answer that is no stream nothing is known."""
    meter = Meter()
    events = _events(texts, None)
    raw = b"".join(b"%x\r\n%b\r\n" % (len(one), one) if chunked else one for one in events)
    for at in range(0, len(raw), cut):
        meter.piece(raw[at : at + cut])
    assert meter.used(len(raw), events=True) == (None, len(texts) + 1, 0, 0)
    assert meter.used(len(raw), events=False) == (None, None, 0, 0)


def test_the_last_count_is_all() -> None:
    """Some engines tell with each event what was used so far."""
    meter = Meter()
    for used in range(1, 4):
        meter.piece(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n' % used)
    assert meter.used(100, events=True) == (7, 3, 0, 0)


@given(st.lists(st.binary(max_size=6000), max_size=6))
def test_whatever_comes(pieces: list[bytes]) -> None:
    """Bytes of no form are no tokens."""
    meter = Meter()
    for piece in pieces:
        meter.piece(piece)
    meter.used(10, events=True)


def test_what_a_meter_keeps_is_bounded() -> None:
    """However long an answer is."""
    meter = Meter()

    def work() -> None:
        for size in (6000, 1000, 10):
            for number in range(1000):
                meter.piece(bytes([number % 256]) * size)

    assert held(work) < 10_000


@pytest.mark.parametrize(
    ("answer", "used"),
    [
        (_whole(5), 5),
        (_whole(99), 99),
        (_whole(300), 100),  # it allows a hundred
        (_whole(999_999_999), 100),
        (_stream(_events(["a"], 300)), 100),
        (_whole(None), 100),
        (_stream(_events(["a"] * 19, None)), 20),
        (_stream(_events(["a"] * 19, 17)), 17),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", 0),
    ],
)
def test_a_budget_is_charged_by_what_was_used(answer: bytes, used: int) -> None:
    """Over the wire: a minute's budget of 1,000 has as much left as the answer did not use."""

    async def main() -> None:
        async with world(await Backend(answering(answer)).start()) as w:
            limits = Settings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
            admission = QueueAdmission(limits, loop=asyncio.get_running_loop(), cost=lambda _: 1.0)
            w.proxy.admission = admission
            first = admission.admission.offer(Arrival(), 0.0)
            assert isinstance(first, Ticket)
            bucket = first.account.outputs
            assert bucket is not None
            admission.admission.withdraw(first, 0.0)
            bucket.rate = 0.0  # so that time brings nothing
            client = await w.client()
            client.send(_ASK)
            assert (await client.response()).status in (200, 500)
            await w.until(lambda: not w.picker.in_flight)
            assert bucket.level(0.0) == 1000.0 - used

    run(main)


def _asked(path: bytes = b"/v1/chat/completions", **more: object) -> Bounds:
    """The bounds of a request, by its body."""
    body = json.dumps({"model": "m", **more}).encode()
    head = read_head(
        b"POST",
        path,
        "1.1",
        [(b"host", b"a"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
        keep_alive=True,
    )
    return bounds_of(path, body, read_facts(head, body).most_output)


def test_what_can_be_used_goes_by_what_was_asked() -> None:
    """Each way to ask for more, or to name what has no bytes, raises the bound; nothing else does."""
    chat = [{"role": "user", "content": "x" * 400}]
    plain = _asked(messages=chat)
    assert 400 + TEMPLATE < plain.inputs < 500 + TEMPLATE
    assert (plain.outputs, plain.hidden) == (inf, False)
    assert _asked(messages=chat, max_tokens=10).outputs == 10
    assert _asked(messages=chat, max_tokens=10, max_completion_tokens=30).outputs == 30
    assert _asked(messages=chat, max_tokens=10, n=4).outputs == 40
    assert _asked(prompt="x", max_tokens=10, n=2, best_of=5).outputs == 50
    assert _asked(prompt=["x", "y"], max_tokens=10).outputs == inf
    assert _asked(messages=chat, max_tokens=-1).outputs == inf
    assert _asked(messages=chat, include_reasoning=False).hidden
    for part in ("image_url", "input_audio", "video_url", "audio_url", "file", "input_image", "document"):
        message = [{"role": "user", "content": [{"type": part, part: {"url": "https://x"}}]}]
        assert _asked(messages=message).inputs >= PART, part
    for path in (b"/v1/responses", b"/v1/rerank", b"/score", b"/generate"):
        assert _asked(path, input="x", max_tokens=10) == (inf, 10, False)
    escaped = rb'{"messages": [{"content": [{"type": "im\u0061ge_url", "url": "x"}]}]}'
    assert bounds_of(b"/v1/chat/completions", escaped, None) == (inf, inf, True)
    assert bounds_of(b"/v1/audio/transcriptions", None, None) == (inf, inf, False)
    assert bounds_of(b"/v1/chat/completions", b" " * 2**21, 7) == (inf, 7, True)


@settings(max_examples=examples(1000, 300), deadline=None)
@given(
    st.integers(0, 10**9 - 1),
    st.integers(0, 10**9 - 1),
    st.builds(
        Bounds,
        st.just(inf) | st.integers(0, 10**6),
        st.just(inf) | st.integers(0, 10**6),
        st.booleans(),
    ),
    st.booleans(),
)
def test_no_answer_says_more_than_can_be(inputs: int, outputs: int, bounds: Bounds, events: bool) -> None:
    """Whatever is stated: what counts is within the bounds and the bytes, and what is left of it is told."""
    meter = Meter(bounds)
    answer = b'data: {"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n' % (inputs, outputs)
    meter.piece(answer)
    used = meter.used(len(answer), events=events)
    assert used.inputs == min(inputs, bounds.inputs)
    assert used.outputs == min(outputs, bounds.outputs, inf if bounds.hidden else len(answer))
    assert (used.inputs + used.input_cut, used.outputs + used.output_cut) == (inputs, outputs)


def test_a_stream_that_says_nothing_counts_no_more_than_was_allowed() -> None:
    """A server sends events without end, each of some bytes."""
    meter = Meter(Bounds(outputs=100))
    for _ in range(1000):
        meter.piece(b"\ndata:\n")
    assert meter.used(7000, events=True) == (None, 100, 0, 900)


@pytest.mark.parametrize("said", [999_999_999, 40_000])
def test_one_answer_costs_a_tenant_five_minutes_at_the_most(said: int) -> None:
    """Where neither bytes nor the request bound it: after five minutes its budget is full again."""

    async def main() -> None:
        answer = _whole(said)
        async with world(await Backend(answering(answer)).start()) as w:
            limits = Settings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
            admission = QueueAdmission(limits, loop=asyncio.get_running_loop(), cost=lambda _: 1.0)
            w.proxy.admission = admission
            body = b'{"model": "m", "reasoning_effort": "high", "messages": []}'
            client = await w.client()
            client.send(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            assert (await client.response()).status == 200
            await w.until(lambda: not w.picker.in_flight)
            refusal = admission.admission.offer(
                Arrival(output_tokens=1000.0), asyncio.get_running_loop().time()
            )
            assert isinstance(refusal, core.Refusal)
            assert refusal.retry_after is not None
            assert 299 < refusal.retry_after <= 300
            assert admission.admission.spared_tokens == said - 5000

    run(main)


def test_what_is_cut_off_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """By backend, in the metrics; the log has the first."""

    async def main() -> None:
        async with world(await Backend(answering(_whole(300), _whole(300))).start()) as w:
            limits = Settings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
            admission = QueueAdmission(limits, loop=asyncio.get_running_loop(), cost=lambda _: 1.0)
            w.proxy.admission = admission
            for _ in range(2):
                client = await w.client()
                client.send(_ASK)
                assert (await client.response()).status == 200
            await w.until(lambda: not w.picker.in_flight)
            assert dict(admission.cut) == {("", "input"): 0, ("", "output"): 400}

    run(main)
    assert caplog.text.count("more than its request and answer can be") == 1


def test_a_stream_is_counted_as_it_comes() -> None:
    """Event by event, as engines send them."""
    head, *chunks = _stream(_events(["a"] * 30, None)).partition(b"\r\n\r\n")
    pieces = [head + chunks[0], *(piece + b"\n\n\r\n" for piece in chunks[1].split(b"\n\n\r\n"))]

    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in pieces[:-1]:
            peer.send(piece)
            await asyncio.sleep(0.002)
        peer.send(pieces[-1].removesuffix(b"\n\n\r\n"))
        await peer.reader.read()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            seen: list[Meter] = []
            offer = w.admission.offer

            def metered(exchange: Exchange, now: float) -> Refusal | None:
                exchange.meter = Meter()
                seen.append(exchange.meter)
                return offer(exchange, now)

            w.admission.offer = metered  # type: ignore[method-assign]
            client = await w.client()
            client.send(_ASK)
            assert (await client.response()).whole
            await w.until(lambda: not w.picker.in_flight)
            assert seen[0].used(10_000, events=True) == (None, 31, 0, 0)

    run(main)
