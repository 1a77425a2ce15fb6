"""Servers that do other work than others are judged by others that do the same: docs/backend-health.md, "Ejection", 4."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest

from gtm.core.balance.backends import Backend
from gtm.core.balance.health.breaker import MOST_CALLS, MOST_KINDS, Breaker
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import Asker, CallKind, Check
from gtm.core.health.verdicts import ProbeResult
from tests.memory import held

CHAT = CallKind("llama", b"/v1/chat/completions")
EMBED = CallKind("bge", b"/v1/embeddings")
SIX = "abcdef"


def _health(backends: Iterable[Backend], settings: HealthSettings | None = None) -> BackendHealth:
    listed = list(backends)
    health = BackendHealth(settings or HealthSettings(), listed, 0.0)
    for one in listed:
        health.checked(one.name, Check.HEALTH, ProbeResult(True, 0.0), 0.0)
    return health


def _serves(
    health: BackendHealth,
    name: str,
    call: CallKind,
    seconds: float,
    *,
    count: int = 20,
    tokens: int | None = None,
) -> None:
    """So many calls of clients end well there, in this window."""
    for _ in range(count):
        sending = health.begun(name, 1.0, health.asker(call.model))
        health.answered(sending, 200, seconds, 1.0, call, tokens=tokens)


def _ejected(health: BackendHealth) -> dict[str, str]:
    """Who is, and why, at the end of the window."""
    health.tick(20.0)
    return {one.name: one.why for one in health.snapshot(20.0) if one.ejections}


def test_chats_are_not_slow_beside_embeddings() -> None:
    """Three servers of embeddings, some milliseconds each; two of chats, 2.5 s each, one of them four times as strong: nobody is ejected."""
    health = _health(
        [
            *(Backend(name, models=frozenset({"bge"})) for name in "abc"),
            Backend("heavy", 4.0, models=frozenset({"llama"})),
            Backend("light", models=frozenset({"llama"})),
        ]
    )
    for name in "abc":
        _serves(health, name, EMBED, 0.004)
    _serves(health, "heavy", CHAT, 2.5, count=32)
    _serves(health, "light", CHAT, 2.5)
    assert _ejected(health) == {}


@pytest.mark.parametrize(
    "other",
    [
        CallKind("llama-8b", CHAT.path),
        CallKind("llama", b"/v1/embeddings"),
        CallKind("llama", CHAT.path, streams=True),
    ],
    ids=["model", "endpoint", "stream"],
)
def test_each_model_and_kind_of_call_has_a_yardstick_of_its_own(other: CallKind) -> None:
    """The fastest deployment is found for each model apart (Helicone/ai-gateway#235); one threshold for models of unlike size fits none (llm-d/llm-d-router#1141)."""
    health = _health(Backend(name) for name in SIX)
    for name in SIX[:3]:
        _serves(health, name, CHAT, 20.0)
    for name in SIX[3:]:
        _serves(health, name, other, 0.1)
    assert _ejected(health) == {}


def test_long_answers_are_slow_by_their_length() -> None:
    """Latency is to be counted by the output tokens that it made (BerriAI/litellm#1393): 800 in 16 s are as fast as 40 in 0.8 s."""
    health = _health(Backend(name) for name in "abc")
    _serves(health, "a", CHAT, 16.0, tokens=800)
    for name in "bc":
        _serves(health, name, CHAT, 0.8, tokens=40)
    assert _ejected(health) == {}


def test_who_is_slow_for_each_token_is_found_behind_short_answers() -> None:
    """The other way round: whole answers take as long as everybody's, and each token a tenth of a second more."""
    health = _health(Backend(name) for name in "abc")
    _serves(health, "a", CHAT, 2.0, tokens=4)
    for name in "bc":
        _serves(health, name, CHAT, 2.0, tokens=100)
    assert set(_ejected(health)) == {"a"}


def test_who_is_slow_among_its_like_is_ejected() -> None:
    """Whatever others do: and it is said for what."""
    health = _health(Backend(name) for name in SIX)
    for name in SIX[:3]:
        _serves(health, name, EMBED, 0.004)
    for name, seconds in zip(SIX[3:], (9.0, 1.0, 1.2), strict=True):
        _serves(health, name, CHAT, seconds)
    found = _ejected(health)
    assert found == {"d": "its median latency is 9 s, that of others 1.1 s ('llama', '/v1/chat/completions')"}


@pytest.mark.parametrize(("weight", "ejected"), [(0.1, set()), (1.0, {"old"})])
def test_a_server_that_is_said_to_be_weak_may_be_slow(weight: float, ejected: set[str]) -> None:
    """Eight times as slow as the others: an outlier, unless the file says that it gets a tenth of their work done."""
    health = _health([Backend("old", weight), Backend("new"), Backend("newer")])
    _serves(health, "old", CHAT, 8.0)
    for name in ("new", "newer"):
        _serves(health, name, CHAT, 1.0)
    assert set(_ejected(health)) == ejected


@pytest.mark.parametrize(("count", "ejected"), [(19, set()), (20, {"a"})])
def test_few_samples_say_nothing(count: int, ejected: set[str]) -> None:
    """Of each kind of call so many: others of the same server do not make them up."""
    health = _health(Backend(name) for name in "abc")
    for name in "abc":
        _serves(health, name, CHAT, 9.0 if name == "a" else 0.1, count=count)
        _serves(health, name, EMBED, 0.1)
    assert set(_ejected(health)) == ejected


def test_two_of_a_kind_are_not_compared() -> None:
    """Nobody knows which of two is the slow one, however many others there are."""
    health = _health(Backend(name) for name in SIX)
    _serves(health, "a", CHAT, 90.0)
    _serves(health, "b", CHAT, 0.1)
    for name in SIX[2:]:
        _serves(health, name, EMBED, 0.1)
    assert _ejected(health) == {}


def test_it_can_be_turned_off() -> None:
    """Without a factor latency ejects nobody."""
    health = _health((Backend(name) for name in "abc"), HealthSettings(latency_factor=None))
    for name in "abc":
        _serves(health, name, CHAT, 90.0 if name == "a" else 0.1)
    assert _ejected(health) == {}


def _refuses(health: BackendHealth, name: str, model: str) -> None:
    """Ten requests in a row get 400 there."""
    for _ in range(10):
        health.answered(health.begun(name, 1.0, health.asker(model)), 400, 0.1, 1.0)


def test_who_alone_lists_a_model_has_no_peers_for_it() -> None:
    """One client's ten unreadable recordings ejected the only server that listed `whisper`, in a file without `models`; all others' went to one that has no such model."""
    health = _health(Backend(name) for name in "abc")
    health.listed("a", frozenset({"llama"}), frozenset(), 0.0)
    health.listed("b", frozenset({"whisper"}), frozenset(), 0.0)
    health.listed("c", frozenset({"llama"}), frozenset(), 0.0)
    health.tick(0.0)
    _refuses(health, "b", "whisper")
    assert _ejected(health) == {}
    _refuses(health, "a", "llama")
    assert set(_ejected(health)) == {"a"}
    health.listed("a", frozenset({"llama", "whisper"}), frozenset(), 1.0)
    health.tick(21.0)
    assert health.asker("whisper").kind == {"a", "b"}


def test_who_alone_lists_an_adapter_has_no_peers_for_it() -> None:
    """Ten prompts that were too long for an adapter ejected the only server that listed it; one that nobody lists may go anywhere."""
    llama = frozenset({"llama"})
    health = _health(Backend(name, models=llama) for name in "abc")
    for name in "abc":
        health.listed(name, llama, frozenset({"sql"} if name == "c" else ()), 0.0)
    health.tick(0.0)
    _refuses(health, "c", "sql")
    assert _ejected(health) == {}
    assert health.asker("law").kind == {"a", "b", "c"}


def test_lists_that_change_fill_no_memory() -> None:
    """Servers that list other models each time make other kinds of requests of them: so many are kept."""
    breaker = Breaker(HealthSettings(), count())
    for number in range(2 * MOST_KINDS):
        breaker.good(breaker.begun("a", 1.0, Asker(frozenset({"a", f"m{number}"}))), 0.1, 1.0)
    assert 0 < len(breaker.runs) <= MOST_KINDS


def test_names_that_clients_make_up_fill_no_memory() -> None:
    """Of one window so many kinds of calls are kept."""
    health = _health(Backend(name) for name in "abc")

    def ask(times: int) -> None:
        for number in range(times):
            sending = health.begun("a", 1.0, None)
            health.answered(sending, 200, 0.1, 1.0, CallKind(f"m{number}", CHAT.path))

    most = held(lambda: ask(MOST_CALLS))
    assert held(lambda: ask(9 * MOST_CALLS)) < 2 * most + 4096
