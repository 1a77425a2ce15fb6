"""What the picker keeps of prompts, and for how long."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import cast

import pytest

from gtm.balancer.decide.picking import LOOSE_S, PoolPicker
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.wire.facts import PromptCut, RequestFacts
from gtm.balancer.wire.refusals import Refusal, refusal_response
from gtm.core.balance.backends import Backend, Condition, Scraped
from gtm.core.balance.choosing.values import By, ChoosingSettings, Pick, Prefix
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from tests.balancer.world import ended_exchange

SERVERS = [Backend(f"http://10.0.0.{number}:8000") for number in range(4)]
MAP = ChoosingSettings(prefix=Prefix.MAP)


class _Loop:
    """What a picker asks of one."""

    @staticmethod
    def time() -> float:
        return 1.0


def _picker(settings: ChoosingSettings = MAP, cut: PromptCut | None = PromptCut(512)) -> PoolPicker:  # noqa: B008 - a value
    health = BackendHealth(HealthSettings(), SERVERS, 0.0)
    loop = cast("asyncio.AbstractEventLoop", _Loop())
    picker = PoolPicker(SERVERS, settings, health, loop=loop, cut=cut, draw=lambda: 0.4)
    picker.conditions({one.name: Condition(healthy=True) for one in SERVERS})
    return picker


def _ask(picker: PoolPicker, *blocks: int, session: str | None = None) -> str:
    """A request that ends at once; where it went."""
    exchange = ended_exchange(facts=RequestFacts("m", 100, prefix=blocks, session=session))
    sent = picker.pick(exchange, (), 1.0)
    assert isinstance(sent, SentRequest)
    assert exchange.chosen is not None
    sent.flight.end(exchange, "answered")
    return sent.route.url


def test_prompts_are_kept_over_configurations() -> None:
    """A file that is read anew forgets no prompt; another size of blocks forgets all, a server that has left its own."""
    picker = _picker()
    places = {number: _ask(picker, number, number + 100) for number in range(8)}
    picker.configure(SERVERS, MAP, cut=PromptCut(512))
    picker.conditions({one.name: Condition(healthy=True) for one in SERVERS})
    assert {number: _ask(picker, number, number + 100) for number in range(8)} == places
    assert picker.choices == {(By.LOAD, False): 8, (By.CACHE, False): 8}
    gone = places[0]
    picker.configure([one for one in SERVERS if one.name != gone], MAP, cut=PromptCut(512))
    assert _ask(picker, 0, 100) != gone
    assert len(picker.prefixes) == 2 * sum(place != gone for place in places.values()) + 2
    picker.configure(SERVERS, MAP, cut=PromptCut(256))
    assert len(picker.prefixes) == 0


def test_no_more_is_kept_than_a_cache_holds() -> None:
    """128 tokens are a block of 512 bytes; what a cache does not hold is forgotten, where prompts are mapped at all."""
    picker = _picker()
    place = _ask(picker, *range(10))
    picker.cached(place, 4 * 128.0)
    assert picker.prefixes.holders(range(10)) == [(4, [place])]
    for one in (
        _picker(ChoosingSettings(), None),
        _picker(ChoosingSettings(prefix=Prefix.HASH), PromptCut(1024, 1)),
    ):
        one.cached(place, 128.0)
        _ask(one, 1)
        assert len(one.prefixes) == 0


def test_sessions_may_be_told_not_to_stick() -> None:
    """By a file that is read anew too: then prompts count."""
    picker = _picker()
    assert len({_ask(picker, number, session="s") for number in range(8)}) == 1
    assert picker.choices == {(By.SESSION, False): 8}
    picker.configure(SERVERS, MAP, affinity=False, cut=PromptCut(512))
    picker.conditions({one.name: Condition(healthy=True) for one in SERVERS})
    _ask(picker, 3, session="s")
    assert picker.choices[By.CACHE, False] == 1


def test_free_slots_of_the_region_are_what_is_left_at_each_server() -> None:
    """One that says that it is over-full, or has more of ours than slots, takes none of another's; nor does one that says nothing."""
    servers = [Backend(f"http://10.0.0.{number}:8000", slots=10) for number in range(4)]
    health = BackendHealth(HealthSettings(), servers, 0.0)
    picker = PoolPicker(servers, ChoosingSettings(), health, loop=cast("asyncio.AbstractEventLoop", _Loop()))
    picker.conditions({one.name: Condition(healthy=True) for one in servers})
    flights = picker.flights
    flights.scraped(servers[0].name, Scraped(1e6, 1e6, 1.0))
    flights.scraped(servers[1].name, Scraped(4, 0, 1.0))
    flights.settle(1.0)
    assert picker.free_slots() == 26  # 0, 6, 10, 10
    for _ in range(15):
        flights.of(servers[2].name).begin(1.0)
    assert picker.free_slots() == 16
    picker.conditions({servers[1].name: Condition(healthy=True, draining=True)})
    assert picker.free_slots() == 10
    picker.conditions({servers[3].name: Condition(healthy=False)})
    assert picker.free_slots() == 0


def test_slots_of_who_says_full_to_everything_do_not_count() -> None:
    """While others do not; else more would begin than these can take."""
    servers = [Backend(f"http://10.0.0.{number}:8000", slots=10) for number in range(2)]
    health = BackendHealth(HealthSettings(), servers, 0.0)
    picker = PoolPicker(servers, ChoosingSettings(), health, loop=cast("asyncio.AbstractEventLoop", _Loop()))
    for refusing, slots in ((0, 20), (1, 10), (2, 20)):
        picker.conditions(
            {one.name: Condition(healthy=True, refuses=n < refusing) for n, one in enumerate(servers)}
        )
        assert (picker.slots(), picker.free_slots(), picker.usable()) == (slots, slots, 2)


def test_who_is_led_to_a_server_that_fails_goes_by_load_for_a_while() -> None:
    """A session, or a client's prompts that begin alike; nobody else's, and not for ever."""

    class Clock(_Loop):
        at = 1.0

        def time(self) -> float:  # type: ignore[override]
            return self.at

    picker, clock = _picker(), Clock()
    picker.loop = cast("asyncio.AbstractEventLoop", clock)  # a clock that is set

    def by(status: int, **facts: object) -> By:
        before = Counter(picker.choices)
        exchange = ended_exchange(facts=RequestFacts("m", 100, **facts), status=status)
        sent = picker.pick(exchange, (), clock.at)
        assert isinstance(sent, SentRequest)
        sent.flight.end(exchange, "answered")
        (found,) = [by for by, _ in picker.choices - before]
        return found

    sticky: list[tuple[dict[str, object], By]] = [
        ({"session": "s"}, By.SESSION),
        ({"prefix": (1, 2)}, By.CACHE),
    ]
    for asked, led in sticky:
        by(200, **asked)
        assert [by(200, **asked), by(404, **asked), by(500, **asked)] == [led] * 3
        assert [by(200, **asked), by(500, **asked)] == [By.LOAD] * 2
        assert by(200, session="another") is By.SESSION
        clock.at += LOOSE_S + 0.1
        assert by(200, **asked) is led
    for number in range(5_000):
        by(500, session=f"{number}")
    assert len(picker._loosened) <= 4096  # noqa: SLF001 - what is kept


def _seconds(*backends: Backend, settings: ChoosingSettings | None = None) -> PoolPicker:
    health = BackendHealth(HealthSettings(), backends, 0.0)
    loop = cast("asyncio.AbstractEventLoop", _Loop())
    picker = PoolPicker(backends, settings or ChoosingSettings(), health, loop=loop, draw=lambda: 0.4)
    picker.conditions({one.name: Condition(healthy=True) for one in backends})
    return picker


@pytest.mark.parametrize("pick", list(Pick))
def test_a_second_server_is_one_in_which_nobody_waits(pick: Pick) -> None:
    """However servers are picked: none that is full, out, says that some wait in it, says no to everything, lacks the model, or was tried."""
    servers = [Backend(f"http://10.0.0.{number}:8000", slots=2) for number in range(7)]
    first, full, out, queues, refuses, lacks, free = (one.name for one in servers)
    picker = _seconds(*servers, settings=ChoosingSettings(pick=pick))
    has = frozenset({"m"})
    picker.conditions(
        {
            **{one.name: Condition(healthy=True, models=has) for one in servers},
            out: Condition(healthy=True, models=has, ejected=True),
            refuses: Condition(healthy=True, models=has, refuses=True),
            lacks: Condition(healthy=True, models=frozenset()),
        }
    )
    for _ in range(2):
        picker.flights.of(full).begin(0.0)
    picker.flights.scraped(queues, Scraped(0, 1, 1.0))
    for _ in range(2):
        exchange = ended_exchange(facts=RequestFacts("m", 100))
        picker.cost(exchange)
        sent = picker.second(exchange, (first,), 1.0)
        assert sent is not None
        assert sent.route.url == free
    assert picker.second(exchange, (first,), 1.0) is None  # it is full now
    assert not picker.choices  # of requests
    sent.flight.end(exchange, "refused")
    found = picker.second(exchange, (first,), 1.0)
    assert found is not None
    picker.flights.scraped(queues, Scraped(0, 1, -9.0))  # what is old says nothing
    other = picker.second(exchange, (first, free), 1.0)
    assert other is not None
    assert other.route.url == queues


def test_who_is_let_go_says_nothing_of_its_server() -> None:
    """linkerd/linkerd#1342: what was cancelled counted as failed. As often as it may be: no failure, no success, no latency; and nothing in flight."""
    first, second = (Backend(f"http://10.0.0.{number}:8000", slots=2) for number in range(2))
    picker = _seconds(first, second)
    before = picker.health.snapshot(1.0), picker.costs.mean
    for _ in range(50):
        exchange = ended_exchange(facts=RequestFacts("m", 100), status=500)
        picker.cost(exchange)
        sent = picker.second(exchange, (first.name,), 1.0)
        assert sent is not None
        sent.flight.end(exchange, "refused")
    assert (picker.health.snapshot(1.0), picker.costs.mean) == before
    assert picker.flights.of(second.name).requests == 0
    assert picker.flights.of(second.name).latency.value is None


def test_a_second_server_moves_no_session() -> None:
    """A session's next request goes where it went before."""
    picker = _picker()
    home = _ask(picker, session="s")
    exchange = ended_exchange(facts=RequestFacts("m", 100, session="s"))
    picker.cost(exchange)
    sent = picker.second(exchange, (home,), 1.0)
    assert sent is not None
    assert sent.route.url != home
    sent.flight.end(exchange, "answered")
    assert _ask(picker, session="s") == home


@pytest.mark.parametrize("model", ["gpt-5", "\ud800", "é" * 256])
def test_a_model_that_nobody_has_is_named(model: str) -> None:
    """Whatever a client calls it: the refusal can be written, and says the name."""
    picker = _picker()
    picker.configure([Backend("http://10.0.0.1:8000", models=frozenset({"llama"}))], MAP)
    exchange = ended_exchange(facts=RequestFacts(model))
    refusal = picker.pick(exchange, (), 1.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (404, "backends_no_model")
    written = refusal_response(refusal, closes=False).partition(b"\r\n\r\n")[2]
    assert repr(model) in json.loads(written)["error"]["message"]
    head, _, body = refusal_response(refusal, closes=False, path=b"/v1/messages").partition(b"\r\n\r\n")
    assert b"content-type: application/json\r\n" in head
    said = json.loads(body)
    assert (said["type"], said["error"]["type"]) == ("error", "not_found_error")
    assert said["error"]["message"] == json.loads(written)["detail"] == said["detail"]


def test_names_are_those_that_backends_are_for_or_list() -> None:
    """Of the file, of lists and of adapters, as they are now."""
    picker = _picker()
    assert picker.names == frozenset()
    first, second = SERVERS[:2]
    picker.conditions(
        {first.name: Condition(healthy=True, models=frozenset({"m"}), adapters=frozenset({"lora"}))}
    )
    assert picker.names == {"m", "lora"}
    picker.configure([first, Backend(second.name, models=frozenset({"x"}))], MAP, cut=PromptCut(512))
    assert picker.names == {"m", "lora", "x"}
    picker.conditions({first.name: Condition(healthy=True, models=frozenset({"n"}))})
    assert picker.names == {"n", "x"}
