"""Strips of time: what five minutes say, drawn as pieces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.dashboard.pages.regions import WIDTH, strip
from tests.api.conftest import Api
from tests.dashboard.conftest import People, assert_inert

SINCE = datetime(2026, 1, 31, 12, tzinfo=UTC)


def step(
    number: int, worst: str = "up", probes: int | None = 60, failed: int = 0, detail: str = ""
) -> dict[str, Any]:
    """The so-many-th five minutes."""
    start = SINCE + timedelta(minutes=5 * number)
    return {
        "start": start.isoformat(),
        "worst": worst,
        "probes": probes,
        "failed": failed,
        "p50_ms": 4.0,
        "p99_ms": 9.0 + number,
        "changes": int(worst == "down"),
        "detail": detail,
    }


def drawn(*steps: dict[str, Any], minutes: int = 60) -> Any:
    """A series' strip of an hour."""
    series = {"endpoint": "https://a", "vantage": "fra", "steps": list(steps)}
    return strip(as_answered(series), SINCE, SINCE + timedelta(minutes=minutes), 300)


def test_what_is_alike_is_one_piece() -> None:
    """Good, failing and down each in their own; a gap is no piece, and parts what is alike."""
    found = drawn(
        step(0), step(1), step(2, failed=3, detail="refused"), step(3, "down", failed=60), step(6), step(7)
    )
    assert [(one["kind"], one["x"], one["width"]) for one in found["pieces"]] == [
        ("good", 0, round(WIDTH / 6, 2)),
        ("warn", round(WIDTH / 6, 2), round(WIDTH / 12, 2)),
        ("bad", WIDTH / 4, round(WIDTH / 12, 2)),
        ("good", WIDTH / 2, round(WIDTH / 6, 2)),
    ]
    assert [one["words"] for one in found["pieces"]][:2] == [
        "12:00–12:10 UTC: up; 0 of 120 probes failed",
        "12:10–12:15 UTC: up, but probes failed; 3 of 60 probes failed; last: refused",
    ]
    assert (found["probes"], found["failed"], found["changes"], found["p99_ms"]) == (360, 63, 1, 16.0)


def test_the_last_step_ends_now() -> None:
    """It is not over yet; what tells no outcomes has no number of them."""
    found = drawn(step(0, probes=None), minutes=3)
    assert [(one["x"], one["width"], one["words"]) for one in found["pieces"]] == [
        (0, WIDTH, "12:00–12:03 UTC: up")
    ]
    assert found["probes"] is None
    assert drawn()["pieces"] == []


def test_a_page_asks_for_it_again(world: Api, people: People) -> None:
    """As a part, for whoever may look; whoever opens the part itself gets the page; older changes stay as they were asked for."""
    person = people(Role.VIEWER)
    page = person.page("/regions/eu-west?history=day")
    assert 'data-again="/regions/eu-west/history?history=day"' in page
    assert "data-again" not in person.get("/regions/eu-west?changes=MQ").text
    part = person.get("/regions/eu-west/history?history=day", **{"HX-Request": "true"})
    assert part.status_code == 200
    assert_inert(part.text)
    assert "<html" not in part.text
    assert '<b aria-current="true">The last 24 hours</b>' in part.text
    whole = person.get("/regions/eu-west/history?history=nonsense")
    assert whole.url.path == "/regions/eu-west"
    assert person.get("/regions/nowhere/history", **{"HX-Request": "true"}).status_code == 404
