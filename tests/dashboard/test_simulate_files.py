"""Traffic of a file, at the Simulate page: worked out at once, with and without scripts, by the reader that the command uses."""

from __future__ import annotations

from html import unescape

import httpx
import pytest

from gtm.core.model.access import Role
from gtm.dashboard.form_bodies import MAX_UPLOAD
from tests.api.conftest import Api
from tests.api.test_drafts import live  # noqa: F401 - fixture
from tests.dashboard.conftest import HTML, People, Person, assert_inert

SOUND = "service,country,count\r\nchat,DE,3000\r\nchat,US,1000\r\n"


def sent(person: Person, content: bytes, **fields: str) -> httpx.Response:
    """The form with a file, as a browser sends it."""
    person.page("/simulate")
    data = {"csrf": person.csrf, "traffic": "24h", "what0": "down", "region0": "eu-central", **fields}
    answer = person.client.post(
        "/simulate", data=data, files={"file": ("t.csv", content, "text/csv")}, headers=HTML
    )
    assert_inert(answer.text)
    return answer


@pytest.mark.reads
def test_a_file_is_simulated(live: Api, people: People) -> None:  # noqa: F811
    """It counts in place of what was recorded; what it comes to is what the API makes of the same cells."""
    person = people(Role.VIEWER)
    shown = sent(person, SOUND.encode(), lasts="1m")
    assert shown.status_code == 200, shown.text
    cells = [
        {"service": "chat", "country": "DE", "count": 3000},
        {"service": "chat", "country": "US", "count": 1000},
    ]
    asked = {"scenario": {"down": ["eu-central"]}, "traffic": {"seconds": 60, "cells": cells}}
    made = live.viewer.post("/v1/policy:simulate", json=asked).json()
    assert made["moved"] == pytest.approx(0.75)
    assert "75% of all requests would go elsewhere" in shown.text
    assert "4,000 requests in 60 s" in shown.text or "4,000 requests in 1 min" in shown.text
    assert "gtm simulate --traffic FILE.csv --duration 1m --down eu-central" in shown.text
    assert "hx-get" not in shown.text
    assert '<option value="1m" selected>' in shown.text
    body = {**asked, "traffic": "current", "traffic_csv": {"text": "\ufeff" + SOUND, "seconds": 60}}
    assert live.viewer.post("/v1/policy:simulate", json=body).json()["average"] == made["average"]


@pytest.mark.reads
def test_addresses_are_located(live: Api, people: People) -> None:  # noqa: F811
    """By the database that control has."""
    shown = sent(people(Role.VIEWER), b"service,client,count\nchat,91.198.174.192,10\n")
    assert "100% of all requests would go elsewhere" in shown.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"service,country,count\nchat,DE,1\nchat,XX,many\n", "line 3, column count"),
        (b"service,country,count\nchat,DE\n", "line 2: has 2 values for 3 columns"),
        (b"what,count\nchat,1\n", "line 1, column what: unknown column"),
        (b"service,client,count\nchat,999.1.1.1,1\n", "line 2, column client"),
        (b"service,count\nchat,\xff\n", "line 2: is not UTF-8 text"),
        ("service,count\nchat,1\n".encode("utf-16"), "is not UTF-8 text"),
        (b"service,count\n", "the file has no requests"),
        (b'service,count\n"chat,1\n', "is not CSV"),
        (b"<script>alert(1)</script>,count\n", "<script>alert(1)</script>"),
        (b"service,count\n" + b"chat," + b"9" * 200_000 + b"\n", "line 2"),
    ],
)
@pytest.mark.reads
def test_what_is_wrong_has_its_line(live: Api, people: People, content: bytes, words: str) -> None:  # noqa: F811
    """And the form is there still, with what was asked."""
    shown = sent(people(Role.VIEWER), content)
    assert shown.status_code in (200, 400)
    assert words in unescape(shown.text).replace("`", "").replace("<code>", "").replace("</code>", "")


def test_a_file_has_bounds(live: Api, people: People) -> None:  # noqa: F811
    """Of the form, of who sends it, and of where."""
    person = people(Role.VIEWER)
    large = sent(person, b"x" * (MAX_UPLOAD + 1))
    assert large.status_code == 413
    assert "8,192 KiB" in large.text
    files = {"file": ("t.csv", SOUND.encode(), "text/csv")}
    forged = person.client.post("/simulate", data={"csrf": "0" * 64}, files=files, headers=HTML)
    assert forged.status_code == 403
    elsewhere = person.client.post("/policy/draft", data={"csrf": person.csrf}, files=files, headers=HTML)
    assert elsewhere.status_code == 415
    person.client.cookies.clear()
    out = person.client.post(
        "/simulate", data={"csrf": person.csrf}, files=files, headers=HTML | {"Origin": live.url}
    )
    assert out.url.path == "/sign-in"


@pytest.mark.reads
def test_no_file_is_none(live: Api, people: People) -> None:  # noqa: F811
    """A browser sends an empty one; then it is the choice that counts, and the address says it."""
    assert str(sent(people(Role.VIEWER), b"").url).endswith("/simulate?traffic=24h&down=eu-central")
