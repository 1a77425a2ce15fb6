"""How many tokens a request has used, by what its answer says or shows: for tenants that have budgets of them.

OpenAI's wire format says it at the end of an answer (`usage`), of a stream if the client asks for that (`stream_options:
{include_usage: true}`). Anthropic's says the input with a stream's first event, and the output with its last; Ollama's at the end. Of what does
not say it:

    input      what was expected stands (`gtm.balancer.wire.estimate`)
    output     none, where the endpoint makes no text (`makes_text`) or the answer says its input alone; of a stream a token for each event, as engines send them;
               of another answer, also one that breaks off, one for each four bytes. Of one that is encoded nothing is known, and what was expected stands

What the client got nothing of has no output, and what was refused nothing at all.

Text that a model writes cannot pass for it: in JSON its quotes are escaped, and its line ends too.

A server says it, and may be wrong or lie. So it counts for no more than can be (`Bounds`):

    output   bytes of the answer, for a token that is sent has a byte at least; and what the request allows (`max_tokens`, for each choice)
    input    bytes of the request, as a token stands for a byte at least; `TEMPLATE` for what servers write around a prompt; and `PART` for each
             image, recording or file that the request names, which may be tokens without bytes: by a URL, or since a compressed one has few

What cannot be told by bytes has the bound of a tenant's five minutes alone (`gtm.core.balance.admission`): input of other endpoints than
those that read a prompt once (`/responses` keeps conversations, `/rerank` reads the query with each document) or of large bodies, and output
of a request that says something about reasoning, which may be hidden.
"""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from gtm.balancer.wire.estimate import BYTES_A_TOKEN

_KEPT = 4096
"""Bytes of the beginning and the end of an answer in which its usage is looked for."""
_EVENT = b"\ndata:"
_BEFORE = len(_EVENT) - 1
_INPUT = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*([0-9]{1,9})(?![0-9])')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens|eval_count)"\s*:\s*([0-9]{1,9})(?![0-9])')
_START = re.compile(rb'"message_start".*')
"""The rest of the event with which Anthropic's streams begin: its output tokens are those of before the first."""
_NO_TEXT = frozenset(
    (
        *(
            b"embeddings",
            b"embed",
            b"embed_all",
            b"embed_sparse",
            b"rerank",
            b"score",
            b"pooling",
            b"similarity",
        ),
        *(b"classify", b"moderations", b"predict", b"encode", b"tokenize", b"detokenize", b"decode"),
        *(b"count_tokens", b"speech", b"generations", b"edits"),
    )
)
"""Last segments of paths whose answers are numbers, pictures or sound: of tokens that are made they have none."""

TEMPLATE = 4096
"""Tokens that chat templates add to a prompt: role marks and default instructions are some hundreds in the longest that are known."""
PART = 131_072
"""Tokens of one image, recording or file: images of Qwen2.5-VL have up to 16,384, videos in vLLM as many, and most contexts end here."""
_MOST_SEARCHED = 1024 * 1024
"""Bytes of a body in which parts are looked for: in longer ones, that would take longer than the event loop may wait."""
_READ_ONCE = (b"/chat/completions", b"/completions", b"/embeddings", b"/messages")
"""Ends of paths whose requests have all of their prompt in them, once."""
_PARTS = re.compile(rb'"(?:image|input_|video|audio|file|document)')
"""How names of parts begin (`image_url`, `input_audio`, …): as a type and as a member, so that most are counted twice."""
_ESCAPED = re.compile(rb"\\u00[4-7]")
"""A letter that is escaped, as no JSON encoder does: names may be written so."""
_REASONING = b"reasoning"


def makes_text(method: bytes, path: bytes) -> bool:
    """Whether an endpoint answers with tokens that a model makes for the request: these are expected of it."""
    return method == b"POST" and path.rpartition(b"/")[2] not in _NO_TEXT


class Bounds(NamedTuple):
    """What a request can have used at the most: input tokens, output tokens that it allows, and whether some of these may have no bytes."""

    inputs: float = inf
    outputs: float = inf
    hidden: bool = False


class Usage(NamedTuple):
    """Input and output tokens that count, None: not known; and how many more the answer said, which cannot be."""

    inputs: int | None
    outputs: int | None
    input_cut: int = 0
    output_cut: int = 0


def bounds_of(path: bytes, body: bytes | None, outputs: int | None) -> Bounds:
    """What a request can have used at the most.

    Args:
        path: of its target.
        body: its body, as JSON; None if it is something else, or not all there.
        outputs: the tokens that it allows in all of its choices; None: any number.
    """
    most = inf if outputs is None else outputs
    if body is None:
        return Bounds(inf, most)
    if len(body) > _MOST_SEARCHED or _ESCAPED.search(body):
        return Bounds(inf, most, hidden=True)
    inputs = inf
    if path.endswith(_READ_ONCE):
        inputs = len(body) + TEMPLATE + PART * len(_PARTS.findall(body))
    return Bounds(inputs, most, hidden=_REASONING in body)


class Meter:
    """Of one answer, as it came from the backend, in whatever pieces."""

    __slots__ = ("_bounds", "_events", "_head", "_makes_text", "_tail", "encoded")

    def __init__(self, bounds: Bounds = Bounds(), *, makes_text: bool = True) -> None:  # noqa: B008 - nobody changes one
        self._bounds = bounds
        self._makes_text = makes_text
        self._head = b""
        self.encoded = False
        """It has a Content-Encoding: what comes is not what it says."""
        self._tail = b"\n"  # so that what begins with an event begins one
        self._events = 0

    def piece(self, data: bytes) -> None:
        """What the backend sent, framing and all."""
        self._events += (self._tail[-_BEFORE:] + data).count(_EVENT)
        if len(self._head) < _KEPT:
            self._head += data[: _KEPT - len(self._head)]
        self._tail = data[-_KEPT:] if len(data) >= _KEPT else (self._tail + data)[-_KEPT:]

    def used(self, size: int, *, events: bool) -> Usage:
        """What the request has used.

        Args:
            size: bytes of the answer's body.
            events: the answer is a stream of them.
        """
        bounds, tail = self._bounds, self._tail
        inputs = _last(_INPUT, tail)
        started = _START.search(self._head)
        if started is not None:
            if inputs is None:
                inputs = _last(_INPUT, started[0])
            tail = tail.rpartition(started[0])[2]
        outputs = _last(_OUTPUT, tail)
        if outputs is None and not self.encoded:
            outputs = self._unsaid(size, known=inputs is not None, events=events)
        inputs, input_cut = _cut(inputs, bounds.inputs)
        outputs, output_cut = _cut(outputs, bounds.outputs if bounds.hidden else min(bounds.outputs, size))
        return Usage(inputs, outputs, input_cut, output_cut)

    def _unsaid(self, size: int, *, known: bool, events: bool) -> int:
        """The output of an answer that does not say it."""
        if not self._makes_text:
            return 0
        if events:
            return self._events
        if known:
            return 0
        return int(min(-(-size // BYTES_A_TOKEN), self._bounds.outputs))


def _cut(said: int | None, most: float) -> tuple[int | None, int]:
    if said is None or said <= most:
        return said, 0
    return int(most), said - int(most)


def _last(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None
