"""Which requests are carried: real names of real servers, and the ways in which one path is read as another."""

from __future__ import annotations

import re
import tracemalloc
from itertools import chain, product
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.wire.endpoints import ENDPOINTS, GROUPS, INFERENCE, UNLISTED, Paths, ambiguous
from tests.balancer.world import Backend, Message, answering, run, world

DEFAULT = Paths([INFERENCE])

VLLM = """
POST /detokenize
GET /docs
POST /generative_scoring
GET /health
POST /inference/v1/abort_requests
POST /inference/v1/generate
POST /invocations
POST /is_scaling_elastic_ep
GET /kv_event_sources
GET /load
GET /metrics
GET /openapi.json
GET /ping
GET /redoc
POST /scale_elastic_ep
POST /tokenize
POST /v1/chat/completions +
POST /v1/chat/completions/batch
POST /v1/chat/completions/render
POST /v1/completions +
POST /v1/completions/render
POST /v1/messages +
POST /v1/messages/count_tokens +
GET /v1/models +
POST /v1/responses +
GET /v1/responses/resp_1 +
POST /v1/responses/resp_1/cancel +
GET /version
POST /v1/load_lora_adapter
POST /v1/unload_lora_adapter
POST /sleep
POST /wake_up
GET /is_sleeping
POST /reset_prefix_cache
POST /reset_mm_cache
POST /reset_encoder_cache
POST /collective_rpc
POST /start_profile
POST /stop_profile
GET /server_info
POST /pause
POST /resume
POST /v1/embeddings +
POST /v1/rerank +
POST /v1/audio/transcriptions +
"""
"""Routes of vLLM 0.32 as it lists them at its start, and those that it has with adapters allowed or in its development mode. `+`: carried."""
OTHERS = """
SGLang POST /generate +
SGLang POST /encode +
SGLang POST /v1/score +
SGLang POST /flush_cache
SGLang GET /flush_cache
SGLang POST /update_weights_from_disk
SGLang POST /update_weights_from_distributed
SGLang POST /init_weights_update_group
SGLang POST /release_memory_occupation
SGLang POST /resume_memory_occupation
SGLang POST /abort_request
SGLang GET /server_info
SGLang GET /get_server_info
SGLang POST /start_profile
SGLang POST /start_expert_distribution_record
SGLang POST /set_internal_state
Triton POST /v2/models/llama/infer +
Triton POST /v2/models/llama/generate +
Triton POST /v2/models/llama/versions/3/generate_stream +
Triton GET /v2/models/llama/ready +
Triton POST /v2/repository/index
Triton POST /v2/repository/models/llama/load
Triton POST /v2/repository/models/llama/unload
Triton GET /v2/models/stats
Triton GET /v2/models/llama/stats
Triton POST /v2/models/llama/trace/setting
Triton POST /v2/logging
Triton POST /v2/systemsharedmemory/region/x/register
Triton POST /v2/cudasharedmemory/region/x/register
KServe POST /v1/models/llama:predict +
TGI POST /generate_stream +
TGI GET /info
TGI GET /metrics
TEI POST /embed +
TEI POST /rerank +
llama.cpp POST /completion +
llama.cpp POST /props
llama.cpp POST /slots/0
llama.cpp POST /lora-adapters
llama.cpp POST /models/load
Ollama POST /api/chat +
Ollama POST /api/pull
Ollama DELETE /api/delete
Ollama POST /api/create
Ollama POST /api/copy
Ollama POST /api/push
uvicorn GET /
any GET /v1/models/meta-llama/Llama-3.1-8B-Instruct +
any DELETE /v1/models/meta-llama/Llama-3.1-8B-Instruct
any POST /v1/models
any PUT /v1/chat/completions
any TRACE /v1/chat/completions
any HEAD /v1/models +
any OPTIONS /v1/chat/completions +
"""


def _cases() -> list[tuple[str, str, bool]]:
    lines = [line for line in VLLM.splitlines() if line]
    lines += [line.partition(" ")[2] for line in OTHERS.splitlines() if line]
    words = [line.split(" ") for line in lines]
    return [(one[0], one[1], len(one) > 2) for one in words]


@pytest.mark.parametrize(("method", "path", "carried"), _cases())
def test_what_servers_are_asked(method: str, path: str, carried: bool) -> None:
    """Inference is carried; commands, and what tells of a server, are not."""
    for query in ("", "?x=/../y"):
        refusal = DEFAULT.refusal(method.encode(), (path + query).encode())
        assert carried == (refusal is None), refusal
        assert refusal is None or (refusal.status, refusal.code) == (404, "path_not_carried")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/a%2Fb", "/v1/models/a%2fb", "/v1/models/a%5Cb", "/v1/models/a%00", "/v1/models/a%0", "/v1/models/%", "/v1/models/%zz", "//v1/models", "/v1//models",
        "/v1/models//x", "/v1/models/a//b", "/v1/models/./x", "/v1/models/../sleep", "/v1/models/..", "/v1/models/%2e%2e/sleep", "/v1/models/.%2E/sleep", "/v1/models/..;x=y/sleep",
        "/v1/models/%2e;/x", "/v1/models/a\\b", "/v1/models/..\\sleep", "*", "/v1/models/\xe9", "v1/models",
    ],
)  # fmt: skip
def test_paths_that_can_be_read_in_two_ways(path: str) -> None:
    """Refused, also where a pattern would take them (`GET /v1/models/**`), with the setting's list or another."""
    for paths in (DEFAULT, Paths(["GET /**"])):
        refusal = paths.refusal(b"GET", path.encode("latin-1"))
        assert refusal is not None
        assert (refusal.status, refusal.code) == (400, "path_ambiguous")


@pytest.mark.parametrize("path", ["/v1/chat/%63ompletions", "/V1/chat/completions", "/v1/chat/completions/", "/v1/chat/Completions", "/v1/chat/completions;x", "/v1/chat/completions%20"])  # fmt: skip
def test_what_is_compared_is_what_is_sent(path: str) -> None:
    """Another spelling is another path here, whatever a server makes of it."""
    refusal = DEFAULT.refusal(b"POST", path.encode())
    assert refusal is not None
    assert refusal.status == 404


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("/v1/config/../_operatortokendef", "denn-gubsky/loomcycle#854"),
        ("/v1/config/..%2f_operatortokendef", "denn-gubsky/loomcycle#854"),
        ("/v1/%5foperatortokendef", "denn-gubsky/loomcycle#854"),
        ("/v1/models/hassio%255Fauth/../x", "home-assistant/supervisor#7225"),
        ("/v1/models/%2e%2e/%2e%2e/v2/vectordb/collections/list", "linagora/openrag#834"),
        ("/v1/models/%2e%2e%2fetc%2fpasswd", "BaseIntelligence/bounty-challenge#6583"),
        ("/%761/models", "nolabs-ai/nono#528"),
        ("/v1/models/https%3A%2F%2Fexample.com", "pi-hole/FTL#2747"),
    ],
)
def test_what_was_reported_of_others(target: str, source: str) -> None:
    """Paths by which other proxies' lists were passed (and one that others refuse, too): none is carried."""
    assert DEFAULT.refusal(b"GET", target.encode()) is not None, source


def test_what_others_forgot_is_carried() -> None:
    """Rerank and score (voidmind-io/voidllm#196); `%255F` is the text `%5F` for who decodes once, and goes on as it came (home-assistant/supervisor#7225)."""
    assert DEFAULT.refusal(b"POST", b"/v1/rerank") is None
    assert DEFAULT.refusal(b"POST", b"/v1/score") is None
    assert DEFAULT.refusal(b"GET", b"/v1/models/a%255Fb") is None


@given(st.text("/.%25cfeFE0;\\ab*", max_size=12))
def test_what_passes_decodes_to_what_the_list_says(text: str) -> None:
    """Whatever passes: once decoded, without its parameters, as a server may take it, it is still below what is allowed."""
    target = ("/v1/models/" + text).encode()
    if DEFAULT.refusal(b"GET", target) is None:
        decoded = unquote(target.decode().partition("?")[0])
        segments = [one.partition(";")[0] for one in re.split(r"[/\\]", decoded)]
        assert segments[:3] == ["", "v1", "models"]
        assert not {".", ".."} & {*segments}
        assert "" not in decoded.split("/")[1:]


_PARTS = (b".", b"%2e", b"%2E", b"/", b";", b"%3b", b"%3B", b"a", b"%41", b"%252e")


@pytest.mark.parametrize("first", _PARTS)
def test_dots_are_found_however_they_are_written(first: bytes) -> None:
    """A segment is a dot or two once it is decoded and freed of its parameters: all paths of up to five such parts."""
    for rest in chain.from_iterable(product(_PARTS, repeat=count) for count in range(5)):
        path = b"/" + first + b"".join(rest)
        if b"//" in path:
            continue
        dots = any(
            unquote_to_bytes(segment).partition(b";")[0] in (b".", b"..") for segment in path.split(b"/")
        )
        assert (ambiguous(path) is not None) is dots, path


def test_little_is_held() -> None:
    """Of a path of encodings: no list of them."""
    path = b"/files/" + b"%2e" * 10_000 + b"a"
    tracemalloc.start()
    try:
        assert ambiguous(path) is None
        assert tracemalloc.get_traced_memory()[1] < len(path)
    finally:
        tracemalloc.stop()


def test_own_lists() -> None:
    """Methods and patterns as they are written; groups besides."""
    paths = Paths(["tokenize", "GET,PUT /files/*/meta", "POST /jobs/**", "GET /v1/x*y"])
    taken = [
        "POST /tokenize",
        "GET /files/a/meta",
        "PUT /files/a/meta",
        "HEAD /files/a/meta",
        "OPTIONS /jobs/a",
        "POST /jobs/a/b",
        "GET /v1/x-y",
    ]
    others = [
        "GET /tokenize",
        "POST /files/a/meta",
        "GET /files/a/b/meta",
        "GET /files//meta",
        "POST /jobs",
        "POST /jobs/",
        "GET /jobs/a",
        "GET /v1/xy",
        "POST /v1/completions",
    ]
    for asked in (*taken, *others):
        method, _, path = asked.partition(" ")
        assert (paths.refusal(method.encode(), path.encode()) is None) == (asked in taken), asked


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "all",
        "GET",
        "get /x",
        "GET x",
        "GET /a b",
        "GET /**/b",
        "GET /a**",
        "GET /a//b",
        "GET /a/../b",
        "GET /a%2Fb",
        "GET /é",
    ],
)
def test_entries_that_are_none(entry: str) -> None:
    """Said at the start, not when a request is refused."""
    with pytest.raises(ValueError, match=r"neither|stands for|never be met"):
        Paths([entry])


def test_the_table_says_where_it_is_from() -> None:
    """Each row once, with a source."""
    rows = [(one.method, one.path) for one in ENDPOINTS]
    assert len(rows) == len(set(rows))
    assert all(one.source and one.group in {*GROUPS, UNLISTED} for one in ENDPOINTS)


def test_the_page_has_the_table() -> None:
    """Each row of it, in its group, with its source."""
    lines = (Path(__file__).parents[2] / "docs" / "balancer.md").read_text().splitlines()
    for one in ENDPOINTS:
        if one.group == UNLISTED:
            continue
        row = f"`{one.method} {one.path}`"
        assert [
            line
            for line in lines
            if row in line and line.startswith(f"| `{one.group}` |") and line.endswith(f"| {one.source} |")
        ], row


def test_refused_before_anything_is_sent() -> None:
    """No backend sees it; the client reads which setting it is, and its connection goes on; what is allowed goes on as it came."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(
            await Backend(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", seen=seen)).start()
        ) as w:
            w.proxy.paths = DEFAULT
            client = await w.client()
            for path, status in (
                (b"/sleep", 404),
                (b"/v1/models/%2e%2e/x", 400),
                (b"/v1/models/a%20b?c=%2F", 200),
            ):
                client.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
                answer = await client.response()
                assert answer.status == status
                assert (b"`paths`" in answer.body) == (status == 404)
            assert [one.start for one in seen] == [b"GET /v1/models/a%20b?c=%2F HTTP/1.1"]

    run(main)
