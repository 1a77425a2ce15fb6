"""The endpoints of model servers that are known: methods, paths, whose they are, and how the body of each says what it is for.

The columns of methods and paths are what a balancer carries by default (`gtm.balancer.wire.endpoints`); the others are what it reads: the model, where choosing or a limit goes by it (`gtm.balancer.wire.bodies`), and
what tells of a request's work and whom it sticks to (`gtm.balancer.wire.facts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.usage import makes_text


class BodyKind(Enum):
    """Where a request to an endpoint names its model."""

    NONE = auto()
    """Nowhere: it asks for no work of a model, or has no body."""
    JSON = auto()
    """In the member `model` of a JSON object."""
    FORM = auto()
    """In the part `model` of a multipart form (RFC 7578)."""
    PATH = auto()
    """The path names the model, as in `/v2/models/NAME/infer`."""
    SOCKET = auto()
    """In the query (`?model=`), and in messages of a WebSocket, which are not read."""
    UNKNOWN = auto()
    """The endpoint is not known: in JSON, if its body begins like an object."""
    OPAQUE = auto()
    """The endpoint is not known, and its body does not begin so."""


INFERENCE = "inference"
TOKENIZE = "tokenize"
UNLISTED = "unlisted"
"""Of endpoints that are known and in no list: whoever carries everything carries these, too."""


class BodySays(NamedTuple):
    """Members of a JSON body that tell of its work: of the object itself, or of an object in it, as in `options.num_predict`.

    `tokens` bound the output, the first that is there counts. `session` tells what belongs together. `stream` asks for events; `streams`: they come unless it is false.
    """

    tokens: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    stream: str | None = None
    streams: bool = False


class KnownEndpoint(NamedTuple):
    """A row of the table: a method, a pattern of paths, the group of the file's `paths` that it is in, who answers there, by which version and document; where the model is named, and what else the body says.

    Of a pattern `*` stands for one or more characters of one segment, and `/**` at its end for one or more segments.
    """

    method: str
    path: str
    group: str
    source: str
    body: BodyKind | None = None
    """None: in JSON, if the method is POST."""
    says: BodySays = BodySays()

    @property
    def kind(self) -> BodyKind:
        """Where a request to it names its model."""
        return self.body or (BodyKind.JSON if self.method == "POST" else BodyKind.NONE)


_CHAT = BodySays(("max_completion_tokens", "max_tokens"), ("prompt_cache_key", "user"), "stream")
_COMPLETION = BodySays(("max_tokens",), ("prompt_cache_key", "user"), "stream")
_RESPONSE = BodySays(("max_output_tokens",), ("prompt_cache_key", "user"), "stream")
_MESSAGE = BodySays(("max_tokens",), ("metadata.user_id",), "stream")
_USER = BodySays(session=("user",))
_GENERATE = BodySays(("parameters.max_new_tokens", "sampling_params.max_new_tokens"), (), "stream")
_GENERATE_STREAM = BodySays(("parameters.max_new_tokens",), (), None, streams=True)
_TOKENS_IN = BodySays(("sampling_params.max_tokens",), (), "stream")
_PREDICT = BodySays(("n_predict",), (), "stream")
_OLLAMA_SAYS = BodySays(("options.num_predict",), (), "stream", streams=True)

_OPENAI = "OpenAI API reference (platform.openai.com/docs/api-reference, 2026-11); vLLM 0.32, SGLang 0.5, llama.cpp, Ollama"
_VLLM = "vLLM 0.32 (list of routes at its start)"
_ANTHROPIC = "Anthropic Messages API (docs.anthropic.com/en/api/messages); vLLM 0.32, llama.cpp"
_SGLANG = "SGLang native API (docs.sglang.io/basic_usage/native_api)"
_KSERVE = "Open Inference Protocol, REST (kserve.github.io, v2); Triton 2.6x, OpenVINO Model Server"
_TRITON = "Triton's generate extension (triton-inference-server/server, protocol/extension_generate.md)"
_KSERVE_1 = "KServe's V1 protocol (kserve.github.io, v1)"
_TGI = "TGI 3 (huggingface.github.io/text-generation-inference)"
_TEI = "TEI 1 (huggingface.github.io/text-embeddings-inference)"
_LLAMA = "llama.cpp (tools/server/README.md)"
_COHERE = "Cohere's API (docs.cohere.com/v2/reference); vLLM 0.2x for embedding models"
_OLLAMA = "Ollama (docs/api.md)"

ENDPOINTS: tuple[KnownEndpoint, ...] = (
    KnownEndpoint("POST", "/v1/chat/completions", INFERENCE, _OPENAI, says=_CHAT),
    KnownEndpoint("POST", "/v1/chat/completions/batch", UNLISTED, _VLLM, says=_CHAT),
    KnownEndpoint("POST", "/v1/completions", INFERENCE, _OPENAI, says=_COMPLETION),
    KnownEndpoint("POST", "/v1/embeddings", INFERENCE, _OPENAI, says=_USER),
    KnownEndpoint("POST", "/v1/responses", INFERENCE, _OPENAI, says=_RESPONSE),
    KnownEndpoint("GET", "/v1/responses/*", INFERENCE, _OPENAI),
    KnownEndpoint("DELETE", "/v1/responses/*", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/responses/*/cancel", INFERENCE, _OPENAI, BodyKind.NONE),
    KnownEndpoint("GET", "/v1/responses/*/input_items", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/audio/transcriptions", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/audio/translations", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/audio/speech", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/images/generations", INFERENCE, _OPENAI, says=_USER),
    KnownEndpoint("POST", "/v1/images/edits", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/images/variations", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/moderations", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/realtime", INFERENCE, _OPENAI, BodyKind.SOCKET),
    KnownEndpoint("GET", "/v1/models", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/models/**", INFERENCE, _OPENAI + "; names of models have slashes"),
    KnownEndpoint("POST", "/v1/messages", INFERENCE, _ANTHROPIC, says=_MESSAGE),
    KnownEndpoint("POST", "/v1/messages/count_tokens", INFERENCE, _ANTHROPIC),
    KnownEndpoint("POST", "/rerank", INFERENCE, _VLLM + "; " + _TEI),
    KnownEndpoint("POST", "/v1/rerank", INFERENCE, _VLLM + "; " + _SGLANG),
    KnownEndpoint("POST", "/v2/rerank", INFERENCE, _VLLM),
    KnownEndpoint("POST", "/score", INFERENCE, _VLLM, says=_USER),
    KnownEndpoint("POST", "/v1/score", INFERENCE, _VLLM + "; " + _SGLANG, says=_USER),
    KnownEndpoint("POST", "/pooling", INFERENCE, _VLLM, says=_USER),
    KnownEndpoint("POST", "/classify", INFERENCE, _VLLM + "; " + _SGLANG, says=_USER),
    KnownEndpoint("POST", "/generative_scoring", UNLISTED, _VLLM),
    KnownEndpoint("POST", "/v1/systemone", UNLISTED, _VLLM),
    KnownEndpoint("POST", "/v2/embed", INFERENCE, _COHERE),
    KnownEndpoint("POST", "/encode", INFERENCE, _SGLANG),
    KnownEndpoint("POST", "/generate", INFERENCE, _TGI + "; " + _SGLANG, says=_GENERATE),
    KnownEndpoint("POST", "/generate_stream", INFERENCE, _TGI, says=_GENERATE_STREAM),
    KnownEndpoint("POST", "/embed", INFERENCE, _TEI),
    KnownEndpoint("POST", "/embed_all", INFERENCE, _TEI),
    KnownEndpoint("POST", "/embed_sparse", INFERENCE, _TEI),
    KnownEndpoint("POST", "/similarity", INFERENCE, _TEI),
    KnownEndpoint("POST", "/predict", INFERENCE, _TEI),
    KnownEndpoint("GET", "/v2", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/health/live", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/health/ready", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/models/*/ready", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("GET", "/v2/models/*/versions/*", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("GET", "/v2/models/*/versions/*/ready", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/infer", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/infer", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/generate", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/generate_stream", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate_stream", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v1/models/*:predict", INFERENCE, _KSERVE_1, BodyKind.PATH),
    KnownEndpoint("POST", "/v1/models/*:explain", INFERENCE, _KSERVE_1, BodyKind.PATH),
    KnownEndpoint("POST", "/completion", INFERENCE, _LLAMA, says=_PREDICT),
    KnownEndpoint("POST", "/infill", INFERENCE, _LLAMA, says=_PREDICT),
    KnownEndpoint("POST", "/embedding", INFERENCE, _LLAMA),
    KnownEndpoint("POST", "/reranking", INFERENCE, _LLAMA),
    KnownEndpoint("POST", "/v1/reranking", INFERENCE, _LLAMA),
    KnownEndpoint("POST", "/api/chat", INFERENCE, _OLLAMA, says=_OLLAMA_SAYS),
    KnownEndpoint("POST", "/api/generate", INFERENCE, _OLLAMA, says=_OLLAMA_SAYS),
    KnownEndpoint("POST", "/api/embed", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/api/embeddings", INFERENCE, _OLLAMA),
    KnownEndpoint("GET", "/api/tags", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/tokenize", TOKENIZE, _VLLM + "; " + _SGLANG + "; " + _TEI + "; " + _LLAMA),
    KnownEndpoint("POST", "/detokenize", TOKENIZE, _VLLM + "; " + _SGLANG + "; " + _LLAMA),
    KnownEndpoint("POST", "/decode", TOKENIZE, _TEI),
    KnownEndpoint("POST", "/v1/chat/completions/render", TOKENIZE, _VLLM),
    KnownEndpoint("POST", "/v1/chat/completions/derender", TOKENIZE, _VLLM),
    KnownEndpoint("POST", "/v1/completions/render", TOKENIZE, _VLLM),
    KnownEndpoint("POST", "/v1/completions/derender", TOKENIZE, _VLLM),
    KnownEndpoint("POST", "/v1/messages/render", TOKENIZE, _VLLM),
    KnownEndpoint("POST", "/v1/responses/render", TOKENIZE, _VLLM),
    KnownEndpoint(
        "POST",
        "/inference/v1/generate",
        UNLISTED,
        _VLLM + "; tokens in, tokens out, between a router and its engines",
        says=_TOKENS_IN,
    ),
    KnownEndpoint("POST", "/invocations", UNLISTED, _VLLM + "; SageMaker's door, which leads to all others"),
)
"""The inference APIs that are known. What is not here, and why: commands (`/sleep`, `/v1/load_lora_adapter`, `/update_weights`, `/flush_cache`, `/v2/repository/…`, `/api/pull`, profilers), what tells of
a server (`/metrics`, `/server_info`, `/version`, `/openapi.json`, `/docs`; `/v2/models/*`, which `/v2/models/stats` is, too), and doors that lead to any of the others (`/invocations`).
"""
GROUPS = frozenset(one.group for one in ENDPOINTS) - {UNLISTED}


def pattern_of(path: str) -> bytes:
    """A regular expression of the paths that a row's pattern stands for."""
    whole = path.removesuffix("/**")
    found = re.escape(whole).replace(r"\*", "[^/]+").encode()
    return found if whole == path else found + rb"(?:/[^/]++)++"


_ROWS = {(one.method.encode(), one.path.encode()): one for one in ENDPOINTS if "*" not in one.path}
_KINDS = {place: one.kind for place, one in _ROWS.items()}
_PATTERNS = [
    (one.method.encode(), re.compile(pattern_of(one.path)), one) for one in ENDPOINTS if "*" in one.path
]
_SHORT = 256
"""Bytes of a path or target of which something is remembered: anybody can make them up."""
_MODEL_NAMED = re.compile(rb"/v2/models/([^/]+)/.+|/v1/models/(.+):[^:]+")


def endpoint_of(method: bytes, path: bytes) -> KnownEndpoint | None:
    """The row of a request. Servers decode a path before they compare it, and some take a slash at its end for none. None: the endpoint is not known."""
    return _remembered(method, path) if len(path) <= _SHORT else _row_of(method, path)


def _plain(path: bytes) -> bytes:
    """A path as servers compare it."""
    return unquote_to_bytes(path).rstrip(b"/")


def _row_of(method: bytes, path: bytes) -> KnownEndpoint | None:
    found = _ROWS.get((method, path))
    if found is None:
        plain = _plain(path)
        found = _ROWS.get((method, plain))
    if found is None:
        rows = (row for of, pattern, row in _PATTERNS if of == method and pattern.fullmatch(plain))
        found = next(rows, None)
    return found


def body_kind(method: bytes, path: bytes) -> BodyKind:
    """Where a request names its model."""
    found = _KINDS.get((method, path))
    if found is None:
        row = endpoint_of(method, path)
        unknown = BodyKind.UNKNOWN if method == b"POST" else BodyKind.NONE
        found = unknown if row is None else row.kind
    return found


def runs_model(method: bytes, path: bytes) -> bool:
    """Whether an answer takes a model's work, as far as is known."""
    found = endpoint_of(method, path)
    counts = path.endswith(b"/count_tokens")
    return found is not None and found.group == INFERENCE and found.kind is not BodyKind.NONE and not counts


_remembered = lru_cache(maxsize=1024)(_row_of)


def model_in(path: bytes) -> str | None:
    """The model that a path names; None: it names none that is UTF-8."""
    found = _MODEL_NAMED.fullmatch(unquote_to_bytes(path))
    try:
        return None if found is None else (found[1] or found[2]).decode()
    except UnicodeDecodeError:
        return None


# --- What one server has made and keeps, and requests that go on with it: responses, conversations, files, batches.
#
# Such a thing has an id that its server gave it. Who asks for it must be led to that server: any other says 404, though it is there.
#
# | where the id stands | examples |
# |---|---|
# | in the path | `GET /v1/responses/ID`, `POST /v1/responses/ID/cancel`, `GET /v1/files/ID/content`, `POST /v1/threads/ID/runs` |
# | in the body | `previous_response_id` and `conversation` of `POST /v1/responses`, `input_file_id` of `POST /v1/batches` |
# | in the answer | the first `id` of what answers the POST that makes it, also in the first event of a stream |
#
# Source: OpenAI API reference (platform.openai.com/docs/api-reference, 2026-11); vLLM 0.32 keeps responses in one process's memory.


MAX_ID = 256
"""Characters of an id: longer ones are none."""
LOOKED_AT = 8192
"""Bytes of an answer's beginning, with its head, in which an id is looked for."""
NOT_THERE = frozenset((400, 404))
"""Statuses by which servers say that they have not what is asked for."""
_MAKES = rb"responses|conversations|files|uploads|batches|vector_stores|containers|assistants|threads|threads/runs|fine_tuning/jobs"
_MADE = re.compile(rb"/v1/(?:%b)" % _MAKES)
_NAMED = re.compile(
    rb"/v1/(?:responses|conversations|chat/completions|files|uploads|batches|vector_stores|containers|assistants|threads|fine_tuning/jobs)/([^/?]+)"
)
_ID = re.compile(rb'"id"\s*:\s*"([A-Za-z0-9_.:-]{1,%d})"' % MAX_ID)


def makes_state(method: bytes, path: bytes) -> bool:
    """Whether a request makes something that its server keeps."""
    return method == b"POST" and _MADE.fullmatch(_plain(path)) is not None


_CONTINUES = frozenset((b"/v1/responses", b"/v1/batches"))
"""Paths whose requests may name in their body what they go on with."""


def continues(method: bytes, path: bytes) -> bool:
    """Whether a request may name in its body what it goes on with."""
    return method == b"POST" and _plain(path) in _CONTINUES


def says_absent(status: int, body: bytes, thing: str) -> bool:
    """Whether a server says that it has not what a request goes on with: by 404, or, as OpenAI's API says it, by a 400 that names it."""
    return status == 404 or (status == 400 and thing.encode() in body)


def named_in(target: bytes) -> str | None:
    """The id that a path names; None: it names none."""
    found = _NAMED.match(target)
    if found is None or len(found[1]) > MAX_ID or found[0] == b"/v1/threads/runs":
        return None
    return found[1].decode("latin-1")


class IdFinder:
    """Finds the id of what a server has made, in what it sends: framing and all. Text of clients and models cannot pass for it: its quotes are escaped."""

    __slots__ = ("_begin", "id")

    def __init__(self) -> None:
        self._begin = b""
        self.id = ""

    def piece(self, data: bytes) -> None:
        """Look into some more, as long as nothing is found and it is the beginning."""
        if self.id or len(self._begin) >= LOOKED_AT:
            return
        self._begin += data[:LOOKED_AT]
        found = _ID.search(self._begin)
        if found is not None:
            self.id, self._begin = found[1].decode(), b""


# --- What follows from a request's method and target alone: worked out once for each of those that come again. ---


class RequestTarget(NamedTuple):
    """What a request asks for, by its method and target.

    Args:
        path: the target without its query.
        kind: where its body names the model.
        makes_text: it is answered with tokens that a model makes for it.
        makes_state: its server keeps what it makes, for later requests.
        names: the id of what one server has, which the path names; None: it names none.
        runs_model: its answer takes a model's work, as far as is known: no list, no count of tokens.
        continues: its body may name what one server has.
    """

    path: bytes = b""
    kind: BodyKind = BodyKind.NONE
    makes_text: bool = False
    makes_state: bool = False
    names: str | None = None
    runs_model: bool = False
    continues: bool = False


NOWHERE = RequestTarget()


def target_of(method: bytes, target: bytes) -> RequestTarget:
    """What a request of this method and target asks for."""
    return _remembered_target(method, target) if len(target) <= _SHORT else _worked_out(method, target)


def _worked_out(method: bytes, target: bytes) -> RequestTarget:
    path = target.partition(b"?")[0]
    return RequestTarget(
        path,
        body_kind(method, path),
        makes_text(method, path),
        makes_state(method, path),
        named_in(target),
        runs_model(method, path),
        continues(method, path),
    )


_remembered_target = lru_cache(maxsize=1024)(_worked_out)


# --- Which requests a balancer carries, by method and path: a list of what is allowed, by default the inference APIs of the servers that are known. ---
#
# Model servers take commands on the port that they answer on: weights are changed, adapters loaded, caches dropped, engines put to sleep by whoever can send a request. What
# is not on the list stays out.
#
# **What is compared is what is sent.** A path is compared byte by byte, case and percent-encoding included (RFC 3986 §6.2.2.1), and goes on as it came. So that no server
# can read another path in it, it is refused (400) where it has an encoded slash, backslash or NUL, an encoding that is none, an empty segment, or a segment that is a dot or
# two once it is decoded or freed of its parameters (`..;x`).
#
# Of a pattern `*` stands for one or more characters of one segment, and `/**` at its end for one or more segments. Whoever may GET may HEAD, and a browser may ask (OPTIONS, CORS) for
# whatever is there.


_ENTRY = re.compile(r"([A-Z][A-Z0-9-]*(?:,[A-Z][A-Z0-9-]*)*) (/[!-~]*)")
_SAFE = re.compile(rb"(?:/[!-.0-Z^-~]++)++/?|/")
"""Segments none of which is empty; no backslash, which some servers take for a slash."""
_ENCODED = re.compile(rb"%(?![0-9A-Fa-f]{2})|%(?:2[Ff]|5[Cc]|00)")
_DOTS = re.compile(rb"/(?:\.|%2[Ee]){1,2}(?:[;/]|%3[Bb]|\Z)")


class Paths:
    """A list of what is carried.

    Args:
        entries: names of groups, and `METHOD /path` or `METHOD,METHOD /path` with `*` and `**`.

    Raises:
        ValueError: an entry is neither.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        exact: set[tuple[bytes, bytes]] = set()
        patterns: dict[bytes, list[bytes]] = {}
        for entry in entries:
            for method, path in _rows(entry):
                also = (b"GET", b"HEAD") if method == "GET" else (method.encode(),)
                for one in (*also, b"OPTIONS"):
                    if "*" in path:
                        patterns.setdefault(one, []).append(pattern_of(path))
                    else:
                        exact.add((one, path.encode()))
        self._exact = frozenset(exact)
        self._patterns = {method: re.compile(b"|".join(found)) for method, found in patterns.items()}

    def lists(self, method: bytes, target: bytes) -> bool:
        """Whether a request is one of these, as its path stands."""
        path = target.partition(b"?")[0]
        pattern = self._patterns.get(method)
        return (method, path) in self._exact or (pattern is not None and bool(pattern.fullmatch(path)))

    def refusal(self, method: bytes, target: bytes) -> Refusal | None:
        """Why a request is not carried; None if it is."""
        path = target.partition(b"?")[0]
        if (method, path) in self._exact:
            return None
        wrong = ambiguous(path)
        if wrong is not None:
            return Refusal(400, "path_ambiguous", f"the path can be read in two ways: it has {wrong}")
        pattern = self._patterns.get(method)
        if pattern is not None and pattern.fullmatch(path):
            return None
        said = path[:200].decode("latin-1")
        return Refusal(
            404,
            "path_not_carried",
            f"`{method.decode('latin-1')[:20]} {said}` is not among the methods and paths that this balancer carries: see `paths` in its file",
        )


def _rows(entry: str) -> Sequence[tuple[str, str]]:
    if entry in GROUPS:
        return [(one.method, one.path) for one in ENDPOINTS if one.group == entry]
    found = _ENTRY.fullmatch(entry)
    if found is None:
        names = ", ".join(sorted(GROUPS))
        raise ValueError(
            f"`{entry[:200]}` is neither `METHOD /path`, as in `POST /v1/chat/completions`, nor one of {names}"
        )
    path = found[2]
    if "**" in path and not re.fullmatch(r"[^*]*(?:\*(?!\*)[^*]*)*/\*\*", path):
        raise ValueError(f"`{entry[:200]}`: `**` stands for the rest of a path, as in `GET /files/**`")
    wrong = ambiguous(path.encode().replace(b"*", b"x"))
    if wrong is not None:
        raise ValueError(f"`{entry[:200]}` would never be met: it has {wrong}, and such paths are refused")
    return [(method, path) for method in found[1].split(",")]


def ambiguous(path: bytes) -> str | None:
    """What of a path servers may read in different ways; None: nothing."""
    if not _SAFE.fullmatch(path):
        return "an empty segment, a backslash, or a byte that no path has"
    if b"%" in path and _ENCODED.search(path):
        return "an encoded slash, backslash or NUL, or an encoding that is none"
    if _DOTS.search(path):
        return "a segment `.` or `..`"
    return None
