"""What metrics of each server say of a backend's load."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.adapters.exposition import MetricsError
from gtm.adapters.servers import ServerType
from gtm.balancer.health.scraping import Scraper, load_in_header, load_of
from gtm.core.balance.health import Load
from tests.adapters import texts
from tests.balancer.health.world import run, world

LLAMA = frozenset(("llama",))


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (texts.VLLM, Load(11.0, 3.0, 0.5, LLAMA, None)),
        (texts.SGLANG, Load(9.0, 3.0, 0.28, LLAMA, None)),
        (texts.TGI, Load(11.0, 4.0, None, None, None)),
        (texts.TRITON, Load(7.5, 6.0, 0.25, LLAMA, None)),
    ],
)
def test_the_load_of_each_server(text: str, load: Load) -> None:
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
    with pytest.raises(MetricsError, match="server_type"):
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
