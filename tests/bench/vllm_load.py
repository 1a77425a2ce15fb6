"""`vllm bench serve` that writes a line of JSON for each request as it ends: run by vLLM's own Python, `python tests/bench/vllm_load.py bench serve …`.

Its result file says neither when a failed request ended nor that a stream broke off: whoever gets a first token counts there as served. Times are monotonic seconds.
"""

from __future__ import annotations

import json
import time
from typing import Any

from vllm.benchmarks.lib.endpoint_request_func import ASYNC_REQUEST_FUNCS
from vllm.entrypoints.cli.main import main

_ask = ASYNC_REQUEST_FUNCS["openai-chat"]


async def _noted(*arguments: Any, **named: Any) -> Any:
    sent = time.monotonic()
    output = await _ask(*arguments, **named)
    first = sent + output.ttft if output.ttft else None
    whole = bool(output.success and output.output_tokens)  # the usage is what a stream says last
    said = (output.error.strip().splitlines() or [""])[-1]
    line = {"sent": sent, "first": first, "ended": time.monotonic(), "whole": whole, "said": said}
    print(json.dumps(line), flush=True)
    return output


if __name__ == "__main__":
    ASYNC_REQUEST_FUNCS["openai-chat"] = _noted
    main()
