"""Look-ups at several edges: which is asked, what is kept, and for how long.

The model was written from the laws in docs/client.md: an answer holds for its `ttl` from the question on, for that very question; edges that cannot
answer are passed over, those that can are not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.client import (
    AsyncLookup,
    ConnectionFailed,
    Edge,
    GtmError,
    Invalid,
    Lookup,
    Misdirected,
    NotFound,
    NotGtm,
    ProblemError,
    RefusedByLaw,
    TooManyRequests,
    Unavailable,
    UsageError,
)
from gtm.core.model.access import Role
from gtm.core.policy.edges import EdgePlace
from tests.client.conftest import Scripted, http
from tests.effort import examples
from tests.http.conftest import run_edge
from tests.http.world import TOKENS
from tests.http.world import Edge as EdgeWorld

__all__ = ["run_edge"]

DEAD = "http://127.0.0.1:9"


def url(edge: EdgeWorld) -> str:
    """Where an edge is."""
    return f"http://127.0.0.1:{edge.port}"


def test_an_edge(run_edge: Callable[..., EdgeWorld]) -> None:
    """Typed values, refusals as exceptions that hold the decision."""
    with Edge(url(run_edge()), TOKENS[Role.VIEWER]) as edge:
        answer = edge.route(service="chat", client_ip="81.2.69.142", explain="1")
        assert (answer["region"], answer["rules"][0]["legal_basis"]) == ("eu-central", "GDPR Art. 44")
        with pytest.raises(RefusedByLaw) as refused:
            edge.route(service="nowhere")
        assert (refused.value.document["outcome"], refused.value.retry_after) == ("refused_residency", None)
        with pytest.raises(Invalid, match="no tenant"):
            edge.route(service="records", tenant="clinci")
        with pytest.raises(NotFound):
            edge.route(service="none")
        both = edge.route_batch({"requests": [{"service": "web"}, {"service": "nowhere"}]})["results"]
        assert [one.get("outcome") for one in both] == ["served", "refused_residency"]
        assert edge.readyz()["status"] == "ready"
        assert edge.beacon_targets(service="web")["targets"]


def test_who_cannot_answer_is_passed_over(run_edge: Callable[..., EdgeWorld], scripted: Scripted) -> None:
    """Nobody there, not gtm, no policy yet: the next edge is asked. A refusal is an answer."""
    scripted.answers = [http(200, "<h1>It works!</h1>", kind="text/html")]
    edges = [DEAD, scripted.url, url(run_edge(load=False)), url(run_edge())]
    with Lookup(edges, TOKENS[Role.VIEWER]) as lookup:
        assert lookup.route(service="web")["outcome"] == "served"
        with pytest.raises(RefusedByLaw):
            lookup.route(service="nowhere")
        assert len(scripted.asked) == 1  # asked last for a while
    with pytest.raises(Unavailable, match="no policy"), Lookup(edges[:3]) as none:
        none.route(service="web")


def test_an_edge_outside_sends_on(run_edge: Callable[..., EdgeWorld], scripted: Scripted) -> None:
    """What one may not answer another may (421), and the first is asked again for what it may."""
    refusal = {"code": "refused_edge", "detail": "send the request to an edge inside", "status": 421}
    scripted.answers = [http(421, json.dumps(refusal))]
    inside = run_edge(place=EdgePlace("DE", "DE"))
    with Lookup([scripted.url, url(inside)]) as lookup:
        assert [lookup.route(service="web", affinity=name)["outcome"] for name in "ab"] == ["served"] * 2
    assert len(scripted.asked) == 2
    with pytest.raises(Misdirected), Lookup([scripted.url]) as alone:
        alone.route(service="web")


ANSWERS: dict[str, tuple[bytes | None, type[GtmError] | None]] = {
    "served": (None, None),
    "law": (http(451, '{"code": "refused_residency", "detail": "no"}'), RefusedByLaw),
    "overload": (http(503, '{"code": "refused_overload", "detail": "no"}', "Retry-After: 2"), Unavailable),
    "share": (http(429, '{"code": "over_fair_share", "detail": "no"}', "Retry-After: 2"), TooManyRequests),
    "outside": (http(421, '{"code": "refused_edge", "detail": "no"}'), Misdirected),
    "empty": (http(503, '{"code": "not_ready", "detail": "no"}', "Retry-After: 1"), Unavailable),
    "bug": (http(500, '{"code": "internal_error", "detail": "this is a bug in gtm"}'), ProblemError),
    "stranger": (http(404, "no such page", kind="text/plain"), NotGtm),
    "lost": (b"", ConnectionFailed),
}
ANSWER_OF_ITS_OWN = {"served", "law", "overload", "share"}
PASSED_OVER_FOR = {"empty", "bug", "stranger", "lost"}

step = st.tuples(
    st.sampled_from(["acme", None]),
    st.integers(0, 6),
    st.integers(0, 10),
    st.lists(st.sampled_from(["served", *sorted(ANSWERS)]), min_size=2, max_size=2),
)


@pytest.fixture(scope="module")
def two() -> Iterator[list[Scripted]]:
    """Two edges that answer as told."""
    found = [Scripted(), Scripted()]
    yield found
    for one in found:
        one.close()


@given(st.lists(step, min_size=4, max_size=12))
@settings(max_examples=examples(100, least=20), deadline=None)
def test_as_the_model(two: list[Scripted], steps: list[Any]) -> None:
    """Random questions, times to live, pauses and failures: the same answers from the same edges."""
    now, served = 0, 0
    kept: dict[str | None, tuple[int, int]] = {}
    late = [-100.0, -100.0]
    with Lookup([one.url for one in two], clock=lambda: now) as lookup:
        for tenant, pause, ttl, kinds in steps:
            now += pause
            served += 1
            for edge, kind in zip(two, kinds, strict=True):
                told = ANSWERS[kind][0]
                edge.answers = [
                    http(200, json.dumps({"ttl": ttl, "number": served})) if told is None else told
                ]
                edge.asked.clear()
            asked = [0, 0]
            expected: int | type[GtmError] | None = None
            if tenant in kept and now < kept[tenant][0]:
                expected = kept[tenant][1]
            else:
                for number in sorted((0, 1), key=lambda one: now - late[one] < 5):
                    asked[number] = 1
                    if kinds[number] == "served":
                        expected = served
                        if ttl > 0:
                            kept[tenant] = now + ttl, served
                        break
                    expected = ANSWERS[kinds[number]][1]
                    if kinds[number] in ANSWER_OF_ITS_OWN:
                        break
                    if kinds[number] in PASSED_OVER_FOR:
                        late[number] = now
            try:
                found: Any = lookup.route(service="chat", tenant=tenant)["number"]  # type: ignore[typeddict-item]
            except GtmError as error:
                found = type(error)
            assert found == expected
            assert [len(edge.asked) for edge in two] == asked


def test_it_holds_from_when_it_was_asked_for(scripted: Scripted) -> None:
    """What an answer takes on its way is a part of its time: three seconds of five leave two."""
    now = 100.0

    def slowly() -> None:
        nonlocal now
        now += 3

    scripted.answers, scripted.before = [http(200, '{"ttl": 5}')], slowly
    with Lookup(scripted.url, clock=lambda: now) as lookup:
        lookup.route(service="chat")
        now += 1.9
        lookup.route(service="chat", tenant=None)  # the same question
        assert len(scripted.asked) == 1
        now += 0.1
        lookup.route(service="chat")
        assert len(scripted.asked) == 2


def test_what_is_kept_is_bounded(scripted: Scripted) -> None:
    """The question asked longest ago is forgotten first; explanations are not kept."""
    scripted.answers = [http(200, '{"ttl": 60}')]
    with Lookup(scripted.url, keep=2) as lookup:
        for name in ("a", "b", "a", "c", "a"):
            lookup.route(service=name)
        assert len(scripted.asked) == 3
        lookup.route(service="b")
        assert len(scripted.asked) == 4
        for _ in range(2):
            lookup.route(service="a", explain="1")
        assert len(scripted.asked) == 6


def test_asyncio(run_edge: Callable[..., EdgeWorld]) -> None:
    """The same, for asyncio."""

    async def work() -> None:
        async with AsyncLookup([DEAD, url(run_edge())], TOKENS[Role.VIEWER]) as lookup:
            answers = await asyncio.gather(
                *(lookup.route(service="web", client_ip=f"198.51.100.{one}") for one in range(5))
            )
            assert {one["outcome"] for one in answers} == {"served"}
            with pytest.raises(RefusedByLaw):
                await lookup.route(service="nowhere")

    asyncio.run(work())


def test_no_edge() -> None:
    """Said at once."""
    with pytest.raises(UsageError, match="at least one"):
        Lookup([])
