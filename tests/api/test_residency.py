"""Who may be served where, over HTTP: the matrix by pages, the calendar, and rules that only watch."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import Row
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.storage.session import Database
from tests.api.conftest import CHAT, GDPR, Api

SOON = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0).isoformat()
LATER = (datetime.now(UTC) + timedelta(days=60)).replace(microsecond=0).isoformat()


def other(api: Api, name: str) -> None:
    """A service that no rule concerns."""
    api.must_put(f"/v1/services/{name}", {"members": CHAT["members"]})


def test_the_matrix(world: Api) -> None:
    """Europeans by the rule, everybody else anywhere; who is nowhere may be a European."""
    other(world, "billing")
    found = world.viewer.get("/v1/residency").json()
    assert [(one["kind"], one["name"]) for one in found["clients"]] == [
        ("jurisdiction", "EEA"),
        ("others", None),
        ("unknown", None),
    ]
    billing, chat = found["items"]
    assert [one["service"] for one in found["items"]] == ["billing", "chat"]
    everywhere = ["eu-central", "eu-west", "us-east"]
    free = {"countries": None, "regions": everywhere, "rules": [], "rules_left_out": 0}
    fenced = {**free, "regions": ["eu-central", "eu-west"], "rules": ["gdpr"]}
    assert billing["cells"] == [[free], [free], [free]]
    assert chat["cells"] == [[fenced], [free], [fenced]]
    assert found["unruled"] == {"count": 1, "services": [{"service": "billing", "monitored": False}]}
    assert (found["services"], found["next_cursor"]) == (2, None)


def test_it_comes_by_pages_and_can_be_narrowed(world: Api) -> None:
    """By the beginning of a service's name, and to clients of one place."""
    other(world, "billing")
    first = world.viewer.get("/v1/residency", params={"limit": 1}).json()
    second = world.viewer.get("/v1/residency", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [one["service"] for page in (first, second) for one in page["items"]] == ["billing", "chat"]
    assert second["next_cursor"] is None
    one = world.viewer.get("/v1/residency", params={"service": "ch", "client": "FR"}).json()
    assert ([row["service"] for row in one["items"]], one["services"]) == (["chat"], 1)
    assert [client["name"] for client in one["clients"]] == ["FR"]
    assert one["items"][0]["cells"][0][0]["rules"] == ["gdpr"]


def test_what_requests_state_counts(world: Api) -> None:
    """A rule about one tenant concerns whoever states none, and nobody else's."""
    world.must_put("/v1/tenants/shop", {})
    rule = {"match": {"services": ["chat"], "tenants": ["clinic"]}, "allow": {"regions": ["eu-west"]}}
    world.must_put("/v1/residency-rules/clinic", rule)
    cells = [
        world.viewer.get("/v1/residency", params={"client": "US", **stated}).json()["items"][0]["cells"][0]
        for stated in ({}, {"tenant": "clinic"}, {"tenant": "shop"})
    ]
    assert [one[0]["rules"] for one in cells] == [["clinic"], ["clinic"], []]


def test_what_cannot_be_asked(world: Api) -> None:
    """Names that nothing has, days that are over: told as such."""
    for params, status, words in (
        ({"tenant": "nobody"}, 404, "there is no tenant `nobody`"),
        ({"data_class": "secret"}, 404, "there is no data class `secret`"),
        ({"client": "ZZ"}, 404, "there is no jurisdiction or country `ZZ`"),
        ({"at": "2020-06-01T00:00:00Z"}, 400, "gtm explain --at"),
        ({"cursor": "nonsense"}, 400, "cursor"),
        ({"limit": 101}, 422, ""),
        ({"servise": "x"}, 422, ""),
    ):
        answer = world.viewer.get("/v1/residency", params=params)
        assert answer.status_code == status, answer.text
        assert words in answer.text
    assert world.viewer.get("/v1/residency/monitored", params={"since": LATER}).status_code == 400
    assert world.anonymous.get("/v1/residency").status_code == 401


def test_the_calendar(world: Api) -> None:
    """A rule with dates, and the decision about the United Kingdom: what each changes, and the act that lapses."""
    world.must_put("/v1/regions/us-east", {**_region(world), "country": "GB"})
    opened = {**GDPR, "allow": {"jurisdictions": ["EEA-OR-ADEQUATE"]}, "effective_from": SOON}
    forced = {"force": "true", "force_reason": "a test"}
    assert world.fence_admin.put("/v1/residency-rules/gdpr", json=opened, params=forced).status_code == 200
    first, *_, last = world.viewer.get("/v1/residency/calendar").json()["items"]
    assert [(one["what"], one["name"]) for one in first["causes"]] == [("rule_begins", "gdpr")]
    assert first["at"] == SOON.replace("+00:00", "Z")
    assert first["changes"] == []  # all three regions are in the EEA or adequate
    gone = next(one for one in last["causes"] if one["name"] == "GDPR-ADEQUATE")
    assert (gone["what"], gone["countries"], gone["rules"]) == ("membership_ends", ["GB"], [])
    assert gone["decisions"][0]["until"] == "2031-12-27"
    (change,) = last["changes"]
    assert (change["services"], change["unknown"]) == (["chat"], True)
    assert "DE" in change["countries"]
    assert (change["before"][-1], change["after"]) == ("us-east", ["eu-central", "eu-west"])
    then = world.viewer.get("/v1/residency", params={"at": last["at"], "client": "DE"}).json()
    assert then["items"][0]["cells"][0][0]["regions"] == change["after"]
    later = world.viewer.get("/v1/residency/calendar", params={"at": LATER, "limit": 1}).json()
    assert later["items"][0]["at"] == last["at"]
    assert later["left_out"] == 0


def test_rules_that_only_watch(world: Api) -> None:
    """What they would have refused of the demand recorded, and in which countries."""
    watch = {
        "match": {"services": ["chat"], "client_countries": ["DE", "US"]},
        "allow": {"regions": ["us-east"]},
        "mode": "monitor",
        "legal_basis": "none yet",
    }
    world.must_put("/v1/residency-rules/watch", watch)
    nothing = world.viewer.get("/v1/residency/monitored").json()
    assert (nothing["seconds"], nothing["items"][0]["refused"]) == (0, 0)
    record(world, {"DE": 600.0, "US": 60.0, "BR": 6.0})
    found = world.viewer.get("/v1/residency/monitored").json()
    (rule,) = found["items"]
    assert (found["seconds"], found["requests"]) == (60, 666)
    assert (rule["rule"], rule["legal_basis"]) == ("watch", "none yet")
    # Of a German the rule leaves nothing beside the other; of an American one of three regions.
    assert (rule["concerned"], rule["narrowed"], rule["refused"]) == (660, 60, 600)
    assert rule["countries"] == [{"country": "DE", "refused": 600}]


def _region(world: Api) -> dict[str, object]:
    found: dict[str, object] = world.viewer.get("/v1/regions/us-east").json()
    return {name: found[name] for name in ("lat", "lon", "endpoints")}


def record(api: Api, counts: dict[str, float]) -> None:
    """Write down requests for chat of two minutes ago, by country."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    rows = {
        Row("chat", "eu-west", "served", "lookup", "class", _cell(country)): count
        for country, count in counts.items()
    }

    async def work() -> None:
        database = Database(api.database_url)
        async with database.transaction() as transaction:
            await transaction.demand.record(minute, "a", rows)
        await database.dispose()

    asyncio.run(work())


def _cell(country: str) -> str:
    return cell_of(Request("chat", Location(country, source="geoip")), Priority.REAL_TIME)
