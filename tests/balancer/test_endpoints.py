"""The table of endpoints that are known, held against the routes that servers have and against what requests to them say."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gtm.balancer.wire.endpoints import (
    ENDPOINTS,
    INFERENCE,
    TOKENIZE,
    UNLISTED,
    BodyKind,
    body_kind,
    endpoint_of,
    model_in,
)
from gtm.balancer.wire.facts import Body, read_facts
from gtm.balancer.wire.heads import read_head
from tests.balancer.vllm_routes import ROUTES

NOT_KNOWN = {
    "/docs": "tells of a server",
    "/docs/oauth2-redirect": "tells of a server",
    "/redoc": "tells of a server",
    "/openapi.json": "tells of a server",
    "/version": "tells of a server",
    "/metrics": "tells of a server",
    "/load": "tells of a server",
    "/kv_event_sources": "tells of a server",
    "/health": "checks a server: the balancer's own checks ask it",
    "/ping": "checks a server, as SageMaker does",
    "/scale_elastic_ep": "a command",
    "/is_scaling_elastic_ep": "a command's progress",
    "/inference/v1/abort_requests": "a command, which ends others' requests",
}


def test_each_route_of_vllm_is_known_or_deliberately_not() -> None:
    """None is forgotten, and none of those that are left out has come in by a pattern."""
    routes = [line.split() for line in ROUTES.strip().splitlines()]
    assert len(routes) == 35
    for methods, path in routes:
        for method in methods.split(","):
            row = endpoint_of(method.encode(), path.replace("{response_id}", "resp_1").encode())
            assert (row is None) is (path in NOT_KNOWN), (method, path)
            assert row is None or "vLLM 0.32" in row.source, path
    assert {path for _, path in routes} >= NOT_KNOWN.keys()


def test_what_a_row_says_is_read() -> None:
    """Each name of the table is one that bodies are read for; rows say where they are from, and by which version or document."""
    read = set(Body.__struct_fields__)
    for row in ENDPOINTS:
        assert row.group in (INFERENCE, TOKENIZE, UNLISTED)
        assert any(mark.isdigit() for mark in row.source) or "(" in row.source, row
        stated = (*row.says.tokens, *row.says.session, *([row.says.stream] if row.says.stream else []))
        assert {name.partition(".")[0] for name in stated} <= read, row
        assert not stated or row.kind is BodyKind.JSON, row


@pytest.mark.parametrize(
    ("path", "body", "limit", "session"),
    [
        ("/v1/chat/completions", {"max_tokens": 7, "user": "u"}, 7, "u"),
        ("/v1/chat/completions", {"options": {"num_predict": 7}, "metadata": {"user_id": "u"}}, None, None),
        ("/v1/messages", {"max_tokens": 7, "metadata": {"user_id": "u"}}, 7, "u"),
        ("/v1/messages", {"metadata": {"user_id": 7}}, None, None),
        ("/v1/messages", {"metadata": "u"}, None, None),
        ("/v1/messages", {"metadata": {"user_id": "u" * 300}}, None, None),
        ("/generate", {"parameters": {"max_new_tokens": 7}}, 7, None),
        ("/generate", {"sampling_params": {"max_new_tokens": 8}}, 8, None),
        ("/generate", {"sampling_params": [{"max_new_tokens": 8}]}, None, None),
        ("/generate_stream", {"parameters": {"max_new_tokens": 7}}, 7, None),
        ("/completion", {"n_predict": 7}, 7, None),
        ("/completion", {"n_predict": -1}, None, None),
        ("/api/chat", {"options": {"num_predict": 7, "num_ctx": 9}}, 7, None),
        ("/api/chat", {"options": {"num_predict": "x"}}, None, None),
        ("/inference/v1/generate", {"sampling_params": {"max_tokens": 7}}, 7, None),
    ],
)
def test_what_each_api_says_of_its_work(
    path: str, body: dict[str, Any], limit: int | None, session: str | None
) -> None:
    """Where its documents have it, and nowhere else: what a server does not read says nothing."""
    raw = json.dumps({"model": "m", **body}).encode()
    head = read_head(
        b"POST",
        path.encode(),
        "1.1",
        [(b"Host", b"a"), (b"Content-Length", b"%d" % len(raw))],
        keep_alive=True,
    )
    found = read_facts(head, raw)
    assert (found.model, found.max_tokens, found.session) == ("m", limit, session)
    assert msgspec.json.decode(raw)["model"] == "m"


@pytest.mark.parametrize(
    ("method", "path", "kind", "model"),
    [
        (b"GET", b"/v2/models/big/ready", BodyKind.PATH, "big"),
        (b"GET", b"/v2/models/big/versions/1", BodyKind.PATH, "big"),
        (b"POST", b"/v2/models/b%69g/versions/1/infer", BodyKind.PATH, "big"),
        (b"POST", b"/v1/models/meta/llama:predict", BodyKind.UNKNOWN, "meta/llama"),
        (b"GET", b"/v1/realtime", BodyKind.SOCKET, None),
        (b"POST", b"/v1/images/variations", BodyKind.FORM, None),
        (b"POST", b"/v1/chat/completions/", BodyKind.JSON, None),
        (b"POST", b"/v1/ch%61t/completions", BodyKind.JSON, None),
        (b"POST", b"/v1/chat/completions/x", BodyKind.UNKNOWN, None),
        (b"GET", b"/x", BodyKind.NONE, None),
        (b"POST", b"/" + b"x" * 1000, BodyKind.UNKNOWN, None),
    ],
)
def test_where_a_request_names_its_model(
    method: bytes, path: bytes, kind: BodyKind, model: str | None
) -> None:
    """By its row; and the same the second time, when it is remembered."""
    assert [body_kind(method, path) for _ in range(2)] == [kind, kind]
    assert model_in(path) == model
