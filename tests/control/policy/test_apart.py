"""Drafts in processes of their own: what they may take, and what is said when they take more."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

import pytest

from gtm.control.errors import BadRequest, ContentTooLarge, ControlError, Invalid, Unavailable
from gtm.control.policy.apart import Apart
from gtm.control.policy.drafts import MAX_PAIRS, DraftJob, ExplainRequest, answer, parsed, understood
from gtm.control.policy.simulation import Situation
from gtm.core.model.state import State
from gtm.demo.policy import demo_policy

DRAFT = {"service": "chat", "country": "DE", "policy": {}}


def job(body: bytes, kind: Literal["simulate", "explain"] = "explain") -> DraftJob:
    """What control would have looked at, in the demo's world."""
    return DraftJob(kind, body, Situation(time.time(), State()), demo_policy(), 1)


def failed(apart: Apart, body: Any = DRAFT) -> ControlError:
    """How a job with a body fails."""

    async def work() -> ControlError:
        with pytest.raises(ControlError) as raised:
            await apart.run(job(json.dumps(body).encode()))
        return raised.value

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("limits", "kind", "says"),
    [
        ({"memory": 8}, ContentTooLarge, "more than the 8 MiB of memory"),
        ({"processor": 1}, ContentTooLarge, "more than the 1 s of a processor"),
        ({"patience": 0.01}, Unavailable, "not looked through within 0.01 s"),
    ],
    ids=["memory", "processor", "clock"],
)
def test_a_draft_that_takes_too_much_is_told_which_bound_it_met(
    limits: dict[str, Any], kind: type[ControlError], says: str
) -> None:
    """The process is gone then, and control as it was."""
    error = failed(Apart(**limits), {**DRAFT, "policy": {"regions": [0] * 1_000_000}})
    assert type(error) is kind
    assert says in error.detail
    assert ("Retry-After" in error.headers) is (kind is Unavailable)


def test_too_many_drafts_are_turned_away_and_the_next_is_not() -> None:
    """Ten are taken in, each is answered or told, and those beyond are told at once to come back."""

    async def work() -> list[BaseException | bytes]:
        apart = Apart(patience=0.01)
        many = [apart.run(job(b"{}")) for _ in range(13)]
        found = await asyncio.gather(*many, return_exceptions=True)
        return [*found, *await asyncio.gather(apart.run(job(b"{}")), return_exceptions=True)]

    said = [str(error) for error in asyncio.run(work())]
    assert sum("drafts are being looked at or wait" in text for text in said) == 3
    assert "not looked through" in said[-1]


def test_a_draft_does_not_wait_for_its_turn_for_ever() -> None:
    """Whose turn does not come is told when to come again, and takes nobody's place: the others end as they would have."""

    async def work() -> list[bytes | BaseException]:
        apart = Apart(patience=1.0, wait=0.01)
        endless = json.dumps({**DRAFT, "policy": {"regions": [0] * 1_000_000}}).encode()
        found = await asyncio.gather(*(apart.run(job(endless)) for _ in range(4)), return_exceptions=True)
        return [*found, *await asyncio.gather(apart.run(job(b"{}")), return_exceptions=True)]

    *first, last = asyncio.run(work())
    turned_away = [error for error in first if "turn did not come" in str(error)]
    assert len(turned_away) == 2
    assert all(isinstance(error, Unavailable) and "Retry-After" in error.headers for error in turned_away)
    assert isinstance(last, ControlError)
    assert "turn did not come" not in str(last)


def test_what_is_wrong_with_a_draft_comes_back_as_it_was_raised() -> None:
    """Problems with their paths, as if control itself had read it."""
    error = failed(Apart(), {"service": "chat", "policy": {"regions": [{"name": "a"}]}})
    assert type(error) is Invalid
    assert "regions.a.lat" in [problem.path for problem in error.problems]


def test_counts_are_bounded_before_anything_is_done() -> None:
    """10,000 regions × 10,000 rules; the last that fit are looked at."""
    body = {"service": "chat", "policy": {"regions": [0] * 10_000, "residency_rules": [0] * 10_000}}
    with pytest.raises(ContentTooLarge, match="10000 regions and 10000 services, rules"):
        parsed(ExplainRequest, json.dumps(body).encode())
    fits = {
        "regions": [0] * 1000,
        "services": [0] * 5000,
        "residency_rules": [0] * (MAX_PAIRS // 1000 - 5000),
    }
    with pytest.raises(Invalid):
        parsed(ExplainRequest, json.dumps({"service": "chat", "policy": fits}).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{" * 200])
def test_what_is_no_json_is_told_so(body: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(BadRequest, match="the body is not JSON"):
        parsed(ExplainRequest, body)


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'{"policy": 1}', b'{"policy": []}'])
def test_what_is_no_request_is_invalid(body: bytes) -> None:
    """JSON of any shape."""
    with pytest.raises(Invalid):
        parsed(ExplainRequest, body)


def test_an_answer_too_large_for_control_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft of a megabyte can have problems by the hundred megabytes, which control would hold and read."""
    wrong = json.dumps({**DRAFT, "policy": {"regions": [0] * 1_000}}).encode()
    assert len(answer(job(wrong))) > 10_000
    monkeypatch.setattr("gtm.control.policy.drafts.MAX_ANSWER", 10_000)
    with pytest.raises(ContentTooLarge, match="at most 10000 are given"):
        understood(answer(job(wrong)))
