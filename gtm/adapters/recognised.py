"""Which server a text of metrics is of, and the few lines of it that say its load.

A model server's metrics are mostly buckets of histograms: thousands of lines, which take the parser tens of milliseconds. Who reads
them each second, in the event loop that carries requests, reads only the lines that `servers` looks at.
"""

from __future__ import annotations

from collections.abc import Iterable

from gtm.adapters.exposition import MAX_BYTES, MetricsError
from gtm.adapters.servers import RENAMED, ServerType

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
