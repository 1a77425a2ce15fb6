"""Which series of which server mean what.

Names as the servers' own documentation and sources have them: vLLM (`vllm/v1/metrics/loggers.py`; `gpu_cache_usage_perc` up
to 0.9), SGLang (with `--enable-metrics`), Text Generation Inference, Triton, HAProxy's built-in exporter, NGINX's stub_status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from gtm.adapters.exposition import MAX_BYTES, MetricsError, Sample, Samples, read_samples
from gtm.adapters.scrape import Scrape, ScrapeTotals, possible
from gtm.core.capacity.load import MOST_CACHE_TOKENS


class ServerType(StrEnum):
    """A server whose metrics are known."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TGI = "tgi"
    TRITON = "triton"
    HAPROXY = "haproxy"
    NGINX = "nginx"
    PROMETHEUS = "prometheus"
    """Anything else with metrics in that format; somebody says which series mean what."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series that somebody named, with the labels it must carry."""

    name: str
    labels: Mapping[str, str]


GAUGES = ("outstanding", "queue", "limit", "kv_cache_usage")
"""Signals that a named series is taken for as it is."""
MEANS = {"service_time_ms": ("service_s", "served"), "queue_wait_ms": ("wait_s", "waited")}
"""Signals that are means of a named histogram or summary of seconds."""
RATES = {
    "requests_per_second": "requests",
    "tokens_per_second": "tokens",
    "input_tokens_per_second": "input_tokens",
}
"""Signals that are the growth of a named counter."""

RENAMED: Mapping[ServerType, tuple[str, ...]] = {
    ServerType.VLLM: ("vllm:", "ray_vllm:", "ray_vllm_"),
    ServerType.SGLANG: ("sglang:", "ray_sglang:", "ray_sglang_"),
}
"""How the names of a server's series begin: its own, and what Ray makes of it, which tells them for Ray Serve LLM (`ray_` goes before each; since OpenTelemetry `_` stands for `:`)."""


def _as_its_server_has_it(sample: Sample, own: str, *others: str) -> Sample:
    if sample.name.startswith(others):
        begin = next(one for one in others if sample.name.startswith(one))
        return replace(sample, name=own + sample.name[len(begin) :])
    return sample


_SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,199})(?:\{([^{}]{0,2000})\})?")
_COUNT = re.compile(r"[0-9]{1,12}")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,199})\s*=\s*"([^"\\]{0,500})"\s*')


def read_series(text: str) -> Series:
    """A series as people write it: `name` or `name{label="value",other="value"}`.

    Raises:
        ValueError: it is none; the message says how one is written.
    """
    whole = _SERIES.fullmatch(text.strip())
    labels: dict[str, str] = {}
    parts = whole[2].split(",") if whole is not None and whole[2] else []
    for part in parts:
        one = _LABEL.fullmatch(part)
        if one is None:
            whole = None
            break
        labels[one[1]] = one[2]
    if whole is None:
        raise ValueError(f'`{text[:100]}` is no series: write `name` or `name{{label="value"}}`')
    return Series(whole[1], labels)


def read_server(
    server_type: ServerType,
    text: str,
    at: float,
    labels: Mapping[str, str] | None = None,
    series: Mapping[str, Series] | None = None,
) -> Scrape:
    """What a server's metrics say.

    Args:
        server_type: what it is.
        text: its answer.
        at: when, in monotonic seconds.
        labels: that series must carry (`model_name` of one model, `proxy` of one of HAProxy's backends).
        series: of `ServerType.PROMETHEUS`: signal → series, signals as in GAUGES, MEANS and RATES.

    Raises:
        MetricsError: the text is not what such a server answers.
    """
    if server_type is ServerType.NGINX:
        return _nginx(text, at)
    samples = read_samples(text)
    begins = RENAMED.get(server_type)
    if begins is not None:
        samples = [_as_its_server_has_it(one, *begins) for one in samples]
    if server_type is ServerType.PROMETHEUS:
        return _named(samples_of=lambda wanted: Samples(samples, wanted), series=series or {}, at=at)
    return _READERS[server_type](Samples(samples, labels), at)


def _scrape(
    at: float,
    gauges: Mapping[str, float | None],
    totals: ScrapeTotals,
    needed: Mapping[str, str],
    **more: object,
) -> Scrape:
    """A scrape of the gauges that are there, and possible; `needed` has those that should be, with their series."""
    known = {name: value for name, value in gauges.items() if value is not None and possible(name, value)}
    missing = tuple(series for name, series in needed.items() if name not in known)
    return Scrape(at, known, totals, missing=missing, **more)  # type: ignore[arg-type]


def _part(said: float | None) -> float | None:
    """A part that is used: more than all of it is all of it. Of several engines it is the fullest's: requests that come there wait, whatever the others have."""
    return None if said is None else min(said, 1.0)


def _models(found: Samples, name: str, label: str) -> tuple[str, ...]:
    return tuple(sorted({sample.labels[label] for sample in found.all(name) if sample.labels.get(label)}))


def _vllm(found: Samples, at: float) -> Scrape:
    return _scrape(
        at,
        {
            "outstanding": found.total("vllm:num_requests_running"),
            "queue": found.total("vllm:num_requests_waiting"),
            "kv_cache_usage": _part(found.largest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        },
        ScrapeTotals(
            requests=found.total("vllm:request_success"),
            tokens=found.total("vllm:generation_tokens"),
            input_tokens=found.total("vllm:prompt_tokens"),
            service_s=found.total("vllm:request_inference_time_seconds_sum"),
            served=found.total("vllm:request_inference_time_seconds_count"),
            wait_s=found.total("vllm:request_queue_time_seconds_sum"),
            waited=found.total("vllm:request_queue_time_seconds_count"),
        ),
        {"outstanding": "vllm:num_requests_running", "queue": "vllm:num_requests_waiting"},
        models=_models(found, "vllm:num_requests_running", "model_name"),
        adapters=_vllm_adapters(found),
        cache_tokens=_vllm_cache(found),
        progress=tuple(one.value for name in _VLLM_PROGRESS for one in found.all(name)),
    )


_VLLM_PROGRESS = (
    "vllm:generation_tokens",
    "vllm:prompt_tokens",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
)
"""vLLM counts a token when it is made, and a prompt when it is read; the blocks of its KV cache it says after each step, so that they grow while a long prompt is read."""


def _vllm_cache(found: Samples) -> float | None:
    """Tokens of all engines' KV blocks, by the labels of their configuration."""
    total = 0
    for sample in found.all("vllm:cache_config_info"):
        blocks, size = (sample.labels.get(name, "") for name in ("num_gpu_blocks", "block_size"))
        if not _COUNT.fullmatch(blocks) or not _COUNT.fullmatch(size):
            return None
        total += int(blocks) * int(size)
    return _tokens(total)


def _tokens(said: float | None) -> float | None:
    """What a cache holds, if that can be."""
    return float(said) if said is not None and 0 < said <= MOST_CACHE_TOKENS else None


def _vllm_adapters(found: Samples) -> tuple[str, ...] | None:
    """The LoRA adapters whose requests run, so that they are loaded: vLLM keeps a series for each list of names that there was.

    The newest says what is: its value is the time at which it was (`vllm/v1/metrics/loggers.py`).
    """
    said = found.all("vllm:lora_requests_info")
    if not said:
        return None
    names = max(said, key=lambda sample: sample.value).labels.get("running_lora_adapters", "")
    return tuple(sorted({name for name in names.split(",") if name}))


def _sglang(found: Samples, at: float) -> Scrape:
    running, queued, used, room = (
        [one.value for one in _of_engines(found.all(f"sglang:{name}"))]
        for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "max_total_num_tokens")
    )
    whole, waited = (
        found.total("sglang:e2e_request_latency_seconds_sum"),
        found.total("sglang:queue_time_seconds_sum"),
    )
    return _scrape(
        at,
        {
            "outstanding": sum(running) if running else None,
            "queue": sum(queued) if queued else None,
            "kv_cache_usage": _part(max(used, default=None)),
        },
        ScrapeTotals(
            requests=found.total("sglang:e2e_request_latency_seconds_count"),
            tokens=found.total("sglang:generation_tokens"),
            input_tokens=found.total("sglang:prompt_tokens"),
            # From arrival to the end less the wait; without the wait, no service time.
            service_s=whole - waited if whole is not None and waited is not None else None,
            served=found.total("sglang:e2e_request_latency_seconds_count"),
            wait_s=waited,
            waited=found.total("sglang:queue_time_seconds_count"),
        ),
        {"outstanding": "sglang:num_running_reqs", "queue": "sglang:num_queue_reqs"},
        models=_models(found, "sglang:num_running_reqs", "model_name"),
        cache_tokens=_tokens(sum(room) if room else None),
    )


def _of_engines(samples: list[Sample]) -> list[Sample]:
    """One sample of each engine. Tensor-parallel and pipeline ranks of one say the same thing each, where they all say it, so that the first counts.

    Data-parallel ranks are engines of their own; by `--enable-dp-attention` each has tensor-parallel ranks of its own, too, which do not begin at 0.
    """
    first: dict[str, tuple[tuple[int, str], ...]] = {}
    for sample in samples:
        engine, rank = sample.labels.get("dp_rank", ""), _rank(sample)
        first[engine] = min(first.get(engine, rank), rank)
    return [one for one in samples if _rank(one) == first[one.labels.get("dp_rank", "")]]


def _rank(sample: Sample) -> tuple[tuple[int, str], ...]:
    said = (sample.labels.get("tp_rank", ""), sample.labels.get("pp_rank", ""))
    return tuple((len(one), one) for one in said)  # as numbers are in order, whatever they are


def _tgi(found: Samples, at: float) -> Scrape:
    return _scrape(
        at,
        {"outstanding": found.total("tgi_batch_current_size"), "queue": found.total("tgi_queue_size")},
        ScrapeTotals(
            requests=found.total("tgi_request_inference_duration_count"),
            tokens=found.total("tgi_request_generated_tokens_sum"),
            input_tokens=found.total("tgi_request_input_length_sum"),
            service_s=found.total("tgi_request_inference_duration_sum"),
            served=found.total("tgi_request_inference_duration_count"),
            wait_s=found.total("tgi_request_queue_duration_sum"),
            waited=found.total("tgi_request_queue_duration_count"),
        ),
        {"outstanding": "tgi_batch_current_size", "queue": "tgi_queue_size"},
    )


def _triton(found: Samples, at: float) -> Scrape:
    whole, waited = (
        found.total("nv_inference_request_duration_us"),
        found.total("nv_inference_queue_duration_us"),
    )
    requests = found.total("nv_inference_request_success")
    return _scrape(
        at,
        {
            "queue": found.total("nv_inference_pending_request_count"),
            "gpu_memory_used_bytes": found.total("nv_gpu_memory_used_bytes"),
            "gpu_memory_total_bytes": found.total("nv_gpu_memory_total_bytes"),
        },
        ScrapeTotals(
            requests=requests,
            service_s=(whole - waited) / 1e6 if whole is not None and waited is not None else None,
            served=requests,
            wait_s=waited / 1e6 if waited is not None else None,
            waited=requests,
        ),
        {"queue": "nv_inference_pending_request_count"},
        models=_models(found, "nv_inference_request_success", "model"),
        busy_by_totals=True,
    )


def _haproxy(found: Samples, at: float) -> Scrape:
    up = {
        (sample.labels.get("proxy"), sample.labels.get("server"))
        for sample in found.all("haproxy_server_status", state="UP")
        if sample.value == 1
    }
    limits = [
        sample.value
        for sample in found.all("haproxy_server_limit_sessions")
        if (sample.labels.get("proxy"), sample.labels.get("server")) in up
    ]
    waiting = [found.total("haproxy_backend_current_queue"), found.total("haproxy_server_current_queue")]
    return _scrape(
        at,
        {
            "outstanding": found.total("haproxy_server_current_sessions"),
            "queue": None if None in waiting else sum(part or 0.0 for part in waiting),
            # A server without `maxconn` has no limit, so neither have all together.
            "limit": sum(limits) if limits and len(limits) == len(up) and all(limits) else None,
        },
        ScrapeTotals(requests=found.total("haproxy_backend_http_responses")),
        {"outstanding": "haproxy_server_current_sessions", "queue": "haproxy_backend_current_queue"},
    )


_STUB = re.compile(
    r"Active connections:\s+(\d{1,15})\s+server accepts handled requests\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+"
    r"Reading:\s+(\d{1,15})\s+Writing:\s+(\d{1,15})\s+Waiting:\s+(\d{1,15})\s*",
)


def _nginx(text: str, at: float) -> Scrape:
    """`stub_status`: requests whose answers are being made or sent, but for the one that asked. It has no queue."""
    found = _STUB.fullmatch(text.strip()) if len(text) < 10_000 else None
    if found is None:
        raise MetricsError("this is not NGINX's stub_status (`location = /status { stub_status; }`)")
    requests, writing = float(found[4]), float(found[6])
    return Scrape(at, {"outstanding": max(writing - 1, 0.0)}, ScrapeTotals(requests=requests))


def _named(
    samples_of: Callable[[Mapping[str, str]], Samples], series: Mapping[str, Series], at: float
) -> Scrape:
    gauges: dict[str, float | None] = {}
    totals: dict[str, float | None] = {}
    for signal, one in series.items():
        found = samples_of(one.labels)
        if signal in GAUGES:
            is_part = signal == "kv_cache_usage"
            gauges[signal] = _part(found.largest(one.name)) if is_part else found.total(one.name)
        elif signal in RATES:
            totals[RATES[signal]] = found.total(one.name)
        else:
            sum_, count = MEANS[signal]
            totals[sum_] = found.total(f"{one.name}_sum")
            totals[count] = found.total(f"{one.name}_count")
    needed = {signal: one.name for signal, one in series.items() if signal in GAUGES}
    return _scrape(at, gauges, ScrapeTotals(**totals), needed)


_READERS: Mapping[ServerType, Callable[[Samples, float], Scrape]] = {
    ServerType.VLLM: _vllm,
    ServerType.SGLANG: _sglang,
    ServerType.TGI: _tgi,
    ServerType.TRITON: _triton,
    ServerType.HAPROXY: _haproxy,
}


# --- Which server a text of metrics is of, and the few lines of it that say its load.
#
# A model server's metrics are mostly buckets of histograms: thousands of lines, which take the parser tens of milliseconds. Who reads
# them each second, in the event loop that carries requests, reads only the lines that `servers` looks at.


MAX_LINES = 128 * 1024
"""Characters of lines that say a server's load; reading as many takes some 0.1 s, and a server with ten engines says 20,000."""

LINES: dict[ServerType, tuple[str, ...]] = {
    ServerType.VLLM: (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting{",
        "vllm:num_requests_waiting ",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "vllm:lora_requests_info",
        "vllm:cache_config_info",
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
    ),
    ServerType.SGLANG: (
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:token_usage",
        "sglang:max_total_num_tokens",
        "sglang:generation_tokens_total",
        "sglang:prompt_tokens_total",
    ),
    ServerType.TGI: (
        "tgi_batch_current_size",
        "tgi_queue_size",
        "tgi_request_generated_tokens_sum",
        "tgi_request_input_length_sum",
    ),
    ServerType.TRITON: (
        "nv_inference_pending_request_count",
        "nv_gpu_memory_used_bytes",
        "nv_gpu_memory_total_bytes",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_request_success",
    ),
}
"""How the lines begin that are needed for signals of load and for names of models: of rates those of tokens, and those that busy follows from."""
_MARKS = {
    **{begin: server_type for server_type, begins in RENAMED.items() for begin in begins},
    "tgi_": ServerType.TGI,
    "nv_inference_": ServerType.TRITON,
}

MODEL_SERVERS = tuple(dict.fromkeys(_MARKS.values()))
"""Those whose metrics are told by their names."""


def recognised(text: str) -> ServerType | None:
    """The model server whose metrics these are; None: none that is known."""
    for mark, server_type in _MARKS.items():
        if _has(text, mark):
            return server_type
    return None


def _has(text: str, begin: str) -> bool:
    """Whether a line begins so."""
    return text.startswith(begin) or f"\n{begin}" in text


def load_lines(server_type: ServerType, text: str) -> str:
    """The lines that say its load; all of them for servers that are no model servers.

    Raises:
        MetricsError: the text is too long, or these lines are.
    """
    if len(text) > MAX_BYTES:
        raise MetricsError(f"the metrics are longer than the {MAX_BYTES} bytes that are read")
    wanted = LINES.get(server_type)
    if wanted is not None:
        own, *others = RENAMED.get(server_type, ("",))
        begin = next((one for one in others if _has(text, one)), own)
        wanted = tuple(begin + one.removeprefix(own) for one in wanted)
        text = _beginning(text, wanted)
    if len(text) > MAX_LINES:
        raise _too_long()
    return text


def _beginning(text: str, wanted: Iterable[str]) -> str:
    """The lines that begin so. Others are passed over by the search for these: a page may be millions of them."""
    page = f"\n{text}"
    found: dict[int, str] = {}
    size = 0
    for begin in wanted:
        at = page.find(f"\n{begin}")
        while at >= 0:
            end = page.find("\n", at + 1)
            if at not in found:
                found[at] = page[at + 1 :] if end < 0 else page[at + 1 : end]
                size += len(found[at]) + 1
                if size > MAX_LINES:
                    raise _too_long()
            at = -1 if end < 0 else page.find(f"\n{begin}", end)
    return "\n".join([found[at] for at in sorted(found)]) + "\n"


def _too_long() -> MetricsError:
    return MetricsError(
        f"the metrics that say its load are longer than the {MAX_LINES} bytes that are read; let it say less "
        "(fewer models or labels), or set `scrape` to none"
    )
