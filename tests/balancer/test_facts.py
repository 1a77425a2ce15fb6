"""What is read of a request's body: what is there, and nothing that makes a request fail."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.wire.facts import PromptCut, RequestFacts, read_facts
from gtm.balancer.wire.heads import RequestHead, read_head
from tests.effort import examples


def _head(
    length: int, target: bytes = b"/v1/chat/completions", kind: bytes = b"application/json"
) -> RequestHead:
    headers = [(b"Host", b"a"), (b"Content-Type", kind), (b"Content-Length", b"%d" % length)]
    return read_head(b"POST", target, "1.1", headers, keep_alive=True)


def _facts(body: Any) -> RequestFacts:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_facts(_head(len(raw)), raw)


def test_what_is_read() -> None:
    """Model, the output's bound by any of its names, the stream, the session; nothing of the prompt, unless somebody wants it."""
    messages = [{"role": "user", "content": "x" * 400}]
    found = _facts({"model": "m", "max_tokens": 7, "stream": True, "user": "u", "messages": messages})
    assert (found.model, found.max_tokens, found.streams, found.session) == ("m", 7, True, "u")
    assert 100 <= found.input_tokens <= 120
    other = _facts({"model": "n", "messages": messages, "max_completion_tokens": 3, "prompt_cache_key": "k"})
    assert (other.max_tokens, other.session) == (3, "k")
    assert found.prefix == other.prefix == ()


_SMALL = PromptCut(64)


def _blocks(body: Any, cut: PromptCut = _SMALL, target: bytes = b"/v1/chat/completions") -> tuple[int, ...]:
    raw = json.dumps(body).encode()
    return read_facts(_head(len(raw), target), raw, cut).prefix


def _chat(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant", "user", "assistant")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {"model": "m", "messages": messages, **more}


def test_a_conversation_that_goes_on_begins_as_before() -> None:
    """Each turn has all whole blocks of the one before, but for the last, in which that one ended; another conversation has those of the system prompt."""
    said = ["You are a poet. " * 40, "Write of the sea. " * 9, "The sea, the sea. " * 20, "More! " * 20]
    turns = [_blocks(_chat(*said[:count])) for count in (2, 3, 4)]
    for before, after in pairwise(turns):
        assert len(before) < len(after)
        assert after[: len(before) - 1] == before[:-1]
    other = _blocks(_chat(said[0], "Write of a mountain. " * 9))
    alike = sum(one == two for one, two in zip(other, turns[0], strict=False))
    assert 9 <= alike <= 11
    assert other[:alike] == turns[0][:alike]


def test_what_the_model_reads_before_keeps_prompts_apart() -> None:
    """Model or adapter, tools, instructions, and a salt: all of the blocks differ. What it does not read changes none."""
    texts = ("You are a poet. " * 40, "Write of the sea.")
    plain = _blocks(_chat(*texts))
    assert len(plain) >= 9
    assert _blocks(_chat(*texts, max_tokens=9, stream=True, temperature=1, user="u")) == plain
    for more in (
        {"model": "n"},
        {"model": None},
        {"tools": [{"type": "function"}]},
        {"system": "s"},
        {"instructions": "s"},
        {"cache_salt": "s"},
    ):
        found = _blocks({**_chat(*texts), **more})
        assert len(found) == len(plain)
        assert not set(found) & set(plain), more


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        ({"prompt": "sea " * 100 + "a"}, {"prompt": "sea " * 100 + "b"}, 6),
        ({"prompt": [*range(1000, 1100), 1]}, {"prompt": [*range(1000, 1100), 2, 3]}, 8),
        ({"prompt": ["sea " * 100 + "a"]}, {"prompt": ["sea " * 100 + "b"]}, 6),
        ({"input": "sea " * 100 + "a"}, {"input": "sea " * 100 + "b"}, 6),
    ],
)
def test_completions_too(one: dict[str, Any], other: dict[str, Any], least: int) -> None:
    """Prompts of text and of tokens: as far as they are the same, their blocks are."""
    these, those = (_blocks({"model": "m", **body}, target=b"/v1/completions") for body in (one, other))
    alike = sum(left == right for left, right in zip(these, those, strict=False))
    assert alike >= least
    assert these[:alike] == those[:alike]
    assert these[alike:] == () or these[alike:] != those[alike:]


def test_prompts_that_are_too_short_have_no_blocks() -> None:
    """Nor has what cannot be read; of a beginning that is hashed there is one, however long the prompt is."""
    assert _blocks(_chat("", "Hello"), PromptCut(1024)) == ()
    assert _blocks([1, 2]) == ()
    assert _blocks({"model": "m", "messages": "x" * 2000}) != ()
    texts = ("You are a poet. " * 40, "Write of the sea.")
    assert len(_blocks(_chat(*texts), PromptCut(64, 1))) == 1
    assert _blocks(_chat(*texts), PromptCut(512, 1)) == _blocks(_chat(texts[0], "Other"), PromptCut(512, 1))


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
    ).flatmap(
        lambda value: st.sampled_from(["utf-8", "latin-1"]).map(
            lambda coding: json.dumps(value, ensure_ascii=False).encode(coding, "replace")
        )
    )
    | st.integers(1, 3000).map(lambda depth: b'{"messages":' + b"[" * depth + b"]" * depth + b"}")
)
def test_garbage(body: bytes) -> None:
    """Whatever a body holds, it is read or unknown."""
    found = read_facts(_head(len(body)), body, PromptCut(64))
    assert found.input_tokens >= 0
    assert found.model is None or len(found.model) <= 256
