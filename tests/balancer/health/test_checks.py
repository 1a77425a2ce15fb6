"""Checks and scrapes of simulated model servers that fail in every way, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import pytest

from gtm.balancer.health import checks as checks_module
from gtm.balancer.health.asking import AskingError, BackendAnswer, ask
from gtm.balancer.health.check_settings import (
    CheckSettings,
    CompletionCheck,
    HealthCheck,
    MetricsScrape,
    ModelList,
)
from gtm.balancer.health.checks import Checks, tokenless
from gtm.balancer.plane.backend.backends import Route
from gtm.core.balance.backends import Backend
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendLoad, BackendState, Check
from gtm.demo.backend.faults import Mode
from tests.balancer.health.world import COMPLETION, QUICK, World, run, world
from tests.descriptors import none_left
from tests.patience import PATIENCE


def test_the_defaults_do_for_vllm() -> None:
    """Nothing said but the URL: it is up after the first round, and its load, models and memory are known."""

    async def test() -> None:
        async with world(CheckSettings()) as here:
            condition = here.condition()
            assert condition.healthy
            assert condition.warmth == 1.0
            assert condition.scraped is not None
            assert (condition.scraped.running, condition.scraped.waiting) == (0.0, 0.0)
            assert condition.models == frozenset(("demo",))
            assert condition.adapters == frozenset()
            assert condition.memory == 0.0
            assert here.caches == {here.name: 8192 * 16}
            assert here.checks.problems() == {here.name: {}}

    run(test)


def test_a_dead_engine_says_200_and_completes_nothing() -> None:
    """The classic: only a real completion tells. And it is up again when tokens come."""

    async def test() -> None:
        async with world(QUICK.model_copy(update={"completion": COMPLETION})) as here:
            assert here.condition().healthy
            await here.fail(Mode.DEAD)
            await here.until(lambda: not here.condition().healthy)
            assert here.why() == "completion: no answer within 0.3 s"
            assert here.health.is_silent(here.name)
            checks = here.health.snapshot(0.0)[0].checks
            assert checks[Check.HEALTH].status == "up"
            await here.fail(Mode.OK)
            await here.until(lambda: here.condition().healthy)
            assert here.condition().warmth < 1
            assert here.health.snapshot(asyncio.get_running_loop().time())[0].state is BackendState.WARMING

    run(test)


def test_without_completions_a_dead_engine_is_not_seen() -> None:
    """What the page says of `/health`; live requests that stall are what finds it then."""

    async def test() -> None:
        async with world() as here:
            await here.fail(Mode.DEAD)
            asked = here.asked[0, "/health"]
            await here.until(lambda: here.asked[0, "/health"] > asked + 4)
            assert here.condition().healthy
            assert here.checks.problems() == {here.name: {}}

    run(test)


@pytest.mark.parametrize(
    ("mode", "why", "silent"),
    [
        (Mode.REFUSE, "health: connection refused", False),
        (Mode.HANG, "health: no answer within 0.8 s", True),
        (Mode.OOM, "health: status 503, expected 200", False),
    ],
)
def test_failures_that_health_shows(mode: Mode, why: str, silent: bool) -> None:
    """Down in words that say what happened, and up again when it is over; silent is who says nothing."""

    async def test() -> None:
        async with world() as here:
            await here.fail(mode)
            await here.until(lambda: not here.condition().healthy)
            assert here.why() == why
            assert here.health.is_silent(here.name) == silent
            await here.fail(Mode.OK)
            await here.until(lambda: here.condition().healthy)
            assert not here.health.is_silent(here.name)

    run(test)


def test_failures_that_completions_show() -> None:
    """Generation is answered with 500; health says 200."""

    async def test() -> None:
        async with world(
            QUICK.model_copy(update={"completion": COMPLETION.model_copy(update={"model": "demo"})})
        ) as here:
            await here.fail(Mode.ERROR)
            await here.until(lambda: not here.condition().healthy)
            assert here.why().startswith("completion: status 500, expected 200")

    run(test)


@pytest.mark.parametrize("body", [b"", b"ok", b"{}", b'{"choices": []}', b'{"choices": 1}', b"[" * 5000])
def test_what_is_no_completion(body: bytes) -> None:
    """A 200 is not enough."""
    assert "completion" in tokenless(BackendAnswer(200, body, 0.1))
    assert not tokenless(BackendAnswer(200, b'{"choices": [{"text": "a"}]}', 0.1))


def test_slow_is_not_down() -> None:
    """A slow engine completes a token in time: choosing and latencies see to it, not checks."""

    async def test() -> None:
        async with world(
            QUICK.model_copy(update={"completion": COMPLETION.model_copy(update={"timeout": 10.0})})
        ) as here:
            await here.fail(Mode.SLOW, factor=5.0)
            before = here.servers[0].state()["finished"]
            await here.until(lambda: here.servers[0].state()["finished"] > before + 2)
            assert here.condition().healthy

    run(test)


def test_a_model_that_must_be_listed() -> None:
    """Unloaded: down where the list is a check, else known not to be loaded."""

    async def test() -> None:
        required = QUICK.model_copy(update={"models": ModelList(interval=0.05, required=True)})
        async with world(required, models=frozenset(("demo",))) as here:
            assert here.condition().healthy
            await here.fail(Mode.UNLOADED)
            await here.until(lambda: not here.condition().healthy)
            assert here.why() == "models: it does not list demo"
        async with world(required, models=frozenset(("demo", "other"))) as here:
            assert here.why() == "models: it does not list other"
        async with world(QUICK) as here:
            await here.fail(Mode.UNLOADED)
            await here.until(lambda: here.condition().models == frozenset())
            assert here.condition().healthy
        async with world(required) as here:
            assert here.condition().healthy
            await here.fail(Mode.UNLOADED)
            await here.until(lambda: not here.condition().healthy)
            assert here.why() == "models: it lists no model"
        async with world(QUICK.model_copy(update={"models": None})) as here:
            assert here.condition().models == frozenset(("demo",))  # as metrics name them

    run(test)


def test_a_path_that_is_not_there_says_what_to_set() -> None:
    """404 of a health path that was never answered otherwise says nothing of the server: it is used, and the words name the setting."""

    async def test() -> None:
        async with world(
            QUICK.model_copy(update={"health": HealthCheck(path="/healthy", interval=0.05)})
        ) as here:
            assert here.condition().healthy
            words = here.checks.problems()[here.name]["health"]
            assert words.startswith("the check is switched off here: status 404")
            assert "set `path`" in words

    run(test)


def test_adapters_are_listed() -> None:
    """A LoRA adapter that is loaded while all runs is known from the next list on."""

    async def test() -> None:
        async with world() as here:
            body = b'{"lora_name": "sql", "lora_path": "/sql"}'
            answer = await ask(
                here.targets[0][1], "/v1/load_lora_adapter", timeout=PATIENCE, most=1000, content=body
            )
            assert answer.status == 200
            await here.until(lambda: here.condition().adapters == frozenset(("sql",)))
            assert here.condition().models == frozenset(("demo",))

    run(test)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nothing", "status 404, expected 200: its load is unknown"),
        ("/v1/models", "these are metrics of no server that is known"),
    ],
)
def test_a_server_without_metrics_has_no_load(path: str, words: str) -> None:
    """It is up all the same; what it runs is unknown, which people are told."""

    async def test() -> None:
        async with world(
            QUICK.model_copy(update={"models": None, "scrape": MetricsScrape(path=path)})
        ) as here:
            condition = here.condition()
            assert condition.healthy
            assert (condition.scraped, condition.memory, condition.models) == (None, None, None)
            assert here.checks.problems()[here.name]["scrape"].startswith(words)
            if "404" in words:  # and it is asked again after half a minute only
                health = here.asked[0, "/health"]
                await here.until(lambda: here.asked[0, "/health"] > health + 4)
                assert here.asked[0, path] == 1

    run(test)


def test_metrics_on_another_port() -> None:
    """As Triton has them."""

    async def test() -> None:
        async with world(count=2) as here:
            port = here.targets[1][1].port
            settings = CheckSettings(health=None, models=None, scrape=MetricsScrape(port=port))
            health = BackendHealth(HealthSettings(checks={}), [here.targets[0][0]], 0.0)
            checks = Checks(settings, health, lambda: None)
            checks.update(here.targets[:1])
            await here.checks.stop()
            asked, others = here.asked[1, "/metrics"], here.asked[0, "/metrics"]
            assert await checks.first_round(PATIENCE)
            assert here.asked[1, "/metrics"] > asked
            assert here.asked[0, "/metrics"] == others
            now = asyncio.get_running_loop().time()
            assert health.tick(now)[here.name].scraped is not None
            assert health.condition(here.name, now).healthy
            await checks.stop()

    run(test)


def test_want_of_descriptors_says_nothing_of_a_backend() -> None:
    """What cannot be asked is no result, of whatever kind: a backend that was up is up, and asked again when there is room."""

    async def test() -> None:
        settings = QUICK.model_copy(
            update={"completion": CompletionCheck(interval=0.05)}
        )  # a busy machine is no fault of the server
        async with world(settings) as here:
            with none_left():
                await here.until(lambda: len(here.not_made) >= 8)
                assert here.condition().healthy
                assert not any(here.checks.problems().values())
                asked = here.asked.total()
            await here.until(lambda: here.asked.total() > asked)
            assert here.condition().healthy

    run(test)


def test_load_is_scraped_and_then_unknown() -> None:
    """Requests that run and wait are counted; a server that answers no more has no load, not none."""

    async def test() -> None:
        async with world(known=HealthSettings(lasts=0.5, lists_last=0.5)) as here:
            body = b'{"model": "demo", "prompt": "x", "max_tokens": 4000, "stream": true}'
            posts = [asyncio.create_task(_post(here, body)) for _ in range(3)]
            await here.until(lambda: (here.condition().scraped or BackendLoad()).running == 3.0)
            assert (here.condition().memory or 0) > 0
            await here.until(lambda: _outstanding(here) == 3.0)
            await here.fail(Mode.HANG)
            await here.until(lambda: here.condition().scraped is None)
            assert here.condition().memory is None
            await here.until(lambda: here.condition().models is None)
            for post in posts:
                post.cancel()
            await asyncio.gather(*posts, return_exceptions=True)

    run(test)


def _outstanding(here: World) -> float:
    """What choosing counts: requests of others, as none is our own."""
    here.flights.settle(asyncio.get_running_loop().time())
    return here.flights.of(here.name).outstanding


async def _post(here: World, body: bytes) -> None:
    await ask(here.targets[0][1], "/v1/completions", timeout=60, most=10**8, content=body)


def test_warm_up_before_it_counts_as_up() -> None:
    """A server that was down generates some tokens before it gets requests; one that was never down does not."""

    async def test() -> None:
        async with world(QUICK.model_copy(update={"warm_up": 3})) as here:
            server = here.servers[0]
            assert server.state()["finished"] == 0
            await here.fail(Mode.REFUSE)
            await here.until(lambda: not here.condition().healthy)
            await here.fail(Mode.OK)
            await here.until(lambda: here.condition().healthy)
            assert server.state()["finished"] == 3

    run(test)


def test_who_leaves_the_configuration_is_asked_no_more() -> None:
    """And who stays is asked on, with the same verdict."""

    async def test() -> None:
        async with world(count=2) as here:
            here.health.update(HealthSettings(), [here.targets[1][0]])
            here.checks.update([here.targets[1]])
            await here.until(lambda: not here.servers[0].connections)
            gone, stays = here.asked[0, "/health"], here.asked[1, "/health"]
            await here.until(lambda: here.asked[1, "/health"] > stays + 4)
            assert here.asked[0, "/health"] == gone
            assert [one.name for one in here.health.snapshot(0.0)] == [here.targets[1][0].name]
            assert here.health.condition(here.targets[1][0].name, 0.0).healthy
            assert here.checks.problems().keys() == {here.targets[1][0].name}

    run(test)


def test_never_two_of_a_kind_in_flight() -> None:
    """However slow a server answers, and however short the interval."""
    most: dict[str, int] = {}
    now: dict[str, int] = {}
    asked: dict[str, int] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        now[path] = now.get(path, 0) + 1
        asked[path] = asked.get(path, 0) + 1
        most[path] = max(most.get(path, 0), now[path])
        await reader.read()  # until the balancer gives up
        now[path] -= 1
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = CheckSettings(
            health=HealthCheck(interval=0.01, timeout=0.1),
            models=ModelList(interval=0.01, timeout=0.1),
            completion=CompletionCheck(interval=0.01, timeout=0.1, model="x"),
            scrape=MetricsScrape(interval=0.01, timeout=0.1),
        )
        health = BackendHealth(HealthSettings(checks=settings.thresholds()), [Backend(url)], 0.0)
        checks = Checks(settings, health, lambda: None)
        checks.update([(Backend(url), Route(url))])
        assert await checks.first_round(PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while len(asked) < 4 or min(asked.values()) < 5:  # noqa: ASYNC110 - servers count
                await asyncio.sleep(0.01)
        await checks.stop()
        assert most == {"/health": 1, "/v1/models": 1, "/v1/completions": 1, "/metrics": 1}
        async with asyncio.timeout(PATIENCE):
            while any(now.values()):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
        server.close()
        await server.wait_closed()

    run(test)


def test_those_that_hang_wait_among_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than may be asked at once: all others are asked as if there were none, and who answers again is one of these."""
    monkeypatch.setattr(checks_module, "AT_ONCE", 2)
    settings = CheckSettings(health=HealthCheck(interval=0.02, timeout=0.1), models=None, scrape=None)
    names = [f"http://127.0.0.1:{port}" for port in range(1, 9)]
    hanging: dict[str, asyncio.Event] = {}
    hung: set[str] = set()
    held: set[str] = set()
    asked: Counter[str] = Counter()

    async def answer(route: Route, _: str, **__: object) -> BackendAnswer:
        name = route.url
        asked[name] += 1
        over = hanging.get(name)
        if over is not None and name not in hung:
            hung.add(name)
            await asyncio.sleep(0.1)
            raise AskingError("no answer within 0.1 s")
        if over is not None and not over.is_set():
            held.add(name)
            await over.wait()
            held.remove(name)
        return BackendAnswer(200, b"", 0.001)

    monkeypatch.setattr(checks_module, "ask", answer)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - it changes in many places
                await asyncio.sleep(0.01)

    async def test() -> None:
        targets = [(Backend(name), Route(name)) for name in names]
        known = HealthSettings(checks=settings.thresholds())
        health = BackendHealth(known, [one for one, _ in targets], asyncio.get_running_loop().time())
        checks = Checks(settings, health, lambda: None)

        async def all_are_asked(some: list[str]) -> None:
            before = Counter(asked)
            await until(lambda: all(asked[name] > before[name] + 5 for name in some))

        checks.update(targets)
        for bad in (names[:5], names[5:]):
            over = asyncio.Event()
            hanging.update(dict.fromkeys(bad, over))
            await until(lambda: len(held) == 2)
            await all_are_asked([name for name in names if name not in bad])
            assert len(held) == 2
            over.set()
            await all_are_asked(names)
        await checks.stop()

    run(test)


def test_what_is_wrong_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not each second; and once more when it is right again."""

    async def test() -> None:
        async with world() as here:
            await here.fail(Mode.OOM)
            await here.until(lambda: not here.condition().healthy)
            await here.fail(Mode.OK)
            await here.until(lambda: here.condition().healthy)

    with caplog.at_level(logging.INFO, "gtm.balancer.health.checks"):
        run(test)
    said = [record.getMessage() for record in caplog.records if "health" in record.getMessage()]
    assert len(said) == 2
    assert said[0].endswith("health: status 503, expected 200")
    assert said[1].endswith("health is right again")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CheckSettings(health=HealthCheck(path="health")), "path"),
        (lambda: CheckSettings(health=HealthCheck(path="/he alth")), "path"),
        (lambda: CheckSettings(health=HealthCheck(path="/a\r\nx:y")), "path"),
        (lambda: CheckSettings(health=HealthCheck(interval=0)), "interval"),
        (lambda: CheckSettings(completion=CompletionCheck(timeout=float("inf"))), "timeout"),
        (lambda: CheckSettings(warm_up=-1), "warm_up"),
        (lambda: CheckSettings(scrape=MetricsScrape(port=0)), "port"),
        (lambda: CheckSettings(models=ModelList(timeout=0)), "timeout"),
    ],
)
def test_settings_that_cannot_be(make: Callable[[], object], said: str) -> None:
    """An error that says which."""
    with pytest.raises(ValueError, match=said):
        make()
