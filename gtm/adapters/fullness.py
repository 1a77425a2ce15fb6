"""By what an answer says that its server is full: it works, and had no room for this request.

No status says that alone: 503 is an engine that is dead, a model that is loading or a queue that is full (RFC 9110 §15.6.4), and 429 is the client's own
limit (RFC 6585 §4), for which no other server is asked. So it takes 503 with `Retry-After`, by which a server says that it will be well again; or
the words that servers have for it:

    server                      status   what it says                                                       source
    SGLang                      503      The request queue is full.                                         `--max-queued-requests`; srt/managers/scheduler.py
    vLLM                        503      Request queue full.                                                `--max-num-queued-reqs` (0.29); v1/engine/exceptions.py
    Triton                      503      Exceeds maximum queue size                                         `max_queue_size` of queue policies; core, Enqueue; UNAVAILABLE is 503
    TGI, TEI                    429      "error_type": "overloaded"                                         `--max-concurrent-requests`; their OpenAPI documents
    Ray Serve                   503      Request dropped due to backpressure (num_queued_requests=…          `max_queued_requests`; serve/exceptions.py
    Ollama                      503      server busy, please try again.  maximum pending requests exceeded  `OLLAMA_MAX_QUEUE`; server/sched.go
    Knative, KServe             503      pending request queue full                                         queue-proxy's breaker
    NeMo Guardrails, gtm        503      "code": "queue_full"                                               NVIDIA-NeMo/Guardrails#2334; docs/admission.md
    llama.cpp, of its health    503      no slot available                                                  `/health?fail_on_no_slot`; ggml-org/llama.cpp#5594

Text Generation Inference says of its health no more than that it is bad, when it is full as when it is dead (`says_unwell`; huggingface/text-generation-inference#3241).

A server whose engine has died works no more, and says so of every request until it has ended itself (`says_dead`):

    vLLM                        500      EngineCore encountered an issue.                                   v1/engine/exceptions.py, EngineDeadError

What stands in a stream that began with 200 (SGLang, TGI) has gone to the client: it counts, and no other server is asked.
"""

from __future__ import annotations

import re

STATUSES = frozenset((429, 503))
"""Those of answers that may say it."""
MOST_BYTES = 4096
"""Of a body that is looked at; longer ones say something else."""
_QUEUE = re.compile(
    rb"request queue (?:is )?full|exceeds maximum queue size|dropped due to backpressure|maximum pending requests exceeded|\"queue_full\"|no slot available",
    re.IGNORECASE,
)
_UNWELL = re.compile(rb'"error_type"\s*:\s*"healthcheck"', re.IGNORECASE)
_DEAD = re.compile(rb"EngineCore encountered an issue")
_OVERLOADED = re.compile(rb'"error_type"\s*:\s*"overloaded"', re.IGNORECASE)


def says_full(status: int, body: bytes, *, retry_after: bool) -> bool:
    """Whether an answer says that its server is full.

    Args:
        status: one of `STATUSES`, else it does not.
        body: of the answer, as far as it is known.
        retry_after: whether it has that field.
    """
    if status == 503 and (retry_after or _QUEUE.search(body)):
        return True
    return status in STATUSES and _OVERLOADED.search(body) is not None


def says_unwell(status: int, body: bytes) -> bool:
    """Whether an answer to the question for its health says that a server is full, or else dead: it is one of the two."""
    return status == 503 and _UNWELL.search(body) is not None


def says_dead(status: int, body: bytes) -> bool:
    """Whether an answer says that the server's engine has died: the request was not the cause, but for one that was there then."""
    return status == 500 and _DEAD.search(body) is not None
