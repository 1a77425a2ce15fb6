"""How servers say that they are full, and what does not say it: docs/backend-health.md, "Full"."""

from __future__ import annotations

import pytest

from gtm.adapters.fullness import says_full

VLLM = b'{"error":{"message":"Request queue full.","type":"ServiceUnavailableError","param":null,"code":503}}'
SGLANG = b'{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}'
TGI = b'{"error":"Model is overloaded","error_type":"overloaded"}'


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(503, SGLANG, id="SGLang, --max-queued-requests"),
        pytest.param(503, VLLM, id="vLLM, --max-num-queued-reqs"),
        pytest.param(
            503, b'{"error":"Exceeds maximum queue size"}', id="Triton (NVIDIA/NeMo-Retriever#1077)"
        ),
        pytest.param(
            503,
            b'{"error":"[request id: 1] inference request: exceeds maximum queue size"}',
            id="Triton, 2.5x",
        ),
        pytest.param(429, TGI, id="Text Generation Inference"),
        pytest.param(
            429, b'{"error":"Model is overloaded","error_type":"Overloaded"}', id="Text Embeddings Inference"
        ),
        pytest.param(503, b'{"error": "busy", "error_type" : "overloaded"}', id="TGI behind a proxy"),
        pytest.param(
            503,
            b"Request dropped due to backpressure (num_queued_requests=2, max_queued_requests=2).",
            id="Ray Serve",
        ),
        pytest.param(
            503, b'{"error":"server busy, please try again.  maximum pending requests exceeded"}', id="Ollama"
        ),
        pytest.param(503, b"pending request queue full", id="Knative"),
        pytest.param(
            503, b'{"error":{"message":"Too busy","code":"queue_full"}}', id="NVIDIA-NeMo/Guardrails#2334"
        ),
    ],
)
def test_servers_own_words_say_it(status: int, body: bytes) -> None:
    """As each has them; without `Retry-After`, which few of them send."""
    assert says_full(status, body, retry_after=False)
    assert says_full(status, body, retry_after=True)


def test_a_503_that_names_a_time_says_it() -> None:
    """Whatever its words (sgl-project/sglang#39464)."""
    assert says_full(503, b"", retry_after=True)


@pytest.mark.parametrize("retry_after", [True, False])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(
            429,
            b'{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}',
            id="the client's rate",
        ),
        pytest.param(
            429, b'{"error":{"message":"Request queue full."}}', id="a 429 that no server has for it"
        ),
        pytest.param(500, SGLANG, id="a 500"),
        pytest.param(200, TGI, id="an answer that speaks of it"),
        pytest.param(502, VLLM, id="a proxy's"),
        pytest.param(504, b"pending request queue full", id="a timeout"),
    ],
)
def test_other_statuses_do_not(status: int, body: bytes, retry_after: bool) -> None:
    """Above all no 429 that is the client's own."""
    assert not says_full(status, body, retry_after=retry_after)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        b'{"error":"EngineCore encountered an issue. See stack trace (above) for the root cause."}',
        b"no healthy upstream",
        b'{"error":{"message":"No available workers (all circuits open or unhealthy)"}}',
    ],
)
def test_other_503_do_not(body: bytes) -> None:
    """An engine that is dead, one that loads, a proxy without servers: failures, where no time is named."""
    assert not says_full(503, body, retry_after=False)
