"""A region's balancer as its users meet it: the process, real model servers behind it, a real openai client before it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.ports import free_port
from tests.system.balancers import BERLIN, HOST, MOUNTAIN_VIEW, Backends, LoneBalancer, lone_balancer
from tests.system.harness import eventually

pytestmark = pytest.mark.system

HELLO = [{"role": "user", "content": "Say something long about the sea."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of it is kept."""
    return tmp_path_factory.mktemp("balancer")


@pytest.fixture(scope="module")
def backends(folder: Path) -> Iterator[Backends]:
    """Four model servers: two of each region."""
    found = Backends(folder / "backends.log", 4, "--speed", "5")
    yield found
    found.process.popen.kill()
    found.process.popen.wait()


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """Where the regions' balancers listen."""
    return {"fra": free_port(), "iad": free_port()}


@pytest.fixture
def fra(folder: Path, backends: Backends, ports: dict[str, int]) -> Iterator[LoneBalancer]:
    """The balancer of Frankfurt."""
    urls = ",".join(backends.urls[:2])
    with lone_balancer(folder, "fra", ports, "--backend", urls, "--service", "chat") as running:
        yield running


@pytest.fixture
def iad(folder: Path, backends: Backends, ports: dict[str, int]) -> Iterator[LoneBalancer]:
    """The balancer of Ashburn."""
    urls = ",".join(backends.urls[2:])
    with lone_balancer(folder, "iad", ports, "--backend", urls, "--service", "chat") as running:
        yield running


def client(of: LoneBalancer, address: str, key: str = "none") -> openai.OpenAI:
    """A client somewhere, as a proxy would say."""
    return openai.OpenAI(
        base_url=f"{of.url}/v1",
        api_key=key,
        max_retries=0,
        default_headers={"X-Forwarded-For": address},
        http_client=httpx.Client(trust_env=False, timeout=60),
    )


def test_streams_reach_a_real_client(fra: LoneBalancer) -> None:
    """Streamed and whole answers come through; who served is said; both backends serve."""
    with client(fra, BERLIN) as asking:
        for _ in range(8):
            stream = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=20, stream=True)
            words = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
            assert len([word for word in words if word]) == 20
        whole = asking.chat.completions.with_raw_response.create(model="demo", messages=HELLO, max_tokens=5)
        assert whole.headers["x-gtm-region"] == "fra"
        assert whole.parse().usage.completion_tokens == 5
    assert fra.in_flight() == 0

    def told() -> bool:
        metrics = httpx.get(f"http://127.0.0.1:{fra.admin_port}/metrics", trust_env=False).text
        return all(
            re.search(rf"^{line}", metrics, re.MULTILINE)
            for line in (
                r"gtm_balancer_inter_token_seconds_count\{[^}]*\} [1-9]",
                r"gtm_balancer_first_byte_seconds_count\{[^}]*\} [1-9]",
                r'gtm_balancer_tenant_requests_total\{tenant="",model="demo"\} [1-9]',
                r"gtm_balancer_memory_usage\{[^}]*\} [0-9.]+$",
                r'gtm_balancer_tokens_per_second\{[^}]*kind="output"\} [0-9.]+$',
            )
        )

    eventually(told, "its metrics tell of tokens, tenants and models")


def test_the_law_is_enforced_here(iad: LoneBalancer, backends: Backends) -> None:
    """Whoever brings a European's request here is refused (nothing says that Frankfurt is up), and no model server sees it."""
    before = [one["arrived"] for one in backends.state()]
    with client(iad, BERLIN) as asking, pytest.raises(openai.APIStatusError) as refused:
        asking.chat.completions.create(model="demo", messages=HELLO)
    assert (refused.value.status_code, refused.value.code) == (503, "none_usable")
    assert [one["arrived"] for one in backends.state()] == before
    with client(iad, MOUNTAIN_VIEW) as asking:
        assert asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=3).usage is not None


def test_a_client_that_goes_away_frees_its_place(fra: LoneBalancer, backends: Backends) -> None:
    """Counts and backends are free again once the client has closed its stream."""
    with client(fra, BERLIN) as asking:
        stream = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=4000, stream=True)
        next(iter(stream))
        assert fra.in_flight() == 1
        stream.response.close()
    eventually(lambda: fra.in_flight() == 0, "nothing is in flight")
    eventually(lambda: sum(one["running"] for one in backends.state()[:2]) == 0, "the backend has stopped")


def test_a_stream_that_breaks_off_is_an_error(fra: LoneBalancer, backends: Backends) -> None:
    """A backend that dies in the middle: the client gets an error, not an end; nothing stays counted."""
    with client(fra, BERLIN) as asking:
        stream = asking.chat.completions.create(model="demo", messages=HELLO, max_tokens=4000, stream=True)
        next(iter(stream))
        backends.fail(0, "reset", after=1)
        backends.fail(1, "reset", after=1)
        try:
            with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
                list(stream)
        finally:
            backends.fail(0, "ok")
            backends.fail(1, "ok")
    eventually(lambda: fra.in_flight() == 0, "nothing is in flight")


def streams(of: LoneBalancer, count: int, tokens: int) -> tuple[list[threading.Event], list[int]]:
    """Begin streams in threads: an event for each that has begun, and how many tokens each got in the end."""
    begun = [threading.Event() for _ in range(count)]
    got = [0] * count

    def read(number: int) -> None:
        with client(of, BERLIN) as asking:
            stream = asking.chat.completions.create(
                model="demo", messages=HELLO, max_tokens=tokens, stream=True
            )
            for chunk in stream:
                begun[number].set()
                if chunk.choices and chunk.choices[0].delta.content:
                    got[number] += 1

    pool = ThreadPoolExecutor(count)
    for number in range(count):
        pool.submit(read, number)
    pool.shutdown(wait=False)
    return begun, got


def test_what_cannot_be_is_said() -> None:
    """A wrong file is told by line, before anything listens."""
    arguments = ["balancer", "--region", "fra", "--backend", "tcp://x", "--token", "t"]
    ended = subprocess.run(
        [sys.executable, "-m", "gtm.cli", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode != 0
    assert "must be http:// or https:// with a host" in ended.stderr


def test_a_change_of_the_file_cuts_no_stream(folder: Path, backends: Backends, ports: dict[str, int]) -> None:
    """Backends come and go while streams run: these end where they are; a broken file changes nothing."""
    path = folder / "backends.yaml"

    def write(*urls: str) -> None:
        lines = "".join(f"  - url: {url}\n" for url in urls)
        path.with_suffix(".new").write_text(f"service: chat\nbackends:\n{lines}")
        path.with_suffix(".new").replace(path)

    def listed(balancer: LoneBalancer) -> list[str]:
        return [one["url"] for one in balancer.state()["backends"]]

    write(backends.urls[0])
    with lone_balancer(folder / "file", "fra", ports, "--file", str(path)) as running:
        begun, got = streams(running, 20, 300)
        for one in begun:
            assert one.wait(60)
        write(backends.urls[1])
        eventually(lambda: listed(running) == [backends.urls[1]], "the file is taken in")
        path.write_text("backends: []\n")
        eventually(lambda: "cannot be used" in running.log.read_text(), "the broken file is said")
        assert listed(running) == [backends.urls[1]]
        eventually(lambda: got == [300] * 20, "all streams got all tokens")


def test_requests_say_whose_they_are(fra: LoneBalancer) -> None:
    """A host name of a service is that service, whatever the default is; an unknown tenant's header is nobody's word."""
    answer = httpx.get(
        f"{fra.url}/v1/models", headers={"Host": HOST, "gtm-tenant": "acme"}, trust_env=False, timeout=10
    )
    assert answer.status_code == 200


def _with_file(folder: Path, name: str, text: str) -> tuple[Path, Path]:
    """A folder of its own and a file in it."""
    home = folder / name
    home.mkdir()
    (home / "balancer.yaml").write_text(text)
    return home, home / "balancer.yaml"


def test_a_tenant_over_its_limits_is_told_so(folder: Path, backends: Backends, ports: dict[str, int]) -> None:
    """A key shows whose a request is: over its rate it gets 429, and others do not; another's header changes nothing."""
    key = sha256(b"sk-acme").hexdigest()
    text = f"""
service: chat
backends: [{{url: {backends.urls[0]}}}]
admission: {{tenants: {{acme: {{requests_per_second: 0.001, burst: 2, keys: [{key}]}}}}}}
"""
    home, file = _with_file(folder, "tenants", text)
    with lone_balancer(home, "fra", ports, "--file", str(file)) as running:
        with client(running, BERLIN, "sk-acme") as acme:
            for _ in range(2):
                acme.chat.completions.create(model="demo", messages=HELLO, max_tokens=2)
            with pytest.raises(openai.RateLimitError) as refused:
                acme.chat.completions.create(model="demo", messages=HELLO, max_tokens=2)
        assert refused.value.code == "tenant_rate"
        assert int(refused.value.response.headers["retry-after"]) >= 1
        with client(running, BERLIN) as other:
            other.chat.completions.create(model="demo", messages=HELLO, max_tokens=2)


def test_another_model_takes_what_does_not_fit(folder: Path, ports: dict[str, int]) -> None:
    """A model at its limit has a fallback: the body says that one, and so does the answer."""
    models = Backends(folder / "models.log", 1, "--speed", "5", "--model", "large", "--model", "small")
    try:
        text = f"""
service: chat
backends: [{{url: {models.urls[0]}}}]
admission: {{models: {{large: {{concurrency: 1, fallback: small}}}}}}
"""
        home, file = _with_file(folder, "fallback", text)
        with (
            lone_balancer(home, "fra", ports, "--file", str(file)) as running,
            client(running, BERLIN) as asking,
        ):
            stream = asking.chat.completions.create(
                model="large", messages=HELLO, max_tokens=3000, stream=True
            )
            next(iter(stream))
            second = asking.chat.completions.with_raw_response.create(
                model="large", messages=HELLO, max_tokens=3
            )
            assert second.headers["x-gtm-model"] == "small"
            assert second.parse().model == "small"
            stream.response.close()
    finally:
        models.process.popen.kill()
        models.process.popen.wait()


@pytest.mark.drill
def test_what_is_urgent_goes_first(folder: Path, backends: Backends, ports: dict[str, int]) -> None:
    """Eight times as much batch work as there are slots: it waits, real-time requests do not wait behind it; all end."""
    text = f"""
service: chat
backends: [{{url: {backends.urls[0]}, slots: 4}}]
admission: {{reserves: {{real_time: 0.5}}}}
"""
    home, file = _with_file(folder, "tiers", text)
    with lone_balancer(home, "fra", ports, "--file", str(file)) as running:

        def ask(priority: str, tokens: int) -> list[str]:
            with client(running, BERLIN) as asking:
                asking.chat.completions.create(
                    model="demo",
                    messages=HELLO,
                    max_tokens=tokens,
                    extra_headers={"gtm-priority": priority},
                )
            ended.append(priority)
            return ended

        ended: list[str] = []
        with ThreadPoolExecutor(40) as pool:
            batch = [pool.submit(ask, "batch", 160) for _ in range(32)]
            eventually(lambda: running.state()["tiers"]["batch"]["waiting"] >= 20, "batch waits")
            urgent = [pool.submit(ask, "real-time", 2) for _ in range(4)]
            for one in urgent:
                one.result(60)
            assert ended.count("batch") < 20  # in turn, it would be nearly all
            for one in batch:
                one.result(120)
        assert (ended.count("batch"), ended.count("real-time")) == (32, 4)
        assert running.in_flight() == 0


def test_prompts_and_adapters_find_their_server(
    folder: Path, backends: Backends, ports: dict[str, int]
) -> None:
    """Turns of a conversation go where it is cached, an adapter where it is loaded; why is counted, traced and shown; a file may change it."""
    file = folder / "prompts.yaml"
    servers = "".join(f"  - {{url: '{url}', slots: 64, models: [demo]}}\n" for url in backends.urls)

    def written(choosing: str) -> None:
        file.write_text(
            f"service: chat\nbackends:\n{servers}checks: {{models: {{interval: 0.2}}}}\nchoosing: {choosing}\n"
        )

    written("{prefix: map}")
    with (
        lone_balancer(folder / "prompts", "fra", ports, "--file", str(file)) as running,
        client(running, BERLIN) as asking,
    ):

        def turns(subject: str, count: int) -> list[int]:
            """The tokens of each turn's prompt that were cached."""
            messages: list[Any] = [
                {"role": "user", "content": f"{subject}: " + "say all that you know of it. " * 60}
            ]
            cached = []
            for _ in range(count):
                found = asking.chat.completions.create(model="demo", messages=messages, max_tokens=40)
                assert found.usage is not None
                assert found.usage.prompt_tokens_details is not None
                cached.append(found.usage.prompt_tokens_details.cached_tokens or 0)
                messages += [
                    {"role": "assistant", "content": found.choices[0].message.content},
                    {"role": "user", "content": "More of it, please."},
                ]
            return cached

        def choices() -> dict[str, int]:
            found = running.state()["choices"]
            assert not any(one["moved"] for one in found.values())
            return {by: one["requests"] for by, one in found.items()}

        for subject in ("sea", "air", "sun", "rain", "fire"):
            first, *more = turns(subject, 4)
            assert first < 32
            assert all(cached > 400 for cached in more)
        assert choices() == {"load": 5, "session": 0, "prefix": 0, "cache": 15}
        metrics = httpx.get(f"http://127.0.0.1:{running.admin_port}/metrics", trust_env=False).text
        assert 'gtm_balancer_choices_total{by="cache",moved="no"} 15' in metrics

        loaded = httpx.post(
            f"{backends.urls[2]}/v1/load_lora_adapter",
            json={"lora_name": "sql", "lora_path": "/sql"},
            trust_env=False,
        )
        loaded.raise_for_status()
        eventually(
            lambda: [one["adapters"] for one in running.state()["backends"]] == [[], [], ["sql"], []],
            "the adapter is known",
        )
        before = [one["arrived"] for one in backends.state()]
        for number in range(12):
            asking.completions.create(model="sql", prompt=f"{number} select", max_tokens=2)
        arrived = [now["arrived"] - then for now, then in zip(backends.state(), before, strict=True)]
        assert arrived == [0, 0, 12, 0]
        with pytest.raises(openai.NotFoundError) as refused:
            asking.completions.create(model="law", prompt="whereas", max_tokens=2)
        assert refused.value.code == "backends_no_model"

        def chosen(by: str) -> bool:
            turns("ice", 1)
            return choices()[by] > 0

        written("{prefix: hash}")
        eventually(lambda: chosen("prefix"), "the file has changed")
        assert turns("snow", 3)[1] > 400
        written("{}")
        counted = choices()

        def as_before() -> bool:
            then = choices()["prefix"]
            turns("fog", 1)
            return choices()["prefix"] == then

        eventually(as_before, "prompts are looked at no more")
        assert choices()["cache"] == counted["cache"]
