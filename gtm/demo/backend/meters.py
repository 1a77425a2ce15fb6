"""What a server counts, under vLLM's names.

Names, labels and buckets: vLLM's v1 engine, `vllm/v1/metrics/loggers.py`. All of one step's gaps between tokens are mostly the same,
so they are counted together: a prometheus-client histogram would cost more per token than all the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

FIRST_TOKEN_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
    2560.0,
)  # fmt: skip
TOKEN_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
REASONS = ("stop", "length", "abort")


class MeterHistogram:
    """A Prometheus histogram.

    Args:
        bounds: upper bounds of its buckets, each included, ascending.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bound and values up to it, cumulated."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


@dataclass(slots=True)
class Meters:
    """What is counted for one model since the server began."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    success: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    first_token: MeterHistogram = field(default_factory=lambda: MeterHistogram(FIRST_TOKEN_BUCKETS))
    inter_token: MeterHistogram = field(default_factory=lambda: MeterHistogram(TOKEN_BUCKETS))
    latency: MeterHistogram = field(default_factory=lambda: MeterHistogram(REQUEST_BUCKETS))
    queued: MeterHistogram = field(default_factory=lambda: MeterHistogram(REQUEST_BUCKETS))
    inference: MeterHistogram = field(default_factory=lambda: MeterHistogram(REQUEST_BUCKETS))
    prefill: MeterHistogram = field(default_factory=lambda: MeterHistogram(REQUEST_BUCKETS))
    decode: MeterHistogram = field(default_factory=lambda: MeterHistogram(REQUEST_BUCKETS))


@dataclass(frozen=True, slots=True)
class Gauges:
    """The gauges of a model as they are now."""

    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the metrics say at one time. `now` is in Unix seconds; adapters are those with requests."""

    now: float
    meters: Mapping[str, Meters]
    gauges: Mapping[str, Gauges]
    kv_usage: float
    kv_blocks: int
    max_loras: int
    running_adapters: Iterable[str]
    waiting_adapters: Iterable[str]


def metrics_text(reading: Reading) -> bytes:
    """A reading in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    return generate_latest(registry)


def orca_header(form: str, reading: Reading) -> str | None:
    """`endpoint-load-metrics` as vLLM writes it (`vllm/entrypoints/openai/orca_metrics.py`); None for an unknown form.

    Args:
        form: what the request's `endpoint-load-metrics-format` says.
        reading: of now.
    """
    waiting = float(sum(one.waiting for one in reading.gauges.values()))
    values = {"kv_cache_usage_perc": reading.kv_usage, "num_requests_waiting": waiting}
    if form.lower() == "text":
        return "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in values.items())
    if form.lower() == "json":
        named = ", ".join(f'"{name}": {value}' for name, value in values.items())
        return f'JSON {{"named_metrics": {{{named}}}}}'
    return None


_LABELS = ("model_name", "engine")
_GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_COUNTERS = {
    "prefix_queries": (
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
    ),
    "prefix_hits": ("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    "preemptions": ("vllm:num_preemptions", "Cumulative number of preemption from the engine."),
    "prompt_tokens": ("vllm:prompt_tokens", "Number of prefill tokens processed."),
    "generation_tokens": ("vllm:generation_tokens", "Number of generation tokens processed."),
}
_HISTOGRAMS = {
    "first_token": ("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds."),
    "inter_token": ("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds."),
    "latency": ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    "queued": ("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."),
    "inference": (
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
    ),
    "prefill": ("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."),
    "decode": ("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."),
}


class _Collector(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        meters = self._reading.meters
        for name, (series, text) in _COUNTERS.items():
            counter = CounterMetricFamily(series, text, labels=_LABELS)
            for model, one in meters.items():
                counter.add_metric((model, "0"), getattr(one, name))
            yield counter
        success = CounterMetricFamily(
            "vllm:request_success",
            "Count of successfully processed requests.",
            labels=(*_LABELS, "finished_reason"),
        )
        for model, one in meters.items():
            for reason, count in one.success.items():
                success.add_metric((model, "0", reason), count)
        yield success
        for name, (series, text) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(series, text, labels=_LABELS)
            for model, one in meters.items():
                found: MeterHistogram = getattr(one, name)
                histogram.add_metric((model, "0"), list(found.buckets()), found.sum)
            yield histogram

    def _gauges(self) -> Iterator[Metric]:
        reading = self._reading
        values = {
            model: (one.running, one.waiting, reading.kv_usage) for model, one in reading.gauges.items()
        }
        for number, (series, text) in enumerate(_GAUGES.items()):
            gauge = GaugeMetricFamily(series, text, labels=_LABELS)
            for model, found in values.items():
                gauge.add_metric((model, "0"), found[number])
            yield gauge
        lora = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "Running stats on lora requests.",
            labels=("max_lora", "waiting_lora_adapters", "running_lora_adapters"),
        )
        lora.add_metric(
            (str(reading.max_loras), ",".join(reading.waiting_adapters), ",".join(reading.running_adapters)),
            reading.now,
        )
        yield lora
        config = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"),
        )
        config.add_metric(("16", str(reading.kv_blocks), "True", "0"), 1)
        yield config
