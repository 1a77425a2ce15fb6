"""Ask: a question in the address, its answer as text, and problems at the fields that they are about."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from gtm.core.model.access import Role
from gtm.dashboard.pages.ask import placed
from tests.api.conftest import CHAT, REGIONS, Api, region
from tests.api.test_drafts import set_health
from tests.dashboard.conftest import People, assert_inert

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "x" * 10_000,
    "\u202eEBAR\u202c",
    "{{ 7 * 7 }}",
)


@pytest.fixture
def live(world: Api) -> Api:
    """Three regions that are up."""
    set_health(world, *REGIONS)
    return world


def asked(**fields: str) -> str:
    """The address of a question."""
    return f"/ask?{urlencode(fields)}"


def words(page: str) -> str:
    """What a page says, without markup."""
    main = page[page.index("<main") : page.index('<script type="application/json"')]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def scene(page: str) -> dict[str, Any]:
    """What the map draws."""
    found: dict[str, Any] = json.loads(page.split('id="scene">')[1].partition("</script>")[0])
    return found


@pytest.mark.reads
def test_nothing_asked_is_a_form(live: Api, people: People) -> None:
    """With what there is to choose from."""
    page = people(Role.VIEWER).page("/ask")
    assert '<option value="chat"' in page
    assert '<option value="clinic"' in page
    assert 'id="map"' not in page


@pytest.mark.reads
def test_an_answer_reads_without_scripts(live: Api, people: People) -> None:
    """Who serves, the fence with its rule and legal basis by region, the odds, what is sent, and the commands."""
    page = people(Role.VIEWER).page(asked(service="chat", **{"from": "91.198.174.192"}))
    assert_inert(page)
    for said in (
        "Served in eu-",
        "2 of 3 regions inside, by gdpr",
        "client country NL",
        "✕ outside the fence",
        "gdpr : Regulation (EU) 2016/679, Chapter V",
        "location: http://127.0.1.",
        "x-gtm-region: eu-",
        "gtm explain chat --client 91.198.174.192",
        "/v1/route:explain",
    ):
        assert said in words(page), said
    kinds = {one["name"]: one["kind"] for one in scene(page)["regions"]}
    assert sorted(kinds.values()) == ["chosen", "inside", "outside"]
    assert kinds["us-east"] == "outside"
    assert scene(page)["client"] is not None


@pytest.mark.reads
def test_a_refusal_says_why(live: Api, people: People) -> None:
    """And shows what a client gets."""
    set_health(live, "us-east")
    said = words(people(Role.VIEWER).page(asked(service="chat", **{"from": "de"})))
    assert "Refused residency" in said
    assert "no region inside the fence is usable" in said
    assert "HTTP/1.1 451" in said
    assert "No region can take it." in said


@pytest.mark.reads
def test_dns_is_shown_as_it_is_answered(live: Api, people: People) -> None:
    """Records, TTL, scope, and the subnet that is told."""
    said = words(people(Role.VIEWER).page(asked(service="chat", over="dns", **{"from": "91.198.174.192"})))
    assert "chat.demo.test, client subnet 91.198.174.0/24" in said
    assert re.search(r"A 127\.0\.1\.\d 30 s /\d\d", said)
    assert "gtm dns query chat.demo.test --subnet 91.198.174.0/24" in said


@pytest.mark.reads
def test_another_day_is_told(live: Api, people: People) -> None:
    """As the field of a browser writes it."""
    page = people(Role.VIEWER).page(asked(service="chat", at="2020-06-01T00:00", **{"from": "Berlin"}))
    assert "Decided by the law of 2020-06-01 00:00:00 UTC" in words(page)
    assert 'value="2020-06-01T00:00"' in page


WRONG = (
    ({"service": "chta"}, "service", "did you mean `chat`"),
    ({"from": "1.2.3"}, "from", "is not an IPv4 or IPv6 address"),
    ({"from": "Atlantis"}, "from", "the city `Atlantis` is not known here"),
    ({"from": "zz"}, "from", "ZZ"),
    ({"from": "91.0, 200.0"}, "from", ""),
    ({"at": "1066-10-14T00:00"}, "at", "from 2018-05-25 on"),
    ({"at": "soon"}, "at", "must be a date and time"),
    ({"tenant": "nobody"}, "tenant", "nobody"),
    ({"model": "m", "over": "dns"}, "model", "over DNS nobody can state a model"),
    ({"over": "pigeon"}, "over", ""),
    ({"priority": "soon"}, "priority", ""),
    ({"host": "other.test"}, "host", "it has chat.demo.test"),
)


@pytest.mark.reads
def test_a_wrong_field_says_so_itself(live: Api, people: People) -> None:
    """Beside it, tied to it, and with what was written still there."""
    for fields, name, said in WRONG:
        answer = people(Role.VIEWER).get(asked(**{"service": "chat", **fields}))
        assert answer.status_code == 422, fields
        assert 'role="alert"' in answer.text
        assert f'aria-describedby="{name}-wrong' in answer.text, fields
        message = answer.text.split(f'id="{name}-wrong"')[1].split("</span> ")[1].partition("</span>")[0]
        assert said in html.unescape(message), fields
        assert html.escape(fields[name]) in answer.text


NAMES = ("service", "from", "tenant", "data_class", "model", "affinity", "host", "at", "over", "priority")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.reads
def test_what_an_address_says_is_text(live: Api, people: People, text: str) -> None:
    """Whatever it says: a page, and nothing that runs."""
    for name in NAMES:
        answer = people(Role.VIEWER).get(asked(**{"service": "chat", name: text}))
        assert answer.status_code in (200, 422), name
        assert_inert(answer.text)
        assert "<script>alert" not in answer.text
        assert "<img src" not in answer.text


def test_what_people_wrote_is_text(live: Api, people: People) -> None:
    """Names that are shown, legal bases, and paths of endpoints."""
    evil = "<script>alert(1)</script>'\"\u202e"
    named = region("us-east", display_name=evil)
    named["endpoints"][0]["url"] += "/'\"<b>"
    live.operator.put("/v1/regions/us-east", json=named)
    rule = {
        "match": {"services": ["chat"]},
        "allow": {"jurisdictions": ["EEA"]},
        "legal_basis": evil,
        "mode": "monitor",
    }
    live.must_put("/v1/residency-rules/odd", rule)
    live.must_put("/v1/services/chat", CHAT)
    page = people(Role.VIEWER).page(asked(service="chat", **{"from": "US"}))
    assert_inert(page)
    assert "<script>alert" not in page
    assert html.escape("<script>alert(1)</script>") in page


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("192.0.2.1", {"client_ip": "192.0.2.1"}),
        ("2001:db8::/32", {"client_ip": "2001:db8::/32"}),
        ("nl", {"country": "NL"}),
        ("52.5, -13.4", {"lat": 52.5, "lon": -13.4}),
        ("São Paulo", {"city": "São Paulo"}),
    ],
)
def test_places_are_told_apart(text: str, found: dict[str, Any]) -> None:
    """By what they look like."""
    assert placed(text) == found
