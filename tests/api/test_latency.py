"""Measured round trips in control: reported by edges, told to edges, shown, and kept over restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead import latency
from gtm.control.lead.latency import LatencyBook, delta_problem
from gtm.core.capacity.processing import ProcessingTimes
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment
from gtm.core.latency.aggregates import Aggregates
from gtm.core.latency.doubt import Doubt, Witness
from gtm.core.latency.samples import Delta, Level
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.access import Role
from gtm.feed.reports import MAX_DELTAS, BalancerReport, EdgeReport
from gtm.feed.wire import LatencyMessage
from gtm.storage.session import Database
from tests import worlds
from tests.api.conftest import TOKENS, Api, Server
from tests.api.test_feed import follow, until
from tests.api.test_resources import problem

LONDON = "81.2.69.142"
THREE = 0b111
REGIONS = worlds.regions("eu-central us-east")
ENDPOINTS = [{"url": "http://127.0.1.1:9000", "ipv4": ["127.0.1.1"]}]
POLICY = worlds.policy(*REGIONS, worlds.service("chat", "eu-central us-east"))


def delta(region: str = "us-east", centre: float = -15.0, **changes: Any) -> Delta:
    """What an edge learned of a country's clients."""
    plain = Delta(Level.COUNTRY, "GB", region, True, 30, THREE, centre, 2.0, time.time())
    return plain._replace(**changes)


def witness(reporter: str, network: str = "81.2.69.0/24", **changes: Any) -> Witness:
    """What a balancer of us-east says of a network that is said to be in London."""
    plain = Witness(network, "GB|51,-1", "us-east", reporter, 8, 0, 2.5, time.time())
    return plain._replace(**changes)


def send(client: httpx.Client, *deltas: Delta, witnesses: tuple[Witness, ...] = ()) -> httpx.Response:
    """Report as an edge."""
    body = msgspec.json.encode(EdgeReport("1.0", 2, 1, {}, latency=deltas, witnesses=witnesses))
    return client.post("/v1/edges/edge-1/report", content=body, headers={"Content-Type": "application/json"})


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control that makes tables and saves them every few hundredths of a second."""
    monkeypatch.setattr(latency, "EVERY", 0.05)
    monkeypatch.setattr(latency, "SAVE_EVERY", 0.1)


@pytest.mark.usefixtures("_hurried")
def test_what_edges_learn_reaches_all_edges_and_the_operator(world: Api) -> None:
    """A report's deltas make a table that every follower gets, and that explains estimates."""
    with follow(world) as messages:
        assert world.viewer.get("/v1/latency").json()["version"] == 0
        assert send(world.edge, delta(), delta(key="eu-central", level=Level.REGION, centre=95.0)).is_success
        told = until(messages, lambda message: isinstance(message, LatencyMessage))
    assert isinstance(told, LatencyMessage)
    assert told.table.countries == {"GB": {"us-east": (-15.0, 16.0)}}
    assert told.table.mutual == {"eu-central": {"us-east": 95.0}}
    found = world.viewer.get("/v1/latency", params={"client": LONDON}).json()
    assert found["version"] == told.table.version
    assert found["rows"] == {"region": 1, "network": 0, "asn": 0, "country": 1, "place": 0}
    assert found["estimates"]["location"]["country"] == "GB"
    regions = {item["region"]: item for item in found["estimates"]["regions"]}
    east = regions["us-east"]
    assert east["rtt_ms"] < east["model_ms"]
    assert east["source"] == "country"
    (measured,) = east["measured"]
    assert (measured["level"], measured["key"], measured["published"]) == ("country", "GB", True)
    assert (measured["sources"], measured["residual_ms"]) == (3, -15.0)
    assert measured["samples"] == pytest.approx(30, abs=0.1)
    assert regions["eu-west"]["measured"] == []


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize("save_every", [0.1, 3600.0], ids=["saved now and then", "saved at the end"])
def test_a_restart_forgets_nothing(
    prepared_url: str, monkeypatch: pytest.MonkeyPatch, save_every: float
) -> None:
    """What a control process learned, its successor knows, and tells with a later version."""
    monkeypatch.setattr(latency, "SAVE_EVERY", save_every)
    policy = {
        "regions": [{"name": "us-east", "lat": 39.0, "lon": -77.5, "country": "US", "endpoints": ENDPOINTS}]
    }

    @contextmanager
    def control() -> Iterator[Callable[..., httpx.Client]]:
        with Server(prepared_url) as server:
            yield lambda role: httpx.Client(
                base_url=server.url, headers={"Authorization": f"Bearer {TOKENS[role]}"}, trust_env=False
            )

    with control() as clients, clients(Role.ADMIN) as admin, clients(Role.EDGE) as edge:
        assert admin.post("/v1/policy:apply", json={"policy": policy}).status_code == 200
        assert send(edge, delta(), witnesses=(witness("one"), witness("two"))).is_success
        before = _versioned(admin)
    with control() as clients, clients(Role.ADMIN) as admin:
        after = _versioned(admin)
    assert after["rows"] == before["rows"]
    assert after["doubts"] == before["doubts"]
    assert after["doubts"]["doubtful"] == 1
    assert after["version"] > before["version"]


def _versioned(client: httpx.Client) -> dict[str, Any]:
    end = time.monotonic() + 60
    while True:
        found: dict[str, Any] = client.get("/v1/latency").json()
        if found["version"]:
            return found
        assert time.monotonic() < end, "no table within a minute"
        time.sleep(0.05)


@pytest.mark.usefixtures("_hurried")
def test_doubtful_locations_reach_all_edges_and_the_operator(world: Api) -> None:
    """Two balancers' word makes a location doubtful: edges are told, `/v1/latency`, `/v1/status` and metrics say so."""
    said = (witness("one"), witness("two"), witness("one", "198.51.100.0/24"))
    with follow(world) as messages:
        assert send(world.edge, witnesses=said).is_success
        told = until(messages, lambda message: isinstance(message, LatencyMessage))
    assert isinstance(told, LatencyMessage)
    claim, fastest = "GB|51,-1", {"us-east": 2.5}
    assert told.table.doubts == {
        "81.2.69.0/24": Doubt(claim, True, fastest),
        "198.51.100.0/24": Doubt(claim, False, fastest),
    }
    found = world.viewer.get("/v1/latency").json()["doubts"]
    assert (found["votes"], found["doubtful"], found["set_aside"]) == (2, 1, [])
    assert found["disputed"][0] == {
        "network": "81.2.69.0/24",
        "country": "GB",
        "place": "51,-1",
        "doubtful": True,
        "reporters": ["one", "two"],
        "edges": ["edge-one"],
        "fastest_ms": fastest,
    }
    assert not found["disputed"][1]["doubtful"]
    (warning,) = [text for text in world.viewer.get("/v1/status").json()["warnings"] if "locations" in text]
    assert "1 networks" in warning
    assert "gtm_control_doubtful_networks 1.0" in world.viewer.get("/metrics").text


@pytest.mark.usefixtures("_hurried")
def test_what_a_balancer_learned_is_its_regions_and_one_vote(world: Api) -> None:
    """Of its own region it is taken in as edges' word is; in whose name it disputes, its token says, and alone it makes nothing doubtful."""

    def told(**said: Any) -> httpx.Response:
        body = msgspec.json.encode(BalancerReport(**({"region": "eu-central", "version": "1.0"} | said)))
        return world.balancer.post(
            "/v1/balancers/fra-1/report", content=body, headers={"Content-Type": "application/json"}
        )

    own = delta("eu-central")
    disputes = tuple(
        witness(name, network, region="eu-central")
        for name in ("one", "two", "three")
        for network in ("81.2.69.0/24", "198.51.100.0/24")
    )
    with follow(world) as messages:
        answer = told(latency=(own,), witnesses=disputes, tiers={"real_time": (3, 1), "batch": (0, 40)})
        assert answer.is_success, answer.text
        found = until(messages, lambda message: isinstance(message, LatencyMessage))
    assert isinstance(found, LatencyMessage)
    assert found.table.countries == {"GB": {"eu-central": (-15.0, 16.0)}}
    shown = world.viewer.get("/v1/latency").json()["doubts"]
    assert shown["doubtful"] == 0
    (reporters,) = {tuple(one["reporters"]) for one in shown["disputed"]}
    assert reporters == (sha256(b"gtm_test_balancer").hexdigest()[:16],)
    assert {tuple(one["edges"]) for one in shown["disputed"]} == {("balancer-one",)}
    (item,) = world.viewer.get("/v1/balancers").json()["items"]
    age = item.pop("age")
    assert 0 <= age < 60
    assert item == {
        "name": "fra-1",
        "region": "eu-central",
        "token": "balancer-one",
        "version": "1.0",
        "tiers": {
            "batch": {"running": 0, "waiting": 40},
            "real_time": {"running": 3, "waiting": 1},
        },
    }
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"latency": (own, delta("us-east"))}, "region `us-east`"),
        ({"witnesses": (witness("one"),)}, "region `us-east`"),
        ({"latency": (delta("eu-central", level=Level.REGION, key="us-east"),)}, "by probes"),
        ({"latency": (delta("eu-central", samples=-1),)}, "latency[0]"),
        ({"latency": (own,) * (MAX_DELTAS + 1)}, "latency"),
        ({"tiers": {"high": (1, 1)}}, "tiers"),
        ({"tiers": {"batch": (-1, 1)}}, "tiers"),
        ({"region": "a b"}, "region"),
        ({"version": "v" * 101}, "version"),
    )
    for said, words in wrong:
        assert words in problem(told(**said), 422), said
    plain = world.balancer.post("/v1/balancers/fra-1/report", json={"handoff_keys": [], "unknown": 1})
    assert plain.is_success, "an older balancer's, and a newer one's"


@pytest.mark.parametrize("wrong", [{"network": "81.2.69.142/32"}, {"against": -1}, {"claim": "a\0b"}])
@pytest.mark.reads
def test_an_impossible_witness_is_named(world: Api, wrong: dict[str, Any]) -> None:
    """A report with a witness that cannot be is refused whole, with the place of what is wrong."""
    answer = send(world.edge, witnesses=(witness("one"), witness("two", **wrong)))
    assert "witnesses[1]" in problem(answer, 422)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("client=here", "not an IPv4 or IPv6 address"),
        ("client=81.2.69.142&country=GB", "leave out"),
        ("lat=1", "belong together"),
        ("country=XX", "XX"),
    ],
)
@pytest.mark.reads
def test_questions_that_say_nothing(world: Api, query: str, says: str) -> None:
    """A question about nobody gets an error that says why."""
    assert says in problem(world.viewer.get(f"/v1/latency?{query}"), 400)


@pytest.mark.reads
def test_countries_and_coordinates(world: Api) -> None:
    """A country's middle stands for it; coordinates need no country; nearest first. Only viewers ask."""
    found = world.viewer.get("/v1/latency?country=DE").json()["estimates"]["regions"]
    assert found[0]["region"] == "eu-central"
    found = world.viewer.get("/v1/latency?lat=40&lon=-75").json()["estimates"]["regions"]
    assert found[0]["region"] == "us-east"
    assert all(item["source"] == "model" and item["rtt_ms"] == item["model_ms"] for item in found)
    problem(world.edge.get("/v1/latency"), 403)


@pytest.mark.parametrize(
    "wrong",
    [
        {"centre": 1e9},
        {"samples": 0},
        {"samples": 10**9},
        {"sources": -1},
        {"level": Level.PLACE},
        {"key": "a\0b"},
        {"key": ""},
        {"key": "x" * 300},
    ],
)
@pytest.mark.reads
def test_an_impossible_delta_is_named(world: Api, wrong: dict[str, Any]) -> None:
    """A report with a delta that cannot be is refused whole, with the place of what is wrong."""
    answer = send(world.edge, delta(), delta(**wrong))
    assert "latency[1]" in problem(answer, 422)


@given(
    st.builds(
        Delta,
        st.sampled_from(Level),
        st.text(max_size=5) | st.sampled_from(["DE", "52,13", "91,0"]),
        st.text(max_size=5) | st.just("us-east"),
        st.booleans(),
        st.integers(),
        st.integers(),
        st.floats(),
        st.floats(),
        st.floats(),
    )
)
def test_what_is_accepted_can_be_merged(found: Delta) -> None:
    """Every delta is either named as wrong or learned from."""
    if delta_problem(found) is None:
        Aggregates().merge([found], 0.0)


class _Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def book(database_url: str, work: Callable[[LatencyBook, _Clock], None]) -> None:
    """Work with a book that has loaded what is stored."""

    async def run() -> None:
        database, clock = Database(database_url), _Clock()
        try:
            found = LatencyBook(database, clock, half_life=3600.0)
            await found.load()
            work(found, clock)
        finally:
            await database.dispose()

    asyncio.run(run())


def test_a_region_that_moves_starts_anew(database_url: str) -> None:
    """Residuals are against a region's place: elsewhere they mean nothing. Those of other regions stay."""

    def work(found: LatencyBook, clock: _Clock) -> None:
        deltas = [delta(at=clock.now), delta("eu-central", at=clock.now)]
        found.take([*deltas, delta("gone", at=clock.now)])
        table = found.turn(POLICY, NO_ASSESSMENT)
        assert table is not None
        assert set(table.countries["GB"]) == {"us-east", "eu-central"}
        assert found.turn(POLICY, NO_ASSESSMENT) is None
        moved = replace(POLICY, regions=(REGIONS[0], replace(REGIONS[1], lon=-80.0)))
        after = found.turn(moved, NO_ASSESSMENT)
        assert after is not None
        assert set(after.countries["GB"]) == {"eu-central"}
        assert after.version > table.version

    book(database_url, work)


def test_what_regions_take_themselves_is_told(database_url: str) -> None:
    """Processing times of the last assessment go into the table, and out of it again when they are no more."""

    def work(found: LatencyBook, _: _Clock) -> None:
        busy = Assessment(
            times=ProcessingTimes(processing_ms={("us-east", "chat"): 120.0, ("eu-central", "chat"): 0.0})
        )
        table = found.turn(POLICY, busy)
        assert table is not None
        assert table.processing_ms == {"us-east": {"chat": 120.0}}
        assert found.turn(POLICY, busy) is None
        after = found.turn(POLICY, NO_ASSESSMENT)
        assert after is not None
        assert after.processing_ms == {}

    book(database_url, work)


def test_what_is_old_is_forgotten(database_url: str) -> None:
    """The half-life is the one that was asked for."""

    def work(found: LatencyBook, clock: _Clock) -> None:
        found.take([delta(at=clock.now)])
        table = found.turn(POLICY, NO_ASSESSMENT) or EMPTY_TABLE
        assert table.countries
        clock.now += 5 * 3600.0
        after = found.turn(POLICY, NO_ASSESSMENT)
        assert isinstance(after, LatencyTable)
        assert after.countries == {}

    book(database_url, work)


def test_what_waits_is_bounded(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much edges report, memory does not grow beyond a bound."""
    monkeypatch.setattr(latency, "MAX_WAITING", 10)

    def work(found: LatencyBook, clock: _Clock) -> None:
        for _ in range(5):
            found.take([delta(at=clock.now)] * 4)
        assert sum(map(len, found.waiting.values())) == 10

    book(database_url, work)


def test_what_a_token_taught_is_forgotten(world: Api) -> None:
    """By name, of a token that goes on; who asked for it is written down; an unknown name is none."""
    assert world.operator.post("/v1/latency:forget", json={"token": "edge-one"}).status_code == 204
    [entry] = world.viewer.get("/v1/audit", params={"action": "latency.forget"}).json()["items"]
    assert (entry["who"], entry["target"]) == ("operator-one", "token edge-one")
    assert "no token `nobody`" in problem(
        world.operator.post("/v1/latency:forget", json={"token": "nobody"}), 404
    )
    problem(world.viewer.post("/v1/latency:forget", json={"token": "edge-one"}), 403)
