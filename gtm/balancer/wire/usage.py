"""How many tokens a request has used, by what its answer says or shows: for tenants that have budgets of them.

OpenAI's wire format says it in an answer (`usage`), of a stream at its end if the client asks for that (`stream_options:
{include_usage: true}`). Anthropic's says the input with a stream's first event, and the output with its last; others have names of their own (`_OBJECTS`, `_COUNTS`). Of what does
not say it:

    input      what was expected stands (`gtm.balancer.wire.estimate`)
    output     none, where the endpoint makes no text (`makes_text`) or the answer says its input alone; of a stream a token for each event, as engines send them;
               of another answer, also one that breaks off, one for each four bytes. Of one that is encoded nothing is known, and what was expected stands

What the client got nothing of has no output, and what was refused nothing at all.

Servers write it where they like, some before long lists: so all of an answer is looked through as it comes, however it is cut, and nothing of it is kept but a name or a number that is not whole.
Of a stream, events of a piece of their own that name no count are passed over.

What a model writes cannot pass for it. In JSON the quotes of texts are escaped, and line ends too; and where a model's words are objects (arguments of a tool), they stand deeper than a server's
counts: only members of the document itself (or of an event) count, and of those objects in it that are known.

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
from array import array
from itertools import accumulate
from math import inf
from typing import NamedTuple

from gtm.balancer.wire.estimate import BYTES_A_TOKEN
from gtm.balancer.wire.responses import Chunks

_KEPT = 2048
"""Bytes of a piece that names counts and that is kept until somebody asks, or another comes: of a stream whose every event has some, the last is enough."""
_EVENT = b"\ndata:"
_BEFORE = len(_EVENT) - 1
_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_LINE_ENDS = (b"}\n",)
_CHUNK_ENDS: dict[tuple[bytes, ...] | None, tuple[bytes, ...]] = {
    None: (),
    **{ends: tuple(end + b"\r\n" for end in ends) for ends in (_ENDS, _LINE_ENDS, ())},
}
"""How a piece ends that has whole events, or JSON documents a line, and how a chunk of such does."""
_FAR = 2**62
"""What `find` says of nothing is that less one."""
_ONE_CHUNK = 10
"""Bytes of framing that two chunks have at least, and one that is read at once does not have."""
_LINES = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2,}+")
"""The end of an event (WHATWG HTML §9.2.5), which ends its JSON, too: it may have been none."""
_OBJECTS = frozenset(
    (
        *(
            (b"usage",),
            (b"message", b"usage"),
            (b"response", b"usage"),
        ),  # Anthropic's first event; the last of `/responses`
        *((b"meta_info",), (b"details",)),  # SGLang's `/generate`, TGI's
        *((b"meta", b"billed_units"), (b"usage", b"billed_units")),  # Cohere's
    )
)
"""Objects of a document that have counts, by the names that lead to them; some servers have theirs in the document itself (Ollama, llama.cpp)."""
_WAYS = _OBJECTS | {way[:1] for way in _OBJECTS}
_STARTED = [b"message", b"usage"]
"""Of the event with which Anthropic's streams begin: its output tokens are those of before the first."""
_COUNTS = {
    **dict.fromkeys(
        (b"prompt_tokens", b"input_tokens", b"prompt_eval_count", b"tokens_evaluated", b"input_length"),
        "input",
    ),
    **dict.fromkeys(
        (b"completion_tokens", b"output_tokens", b"eval_count", b"tokens_predicted", b"generated_tokens"),
        "output",
    ),
    b"cache_read_input_tokens": "read",
    b"cache_creation_input_tokens": "written",
}
"""What counts of them mean: OpenAI's and Anthropic's, Ollama's, llama.cpp's, TGI's. Anthropic's input is what no cache has, what one has, and what is new in one: all of it was sent."""
_NAMES = re.compile(
    rb'"(?<!\\")(?:(%b)"\s{0,16}+:\s{0,16}+\{|(%b)"\s{0,16}+:\s{0,16}+([0-9]{1,9})(?![0-9.eE]))'
    % (b"|".join({name for way in _OBJECTS for name in way}), b"|".join(_COUNTS))
)
_COUNTED = re.compile(rb'"(?:%b)"\s{0,16}+:\s{0,16}+[0-9]' % b"|".join(_COUNTS))
_UNENDED = re.compile(rb'"(?:[a-z_]{0,32}|[a-z_]{0,32}"\s{0,16}(?::\s{0,16}[0-9]{0,10})?)\Z')
"""How a piece ends that may be the begin of a name and what belongs to it."""
_LONGEST = 96
_STEPS = bytes.maketrans(b"[{]}", b"\1\1\xff\xff")
_OTHERS = bytes({*range(256)} - {*b'[{]}"'})
"""As in `gtm.nesting`: one level down, or up again, as signed bytes; and what is neither that nor a quote."""
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
    """Of one answer, whose body comes from the backend in whatever pieces."""

    __slots__ = (
        "_bounds",
        "_chunk_ends",
        "_ends",
        "_events",
        "_last",
        "_makes_text",
        "_part",
        "_said",
        "_split",
        "_tail",
        "encoded",
    )

    def __init__(self, bounds: Bounds = Bounds(), *, makes_text: bool = True) -> None:  # noqa: B008 - nobody changes one
        self._bounds = bounds
        self._makes_text = makes_text
        self.encoded = False
        """It has a Content-Encoding: what comes is not what it says."""
        self.begin()

    def begin(self, *, events: bool = False, lines: bool = False, encoded: bool = False) -> None:
        """Another answer begins, of which all counts: what a backend said that did not take the request does not.

        Args:
            events: it is a stream of them.
            lines: it is a JSON document a line.
            encoded: it has a Content-Encoding.
        """
        self.encoded = encoded
        self._ends: tuple[bytes, ...] | None = _ENDS if events else _LINE_ENDS if lines else None
        """How its events end, or its documents; None: it is not known whether it has any."""
        self._chunk_ends = _CHUNK_ENDS[self._ends]
        self._said = _Counts(events=events)
        self._part = b""
        """What came of an event, or of the only document, that is not whole and not long."""
        self._split = False
        """The present event is longer than is kept, and is looked at as it comes."""
        self._tail = b"\n"  # so that what begins with an event begins one
        self._events = 0
        self._last = b""
        """Whole events that have counts, and were not looked at."""

    def piece(self, data: bytes) -> None:
        """Some more of its body."""
        ends = self._ends
        if ends is None:
            ends = self._found_out(data)
        if not self._split:
            if self._part:
                data, self._part = self._part + data, b""
            if data.endswith(ends):
                self._events += data.count(_EVENT) + data.startswith(b"data:")
                if b"tokens" in data or b"_count" in data:
                    self._counted(data)
                return
            if len(data) <= _KEPT:
                self._part = data
                return
        self._look()
        self._events += (self._tail + data).count(_EVENT)
        self._tail = data[-_BEFORE:] if len(data) >= _BEFORE else (self._tail + data)[-_BEFORE:]
        if not self.encoded:
            self._said.feed(data)
        self._split = not self._tail.endswith(ends)
        if not self._split:
            self._tail = b"\n"
            self._said.restart()

    def chunks(self, data: bytes, size: int) -> None:
        """Some more of its body, in whole chunks.

        Args:
            data: the chunks, framing and all.
            size: bytes of the body in them.
        """
        if (
            len(data) - size < _ONE_CHUNK
            and not self._part
            and not self._split
            and data.endswith(self._chunk_ends)
        ):
            self._events += data.count(_EVENT)
            if b"tokens" in data or b"_count" in data:
                self._counted(data)
        else:
            self.piece(b"".join(Chunks().split(data)[0]))

    def message(self, data: bytes) -> None:
        """What came through a tunnel: most of it are messages of a WebSocket, in frames that nobody reads here, so that each is looked at for itself."""
        self._said.forget()
        self._said.adds = True
        self._said.feed(data[max(data.find(b'{"'), 0) :])

    def _found_out(self, data: bytes) -> tuple[bytes, ...]:
        """How what comes ends that may be a stream of events, or one document."""
        begin = data.lstrip()[:1]
        if not begin:
            return ()
        ends = () if begin in b"{[" else _ENDS
        self._ends, self._chunk_ends = ends, _CHUNK_ENDS[ends]
        self._said.events = bool(ends)
        return ends

    def _counted(self, data: bytes) -> None:
        """Whole events have come, or documents, that may have counts.

        Those that have some are kept until the next such come. The first say what the last may not (Anthropic's input); of what comes between, nothing is needed.
        """
        at = min(data.find(b"tokens") % _FAR, data.find(b"_count") % _FAR)
        if not self.encoded and _COUNTED.search(data, max(0, at - _LONGEST)):
            if self._said.counts and len(data) <= _KEPT:
                self._last = data
                return
            self._look()
            self._said.feed(data)
            self._said.restart()

    def _look(self) -> None:
        """Look at what was kept."""
        if self._last:
            data, self._last = self._last, b""
            self._said.feed(data)
            self._said.restart()

    def _end(self) -> None:
        """No more has come, or nobody waits for it."""
        self._look()
        if self._part:
            data, self._part = self._part, b""
            self._events += (b"\n" + data).count(_EVENT)
            if not self.encoded:
                self._said.feed(data)
            self._tail, self._split = data[-_BEFORE:], True

    def used(self, size: int, *, events: bool) -> Usage:
        """What the request has used.

        Args:
            size: bytes of the answer's body.
            events: the answer is a stream of them.
        """
        self._end()
        bounds, counts = self._bounds, self._said.counts
        inputs, outputs = counts.get("input"), counts.get("output")
        if inputs is not None:
            inputs += counts.get("read", 0) + counts.get("written", 0)
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


class _Counts:
    """Finds the counts in JSON, or in events that have some, in whatever pieces it comes.

    What it goes by is how deep a name stands. Between two names that are known, brackets outside of texts are counted in C.
    """

    __slots__ = ("_base", "_depth", "_inside", "_rest", "_way", "adds", "counts", "events")

    def __init__(self, *, events: bool) -> None:
        self.events = events
        """What comes is a stream of events."""
        self.adds = False
        """What comes are messages of a tunnel, in which one answer follows another: each has its own."""
        self.counts: dict[str, int] = {}
        self._base: int | None = 0 if events else None
        """How deep the document is that counts are of: one of a list, or by itself."""
        self._rest = b""
        self.restart()

    def restart(self) -> None:
        """Nothing that comes belongs to what came."""
        self._depth = 0
        self._inside = False
        """What comes next is inside of a text."""
        self._way: list[bytes] = []
        """The names that lead from the document to the object in which the next member stands, if all of these are known; else to one around it."""

    def forget(self) -> None:
        """Begin anew, without what was held back of what came."""
        self._rest = b""
        self.restart()

    def feed(self, data: bytes) -> None:
        """Some more of it."""
        if self._base is None:
            begin = data.lstrip()[:1]
            if begin:
                self._base = int(begin == b"[" and not self.events)
        if self._rest:
            data, self._rest = self._rest + data, b""
        data = self._held_back(data)
        if not self.events:
            self._read(data)
            return
        if not any(end in data for end in _ENDS):
            self._read(data)
            return
        first, *others = _LINES.split(data)
        self._read(first)
        for event in others:
            self.restart()
            self._read(event)

    def _held_back(self, data: bytes) -> bytes:
        """All of what came but its end, if that may be the begin of something that is needed."""
        size = len(data)
        found = _UNENDED.search(data, max(0, size - _LONGEST))
        end = size if found is None else found.start()
        if end == size and self.events:
            end = len(data.rstrip(b"\r\n"))
            if end < size and _LINES.match(data, end):
                end = size
        if data[end - 1 : end] == b"\\" and (end - len(data[:end].rstrip(b"\\"))) % 2:
            end -= 1
        if end == size:
            return data
        self._rest = data[end:]
        return data[:end]

    def _read(self, data: bytes) -> None:
        at, base = 0, self._base or 0
        for found in _NAMES.finditer(data):
            self._pass(data[at : found.start()])
            at = found.start()
            way = self._way
            if self._inside or self._depth - base != len(way) + 1:
                continue
            if found[1]:
                longer = [*way, found[1]]
                if tuple(longer) in _WAYS:
                    self._way = longer
                    self._depth += 1
                    at = found.end()
            elif (not way or tuple(way) in _OBJECTS) and (_COUNTS[found[2]] != "output" or way != _STARTED):
                # The last word counts: some engines tell with each event what was used so far. In a list, each document has its own, and each message of a tunnel.
                what, before = _COUNTS[found[2]], self._base or self.adds
                self.counts[what] = int(found[3]) + (self.counts.get(what, 0) if before else 0)
        self._pass(data[at:])

    def _pass(self, data: bytes) -> None:
        """Go on behind what has no name that is known."""
        if b"\\" in data:
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = data.translate(_STEPS, _OTHERS)
        if not marks:
            return
        parts = marks.replace(b'""', b"").split(b'"')
        steps = b"".join(parts[self._inside :: 2])
        self._inside = len(parts) % 2 == self._inside
        if steps:
            if self._way:
                least = min(accumulate(array("b", steps), initial=self._depth))
                del self._way[max(0, least - (self._base or 0) - 1) :]
            self._depth = max(0, self._depth + 2 * steps.count(1) - len(steps))
