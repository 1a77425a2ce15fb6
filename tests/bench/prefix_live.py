"""Whether prompts go where their beginnings are cached, live: `python tests/bench/prefix_live.py [--seconds 90] [--half first] [--rate 3]`.

`gtm balancer` before four `gtm demo backend` servers, which compute only what of a prompt they have not cached, and say how much that was. The
conversations of `prefix_sim.py` (scenes `chats` and `different`), streamed by httpx, in real time; `choosing.prefix` absent, `hash` and
`map` in turn, each with servers that have forgotten all. Seeds of the first half are for tuning. The last line is JSON: scene → policy → {"hit": part of the
prompts' tokens that were cached, "ttft_p50_s", "ttft_p99_s", "cv": of what servers got, "requests"}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np

from tests.ports import free_port

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.prefix_sim import SCENES, Requests, Talk
from tests.system.balancers import BERLIN, Backends, lone_balancer
from tests.system.harness import eventually

SERVERS = 4
POLICIES = {"load": "{}", "sessions": "{}", "hash": "{prefix: hash}", "map": "{prefix: map}"}


@dataclass(slots=True)
class Heard:
    """What came back."""

    first: list[float] = field(default_factory=list)
    cached: int = 0
    asked: int = 0
    failed: Counter[str] = field(default_factory=Counter)


async def ask(
    client: httpx.AsyncClient, talk: Talk, policy: str, heard: Heard, *, counts: bool
) -> str | None:
    """One turn; the answer's text, None if there was none."""
    body: dict[str, Any] = {
        "model": "demo",
        "messages": talk.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if policy == "sessions":
        body["prompt_cache_key"] = talk.name
    began, first, text = time.monotonic(), 0.0, ""
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            heard.failed[str(answer.status_code)] += 1
            return None
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            for choice in event["choices"]:
                piece = choice["delta"].get("content")
                if piece:
                    first = first or time.monotonic()
                    text += piece
            if event.get("usage") and counts:
                heard.asked += event["usage"]["prompt_tokens"]
                heard.cached += event["usage"]["prompt_tokens_details"]["cached_tokens"]
    if counts:
        heard.first.append(first - began)
    return text


async def play(url: str, scene: str, policy: str, seed: int, *, seconds: float, rate: float) -> Heard:
    """All conversations that begin within the time; the first quarter is not measured."""
    heard, requests = Heard(), Requests(replace(SCENES[scene], rate=rate), seed)
    random = Random(seed + 10_000)
    limits = httpx.Limits(max_connections=1000)
    async with (
        httpx.AsyncClient(
            base_url=url, headers={"x-forwarded-for": BERLIN}, timeout=60, trust_env=False, limits=limits
        ) as client,
        asyncio.TaskGroup() as tasks,
    ):

        async def converse(talk: Talk) -> None:
            while True:
                counts = time.monotonic() - start > seconds / 4
                try:
                    text = await ask(client, talk, policy, heard, counts=counts)
                except httpx.HTTPError as error:
                    heard.failed[type(error).__name__] += 1
                    return
                pause = None if text is None else requests.answered(talk, text)
                if (
                    pause is None
                    or time.monotonic() - start + pause > seconds
                    or len(str(talk.messages)) > 24_000
                ):
                    return
                await asyncio.sleep(pause)

        start = time.monotonic()
        due = start
        while (due := due + random.expovariate(rate)) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.create_task(converse(requests.begin()))
    return heard


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="of each policy")
    parser.add_argument(
        "--rate",
        type=float,
        default=3.0,
        help="conversations of `chats` a second; three times as many of `different`",
    )
    parser.add_argument("--half", choices=("first", "second"), default="second")
    given = parser.parse_args()
    seed = 0 if given.half == "first" else 1000
    result: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="gtm-prefix-") as directory:
        folder = Path(directory)
        for scene, rate in (("chats", given.rate), ("different", 3 * given.rate)):
            for policy, choosing in POLICIES.items():
                backends = Backends(folder / f"{scene}-{policy}.log", SERVERS)
                try:
                    servers = "".join(f"  - {{url: '{one}', slots: 64}}\n" for one in backends.urls)
                    file = folder / "balancer.yaml"
                    file.write_text(f"service: chat\nbackends:\n{servers}choosing: {choosing}\n")
                    ports = {"fra": free_port(), "iad": free_port()}
                    with lone_balancer(
                        folder / f"{scene}-{policy}", "fra", ports, "--file", str(file)
                    ) as running:
                        heard = asyncio.run(
                            play(running.url, scene, policy, seed, seconds=given.seconds, rate=rate)
                        )
                        eventually(lambda: running.in_flight() == 0, "all has ended")
                    arrived = np.array([one["arrived"] for one in backends.state()], float)
                finally:
                    backends.process.popen.kill()
                    backends.process.popen.wait()
                told = {
                    "hit": round(heard.cached / heard.asked, 3),
                    "ttft_p50_s": round(float(np.quantile(heard.first, 0.5)), 3),
                    "ttft_p99_s": round(float(np.quantile(heard.first, 0.99)), 3),
                    "cv": round(float(arrived.std() / arrived.mean()), 3),
                    "requests": len(heard.first),
                    "failed": heard.failed.total(),
                }
                result.setdefault(scene, {})[policy] = told
                print(
                    f"{scene:10} {policy:9} "
                    + "  ".join(f"{key} {value:8.3f}" for key, value in told.items()),
                    flush=True,
                )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
