"""The page about residency: what it says, and that nothing written by people does more there than be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gtm.core.model.access import Role
from tests.api.conftest import CHAT, GDPR, Api
from tests.api.test_residency import record
from tests.dashboard.conftest import People, assert_inert

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e"


def test_it_says_who_may_be_served_where(people: People, world: Api) -> None:
    """By which rule, and which service nobody has thought of."""
    world.must_put("/v1/services/billing", {"members": CHAT["members"]})
    text = people(Role.VIEWER).page("/residency")
    assert_inert(text)
    for words in (
        "One service without a rule",
        "only</span> eu-central, eu-west",
        'by <a href="/policy/residency-rules/gdpr">gdpr</a>',
        "any region",
        "GDPR-ADEQUATE",
        "2031-12-27 00:00:00 UTC",
        "no rule names it",
        "No rule is in monitor mode",
        "2 of 2 services",
        'aria-current="page">Residency',
    ):
        assert words in text, words


def test_what_a_day_brings(people: People, world: Api) -> None:
    """A rule that begins changes a cell from then on; the calendar leads there."""
    begins = (datetime.now(UTC) + timedelta(days=40)).replace(microsecond=0, second=0)
    rule = {"match": {"services": ["chat"]}, "allow": {"regions": ["eu-west"]}}
    world.must_put(
        "/v1/residency-rules/strict", {**rule, "effective_from": begins.isoformat(), "legal_basis": HOSTILE}
    )
    person = people(Role.VIEWER)
    text = person.page("/residency")
    assert_inert(text)
    assert "Rule <code>strict</code> begins" in text
    assert "in 40 days" in text
    assert ">strict</a>" not in text
    assert f"/residency?at={begins.date()}" in text.replace("%3A", ":")
    then = person.page(f"/residency?at={begins.date() + timedelta(days=1)}&client=US")
    assert ">strict</a>" in then
    assert "only</span> eu-west" in then


def test_rules_that_watch(people: People, world: Api) -> None:
    """With what they would have refused; markup in a legal basis is text."""
    watch = {**GDPR, "allow": {"regions": ["us-east"]}, "mode": "monitor", "legal_basis": HOSTILE}
    world.must_put("/v1/residency-rules/watch", watch)
    person = people(Role.VIEWER)
    assert "nobody knows what they would have refused" in person.page("/residency")
    record(world, {"DE": 600.0})
    text = person.page("/residency")
    assert_inert(text)
    assert "&lt;script&gt;alert(1)" in text
    assert "✕ 600" in text


def test_bad_questions_are_told(people: People, world: Api) -> None:
    """Above the form, which keeps what was typed; never as an error of the server's."""
    person = people(Role.VIEWER)
    for query, status, words in (
        ({"client": "ZZ"}, 404, "there is no jurisdiction or country"),
        ({"client": HOSTILE}, 422, ""),
        ({"client": "x" * 10_000}, 422, ""),
        ({"tenant": HOSTILE}, 422, ""),
        ({"tenant": "nobody"}, 404, "there is no tenant"),
        ({"service": HOSTILE}, 200, "No service's name begins so"),
        ({"service": "x" * 10_000}, 422, ""),
        ({"at": "2020-01-01"}, 400, "must not be in the past"),
        ({"at": "soon" + HOSTILE}, 422, ""),
        ({"at": "9999-12-31T23:59:59-12:00"}, 400, "hundred years"),
        ({"cursor": HOSTILE}, 400, "cursor"),
    ):
        answer = person.client.get("/residency", params=query, headers={"Accept": "text/html"})
        assert answer.status_code == status, (query, answer.status_code)
        assert words in answer.text
        assert "<h1>Residency</h1>" in answer.text
        assert_inert(answer.text)


def test_an_empty_policy(people: People, world: Api) -> None:
    """Nothing to show is said so."""
    world.fence_admin.post(
        "/v1/policy:apply", json={"policy": {}}, params={"force": "true", "force_reason": "a test"}
    )
    text = people(Role.VIEWER).page("/residency")
    assert_inert(text)
