"""The demo world's parts: service times, requests, demand, the resolver's cache, summaries."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from ipaddress import IPv4Network
from random import Random
from statistics import fmean
from unittest.mock import Mock

import dns.edns
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.demo.backend.protocol import Connection
from gtm.demo.backend.requests import read_chat
from gtm.demo.clients import Country, Demand, DemandProfile, client_of, countries, rates
from gtm.demo.fetch import FetchError, FetchReply, parse_head, post
from gtm.demo.resolver import Resolved, ResolveError, Resolver, query, read
from gtm.demo.servers import MAX_SLOTS, MEAN_TOKENS, STEP_S, answer_tokens, profile, shared
from gtm.demo.summary import End, Result, Summary, WaitHistogram
from gtm.demo.traffic import completion, queue_wait, refusal
from gtm.geoip.reader import Locator

WORLD = (
    Country("DE", 80.0, (IPv4Network("192.0.2.0/24"),)),
    Country("IN", 300.0, (IPv4Network("198.51.100.0/24"), IPv4Network("203.0.113.0/24"))),
    Country("US", 120.0, (IPv4Network("192.0.2.0/24"),)),
)
LONGITUDES = {"DE": 10.0, "IN": 78.0, "US": -95.0}


# --- requests and answers ---


def test_service_times_are_about_0_4_s() -> None:
    """Lengths of answers along a golden-ratio sequence: their mean is near the true one wherever it begins, few are long."""
    for seed in range(20):
        place = Random(seed).random()
        tokens = [answer_tokens((place + number * (5**0.5 - 1) / 2) % 1) for number in range(200)]
        assert fmean(tokens) == pytest.approx(MEAN_TOKENS, rel=0.02)
        assert (fmean(tokens) + 0.5) * STEP_S == pytest.approx(0.4, rel=0.02)
        assert max(tokens) > 1.7 * MEAN_TOKENS
    assert answer_tokens(0.0) >= 1
    assert answer_tokens(1.0) < 10 * MEAN_TOKENS


@given(st.integers(1, MAX_SLOTS), st.integers(1, 9))
def test_slots_are_shared_out_evenly(slots: int, servers: int) -> None:
    """All are given to somebody, and nobody has two more than another."""
    found = shared(slots, servers)
    assert (len(found), sum(found)) == (servers, slots)
    assert max(found) - min(found) <= 1
    profile(max(found))  # no region is too large for its servers


def test_a_request_is_a_chat_completion() -> None:
    """As OpenAI's API has it, from the client that a proxy names, with its length."""
    sent = post("chat.demo.test", "/v1/chat/completions", {"X-Forwarded-For": "192.0.2.1"}, completion(7))
    head, _, body = sent.partition(b"\r\n\r\n")
    read = read_chat(body)
    assert (read.chat, read.model, read.answer_tokens, read.stream) == (True, "demo", 7, False)
    line, *fields = head.decode().split("\r\n")
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert {"Host: chat.demo.test", "X-Forwarded-For: 192.0.2.1", f"Content-Length: {len(body)}"} <= {*fields}


def test_the_wait_is_what_the_balancer_states() -> None:
    """By Server-Timing, among others' metrics; anything else is none."""
    for said, wait in (
        ("queue;dur=12.5", 12.5),
        ("cpu;dur=3, queue; dur=7", 7.0),
        ("queue;dur=x", 0.0),
        ("queue", 0.0),
        ("queues;dur=3", 0.0),
        ("", 0.0),
    ):
        assert queue_wait(FetchReply(200, {"server-timing": said}, b"", 0.0)) == wait
    assert queue_wait(FetchReply(200, {}, b"", 0.0)) == 0.0


@given(st.binary(max_size=300))
def test_requests_and_answers_of_any_bytes_are_read_or_refused(head: bytes) -> None:
    """No bytes make the parsers raise anything but their own errors."""

    async def run() -> None:
        for begin in (b"", b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"):
            connection = Connection(lambda *_: None, set())
            connection.connection_made(Mock(spec=asyncio.Transport))
            connection.data_received(begin + head)
            with suppress(FetchError):
                parse_head(begin + head)

    asyncio.run(run())


# --- clients and demand ---


def test_clients_are_where_their_country_says() -> None:
    """Every network of the list is in its country by the shipped database, throughout."""
    locator = Locator()
    known = countries()
    assert len(known) >= 60
    for country in known:
        assert len(country.networks) == 10
        for network in country.networks:
            ends = (network[0], network[-1])
            assert {locator.locate(str(end)).country for end in ends} == {country.code}, network


def test_clients_share_networks() -> None:
    """Clients are inside their country's networks, several in each."""
    random = Random(1)
    found = Counter(client_of(WORLD[1], random).address for _ in range(500))
    assert 20 < len(found) <= 100
    assert all(any(address in network for network in WORLD[1].networks) for address in found)


@given(st.sampled_from(DemandProfile), st.floats(0, 1000), st.floats(1, 5000), st.floats(1, 1000))
def test_demand_is_never_negative(profile: DemandProfile, at: float, rps: float, day: float) -> None:
    """No profile makes less than nothing of a country's demand, nor more than its burst."""
    total = rates(Demand(profile, rps, day), WORLD, LONGITUDES, at)
    assert all(0 <= rate <= 5 * rps for rate in total)


def test_profiles() -> None:
    """Steady is steady; the sun moves peaks westward and keeps the daily mean; a burst is one country's."""
    steady = rates(Demand(DemandProfile.STEADY, 100.0), WORLD, LONGITUDES, 77.0)
    assert steady == pytest.approx([16.0, 60.0, 24.0])
    sun = Demand(DemandProfile.FOLLOW_THE_SUN, 100.0, day_seconds=240.0)
    day = [rates(sun, WORLD, LONGITUDES, float(at)) for at in range(240)]
    assert [sum(column) / 240 for column in zip(*day, strict=True)] == pytest.approx(steady)
    peaks = [max(range(240), key=lambda at, n=number: day[at][n]) for number in range(3)]  # type: ignore[misc]
    assert [(peaks[0] - peaks[1]) % 240, (peaks[2] - peaks[0]) % 240] == [45, 70]  # 15° are an hour, 10 s
    burst = Demand(DemandProfile.BURST, 100.0)
    assert rates(burst, WORLD, LONGITUDES, 5.0) == pytest.approx(steady)
    assert rates(burst, WORLD, LONGITUDES, 75.0) == pytest.approx([16.0, 300.0, 24.0])


# --- the resolver ---


def reply(
    subnet: str, scope: int, addresses: tuple[str, ...] = ("127.0.1.1",), ttl: int = 30
) -> dns.message.Message:
    """An edge's answer."""
    text = "".join(f"chat.demo.test. {ttl} IN A {address}\n" for address in addresses)
    made = dns.message.from_text(f"id 1\nflags QR AA\n;QUESTION\nchat.demo.test. IN A\n;ANSWER\n{text}")
    (asked,) = query("chat.demo.test", IPv4Network(subnet)).options
    assert isinstance(asked, dns.edns.ECSOption)
    made.use_edns(0, options=[dns.edns.ECSOption(asked.address, asked.srclen, scope)])
    return made


def test_answers_are_kept_by_scope() -> None:
    """An answer is good for its scope, never narrower than the question; scope 0 is everybody's."""
    subnet = IPv4Network("192.0.2.0/24")
    assert read(reply("192.0.2.0/24", 20), subnet).scope == IPv4Network("192.0.0.0/20")
    assert read(reply("192.0.2.0/24", 28), subnet).scope == subnet
    assert read(reply("192.0.2.0/24", 0), subnet).scope == IPv4Network("0.0.0.0/0")
    with pytest.raises(ResolveError):
        read(reply("192.0.2.0/24", 24, ()), subnet)
    refused = reply("192.0.2.0/24", 24)
    refused.set_rcode(dns.rcode.REFUSED)
    with pytest.raises(ResolveError, match="REFUSED"):
        read(refused, subnet)


def test_the_resolver_asks_once_per_scope_and_ttl() -> None:
    """Those inside a scope share its answer until it is too old; those outside get their own; crowds ask once."""
    now = [0.0]
    asked: list[IPv4Network] = []

    async def ask(name: str, subnet: IPv4Network) -> Resolved:
        asked.append(subnet)
        await asyncio.sleep(0)
        return Resolved((str(subnet[1]),), 30, subnet.supernet(new_prefix=23))

    async def run() -> None:
        resolver = Resolver(ask, lambda: now[0])
        low, high, far = (IPv4Network(f"10.0.{part}.0/24") for part in (0, 1, 2))
        crowd = await asyncio.gather(*(resolver.resolve("chat", low) for _ in range(9)))
        assert set(crowd) == {("10.0.0.1",)}
        assert await resolver.resolve("chat", high) == ("10.0.0.1",)
        assert await resolver.resolve("chat", far) == ("10.0.2.1",)
        assert await resolver.resolve("web", low) == ("10.0.0.1",)
        assert asked == [low, far, low]
        now[0] = 31.0
        await resolver.resolve("chat", high)
        assert asked[3:] == [high]

    asyncio.run(run())


# --- summaries ---


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_quantiles_are_close(values: list[float], share: float) -> None:
    """A quantile is at most 2% above the exact one, and never below it."""
    histogram = WaitHistogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(0, min(len(values), -int(-share * len(values) // 1)) - 1)]
    found = histogram.quantile(share)
    assert found is not None
    assert exact * 0.999 <= found <= exact * 1.021


def test_summary_adds_up() -> None:
    """Every request counts once; times are of what was served; the simulated network stays apart."""
    summary = Summary()
    summary.add(Result(End.SERVED, "dns", "DE", "eu-central", 1.0, 400.0, 10.0, 25.0), 100.0)
    summary.add(
        Result(End.SERVED, "redirect", "DE", "eu-west", 1.0, 300.0, 0.0, 45.0, reason="spillover"), 101.0
    )
    summary.add(Result(End.REFUSED_OVERLOAD, "redirect", "FR"), 102.0)
    summary.add(Result(End.REGION_FULL, "dns", "FR", "eu-central"), 103.0)
    found = summary.document(10.0)
    assert found["requests"] == 4
    assert found["outcomes"] == {"served": 2, "refused_overload": 1, "region_full": 1}
    assert found["via"] == {"dns": 2, "redirect": 2}
    assert found["reasons"] == {"spillover": 1}
    assert found["regions"]["eu-central"]["region_full"] == 1
    assert found["first_byte_ms"]["p99"] == pytest.approx(400, rel=0.02)
    assert found["regions"]["eu-west"]["network_rtt_ms"]["p50"] == pytest.approx(45, rel=0.02)
    assert "eu-west 0/s" in summary.line(10.0, 3, 103.0)
    assert "refused" not in summary.line(10.0, 3, 109.0)
    assert Summary().document(0.0)["first_byte_ms"] == {"p50": None, "p99": None}


def test_refusals_are_told_by_their_code() -> None:
    """The edge's problem documents say why; anything else is no decision."""
    for body, end in (
        (b'{"code": "refused_residency"}', End.REFUSED_RESIDENCY),
        (b'{"code": "over_fair_share"}', End.OVER_FAIR_SHARE),
        (b'{"code": "not_ready"}', End.NO_DECISION),
        (b"[]", End.NO_DECISION),
        (b"<html>", End.NO_DECISION),
    ):
        assert refusal(FetchReply(503, {}, body, 0.0)) is end
