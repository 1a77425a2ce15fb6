"""The page of latency: estimates for a place, what they rest on, and locations that measurements contradict."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gtm.control.lead import latency
from gtm.core.latency.doubt import Disputed, Doubt
from gtm.core.model.access import Role
from tests.api.conftest import Api
from tests.api.test_latency import LONDON, delta, send
from tests.dashboard.conftest import People, assert_inert
from tests.dashboard.test_edges import until

HOSTILE = "<script>alert(1)</script>\"'\u202e"


def test_before_anything_is_asked_or_measured(people: People, world: Api) -> None:
    """What to give, and that nothing was measured."""
    text = people(Role.VIEWER).page("/latency")
    assert_inert(text)
    for words in (
        "Give an address, a country or coordinates",
        "Nothing was measured yet",
        "0 doubtful locations",
    ):
        assert words in text


def test_a_country_by_geography_alone(people: People, world: Api) -> None:
    """The nearest region first; small letters will do."""
    text = people(Role.VIEWER).page("/latency?country=de")
    assert_inert(text)
    assert text.index(">eu-central<") < text.index(">eu-west<") < text.index(">us-east<")
    assert "No estimate rests on samples yet" in text
    assert "gtm latency --country &#39;de&#39;" in text


def test_samples_that_an_estimate_rests_on(
    people: People, world: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which level they are of, how many, and what they change; an address says the network."""
    monkeypatch.setattr(latency, "EVERY", 0.05)
    assert send(world.edge, delta()).status_code == 200
    person = people(Role.VIEWER)
    until(lambda: "samples of its country" in person.page(f"/latency?client={LONDON}"))
    text = person.page(f"/latency?client={LONDON}")
    assert_inert(text)
    for words in ("1 of 3 estimates rest on samples", "country <code>GB</code>", "of 3 networks", "-15.0"):
        assert words in text, words


def test_doubtful_locations(people: People, world: Api) -> None:
    """Each network with what is claimed and what contradicts it; who disputes too much is named."""
    active = world.server.app.state.context.replica.active
    doubt = Doubt("DE|50,8", True, {"us-east": 2.5})
    book = active.latency
    found = SimpleNamespace(
        settings=book.settings,
        doubt_settings=book.doubt_settings,
        estimates=book.estimates,
        disputed=[
            Disputed("192.0.2.0/24", doubt, frozenset({"a" * 16}), frozenset({"edge-one", HOSTILE}), 8.0),
            Disputed("198.51.100.0/24", doubt._replace(doubtful=False), frozenset(), frozenset(), 1.0),
        ],
        set_aside={"b" * 16},
    )
    active.latency = found
    try:
        text = people(Role.VIEWER).page("/latency")
    finally:
        active.latency = book
    assert_inert(text)
    for words in ("1 doubtful location", "192.0.2.0/24", "disputed", "2.50 ms", "&lt;script&gt;", "b" * 16):
        assert words in text, words


def test_bad_questions_are_told(people: People, world: Api) -> None:
    """Above the form, which keeps what was typed."""
    person = people(Role.VIEWER)
    for query, status in (
        ({"client": "nowhere"}, 400),
        ({"client": HOSTILE}, 400),
        ({"client": "x" * 10_000}, 422),
        ({"client": LONDON, "country": "DE"}, 400),
        ({"country": "ZZ"}, 400),
        ({"country": HOSTILE}, 422),
        ({"lat": "91", "lon": "0"}, 422),
        ({"lat": "1"}, 400),
        ({"lat": "NaN", "lon": "inf"}, 422),
    ):
        answer = person.client.get("/latency", params=query, headers={"Accept": "text/html"})
        assert answer.status_code == status, (query, answer.status_code)
        assert 'role="alert"' in answer.text
        assert "<h1>Latency</h1>" in answer.text
        assert_inert(answer.text)
