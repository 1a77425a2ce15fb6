"""Which requests a balancer carries, by method and path: a list of what is allowed, by default the inference APIs of the servers that are known.

Model servers take commands on the port that they answer on: weights are changed, adapters loaded, caches dropped, engines put to sleep by whoever can send a request. What
is not on the list stays out.

**What is compared is what is sent.** A path is compared byte by byte, case and percent-encoding included (RFC 3986 §6.2.2.1), and goes on as it came. So that no server
can read another path in it, it is refused (400) where it has an encoded slash, backslash or NUL, an encoding that is none, an empty segment, or a segment that is a dot or
two once it is decoded or freed of its parameters (`..;x`).

Of a pattern `*` stands for one or more characters of one segment, and `/**` at its end for one or more segments. Whoever may GET may HEAD, and a browser may ask (OPTIONS, CORS) for
whatever is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gtm.balancer.wire.refusals import Refusal

INFERENCE = "inference"
TOKENIZE = "tokenize"


class KnownEndpoint(NamedTuple):
    """A row of the table: a method, a pattern of paths, the group of the file's `paths` that it is in, and who answers there, by which version and document."""

    method: str
    path: str
    group: str
    source: str


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
    KnownEndpoint("POST", "/v1/responses/*/cancel", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/responses/*/input_items", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/audio/transcriptions", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/audio/translations", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/audio/speech", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/images/generations", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/images/edits", INFERENCE, _OPENAI),
    KnownEndpoint("POST", "/v1/moderations", INFERENCE, _OPENAI),
    KnownEndpoint("GET", "/v1/realtime", INFERENCE, _OPENAI),
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
    KnownEndpoint("POST", "/v2/models/*/infer", INFERENCE, _KSERVE),
    KnownEndpoint("POST", "/v2/models/*/versions/*/infer", INFERENCE, _KSERVE),
    KnownEndpoint("POST", "/v2/models/*/generate", INFERENCE, _TRITON),
    KnownEndpoint("POST", "/v2/models/*/generate_stream", INFERENCE, _TRITON),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate", INFERENCE, _TRITON),
    KnownEndpoint("POST", "/v2/models/*/versions/*/generate_stream", INFERENCE, _TRITON),
    KnownEndpoint("POST", "/v1/models/*:predict", INFERENCE, _KSERVE_1),
    KnownEndpoint("POST", "/v1/models/*:explain", INFERENCE, _KSERVE_1),
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
)
"""The inference APIs that are known. What is not here, and why: commands (`/sleep`, `/v1/load_lora_adapter`, `/update_weights`, `/flush_cache`, `/v2/repository/…`, `/api/pull`, profilers), what tells of
a server (`/metrics`, `/server_info`, `/version`, `/openapi.json`, `/docs`; `/v2/models/*`, which `/v2/models/stats` is, too), and doors that lead to any of the others (`/invocations`).
"""
GROUPS = frozenset(one.group for one in ENDPOINTS)

_ENTRY = re.compile(r"([A-Z][A-Z0-9-]*(?:,[A-Z][A-Z0-9-]*)*) (/[!-~]*)")
_SAFE = re.compile(rb"(?:/[!-.0-Z^-~]+)+/?|/")
"""Segments none of which is empty; no backslash, which some servers take for a slash."""
_ENCODED = re.compile(rb"%(?![0-9A-Fa-f]{2})|%(?:2[Ff]|5[Cc]|00)")
_DOTS = (b".", b"..")


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
                for one in _methods(method):
                    if "*" in path:
                        patterns.setdefault(one, []).append(_pattern(path))
                    else:
                        exact.add((one, path.encode()))
        self._exact = frozenset(exact)
        self._patterns = {method: re.compile(b"|".join(found)) for method, found in patterns.items()}

    def refusal(self, method: bytes, target: bytes) -> Refusal | None:
        """Why a request is not carried; None if it is."""
        path = target.partition(b"?")[0]
        if (method, path) in self._exact:
            return None
        wrong = _ambiguous(path)
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
    wrong = _ambiguous(path.encode().replace(b"*", b"x"))
    if wrong is not None:
        raise ValueError(f"`{entry[:200]}` would never be met: it has {wrong}, and such paths are refused")
    return [(method, path) for method in found[1].split(",")]


def _methods(method: str) -> tuple[bytes, ...]:
    return (b"GET", b"HEAD", b"OPTIONS") if method == "GET" else (method.encode(), b"OPTIONS")


def _pattern(path: str) -> bytes:
    whole = path.removesuffix("/**")
    found = re.escape(whole).replace(r"\*", "[^/]+").encode()
    return found if whole == path else found + rb"(?:/[^/]+)+"


def _ambiguous(path: bytes) -> str | None:
    """What of a path servers may read in different ways; None: nothing."""
    if not _SAFE.fullmatch(path):
        return "an empty segment, a backslash, or a byte that no path has"
    if b"%" in path and _ENCODED.search(path):
        return "an encoded slash, backslash or NUL, or an encoding that is none"
    if b"." in path or b"%2" in path:
        for segment in path.split(b"/"):
            if unquote_to_bytes(segment).partition(b";")[0] in _DOTS:
                return "a segment `.` or `..`"
    return None
