"""The endpoints of model servers that are known: methods, paths, whose they are, and how the body of each says what it is for.

The columns of methods and paths are what a balancer carries by default (`gtm.balancer.wire.paths`); the last one is what it reads where a limit goes by the body (`gtm.balancer.wire.bodies`).
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes


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


class KnownEndpoint(NamedTuple):
    """A row of the table: a method, a pattern of paths, the group of the file's `paths` that it is in, who answers there, by which version and document; and where the model is named.

    Of a pattern `*` stands for one or more characters of one segment, and `/**` at its end for one or more segments.
    """

    method: str
    path: str
    group: str
    source: str
    body: BodyKind | None = None
    """None: in JSON, if the method is POST."""

    @property
    def kind(self) -> BodyKind:
        """Where a request to it names its model."""
        return self.body or (BodyKind.JSON if self.method == "POST" else BodyKind.NONE)


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
_OLLAMA = "Ollama (docs/api.md)"

ENDPOINTS: tuple[KnownEndpoint, ...] = (
    KnownEndpoint("POST", "/v1/chat/completions", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/completions", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/embeddings", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/responses", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/responses/*", INFERENCE, _OPENAI),
    KnownEndpoint("DELETE", "/v1/responses/*", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/responses/*/cancel", INFERENCE, _OPENAI, BodyKind.NONE),
    KnownEndpoint("GET", "/v1/responses/*/input_items", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/audio/transcriptions", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/audio/translations", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/audio/speech", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/images/generations", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/images/edits", INFERENCE, _OPENAI, BodyKind.FORM),
    KnownEndpoint("POST", "/v1/moderations", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/realtime", INFERENCE, _OPENAI, BodyKind.SOCKET),
    KnownEndpoint("GET", "/v1/models", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/models/**", INFERENCE, _OPENAI + "; names of models have slashes"),
    KnownEndpoint("POST", "/v1/messages", INFERENCE, _ANTHROPIC),
    KnownEndpoint("POST", "/v1/messages/count_tokens", INFERENCE, _ANTHROPIC),
    KnownEndpoint("POST", "/rerank", INFERENCE, _VLLM + "; " + _TEI),
    KnownEndpoint("POST", "/v1/rerank", INFERENCE, _VLLM + "; " + _SGLANG),
    KnownEndpoint("POST", "/v2/rerank", INFERENCE, _VLLM),
    KnownEndpoint("POST", "/score", INFERENCE, _VLLM),
    KnownEndpoint("POST", "/v1/score", INFERENCE, _VLLM + "; " + _SGLANG),
    KnownEndpoint("POST", "/pooling", INFERENCE, _VLLM),
    KnownEndpoint("POST", "/classify", INFERENCE, _VLLM + "; " + _SGLANG),
    KnownEndpoint("POST", "/encode", INFERENCE, _SGLANG),
    KnownEndpoint("POST", "/generate", INFERENCE, _TGI + "; " + _SGLANG),
    KnownEndpoint("POST", "/generate_stream", INFERENCE, _TGI),
    KnownEndpoint("POST", "/embed", INFERENCE, _TEI),
    KnownEndpoint("POST", "/embed_all", INFERENCE, _TEI),
    KnownEndpoint("POST", "/embed_sparse", INFERENCE, _TEI),
    KnownEndpoint("POST", "/similarity", INFERENCE, _TEI),
    KnownEndpoint("POST", "/predict", INFERENCE, _TEI),
    KnownEndpoint("GET", "/v2", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/health/live", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/health/ready", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/models/*/ready", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/models/*/versions/*", INFERENCE, _KSERVE),
    KnownEndpoint("GET", "/v2/models/*/versions/*/ready", INFERENCE, _KSERVE),
    KnownEndpoint("POST", "/v2/models/*/infer", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/infer", INFERENCE, _KSERVE, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/generate", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/generate_stream", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate_stream", INFERENCE, _TRITON, BodyKind.PATH),
    KnownEndpoint("POST", "/v1/models/*:predict", INFERENCE, _KSERVE_1, BodyKind.PATH),
    KnownEndpoint("POST", "/v1/models/*:explain", INFERENCE, _KSERVE_1, BodyKind.PATH),
    KnownEndpoint("POST", "/completion", INFERENCE, _LLAMA),
    KnownEndpoint("POST", "/infill", INFERENCE, _LLAMA),
    KnownEndpoint("POST", "/api/chat", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/api/generate", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/api/embed", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/api/embeddings", INFERENCE, _OLLAMA),
    KnownEndpoint("GET", "/api/tags", INFERENCE, _OLLAMA),
    KnownEndpoint("POST", "/tokenize", TOKENIZE, _VLLM + "; " + _SGLANG + "; " + _TEI + "; " + _LLAMA),
    KnownEndpoint("POST", "/detokenize", TOKENIZE, _VLLM + "; " + _SGLANG + "; " + _LLAMA),
    KnownEndpoint("POST", "/decode", TOKENIZE, _TEI),
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


_KINDS = {(one.method.encode(), one.path.encode()): one.kind for one in ENDPOINTS if "*" not in one.path}
_PATTERNS = [
    (one.method.encode(), re.compile(pattern_of(one.path)), one.kind) for one in ENDPOINTS if "*" in one.path
]
_SHORT = 256
"""Bytes of a path whose kind is remembered: anybody can make up paths."""
_NAMED = re.compile(rb"/v2/models/([^/]+)/.+|/v1/models/(.+):[^:]+")


def body_kind(method: bytes, path: bytes) -> BodyKind:
    """Where a request names its model. Servers decode a path before they compare it, and some take a slash at its end for none."""
    return _remembered(method, path) if len(path) <= _SHORT else _kind_of(method, path)


def _kind_of(method: bytes, path: bytes) -> BodyKind:
    found = _KINDS.get((method, path))
    if found is None:
        plain = unquote_to_bytes(path).rstrip(b"/")
        found = _KINDS.get((method, plain))
    if found is None:
        kinds = (kind for of, pattern, kind in _PATTERNS if of == method and pattern.fullmatch(plain))
        found = next(kinds, BodyKind.UNKNOWN if method == b"POST" else BodyKind.NONE)
    return found


_remembered = lru_cache(maxsize=1024)(_kind_of)


def model_in(path: bytes) -> str | None:
    """The model that a path names; None: it names none that is UTF-8."""
    found = _NAMED.fullmatch(unquote_to_bytes(path))
    try:
        return None if found is None else (found[1] or found[2]).decode()
    except UnicodeDecodeError:
        return None
