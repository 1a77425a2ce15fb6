"""Drafts simulated and explained, demand shown, and changes refused for being unsafe, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gtm.control.lead.vantages import Judgement
from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import Row
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.core.model.state import State
from gtm.storage.session import Database
from tests import worlds
from tests.api.conftest import REGIONS, Api, region
from tests.api.test_fences import policy
from tests.api.test_resources import problem
from tests.worlds.control import WORLD


def cell(country: str, lat: float, lon: float) -> str:
    """The cell of a request for chat from there."""
    return cell_of(Request("chat", Location(country, lat=lat, lon=lon)), Priority.REAL_TIME)


BERLIN, BOSTON = cell("DE", 52.5, 13.4), cell("US", 42.4, -71.1)


def row(text: str, place: str, via: str = "http") -> Row:
    """A row of requests for chat that a region serves."""
    return Row("chat", place, "served", via, "class", text)


def set_health(api: Api, *up: str) -> None:
    """Let every endpoint of those regions be up, and of the others down."""
    replica = api.server.app.state.context.replica
    replica.active.verdicts.judge = lambda: None  # no edge reports here, whose silence would make all unknown
    state = State(epoch=1, health=worlds.health(WORLD.regions, {*REGIONS} - {*up}, since=1.0))
    api.server.do(lambda: replica.current.become(replace(replica.now, state=state)))
    replica.active.reports.vantages.judgement = Judgement(told=state.health, presumed=state.health)


def set_demand(api: Api, rates: dict[Row, float]) -> None:
    """Let edges count so many requests per second."""
    reported = SimpleNamespace(rates=lambda *_: rates, excess=dict)
    api.server.app.state.context.replica.active.reports.demand.reported = lambda *_: reported


@pytest.fixture
def live(world: Api) -> Api:
    """Three regions that are up, and demand of which the United States have most."""
    set_health(world, *REGIONS)
    set_demand(world, {row(BERLIN, "eu-central"): 2.0, row(BOSTON, "us-east", "dns"): 8.0})
    return world


def test_demand_is_shown(live: Api) -> None:
    """The largest rows come first, with their cells taken apart; the limit says how many are left out."""
    found = live.viewer.get("/v1/demand", params={"limit": 1}).json()
    assert (found["rate"], found["left_out"]) == (10.0, 1)
    (first,) = found["rows"]
    assert (first["region"], first["via"], first["rate"]) == ("us-east", "dns", 8.0)
    assert (first["cell"]["country"], first["cell"]["lat"]) == ("US", 42.5)
    there = live.viewer.get("/v1/demand", params={"region": "eu-central"}).json()
    assert ([one["rate"] for one in there["rows"]], there["rate"], there["left_out"]) == ([2.0], 2.0, 0)
    planner = live.server.app.state.context.replica.active.planning.planner
    planner.tick = lambda _: planner.latest  # no other plan meanwhile
    planner.latest = replace(planner.latest, per_answer={("chat", "us-east"): 3.0})
    assert live.viewer.get("/v1/demand").json()["rate"] == 26.0


def record(live: Api, minutes: dict[datetime, dict[Row, float]]) -> None:
    """Let control have recorded so many requests in these minutes."""

    async def work() -> None:
        database = Database(live.database_url)
        async with database.transaction() as tx:
            for minute, counts in minutes.items():
                await tx.demand.record(minute, "a", counts)
        await database.dispose()

    asyncio.run(work())


@pytest.mark.reads
def test_demand_is_narrowed_down(live: Api) -> None:
    """By what requests state and where clients are; sums are of all that is left, whatever the limit."""

    def served(**query: str | int) -> dict[str, float]:
        answer = live.viewer.get("/v1/demand", params={"limit": 1, **query}).json()
        assert answer["recorded"] is None
        assert answer["rate"] == sum(answer["served"].values()) + sum(answer["refused"].values())
        found: dict[str, float] = answer["served"]
        return found

    assert served() == {"eu-central": 2.0, "us-east": 8.0}
    assert served(client="EEA") == served(client="DE") == {"eu-central": 2.0}
    assert served(client="US", service="chat") == {"us-east": 8.0}
    assert served(tenant="nobody") == served(priority="batch") == served(service="web") == {}
    assert served(priority="real_time", region="us-east") == {"us-east": 8.0}
    problem(live.viewer.get("/v1/demand", params={"client": "nowhere"}), 404)


def test_demand_of_a_minute_is_shown_as_recorded(live: Api) -> None:
    """With the region that served it; a moment that was not recorded has the last minute before, up to an hour."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    early, late = now - timedelta(hours=30), now - timedelta(hours=29, minutes=50)
    berlin, refused = row(BERLIN, "eu-central"), replace(row(BOSTON, ""), outcome="refused_overload")
    counts = {berlin: 60.0, refused: 30.0, row("damaged", "eu-west"): 6.0}
    record(live, {early: counts, late: {berlin: 120.0}})

    def then(minutes: float, **query: str) -> dict[str, Any]:
        at = (early + timedelta(minutes=minutes)).isoformat()
        found: dict[str, Any] = live.viewer.get("/v1/demand", params={"at": at, **query}).json()
        return found

    found = then(0)
    assert found["recorded"] == {"start": early.timestamp(), "seconds": 60.0, "revision": None}
    assert (found["served"], found["refused"]) == (
        {"eu-central": 1.0, "eu-west": 0.1},
        {"refused_overload": 0.5},
    )
    assert [(one["region"], one["rate"], one["requests_per_second"]) for one in found["rows"]] == [
        ("eu-central", None, 1.0),
        (None, None, 0.5),
    ]
    assert then(9.9)["at"] == early.timestamp()
    assert then(10)["at"] == then(69)["at"] == late.timestamp()
    assert then(5, client="US")["served"] == {}
    assert then(5, client="US")["refused"] == {"refused_overload": 0.5}
    assert then(5, client="EEA", priority="real_time", service="chat")["served"] == {"eu-central": 1.0}
    assert (
        then(5, priority="batch")["rate"]
        == then(5, tenant="acme")["rate"]
        == then(5, service="web")["rate"]
        == 0
    )
    assert then(5, region="eu-central")["rate"] == 1.0
    first = then(5, limit="1")
    assert (first["rate"], len(first["rows"]), first["left_out"]) == (1.6, 1, 2)
    for minutes in (-1, 10 + 62):
        at = (early + timedelta(minutes=minutes)).isoformat()
        problem(live.viewer.get("/v1/demand", params={"at": at}), 404)
    query = {"since": early.isoformat(), "until": (early + timedelta(hours=1)).isoformat()}
    line = live.viewer.get("/v1/demand/timeline", params=query).json()
    assert line["step"] == 60.0
    assert [(one["minutes"], one["requests"]) for one in line["items"]] == [(1, 96.0), (1, 120.0)]
    assert live.viewer.get("/v1/demand/timeline").json()["items"] == []
    query["until"] = query["since"]
    problem(live.viewer.get("/v1/demand/timeline", params=query), 400)


def test_recorded_demand_is_shown_and_simulated(live: Api) -> None:
    """What was recorded can be read by time range, sent back as traffic, or simulated from the database."""
    problem(live.viewer.get("/v1/demand/recorded"), 404)
    problem(live.viewer.post("/v1/policy:simulate", json={"policy": policy(live)}), 404)
    now = datetime.now(UTC).replace(second=0, microsecond=0)

    minutes = {}
    for ago, count in ((2, 600.0), (4, 60.0)):
        counts = {row(BERLIN, "eu-central"): count, row("damaged", "eu-central"): 1.0}
        minutes[now - timedelta(minutes=ago)] = counts
    record(live, minutes)
    found = live.viewer.get("/v1/demand/recorded").json()
    assert (found["seconds"], found["peak"]["seconds"]) == (120.0, 60.0)
    assert [item["count"] for item in found["cells"]] == [660.0]
    assert sum(step["minutes"] for step in found["timeline"]) == 2
    recent = (now - timedelta(minutes=3)).isoformat()
    assert live.viewer.get("/v1/demand/recorded", params={"since": recent}).json()["seconds"] == 60.0
    problem(live.viewer.get("/v1/demand/recorded", params={"since": recent, "until": recent}), 400)
    del found["timeline"]
    for traffic in ("recorded", found):
        body = {"policy": policy(live), "traffic": traffic}
        made = live.viewer.post("/v1/policy:simulate", json=body).json()
        assert made["traffic"]["rate"] == 5.5
        assert made["traffic"]["peak"]["rate"] == 10.0
        assert made["moved"] == 0


@pytest.mark.usefixtures("processes")
def test_another_process_simulates(live: Api) -> None:
    """What it comes to is what `test_a_scenario_is_simulated` has of this one."""
    body = {"traffic": "current", "scenario": {"down": ["us-east"]}}
    assert live.viewer.post("/v1/policy:simulate", json=body).json()["moved"] == pytest.approx(0.8)


@pytest.mark.reads
def test_a_draft_is_simulated(live: Api) -> None:
    """The answer says what moves; nothing changes."""
    draft = policy(live)
    draft["services"][0]["members"] = [{"region": "eu-central"}, {"region": "us-east"}, {"region": "eu-west"}]
    draft["regions"] = [
        {**item, "admin_state": "draining" if item["name"] == "us-east" else "active"}
        for item in draft["regions"]
    ]
    made = live.viewer.post("/v1/policy:simulate", json={"policy": draft, "traffic": "current"}).json()
    assert made["moved"] == pytest.approx(0.8)
    changed = [item for item in made["countries"] if item["before"] != item["after"]]
    assert [(item["country"], item["before"], item["after"]) for item in changed] == [
        ("US", "us-east", "eu-west")
    ]
    assert made["warnings"] == []
    assert made["revision"] == live.viewer.get("/v1/status").json()["sync"]["revision"]
    set_demand(live, {})
    problem(live.viewer.post("/v1/policy:simulate", json={"policy": draft, "traffic": "current"}), 404)
    draft["services"][0]["members"] = [{"region": "nowhere"}]
    text = problem(live.viewer.post("/v1/policy:simulate", json={"policy": draft}), 422)
    assert "services.chat.members[0].region" in text


@pytest.mark.reads
def test_inline_traffic(live: Api) -> None:
    """Traffic may come with the request; places count by their cells, and what nobody probed counts as up."""
    draft = policy(live)
    draft["regions"][0]["endpoints"] = [{"url": "http://127.0.9.9:9000", "ipv4": ["127.0.9.9"]}]
    traffic = {
        "seconds": 10,
        "cells": [
            {"service": "chat", "country": "DE", "count": 60},
            {"service": "chat", "country": "DE", "lat": 52.5, "lon": 13.4, "count": 40},
            {"service": "nosuch", "count": 5},
        ],
    }
    made = live.viewer.post("/v1/policy:simulate", json={"policy": draft, "traffic": traffic}).json()
    assert made["traffic"]["requests"] == 100
    assert [warning[:14] for warning in made["warnings"]] == ["5 requests for", "no edge has pr"]
    traffic["seconds"] = 0
    problem(live.viewer.post("/v1/policy:simulate", json={"policy": draft, "traffic": traffic}), 422)


@pytest.mark.reads
def test_explanations(live: Api) -> None:
    """A decision is explained in full by the policy in force, and by a draft of it."""
    asked = {"service": "chat", "country": "DE"}
    now = live.viewer.post("/v1/route:explain", json=asked).json()
    assert (now["region"], now["draft"]) == ("eu-central", False)
    assert now["lines"][0].startswith("eu-central: chosen, lowest estimated round trip")
    assert len(now["lines"]) == len(now["candidates"]) == 3
    draft = policy(live)
    draft["residency_rules"][0]["allow"] = {"jurisdictions": ["IE"]}
    later = live.viewer.post("/v1/route:explain", json={**asked, "policy": draft}).json()
    assert (later["region"], later["draft"]) == ("eu-west", True)
    british = live.viewer.post(
        "/v1/route:explain", json={"service": "chat", "client_ip": "81.2.69.142"}
    ).json()
    assert (british["client"]["ip"], british["client"]["country"]) == ("81.2.69.142", "GB")
    for several in ({"client_ip": "5.62.56.0/21"}, {"spans": ["CZ", "GB", "MT", "MV", "US"]}):
        mixed = live.viewer.post("/v1/route:explain", json={"service": "chat", **several}).json()
        assert mixed["rules"][0]["because"] == ["client subnet spans CZ, GB, MT, MV and US"]
        assert mixed["request"]["location"]["spans"] == ["CZ", "GB", "MT", "MV", "US"]
    set_health(live, "us-east")
    refused = live.viewer.post("/v1/route:explain", json=asked).json()
    assert (refused["outcome"], refused["region"]) == ("refused_residency", None)
    assert refused["lines"][0].startswith("refused: no region inside the fence is usable")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"service": "nosuch"}, "there is no service `nosuch`"),
        ({"service": "chatt"}, "there is no service `chatt`; did you mean `chat`?"),
        ({"service": "chat", "tenant": "stranger"}, "there is no tenant `stranger`"),
        ({"service": "chat", "client_ip": "1.2.3"}, "client_ip"),
        ({"service": "chat", "client_ip": "192.0.2.1/24"}, "has host bits set"),
        ({"service": "chat", "client_ip": "192.0.2.1", "country": "DE"}, "give either"),
        ({"service": "chat", "spans": ["DE", "US"], "country": "DE"}, "give either"),
        ({"service": "chat", "spans": ["DE", "*"]}, "stands alone"),
        ({"service": "chat", "lat": 5}, "need each other"),
    ],
)
@pytest.mark.reads
def test_bad_questions(live: Api, body: dict[str, Any], said: str) -> None:
    """They are refused whole, and say what is wrong."""
    assert said in problem(live.viewer.post("/v1/route:explain", json=body), 422)


def test_unsafe_changes_are_refused_with_numbers(live: Api) -> None:
    """A drain that moves too much is refused in every way to make it, and nothing changes; a dry run says so, too."""
    drain = "/v1/regions/us-east:drain"
    refused = live.operator.post(drain)
    text = problem(refused, 409)
    assert refused.json()["type"] == "urn:gtm:problem:unsafe-change"
    assert "80.0% of the present requests would leave" in text
    assert refused.json()["errors"][0]["code"] == "unsafe_change"
    (breach,) = refused.json()["breaches"]
    assert (breach["rule"], round(breach["value"], 3), breach["limit"]) == ("moved", 0.8, 0.3)
    assert refused.json()["may_force"]
    draft = policy(live)
    draft["regions"] = [
        {**item, "admin_state": "disabled" if item["name"] == "us-east" else "active"}
        for item in draft["regions"]
    ]
    assert "unsafe" in problem(live.operator.post("/v1/policy:apply", json={"policy": draft}), 409)
    put = {**region("us-east"), "admin_state": "draining"}
    problem(live.put("/v1/regions/us-east", put), 409)
    dry = live.operator.post("/v1/policy:apply", json={"policy": draft, "dry_run": True}).json()
    assert ([one["rule"] for one in dry["safety"]["breaches"]], dry["safety"]["may_force"]) == (
        ["moved"],
        True,
    )
    assert live.viewer.get("/v1/regions/us-east").json()["admin_state"] == "active"
    problem(live.operator.delete("/v1/services/chat"), 409)
    small = {row(BERLIN, "eu-central"): 8.0, row(BOSTON, "us-east"): 2.0}
    set_demand(live, small)
    assert live.operator.post(drain).status_code == 200


def test_the_last_region_of_a_fence_is_kept(world: Api) -> None:
    """Without any demand, too, no country is left without a region that it has."""
    set_health(world, "eu-central", "us-east")
    text = problem(world.operator.post("/v1/regions/eu-central:drain"), 409)
    assert "service `chat` would have no usable region for clients in AT, AX, BE" in text
    assert world.operator.post("/v1/regions/us-east:drain").status_code == 200


def test_unsafe_changes_can_be_forced(live: Api) -> None:
    """With a reason, which is kept with the revision; a roll-back is judged like any other change."""
    before = live.viewer.get("/v1/status").json()["sync"]["revision"]
    drain = "/v1/regions/us-east:drain"
    assert "needs a reason" in problem(live.operator.post(drain, params={"force": True}), 400)
    assert "means nothing" in problem(live.operator.post(drain, params={"force_reason": "x"}), 400)
    reason = {"force": True, "force_reason": "the building is on fire"}
    assert live.operator.post(drain, params=reason).status_code == 200
    revision = live.viewer.get(f"/v1/revisions/{before + 1}").json()
    assert revision["comment"] == (
        "set region us-east draining; forced against the safety rules moved: the building is on fire"
    )
    assert revision["author"] == "operator-one"
    assert "moved" in problem(live.operator.post("/v1/regions/us-east:activate"), 409), "all at once, again"
    assert live.operator.post("/v1/regions/us-east:activate", params=reason).status_code == 200
    first = live.operator.post(f"/v1/revisions/{before - 1}:rollback")
    assert "moved" in problem(first, 409)
    problem(live.operator.post(f"/v1/revisions/{before - 1}:rollback", params=reason), 403)
    forced = live.fence_admin.post(f"/v1/revisions/{before - 1}:rollback", params=reason)
    assert forced.status_code == 200


@pytest.mark.reads
def test_a_past_day_has_the_law_of_that_day(live: Api) -> None:
    """In 2020 the United Kingdom was under the GDPR, in transition; since 2021 it is a third country."""
    asked = {"service": "chat", "country": "GB"}
    then = live.viewer.post("/v1/route:explain", json={**asked, "at": "2020-06-01T00:00:00Z"}).json()
    now = live.viewer.post("/v1/route:explain", json=asked).json()
    assert [rule["name"] for rule in then["rules"]] == ["gdpr"]
    assert (now["rules"], then["draft"], then["revision"]) == ([], False, now["revision"])
    assert "offset" in problem(
        live.viewer.post("/v1/route:explain", json={**asked, "at": "2020-06-01T00:00:00"}), 422
    )


@pytest.mark.reads
def test_the_redirect_is_told(live: Api) -> None:
    """As the edge sends it, and what only an edge knows."""
    found = live.viewer.post("/v1/route:explain", json={"service": "chat", "city": "berlin"}).json()
    assert (found["over"], found["host"], found["dns"]) == ("http", None, None)
    assert found["request"]["location"]["country"] == "DE"
    redirect = found["redirect"]
    assert (redirect["path"], redirect["status"]) == ("/r/chat/", 307)
    headers = {one["name"]: one["value"] for one in redirect["headers"]}
    assert headers["location"] == "http://127.0.1.1:9000/"
    assert headers["x-gtm-region"] == "eu-central"
    assert any("free" in sentence for sentence in found["unknown"])


@pytest.mark.reads
def test_a_refusal_is_told_as_the_edge_sends_it(live: Api) -> None:
    """With the problem document that a client would get."""
    set_health(live, "us-east")
    asked = {"service": "chat", "country": "DE", "host": "chat.demo.test"}
    redirect = live.viewer.post("/v1/route:explain", json=asked).json()["redirect"]
    assert (redirect["path"], redirect["host"], redirect["status"]) == ("/", "chat.demo.test", 451)
    assert json.loads(redirect["body"])["code"] == "refused_residency"


@pytest.mark.reads
def test_the_dns_answer_is_told(live: Api) -> None:
    """With addresses, TTL and scope, of the subnet that the client's resolver would state."""
    asked = {"service": "chat", "client_ip": "91.198.174.192", "over": "dns"}
    found = live.viewer.post("/v1/route:explain", json=asked).json()
    assert (found["host"], found["redirect"]) == ("chat.demo.test", None)
    told = found["dns"]
    assert (told["name"], told["client_subnet"]) == ("chat.demo.test", "91.198.174.0/24")
    reply, *others = told["replies"]
    assert reply["records"] == [{"name": "chat.demo.test.", "ttl": 30, "type": "A", "data": "127.0.1.1"}]
    assert (reply["rcode"], reply["error"]) == ("NOERROR", None)
    assert 0 < reply["scope"] <= 24
    assert [(one["type"], one["records"]) for one in others] == [("AAAA", []), ("HTTPS", [])]


@pytest.mark.reads
def test_dns_refuses_by_an_address(live: Api) -> None:
    """And says why; a place without an address states no subnet, so that there is no scope."""
    set_health(live, "us-east")
    asked = {"service": "chat", "country": "DE", "over": "dns"}
    reply = live.viewer.post("/v1/route:explain", json=asked).json()["dns"]["replies"][0]
    assert [one["data"] for one in reply["records"]] == ["127.0.1.8"]
    assert reply["error"]["code"] == 18
    assert reply["scope"] is None


@pytest.mark.reads
def test_another_day_has_answers_too(live: Api) -> None:
    """They are made in the process that compiles the policy for that day."""
    asked = {"service": "chat", "country": "DE", "over": "dns", "at": "2020-06-01T00:00:00Z"}
    found = live.viewer.post("/v1/route:explain", json=asked).json()
    assert found["dns"]["replies"][0]["records"][0]["data"] == "127.0.1.1"


@pytest.mark.parametrize(
    ("field", "asked", "words"),
    [
        ("model", {"model": "llama", "over": "dns"}, "over DNS nobody can state a model"),
        ("priority", {"priority": "batch", "over": "dns"}, "nobody can state a priority"),
        ("family", {"family": "ipv6"}, "over HTTP nobody asks for a family"),
        ("tenant", {"tenant": "clinic", "over": "dns"}, "no host name of service `chat` states tenant"),
        ("host", {"host": "chat.demo.tset"}, "did you mean `chat.demo.test`?"),
        ("city", {"city": "Atlantis"}, "the city `Atlantis` is not known here"),
        ("at", {"at": "1066-10-14T00:00:00Z"}, "from 2018-05-25 on"),
        ("document", {"city": "Berlin", "country": "DE"}, "give either `city`"),
    ],
)
@pytest.mark.reads
def test_what_nobody_could_ask_is_refused(live: Api, field: str, asked: dict[str, str], words: str) -> None:
    """By the field that is wrong."""
    answer = live.viewer.post("/v1/route:explain", json={"service": "chat", **asked})
    assert answer.status_code == 422
    (found,) = answer.json()["errors"]
    assert found["path"] == field
    assert words in found["message"]


def test_names_are_listed_to_choose_from(world: Api) -> None:
    """Of each kind the first so many, and how many are left out."""
    found = world.viewer.get("/v1/names", params={"limit": 2}).json()
    assert (found["services"], found["tenants"], found["models"]) == (["chat"], ["clinic"], [])
    assert [one["name"] for one in found["regions"]] == ["eu-central", "eu-west"]
    assert found["regions"][0]["lat"] == REGIONS["eu-central"]["lat"]
    assert found["left_out"]["regions"] == 1
    assert world.anonymous.get("/v1/names").status_code == 401


def test_a_scenario_is_simulated(live: Api) -> None:
    """Without a draft too: what fails, drains, shrinks or grows, beside the present; what moves says from where to where."""

    def made(**scenario: Any) -> dict[str, Any]:
        answer = live.viewer.post("/v1/policy:simulate", json={"traffic": "current", "scenario": scenario})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert made()["moved"] == 0
    for happens in ({"down": ["us-east"]}, {"drain": ["us-east"]}):
        found = made(**happens)["average"]
        assert found["moves"] == [{"from": "us-east", "to": "eu-west", "rate": pytest.approx(8.0)}]
    refused = made(down=["eu-central", "eu-west"])["average"]
    assert refused["moves"] == [{"from": "eu-central", "to": None, "rate": pytest.approx(2.0)}]
    grown = made(demand=2, services={"chat": 1.5})["average"]
    assert (grown["before"]["rate"], grown["after"]["rate"]) == pytest.approx((10.0, 30.0))
    live.must_put("/v1/regions/us-east", region("us-east", capacity={"requests_per_second": 10}, reserve=0.0))
    full = made(capacity={"us-east": 0.5})["average"]
    after = {one["region"]: one for one in full["after"]["regions"]}
    assert after["us-east"]["room"]["usable_rate"] == pytest.approx(5.0)
    assert after["us-east"]["exhausted"]
    assert {one["region"]: one for one in full["before"]["regions"]}["us-east"]["exhausted"] is False


def test_a_day_to_come_has_its_own_law(live: Api) -> None:
    """A rule that begins then holds after, and not before."""
    rule = {
        "match": {"services": ["chat"]},
        "allow": {"jurisdictions": ["EEA"]},
        "effective_from": "2090-01-01T00:00:00Z",
    }
    live.must_put("/v1/residency-rules/later", rule)

    def moved(at: str) -> float:
        body = {"traffic": "current", "scenario": {"at": at}}
        return float(live.viewer.post("/v1/policy:simulate", json=body).json()["moved"])

    assert moved("2089-12-31T00:00:00Z") == 0
    assert moved("2090-01-02T00:00:00Z") == pytest.approx(0.8)


@pytest.mark.reads
def test_a_scenario_has_to_be_possible(live: Api) -> None:
    """Names that nothing has, days that are over and factors out of bounds are named, all of them."""
    asked = {
        "down": ["eu-wset"],
        "drain": ["x"],
        "capacity": {"y": 1},
        "services": {"chta": 2},
        "at": "2020-01-01T00:00:00Z",
    }
    body = {"traffic": "current", "scenario": asked}
    text = problem(live.viewer.post("/v1/policy:simulate", json=body), 422)
    for words in (
        "no region `eu-wset`; did you mean `eu-west`?",
        "no service `chta`",
        "is over",
        "scenario.capacity",
    ):
        assert words in text, words
    for wrong in (
        {"demand": 0},
        {"demand": 1001},
        {"demand": "2"},
        {"capacity": {"us-east": -1}},
        {"sown": []},
        {"at": "now"},
    ):
        problem(live.viewer.post("/v1/policy:simulate", json={"traffic": "current", "scenario": wrong}), 422)
