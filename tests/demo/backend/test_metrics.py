"""What a simulated server says of itself: vLLM's series, as gtm's own reader takes them, and ORCA's header."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gtm.adapters.scrape import signals
from gtm.adapters.servers import ServerType, read_server
from gtm.demo.backend.engine import Engine, Job
from gtm.demo.backend.errors import ApiError
from gtm.demo.backend.faults import FaultError, InjectedFault, Mode, read_fault
from gtm.demo.backend.meters import MeterHistogram, metrics_text, orca_header
from gtm.demo.backend.models import Models
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.requests import content_of, read_chat, read_completion
from gtm.demo.backend.scheduler import Phase
from gtm.demo.backend.server import Backend
from tests.demo.backend.harness import MODEL, Client, ask, running
from tests.demo.backend.speeds import decode_rate, first_token_seconds
from tests.effort import examples

SERIES = {
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits", "vllm:num_preemptions", "vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success",
    "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds", "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds", "vllm:lora_requests_info", "vllm:cache_config_info",
}  # fmt: skip


class Nobody:
    """Listens to nothing."""

    def progressed(self) -> None:
        """More tokens."""


def engine(profile: Profile, *names: str) -> Engine:
    """An engine with models loaded."""
    return Engine(profile, Models(profile, names or (MODEL,)))


def submit(one: Engine, now: float, answer: int, **more: object) -> Job:
    """A chat request."""
    return one.submit(read_chat(ask(answer, **more)), Nobody(), now)  # type: ignore[arg-type]


def run(one: Engine, now: float, until: float = float("inf")) -> float:
    """All that happens up to a time; when the last of it did."""
    _, again = one.advance(now)
    while again is not None and again <= until:
        now = again
        _, again = one.advance(now)
    return now


def test_gtm_reads_it() -> None:
    """The reader of `gtm report` finds running, waiting, KV usage, and what two readings say of rates and times."""
    one = engine(Profile(max_num_seqs=2))
    before = read_server(ServerType.VLLM, metrics_text(one.reading(1.0)).decode(), 0.0)
    for number in range(5):
        submit(one, 0.0, 50, text=f"{number} " * 100)
    run(one, 0.0, until=0.2)
    during = read_server(ServerType.VLLM, metrics_text(one.reading(1.0)).decode(), 0.2)
    assert during.models == (MODEL,)
    assert not during.missing
    assert (during.gauges["outstanding"], during.gauges["queue"]) == (2, 3)
    assert during.gauges["kv_cache_usage"] == one.scheduler.blocks.used / 8192 > 0
    end = run(one, 0.2)
    after = read_server(ServerType.VLLM, metrics_text(one.reading(1.0)).decode(), end)
    found = signals(before, after)
    assert found["requests_per_second"] == pytest.approx(5 / end)
    assert found["tokens_per_second"] == pytest.approx(250 / end)
    # Three batches follow each other, in slots of two: service times add up to five of the three spans.
    assert found["service_time_ms"] == pytest.approx(1000 * end / 3, rel=0.05)
    assert found["queue_wait_ms"] == pytest.approx(1000 * (0 + 0 + end / 3 * 2 + end / 3 * 2) / 5, rel=0.05)


def test_series() -> None:
    """All of vLLM's names, with its labels, as prometheus-client's own parser reads them."""
    one = engine(Profile(), "a", "b")
    job = submit(one, 0.0, 20, model="b")
    end = run(one, 0.0)
    families = {
        family.name: family
        for family in text_string_to_metric_families(metrics_text(one.reading(9.0)).decode())
    }
    assert set(families) == SERIES
    for name, family in families.items():
        labels = set(family.samples[0].labels) - {"le", "finished_reason"}
        wanted = {"model_name", "engine"}
        assert labels == wanted or name in ("vllm:lora_requests_info", "vllm:cache_config_info")
    values = {
        (
            sample.name,
            sample.labels.get("model_name"),
            sample.labels.get("finished_reason"),
            sample.labels.get("le"),
        ): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["vllm:request_success_total", "b", "length", None] == 1
    assert values["vllm:request_success_total", "a", "length", None] == 0
    assert values["vllm:generation_tokens_total", "b", None, None] == 20
    assert values["vllm:prompt_tokens_total", "b", None, None] == job.content.prompt_tokens
    assert values["vllm:inter_token_latency_seconds_count", "b", None, None] == 19
    assert values["vllm:inter_token_latency_seconds_sum", "b", None, None] == pytest.approx(
        19 / decode_rate(Profile(), 1)
    )
    first = first_token_seconds(Profile(), job.content.prompt_tokens)
    assert values["vllm:time_to_first_token_seconds_sum", "b", None, None] == pytest.approx(first)
    assert values["vllm:e2e_request_latency_seconds_sum", "b", None, None] == pytest.approx(end)


def test_adapters_are_listed() -> None:
    """`lora_requests_info` names the adapters with requests, running and waiting."""
    one = engine(Profile(max_num_seqs=1))
    for name in ("law", "tax"):
        one.models.load_adapter(name, "/x", -10.0)
        submit(one, 0.0, 20, model=name)
    run(one, 0.0, until=0.1)
    text = metrics_text(one.reading(9.0)).decode()
    line = 'vllm:lora_requests_info{max_lora="8",running_lora_adapters="law",waiting_lora_adapters="tax"} 9.0'
    assert line in text


@given(st.lists(st.tuples(st.integers(0, 40).map(lambda n: n / 4), st.integers(1, 3))))
def test_histogram(values: list[tuple[float, int]]) -> None:
    """Buckets count what is at most their bound."""
    bounds = (0.5, 1.0, 5.0)
    one = MeterHistogram(bounds)
    for value, times in values:
        one.observe(value, times)
    flat = [value for value, times in values for _ in range(times)]
    counts = [sum(value <= bound for value in flat) for bound in bounds]
    assert list(one.buckets()) == [*zip(map(str, bounds), counts, strict=True), ("+Inf", len(flat))]
    assert one.sum == pytest.approx(sum(flat))


def test_orca() -> None:
    """`endpoint-load-metrics` in the form that the request names, as vLLM sends it."""

    async def test(backend: Backend) -> None:
        for form, wanted in (
            ("TEXT", "TEXT named_metrics.kv_cache_usage_perc=0.0, named_metrics.num_requests_waiting=0.0"),
            ("json", 'JSON {"named_metrics": {"kv_cache_usage_perc": 0.0, "num_requests_waiting": 0.0}}'),
            ("BIN", None),
        ):
            client = await Client.to(backend)
            client.send("POST", "/v1/chat/completions", ask(2), f"endpoint-load-metrics-format: {form}")
            status, headers = await client.head()
            assert (status, headers.get("endpoint-load-metrics")) == (200, wanted)

    running(test)
    found = orca_header("json", engine(Profile()).reading(1.0))
    assert found
    assert set(json.loads(found.removeprefix("JSON "))["named_metrics"]) == {
        "kv_cache_usage_perc",
        "num_requests_waiting",
    }


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 40), st.booleans()), max_size=12),
    st.lists(st.floats(0, 4), max_size=20),
    st.sampled_from(list(Mode)),
)
def test_engine_conserves(requests: list[tuple[float, int, bool]], looks: list[float], mode: Mode) -> None:
    """However often it is looked at, and whatever fails in between: all that arrived ends exactly once, and nothing is held then."""
    one = engine(Profile(max_num_seqs=3, kv_blocks=512))
    jobs: list[Job] = []
    refused = 0
    for number, (at, answer, cancelled) in enumerate(sorted(requests)):
        for look in sorted(look for look in looks if look <= at):
            one.advance(look)
        if number == len(requests) // 2:
            one.switch(InjectedFault(mode), at)
        try:
            jobs.append(submit(one, at, answer, text=str(number)))
        except ApiError:
            refused += 1
            continue
        if cancelled:
            one.cancel(jobs[-1])
            one.cancel(jobs[-1])
    one.switch(InjectedFault(), 5.0)
    run(one, 5.0)
    assert len(jobs) + refused == len(requests)
    state = one.state(9.0)
    assert (state["running"], state["waiting"], state["kv_blocks_used"]) == (0, 0, 0)
    for job in jobs:
        assert (job.phase is Phase.FINISHED) == (job.generated == job.answer_tokens)
        assert job.phase in (Phase.FINISHED, Phase.CANCELLED)
    assert state["finished"] == sum(job.phase is Phase.FINISHED for job in jobs)


def test_who_looks_late_sees_the_same() -> None:
    """The tokens' times are the steps', not those at which somebody asked."""
    ends = []
    for pause in (0.001, 0.2):
        one = engine(Profile())
        job = submit(one, 0.0, 30)
        now = 0.0
        while job.phase is not Phase.FINISHED:
            one.advance(now)
            now += pause
        ends.append(job.last_at)
    assert ends[0] == pytest.approx(ends[1])


@settings(max_examples=examples(400), deadline=None)
@given(st.one_of(st.binary(max_size=300), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["model", "user", "text"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["model", "messages", "prompt", "role", "content", "type", "text", "n", "max_tokens", "stream", "mode", "after"]), inner, max_size=6),
    max_leaves=20,
).map(lambda one: json.dumps(one).encode("utf-8", "surrogatepass"))))  # fmt: skip
def test_any_bytes(body: bytes) -> None:
    """Whatever a body holds, it is read or refused with 400."""
    for read in (read_chat, read_completion):
        try:
            content, tokens = content_of(read(body), 1000)
        except ApiError as error:
            refused = error.status
        else:
            refused = HTTPStatus.BAD_REQUEST
            assert content.prompt_tokens >= 1
            assert 1 <= tokens <= 1000 - content.prompt_tokens
        assert refused == HTTPStatus.BAD_REQUEST
    with suppress(FaultError):
        read_fault(body)
