"""What is read of a request's body: what is there, and nothing that makes a request fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.wire.facts import MAX_INSPECTED, Facts, read_facts, wants_body
from gtm.balancer.wire.heads import RequestHead, read_head
from tests.effort import examples


def _head(
    length: int, target: bytes = b"/v1/chat/completions", kind: bytes = b"application/json"
) -> RequestHead:
    headers = [(b"Host", b"a"), (b"Content-Type", kind), (b"Content-Length", b"%d" % length)]
    return read_head(b"POST", target, "1.1", headers, keep_alive=True)


def _facts(body: Any) -> Facts:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_facts(_head(len(raw)), raw)


def test_which_bodies_are_wanted() -> None:
    """Those of OpenAI's wire format that say so, and are not too long."""
    assert wants_body(_head(10))
    assert wants_body(_head(10, b"/v1/completions?x=y"))
    assert not wants_body(_head(10, b"/v1/files"))
    assert not wants_body(_head(10, kind=b"multipart/form-data"))
    assert not wants_body(_head(0))
    assert not wants_body(_head(MAX_INSPECTED + 1))


def test_what_is_read() -> None:
    """Model, the output's bound by any of its names, the stream, the session, and the prompt's beginning."""
    messages = [{"role": "user", "content": "x" * 400}]
    found = _facts({"model": "m", "max_tokens": 7, "stream": True, "user": "u", "messages": messages})
    assert (found.model, found.max_tokens, found.streams, found.session) == ("m", 7, True, "u")
    assert 100 <= found.input_tokens <= 120
    assert found.prefix is not None
    other = _facts({"model": "n", "messages": messages, "max_completion_tokens": 3, "prompt_cache_key": "k"})
    assert (other.prefix, other.max_tokens, other.session) == (found.prefix, 3, "k")


@pytest.mark.parametrize(
    "odd",
    [
        {"user": 5},
        {"max_tokens": "x"},
        {"stream": "yes"},
        {"max_tokens": 10**40},
        {"user": ["x"]},
        {"max_tokens": -1},
    ],
)
def test_an_odd_field_is_unknown_alone(odd: dict[str, Any]) -> None:
    """It does not hide the model, without which a backend that lacks it may be chosen."""
    found = _facts({"model": "m", **odd})
    assert found.model == "m"
    assert found.max_tokens is None
    assert found.session is None
    assert not found.streams


def test_names_are_bounded() -> None:
    """They become keys of tables."""
    found = _facts({"model": "m" * 300, "user": "u" * 300})
    assert (found.model, found.session) == (None, None)


@settings(max_examples=examples(2000), deadline=None)
@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["model", "user", "input", "stream"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
    | st.integers(1, 3000).map(lambda depth: b'{"messages":' + b"[" * depth + b"]" * depth + b"}")
)
def test_garbage(body: bytes) -> None:
    """Whatever a body holds, it is read or unknown."""
    found = read_facts(_head(len(body)), body)
    assert found.input_tokens >= 0
    assert found.model is None or len(found.model) <= 256
