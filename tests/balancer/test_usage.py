"""What a request is taken to have used of its tenant's tokens: what its answer says, or its events; written from docs/admission.md."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.bodies import BodyRules
from gtm.balancer.wire.facts import read_facts
from gtm.balancer.wire.heads import read_head
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.usage import PART, TEMPLATE, Bounds, Meter, bounds_of
from gtm.core.balance.admission import values as core
from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.admission.values import Arrival, Ticket
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
    for answer in (
        _whole(outputs, "".join(texts)).partition(b"\r\n\r\n")[2],
        b"".join(_events(texts, outputs)),
    ):
        meter, at = Meter(), 0
        for cut in [*cuts, len(answer)]:
            if answer[at : at + cut]:
                meter.piece(answer[at : at + cut])
            at += cut
        assert meter.used(10**6, events=answer.startswith(b"data")) == (7, outputs, 0, 0)


@given(_TEXTS, st.integers(1, 60), st.booleans())
def test_else_its_events_count(texts: list[str], cut: int, chunked: bool) -> None:
    """One token each, whatever is written in them and wherever they are cut; of an answer that is no stream each four bytes are one; of one that is encoded nothing is known."""
    meter = Meter()
    events = _events(texts, None)
    raw = b"".join(events)
    for at in range(0, len(raw), cut):
        piece = raw[at : at + cut]
        if chunked:
            meter.chunks(b"%x\r\n%b\r\n" % (len(piece), piece), len(piece))
        else:
            meter.piece(piece)
    assert meter.used(len(raw), events=True) == (None, len(texts) + 1, 0, 0)
    assert meter.used(len(raw), events=False) == (None, -(-len(raw) // 4), 0, 0)
    meter.encoded = True
    assert meter.used(len(raw), events=False) == (None, None, 0, 0)


_WORDS: dict[str, object] = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}, "completion_tokens": 0}
"""What a model may write where its server puts its words as objects: arguments of a tool."""
_BEHIND = {
    "prompt_logprobs": [{"1": {"logprob": -0.5, "text": '}{"\\'}}] * 300,
    "prompt_token_ids": [*range(2000)],
}
"""What servers write behind `usage`, longer than anything is kept."""
FORMS: dict[str, tuple[list[bytes], int, int]] = {
    "vLLM's chat with return_token_ids and prompt_logprobs": (
        [
            json.dumps(
                {"choices": [], "usage": {"prompt_tokens": 4000, "completion_tokens": 10}, **_BEHIND}
            ).encode()
        ],
        4000,
        10,
    ),
    "SGLang's /generate with logprobs": (
        [
            json.dumps(
                {"text": "", "meta_info": {"prompt_tokens": 7, "completion_tokens": 9, **_BEHIND}}
            ).encode()
        ],
        7,
        9,
    ),
    "SGLang's, of two prompts": (
        [json.dumps([{"meta_info": {"prompt_tokens": 7, "completion_tokens": 9, **_BEHIND}}] * 2).encode()],
        14,
        18,
    ),
    "Anthropic's with a cache, and a tool": (
        [
            json.dumps(
                {
                    "content": [{"type": "tool_use", "input": _WORDS}],
                    "usage": {
                        "input_tokens": 10,
                        "cache_creation_input_tokens": 500,
                        "cache_read_input_tokens": 20000,
                        "output_tokens": 66,
                    },
                    "container": {"input": _WORDS, "usage": [_WORDS]},
                },
                indent=2,
            ).encode()
        ],
        20510,
        66,
    ),
    "Anthropic's stream with a cache": (
        [
            b'event: message_start\ndata: {"message":{"usage":{"input_tokens":10,"cache_read_input_tokens":200,"output_tokens":1}}}\n\n',
            b'event: content_block_delta\ndata: {"delta":{"text":"all_tokens"}}\n\n',
            b'event: message_delta\ndata: {"usage":{"output_tokens":9}}\n\n',
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        ],
        210,
        9,
    ),
    "the last event of /responses": (
        [
            b'event: response.created\r\ndata: {"response":{"usage":null}}\r\n\r\n',
            b"event: response.completed\r\ndata: %b\r\n\r\n"
            % json.dumps(
                {"response": {"usage": {"input_tokens": 5, "output_tokens": 6}, "tools": [_WORDS], **_BEHIND}}
            ).encode(),
        ],
        5,
        6,
    ),
    "Ollama's, that calls a tool": (
        [
            b'{"message":{"tool_calls":[{"function":{"arguments":{"eval_count":0}}}]},"done":false}\n',
            b'{"message":{"content":""},"done":true,"prompt_eval_count":300,"eval_count":4}\n',
            b'{"message":{"tool_calls":[{"function":{"arguments":{"eval_count":0}}}]},"done":false}\n',
        ],
        300,
        4,
    ),
    "llama.cpp's /completion": (
        [
            json.dumps(
                {
                    "content": "four",
                    "tokens_predicted": 10,
                    "tokens_evaluated": 4000,
                    "generation_settings": {"n_predict": 16},
                    "prompt": "x" * 16000,
                }
            ).encode()
        ],
        4000,
        10,
    ),
    "TGI's /generate with details": (
        [
            json.dumps(
                {
                    "generated_text": "four",
                    "details": {"generated_tokens": 10, "input_length": 40, "prefill": [{"id": 1}] * 400},
                }
            ).encode()
        ],
        40,
        10,
    ),
}


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=examples(60, 20), deadline=None)
@given(cuts=st.lists(st.integers(1, 300), max_size=30), told=st.booleans(), chunked=st.booleans())
def test_counts_are_found_wherever_a_server_puts_them(
    name: str, cuts: list[int], told: bool, chunked: bool
) -> None:
    """Behind `usage` vLLM writes lists of tokens, and buffers of proxies cut a number: it was charged by bytes, or 12 for 1234. What a model wrote as an object is no count."""
    pieces, inputs, outputs = FORMS[name]
    raw = b"".join(pieces)
    meter, at = Meter(), 0
    if told:
        meter.begin(events=raw.startswith(b"event"), lines=name.startswith("Ollama"))
    for cut in [*map(len, pieces)] if not cuts else [*cuts, *range(1, 80), len(raw)]:
        piece = raw[at : at + cut]
        at += cut
        if chunked and piece:
            meter.chunks(b"%x\r\n%b\r\n" % (len(piece), piece), len(piece))
        elif piece:
            meter.piece(piece)
    assert meter.used(10**6, events=False) == (inputs, outputs, 0, 0)


@pytest.mark.parametrize("step", range(1, 8))
def test_no_cut_makes_another_number(step: int) -> None:
    """Nor another name, nor another depth."""
    raw = (
        b'{"a":"\\\\\\"","usage":{"prompt_tokens":1234,"b":{"c":["]}"]},"completion_tokens": 66 },"d":"\\\\"}'
        + b" " * 5000
    )
    meter = Meter()
    for at in range(0, len(raw), step):
        meter.piece(raw[at : at + step])
    assert meter.used(10**6, events=False) == (1234, 66, 0, 0)
    long = Meter()
    long.piece(b'{"z":"' + b"x" * 5000 + b'",')
    for at in range(1, len(raw), step):
        long.piece(raw[at : at + step])
    assert long.used(10**6, events=False) == (1234, 66, 0, 0)


def test_a_number_that_breaks_off_does_not_count() -> None:
    """Of 1234 the first two digits are not what was used."""
    meter = Meter()
    meter.piece(b'{"usage":{"prompt_tokens":7,"completion_tokens":12')
    assert meter.used(100, events=False) == (7, 0, 0, 0)


def test_what_another_server_said_before_does_not_count() -> None:
    """It was full, say, and its answer was kept back: the one that took the request says what was used."""
    meter = Meter()
    meter.piece(b'{"error":{"usage":{"completion_tokens":9')
    meter.begin()
    meter.piece(b'{"usage":{"prompt_tokens":7,"completion_tokens":3}}')
    assert meter.used(100, events=False) == (7, 3, 0, 0)


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
        (_whole(None), -(-len(_whole(None).partition(b"\r\n\r\n")[2]) // 4)),
        (_stream(_events(["a"] * 19, None)), 20),
        (_stream(_events(["a"] * 19, 17)), 17),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", 0),
    ],
)
def test_a_budget_is_charged_by_what_was_used(answer: bytes, used: int) -> None:
    """Over the wire: a minute's budget of 1,000 has as much left as the answer did not use."""

    async def main() -> None:
        async with world(await Backend(answering(answer)).start()) as w:
            limits = AdmissionSettings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
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


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("/completion", {"prompt": "x", "n_predict": 16}, 16),
        ("/completion", {"prompt": "x", "n_predict": 16, "max_tokens": 1}, 16),
        ("/completion", {"prompt": "x", "n_predict": 1, "max_tokens": 16}, 16),
        ("/completion", {"prompt": "x", "n_predict": -1, "max_tokens": 1}, inf),
        ("/completion", {"prompt": "x", "n_predict": 16, "n_cmpl": 3}, 48),
        ("/completion", {"prompt": ["x", "y"], "n_predict": 16}, inf),
        ("/infill", {"prompt": "x", "n_predict": 16}, 16),
        ("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 16}}, 16),
        ("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 16, "best_of": 2}}, 32),
        ("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 16, "best_of": "2"}}, inf),
        ("/generate", {"text": ["x", "y"], "sampling_params": {"max_new_tokens": 16}}, inf),
        ("/api/generate", {"prompt": "x", "options": {"num_predict": 16}}, 16),
        ("/v1/chat/completions", {"messages": [], "max_tokens": 16, "n": 2, "n_predict": 1}, 32),
    ],
)
def test_bounds_by_names_of_their_own_bound_what_can_be_used(
    path: str, body: dict[str, object], most: float
) -> None:
    """Of llama.cpp and TGI the worst case was charged, though the request bounds it: all choices of it, by whichever bound a server may go."""
    assert _asked(path.encode(), **body).outputs == most


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
    assert meter.used(7000, events=False) == (None, 100, 0, 0)  # it has said nothing that cannot be


@pytest.mark.parametrize("said", [999_999_999, 40_000])
def test_one_answer_costs_a_tenant_five_minutes_at_the_most(said: int) -> None:
    """Where neither bytes nor the request bound it: after five minutes its budget is full again."""

    async def main() -> None:
        answer = _whole(said)
        async with world(await Backend(answering(answer)).start()) as w:
            limits = AdmissionSettings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
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
            assert isinstance(refusal, core.AdmissionRefusal)
            assert refusal.retry_after is not None
            assert 299 < refusal.retry_after <= 300
            assert admission.admission.spared_tokens == said - 5000

    run(main)


def test_what_is_cut_off_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """By backend, in the metrics; the log has the first."""

    async def main() -> None:
        async with world(await Backend(answering(_whole(300), _whole(300))).start()) as w:
            limits = AdmissionSettings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))
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


# --- what is given back when a request ends ---


def _post(path: str, kind: bytes = b"application/json", raw: bytes = b"", **body: object) -> bytes:
    raw = raw or json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        kind,
        len(raw),
        raw,
    )


def _json(text: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    more = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b" % (
        status,
        len(text),
        more,
        text,
    )


def _chunked(*pieces: bytes, kind: bytes = b"text/event-stream", ends: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + (b"0\r\n\r\n" if ends else b"")
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n%b" % (kind, body)


_START = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":77,"output_tokens":1}}}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"delta":{"text":"a"}}\n\n'
_LAST = b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":9}}\n\n'
_GIVEN = 400
"""Tokens that are expected of the input of each request below, within 40."""
_TEXT = "x" * 4 * (_GIVEN - 20)
_CHAT = _post(
    "/v1/chat/completions", model="m", max_tokens=500, messages=[{"role": "user", "content": _TEXT}]
)
_MESSAGE = _post("/v1/messages", model="m", max_tokens=500, messages=[{"role": "user", "content": _TEXT}])
_STANDS = range(_GIVEN - 40, _GIVEN + 40)
_RECORDING = (
    b'--XyZ\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    b'--XyZ\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n--XyZ--\r\n'
    % bytes(_GIVEN * 1600 - 32_000)
)

ENDS: dict[str, tuple[bytes, bytes, range | int, int]] = {
    "all is said": (_CHAT, _whole(5), 7, 5),
    "a stream that says nothing": (_CHAT, _stream(_events(["a"] * 19, None)), _STANDS, 20),
    "an answer that says nothing": (_CHAT, _json(b"x" * 100), _STANDS, 25),
    "an answer that says nothing, of no bytes": (_CHAT, _json(b""), _STANDS, 0),
    "one longer than was allowed": (_CHAT, _json(b"x" * 4000), _STANDS, 500),
    "refused by its server": (_CHAT, _json(b"{}", status=b"429 Too Many Requests"), 0, 0),
    "an error": (_CHAT, _json(b"{}", status=b"500 Internal Server Error"), 0, 0),
    "no answer": (_CHAT, b"", 0, 0),
    "broken before the first event": (_CHAT, _chunked(ends=False), _STANDS, 0),
    "broken after two": (_CHAT, _chunked(b"data: a\n\n", b"data: b\n\n", ends=False), _STANDS, 2),
    "broken within an answer": (_CHAT, _json(b"x" * 100)[:-60], _STANDS, 10),
    "an encoded answer": (_CHAT, _json(b"\x1f\x8b" * 10, b"content-encoding: gzip"), _STANDS, 500),
    "an encoded stream": (
        _CHAT,
        _chunked(b"\x1f\x8b").replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n", 1),
        _STANDS,
        500,
    ),
    "Anthropic's stream": (_MESSAGE, _chunked(_START, *[_DELTA] * 200, _LAST), 77, 9),
    "Anthropic's, broken off": (_MESSAGE, _chunked(_START, *[_DELTA] * 20, ends=False), 77, 21),
    "Anthropic's, broken off late": (_MESSAGE, _chunked(_START, *[_DELTA] * 200, ends=False), 77, 201),
    "embeddings": (
        _post("/v1/embeddings", model="m", input=_TEXT),
        _json(b'{"data":[[0.25,0.25]],"usage":{"prompt_tokens":300,"total_tokens":300}}'),
        300,
        0,
    ),
    "embeddings without": (
        _post("/v1/embeddings", model="m", input=_TEXT),
        _json(b"[0.5]" * 900),
        _STANDS,
        0,
    ),
    "an answer that says its input alone": (_CHAT, _json(b'{"usage":{"prompt_tokens":300}}'), 300, 0),
    "usage before much else, in chunks that end amid a number": (
        _CHAT,
        _chunked(
            b'{"usage":{"prompt_tokens":30',
            b'0,"completion_tok',
            b'ens":12',
            b'},"prompt_token_ids":[%b]}' % b",".join([b"1"] * 9000),
            kind=b"application/json",
        ),
        300,
        12,
    ),
    "llama.cpp's that does not say it, and has the prompt in it": (
        _post("/completion", prompt=_TEXT, n_predict=16),
        _json(b'{"content":"four","prompt":"%b"}' % _TEXT.encode()),
        _STANDS,
        16,
    ),
    "Ollama's": (
        _post("/api/chat", model="m", messages=[{"role": "user", "content": _TEXT}]),
        _chunked(b'{"done":true,"prompt_eval_count":300,"eval_count":4}\n', kind=b"application/x-ndjson"),
        300,
        4,
    ),
    "a transcription": (
        _post("/v1/audio/transcriptions", b"multipart/form-data; boundary=XyZ", _RECORDING),
        _json(b'{"text":"%b"}' % (b"a" * 389)),
        _STANDS,
        100,
    ),
    "speech": (
        _post("/v1/audio/speech", model="tts", input=_TEXT),
        _json(bytes(100_000)),
        _STANDS,
        0,
    ),
    # wso2/api-platform#3253: what has no tokens was charged for all the same, until nothing was left.
    "a list of models": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", _json(b'{"data":[]}' * 50), 0, 0),
}


async def _answer(peer: Peer, answer: bytes) -> None:
    await peer.request()
    peer.send(answer)
    await peer.writer.drain()
    peer.close()


async def _spent(
    ask: bytes,
    script: Callable[[Peer], Awaitable[None]],
    leaves: asyncio.Event | None = None,
    tls: bool = False,
) -> tuple[float, float]:
    """The input and output tokens that a request has cost once it has ended."""
    url = await Backend(script).start()
    async with world(url.replace("http:", "https:") if tls else url) as w:
        limits = AdmissionSettings(
            without_tenant=TenantLimits(input_tokens_per_minute=1e5, output_tokens_per_minute=1e5)
        )
        w.proxy.body_rules = BodyRules(False)
        admission = QueueAdmission(limits, loop=asyncio.get_running_loop(), cost=lambda _: 1.0)
        w.proxy.admission = admission
        first = admission.admission.offer(Arrival(), 0.0)
        assert isinstance(first, Ticket)
        inputs, outputs = first.account.inputs, first.account.outputs
        assert inputs is not None
        assert outputs is not None
        admission.admission.withdraw(first, 0.0)
        inputs.rate = outputs.rate = 0.0  # so that time brings nothing
        client = await w.client()
        client.send(ask)
        if leaves is not None:
            await leaves.wait()
            client.abort()
        else:
            await client.response()
        await w.until(lambda: not w.picker.in_flight and not admission.admission.running)
        return 1e5 - inputs.level(0.0), 1e5 - outputs.level(0.0)


@pytest.mark.parametrize("name", ENDS)
def test_what_was_not_used_is_given_back(name: str) -> None:
    """However a request ends, and whether its answer says what it used or not."""
    ask, answer, inputs, outputs = ENDS[name]

    async def main() -> None:
        spent = await _spent(ask, lambda peer: _answer(peer, answer))
        expected = range(inputs, inputs + 1) if isinstance(inputs, int) else inputs
        assert expected.start <= spent[0] < expected.stop, spent
        assert spent[1] == outputs

    run(main)


def test_who_leaves_before_an_answer_has_none_of_it() -> None:
    """smg-project/smg#1397: what was taken at the door was never given back, though the client had gone."""

    async def main() -> None:
        got = asyncio.Event()

        async def silent(peer: Peer) -> None:
            await peer.request()
            got.set()
            await peer.reader.read()

        inputs, outputs = await _spent(_CHAT, silent, leaves=got)
        assert _STANDS.start <= inputs < _STANDS.stop
        assert outputs == 0

    run(main)


def test_what_no_backend_got_costs_nothing() -> None:
    """Its client leaves while the balancer still connects: here its server never ends the handshake of TLS."""

    async def main() -> None:
        came = asyncio.Event()

        async def mute(peer: Peer) -> None:
            came.set()
            await peer.reader.read()

        assert await _spent(_CHAT, mute, leaves=came, tls=True) == (0, 0)

    run(main)


def test_a_text_that_stands_as_a_picture_costs_what_the_server_says() -> None:
    """Whatever it was expected to be: a picture of 400 KB that its server reads as 90,000 tokens of text."""
    text = base64.b64encode(b"all that I want to say " * 13_000).decode()
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + text}}
    ask = _post("/v1/chat/completions", model="m", messages=[{"role": "user", "content": [part]}])
    answer = _json(b'{"usage":{"prompt_tokens":90000,"completion_tokens":1}}')

    async def main() -> None:
        assert await _spent(ask, lambda peer: _answer(peer, answer)) == (90_000, 1)

    run(main)


def test_debts_of_many_are_gone_in_five_minutes() -> None:
    """experientiallabs/experiential#1048: requests that settled far above what was expected kept a tenant out for a day."""
    limits = AdmissionSettings(without_tenant=TenantLimits(input_tokens_per_minute=1000.0))
    admission = Admission(limits)
    tickets = [admission.offer(Arrival(input_tokens=10.0), 0.0) for _ in range(50)]
    for ticket in tickets:
        assert isinstance(ticket, Ticket)
        admission.release(ticket, 1.0, core.Used(4000.0, 0.0))
    refusal = admission.offer(Arrival(input_tokens=1000.0), 1.0)
    assert isinstance(refusal, core.AdmissionRefusal)
    assert refusal.retry_after == pytest.approx(300.0)
    assert admission.spared_tokens == pytest.approx(50 * 4000 - 5000, abs=1000)
    assert isinstance(admission.offer(Arrival(input_tokens=1000.0), 301.1), Ticket)


def test_nobody_gains_by_running_into_the_bound() -> None:
    """A large reservation is held while another request runs into the bound, and given back after it: all that was used is owed as far as anybody owes."""
    limits = AdmissionSettings(without_tenant=TenantLimits(output_tokens_per_minute=1000.0))

    def left(reserved: float) -> float:
        admission = Admission(limits)
        held, runs, after = (
            admission.offer(Arrival(output_tokens=tokens), 0.0) for tokens in (reserved, 10.0, 10.0)
        )
        assert isinstance(held, Ticket)
        assert isinstance(runs, Ticket)
        assert isinstance(after, Ticket)
        admission.release(runs, 1.0, core.Used(0.0, 9000.0))
        admission.release(after, 1.0, core.Used(0.0, 30.0))
        admission.release(held, 1.0, core.Used(0.0, 0.0))
        bucket = held.account.outputs
        assert bucket is not None
        owed = bucket.level(1.0)
        assert bucket.level(400.0) == 1000.0
        later = admission.offer(Arrival(output_tokens=500.0), 400.0)
        assert isinstance(later, Ticket)
        admission.release(later, 400.0, core.Used(0.0, 0.0))  # what is paid is forgotten
        assert bucket.level(400.0) == 1000.0
        return owed

    assert left(900.0) == pytest.approx(left(0.0), abs=40.0)


def test_messages_of_a_tunnel_are_looked_at_apart() -> None:
    """One that is cut within a text hides nothing of the next read."""
    meter = Meter()
    meter.begin()
    done = b'{"type":"response.done","response":{"usage":{"input_tokens":300,"output_tokens":400}}}'
    cut = b'{"type":"response.text.delta","delta":"it is \\"tokens'
    meter.message(cut[:-3])
    meter.message(cut[-3:] + b'"}' + done)
    used = meter.used(10_000, events=False)
    assert (used.inputs, used.outputs) == (300, 400)


def test_a_tunnel_s_answers_count_together() -> None:
    """Each message that says what an answer used is of another answer; what one document says twice is said once."""
    meter = Meter()
    meter.begin()
    for number in (1, 20, 300):
        usage = b'{"input_tokens":%d,"output_tokens":%d}' % (number, 2 * number)
        meter.message(b'{"type":"response.output_text.delta","delta":"tokens"}')
        meter.message(b'\x81\x7e{"type":"response.done","response":{"usage":%b}}' % usage)
    used = meter.used(100_000, events=False)
    assert (used.inputs, used.outputs) == (321, 642)
    meter.begin(events=True)  # of a stream the last word counts
    for number in (1, 20, 300):
        meter.piece(b'data: {"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n' % number)
    used = meter.used(100_000, events=True)
    assert (used.inputs, used.outputs) == (7, 300)
