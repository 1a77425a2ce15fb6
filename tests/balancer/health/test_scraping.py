"""What metrics of each server say of a backend's load."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.adapters.exposition import MetricsError
from gtm.adapters.servers import MAX_LINES, ServerType
from gtm.balancer.health.checks import Scraper, load_in_header, load_of
from gtm.core.balance.backends import Backend, Scraped
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendLoad
from gtm.core.capacity.load import MOST_CACHE_TOKENS, SIGNALS
from tests.adapters import texts
from tests.balancer.health.world import run, world
from tests.core.strategies import quick

LLAMA = frozenset(("llama",))


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (texts.VLLM, BackendLoad(11.0, 3.0, 0.75, LLAMA, None)),
        (texts.SGLANG, BackendLoad(9.0, 3.0, 0.28, LLAMA, None)),
        (texts.TGI, BackendLoad(11.0, 4.0, None, None, None)),
        (texts.TRITON, BackendLoad(7.5, 6.0, 0.25, LLAMA, None)),
    ],
)
def test_the_load_of_each_server(text: str, load: BackendLoad) -> None:
    """Whose metrics they are is seen by their names; Triton says what runs from the second scrape on."""
    scraper = Scraper()
    first = scraper.read((text % texts.EARLIER).encode(), 10.0)
    assert first.running == (None if text is texts.TRITON else load.running)
    assert scraper.read((text % texts.LATER).encode(), 14.0) == load


def test_a_type_that_is_set_counts() -> None:
    """Whatever the text looks like: here nothing of it is there, which is an error that says what is missing."""
    with pytest.raises(MetricsError, match="sglang:num_running_reqs"):
        Scraper(ServerType.SGLANG).read((texts.VLLM % texts.EARLIER).encode(), 1.0)


def test_what_is_half_there_is_half_known() -> None:
    """What waits is not said: it is unknown, not none."""
    load = Scraper().read(b"vllm:num_requests_running 4\n", 1.0)
    assert (load.running, load.waiting, load.memory, load.models) == (4.0, None, None, None)


@pytest.mark.parametrize("text", [b"", b"process_open_fds 12\n", b"<html>", b"\xff\xfe"])
def test_metrics_of_nobody(text: bytes) -> None:
    """An error that says what to set."""
    with pytest.raises(MetricsError, match="by `type` in `scrape`"):
        Scraper().read(text, 1.0)


def test_memory_is_a_part() -> None:
    """The KV cache's, else the GPU's; whatever is said, 0 to 1."""
    gpu = {"gpu_memory_used_bytes": 3.0, "gpu_memory_total_bytes": 4.0}
    assert load_of(gpu).memory == 0.75
    assert load_of(gpu | {"kv_cache_usage": 0.5}).memory == 0.5
    assert load_of({"kv_cache_usage": 1.5}).memory == 1.0
    assert load_of({"gpu_memory_used_bytes": 3.0}).memory is None
    assert load_of({"gpu_memory_used_bytes": 3.0, "gpu_memory_total_bytes": 0.0}).memory is None


@given(
    st.binary(max_size=200) | st.sampled_from([texts.VLLM, texts.TRITON]).map(lambda text: text.encode()[::2])
)
def test_damage_is_an_error_or_a_load(body: bytes) -> None:
    """Whatever a server answers."""
    with suppress(MetricsError):
        Scraper().read(body, 1.0)
    load_in_header(b"TEXT " + body)


_SERIES = {
    ServerType.VLLM: (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:generation_tokens_total",
    ),
    ServerType.SGLANG: (
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:token_usage",
        "sglang:max_total_num_tokens",
    ),
    ServerType.TGI: ("tgi_batch_current_size", "tgi_queue_size", "tgi_request_generated_tokens_sum"),
    ServerType.TRITON: (
        "nv_inference_pending_request_count",
        "nv_gpu_memory_used_bytes",
        "nv_gpu_memory_total_bytes",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_request_success",
    ),
}
_NUMBERS = st.sampled_from((0.0, 5e-324, 1.0, 1e9, 1e10, 1e308, -1.0, -1e308)) | st.floats()


@quick(400)
@given(st.data(), st.sampled_from(sorted(_SERIES)))
def test_no_number_that_a_server_says_hurts(data: st.DataObject, server_type: ServerType) -> None:
    """Each may be the largest there is, so that their sum is none. What comes of it is in its range, and counts can be settled."""
    scraper = Scraper(server_type)
    backends = (Backend("http://a"), Backend("http://b"))
    flights, health = Flights(backends), BackendHealth(HealthSettings(), backends, 0.0)
    for at in (1.0, 2.0, 3.0):
        rows = [
            f'{name}{{engine="{engine}"}} {data.draw(_NUMBERS)!r}\n'
            for name in _SERIES[server_type]
            for engine in range(2)
        ]
        try:
            load = scraper.read("".join(rows).encode(), at)
        except MetricsError:
            continue
        assert all(0 <= value <= SIGNALS[signal] for signal, value in scraper.signals.items())
        assert load.memory is None or 0 <= load.memory <= 1
        assert load.cache_tokens is None or 0 < load.cache_tokens <= 1e12
        health.scraped("http://a", load, at)
        health.tick(at)
        if load.running is not None and load.waiting is not None:
            flights.scraped("http://a", Scraped(load.running, load.waiting, at))
        flights.settle(at)
        assert all(isfinite(flights.of(one.name).outstanding) for one in backends)


def test_what_is_impossible_is_unknown_and_missed() -> None:
    """It is as if the server had not said it; of a cache that is fuller than full it is known that it is full."""
    scraper = Scraper()
    with pytest.raises(MetricsError, match="vllm:num_requests_running, vllm:num_requests_waiting"):
        scraper.read(b"vllm:num_requests_running 2e9\nvllm:num_requests_waiting -1\n", 1.0)
    load = scraper.read(b"vllm:num_requests_running 1e9\nvllm:kv_cache_usage_perc 1.5\n", 2.0)
    assert (load.running, load.waiting, load.memory) == (1e9, None, 1.0)
    sglang = Scraper(ServerType.SGLANG)
    said = b"sglang:num_running_reqs 1\nsglang:max_total_num_tokens "
    assert [sglang.read(said + number, 1.0).cache_tokens for number in (b"-5", b"0", b"2e12", b"4096")] == [
        None,
        None,
        None,
        4096.0,
    ]


def test_a_server_that_says_too_much_of_its_load() -> None:
    """Who reads it serves requests meanwhile: it is read up to a bound, whatever else the metrics say."""
    line = b'vllm:num_requests_running{engine="%06d"} 1\n'
    fits = MAX_LINES // len(line % 0)
    much = b"".join(line % number for number in range(fits))
    assert Scraper().read(b"other 1\n" * 50_000 + much, 1.0).running == fits
    with pytest.raises(MetricsError, match=f"longer than the {MAX_LINES} bytes that are read.*`scrape`"):
        Scraper().read(much + line % fits, 1.0)
    with pytest.raises(MetricsError, match=f"longer than the {MAX_LINES} bytes"):
        Scraper(ServerType.HAPROXY).read(b"vllm:other 1\n" * (MAX_LINES // 10), 1.0)


@pytest.mark.parametrize("number", [b"9" * 19, b"9" * 20, b"-" + b"9" * 400, b"9" * 400])
def test_a_number_of_any_length_in_a_header(number: bytes) -> None:
    """JSON's integers have no bound. What is said besides counts, where the whole can be read."""
    load = load_in_header(b'JSON {"rps_fractional": %b, "named_metrics": {"kv_cache_usage": 0.5}}' % number)
    assert load is not None
    assert load.memory == 0.5
    load = load_in_header(b'JSON {"named_metrics": {"kv_cache_usage": 0.5, "queue": %b}}' % number)
    assert load is None or (load.memory, load.waiting) == (0.5, None)


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
def test_a_response_says_its_load(form: str) -> None:
    """ORCA's header, of a real response, in both forms."""

    async def test() -> None:
        async with world() as here:
            route = here.targets[0][1]
            reader, writer = await asyncio.open_connection(route.host, route.port)
            body = b'{"model": "demo", "prompt": "x", "max_tokens": 1}'
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
                b"endpoint-load-metrics-format: %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                % (form.encode(), len(body), body)
            )
            lines = (await reader.read()).partition(b"\r\n\r\n")[0].split(b"\r\n")
            writer.close()
            said = [
                line.partition(b":")[2].strip()
                for line in lines
                if line.lower().startswith(b"endpoint-load-metrics:")
            ]
            load = load_in_header(said[0])
            assert load is not None
            assert load.running is None
            assert load.waiting == 0.0
            assert load.memory is not None
            assert load_in_header(b"nonsense") is None

    run(test)


@quick(300)
@given(
    st.lists(
        st.floats() | st.sampled_from([1e308, 1e12, 1e9]),
        min_size=6,
        max_size=6,
    ),
    st.integers(0, 10**15),
    st.integers(0, 10**15),
)
def test_no_number_of_a_server_is_more_than_can_be(numbers: list[float], blocks: int, size: int) -> None:
    """Two engines of a server, whose numbers are added up: each is within its bound, or unknown."""
    running, waiting, memory = numbers[:2], numbers[2:4], numbers[4:]
    lines = [
        f'vllm:{name}{{engine="{engine}"}} {value}'
        for name, values in (
            ("num_requests_running", running),
            ("num_requests_waiting", waiting),
            ("kv_cache_usage_perc", memory),
        )
        for engine, value in enumerate(values)
    ]
    lines.append(f'vllm:cache_config_info{{num_gpu_blocks="{blocks}",block_size="{size}"}} 1.0')
    with suppress(MetricsError):
        load = Scraper().read(("\n".join(lines) + "\n").encode(), 1.0)
        assert load.running is None or 0 <= load.running <= SIGNALS["outstanding"]
        assert load.waiting is None or 0 <= load.waiting <= SIGNALS["queue"]
        assert load.memory is None or 0 <= load.memory <= 1
        assert load.cache_tokens is None or 0 < load.cache_tokens <= MOST_CACHE_TOKENS
