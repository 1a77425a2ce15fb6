"""Whether prompts go where their beginnings are cached: `python tests/bench/prefix_sim.py [--quick] [--half first] [--seeds 4]`.

`gtm balancer`'s own picker and reader of bodies, before servers of `gtm demo backend` (its scheduler: batches, chunked prefill, KV blocks,
prefix cache), in simulated time. Scenarios:

  chats     conversations of some turns, each turn with all that was said; they begin with one of 40 system prompts, a few of which most use
  one       the same, with one system prompt for all
  small     `chats`, where a server's cache holds an eighth as much
  long      prompts of one turn, each about one of 200 documents
  different prompts of one turn that have nothing in common: nothing is to be won

Policies: `load` is the default; `sessions`: every client gives a `prompt_cache_key` for its conversation; `hash N`, `map N`: `choosing.prefix`
with so many bytes, where no client gives a key; of `map, sizes unknown` servers do not say how much their caches hold; `exact` sees each server's blocks at the
moment of each choice, which is more than events of engines and a tokenizer could tell. Seeds of the first half are for tuning, of the second for publishing. The last line is
JSON: scenario → policy → {"hit": part of the prompts' tokens that were cached, "ttft_p50_s", "ttft_p99_s", "cv": of servers' requests in
flight in windows of 30 s, "moved": part that the bound moved}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from collections.abc import Sequence as Blocks
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from gtm.balancer import config
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.facts import read_facts
from gtm.balancer.wire.heads import read_head
from gtm.core.balance.choosing.prefixes import PrefixMap
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import Check
from gtm.core.health.verdicts import ProbeResult
from gtm.demo.backend.profile import BLOCK, Profile
from gtm.demo.backend.scheduler import Phase, Scheduler, Sequence
from gtm.demo.backend.tokens import WORDS, Content, chat_prompt

SERVERS = 8
WINDOW_S = 30.0
WARM_UP_S = 60.0
"""Caches begin empty: what comes before is not measured."""
POLICIES: dict[str, dict[str, Any]] = {
    "load": {},
    "sessions": {},
    "hash 256": {"prefix": {"by": "hash", "bytes": 256}},
    "hash 1024": {"prefix": {"by": "hash"}},
    "hash 4096": {"prefix": {"by": "hash", "bytes": 4096}},
    "map 256": {"prefix": {"by": "map", "bytes": 256}},
    "map": {"prefix": {"by": "map"}},
    "map 1024": {"prefix": {"by": "map", "bytes": 1024}},
    "map, sizes unknown": {"prefix": {"by": "map"}},
    "exact": {"prefix": {"by": "map"}},
    "load, 4 balancers": {},
    "sessions, 4 balancers": {},
    "hash 1024, 4 balancers": {"prefix": {"by": "hash"}},
    "map, 4 balancers": {"prefix": {"by": "map"}},
}
BALANCERS = {name: 4 for name in POLICIES if name.endswith("4 balancers")}
"""A client's requests come to any of them; they tell each other what they have in flight, and nothing of prompts."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What comes, and to what. `rate`: conversations a second; `turns`: of one, in the mean; `systems`, `documents`: how many there are."""

    rate: float
    turns: float = 1.0
    systems: int = 0
    documents: int = 0
    kv_blocks: int = 8192


SCENES = {
    "chats": Scene(7.0, turns=4.0, systems=40),
    "one": Scene(7.0, turns=4.0, systems=1),
    "small": Scene(7.0, turns=4.0, systems=40, kv_blocks=1024),
    "long": Scene(26.0, documents=200),
    "different": Scene(24.0),
}


class Texts:
    """Random words, as fast as they are wanted."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._stock = " ".join(random.choices(WORDS, k=400_000))

    def of(self, size: float) -> str:
        """About so many bytes."""
        start = self._random.randrange(len(self._stock) - 70_000)
        return f"{self._random.getrandbits(48):012x} {self._stock[start : start + min(int(size), 60_000)]}"


@dataclass(slots=True)
class Talk:
    """A conversation."""

    name: str
    messages: list[dict[str, str]]
    left: int


class Requests:
    """The conversations of a scene, by seed."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.random = Random(seed)
        self.texts = Texts(self.random)
        self.scene = scene
        random = self.random
        self.systems = [self.texts.of(random.lognormvariate(7.2, 0.9)) for _ in range(scene.systems)]
        self.documents = [self.texts.of(random.uniform(4_000, 16_000)) for _ in range(scene.documents)]
        self.count = 0

    def begin(self) -> Talk:
        """One more."""
        random, messages = self.random, []
        if self.systems:
            messages.append({"role": "system", "content": self._popular(self.systems)})
        text = self.texts.of(random.lognormvariate(5.7, 0.8))
        if self.documents:
            text = f"{self._popular(self.documents)} {text}"
        elif not self.systems:
            text = self.texts.of(random.lognormvariate(8.2, 0.8))
        elif random.random() < 0.15:
            text = self.texts.of(random.uniform(4_000, 12_000))
        messages.append({"role": "user", "content": text})
        turns = 1
        while turns < 12 and random.random() > 1 / self.scene.turns:
            turns += 1
        self.count += 1
        return Talk(f"talk-{self.count}", messages, turns)

    def answered(self, talk: Talk, text: str) -> float | None:
        """What its user says next, and after how many seconds; None: nothing."""
        talk.left -= 1
        if not talk.left:
            return None
        size = self.random.lognormvariate(5.3, 0.8)
        talk.messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": self.texts.of(size)},
        ]
        return 1.0 + self.random.expovariate(1 / 8.0)

    def _popular(self, some: list[str]) -> str:
        """By Zipf's law."""
        sums = list(accumulate(1 / (rank + 1) for rank in range(len(some))))
        return self.random.choices(some, cum_weights=sums)[0]


class Job(Sequence):
    """A request in a server."""

    __slots__ = ("exchange", "sent", "talk")
    exchange: Any
    sent: SentRequest
    talk: Talk


@dataclass(slots=True)
class Played:
    """What came out."""

    first: list[float] = field(default_factory=list)
    cached: int = 0
    asked: int = 0
    held: dict[tuple[int, int], float] = field(default_factory=dict)
    until: float = 0.0

    def cv(self) -> float:
        """Mean over windows of: standard deviation of servers' requests in flight, divided by their mean."""
        windows = range(int(WARM_UP_S / WINDOW_S), int(self.until / WINDOW_S))
        rows = np.array([[self.held.get((n, window), 0.0) for n in range(SERVERS)] for window in windows])
        return float((rows.std(axis=1) / rows.mean(axis=1)).mean())


class Exact(PrefixMap):
    """Who has what, by what servers have."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def holders(self, prompt: Blocks) -> list[tuple[int, list[str]]]:
        """See `PrefixMap`."""
        del prompt
        content, found = self._world.asking, dict[int, list[str]]()
        for name, number in self._world.numbers.items():
            blocks, depth = self._world.servers[number].blocks, 0
            while depth < content.prompt_tokens // BLOCK and blocks.known(content.key(depth)):
                depth += 1
            if depth:
                found.setdefault(depth, []).append(name)
        return sorted(found.items(), reverse=True)

    def sent(self, server: str, prompt: Blocks) -> None:
        """Nothing needs to be remembered."""


class World:
    """Servers, one balancer, and the time."""

    def __init__(self, scene: Scene, policy: str, seed: int, seconds: float) -> None:
        self.now, self.seconds, self.policy = 0.0, seconds, policy
        self.requests = Requests(scene, seed)
        self.random = Random(seed + 10_000)
        profile = replace(Profile(), kv_blocks=scene.kv_blocks)
        self.servers = [Scheduler(profile) for _ in range(SERVERS)]
        self.steps = [inf] * SERVERS
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.played = Played(until=seconds)
        document = config.BalancerDocument.model_validate(
            {
                "backends": [{"url": f"http://10.0.0.{n}:8000", "slots": 64} for n in range(SERVERS)],
                "choosing": POLICIES[policy],
            }
        )
        self.numbers = {one.url: number for number, one in enumerate(document.backends)}
        backends = document.servers()
        health = BackendHealth(HealthSettings(), backends, 0.0)
        self.pickers = [
            PoolPicker(
                backends,
                document.choice(),
                health,
                loop=cast("asyncio.AbstractEventLoop", self),
                cut=document.cut(),
                draw=Random(seed + 20_000 + number).random,
            )
            for number in range(BALANCERS.get(policy, 1))
        ]
        for one in backends:
            for _ in range(3):
                health.checked(one.name, Check.HEALTH, ProbeResult(True, 0.0, "", 1.0), 0.0)
        conditions = {**health.tick(0.0), **health.tick(1e9)}
        for picker in self.pickers:
            if policy == "exact":
                picker.prefixes = Exact(self)
                picker.configure(backends, document.choice(), cut=document.cut())
            picker.conditions(conditions)
            for one in backends:
                if "unknown" not in policy:
                    picker.cached(one.name, scene.kv_blocks * BLOCK)
        self.asking = Content(b"    ", "m")

    # what the picker asks of a loop

    def time(self) -> float:
        """Seconds."""
        return self.now

    def call_later(self, delay: float, act: Callable[[], None]) -> None:
        """Do it then."""
        self.count += 1
        heappush(self.events, (self.now + delay, self.count, act))

    # what happens

    def play(self) -> Played:
        """All of it."""
        for picker in self.pickers:
            picker.start()
        self.tell()
        self.call_later(0.0, self.arrive)
        while self.events and self.now < self.seconds:
            self.now, _, act = heappop(self.events)
            act()
        return self.played

    def tell(self) -> None:
        """Several balancers tell each other what they have in flight."""
        if len(self.pickers) > 1:
            told = [picker.flights.tell() for picker in self.pickers]
            for at, picker in enumerate(self.pickers):
                for peer, loads in enumerate(told):
                    if peer != at:
                        picker.flights.told(f"{peer}", loads, self.now)
            self.call_later(0.1, self.tell)

    def arrive(self) -> None:
        """A new conversation."""
        self.call_later(self.random.expovariate(self.requests.scene.rate), self.arrive)
        self.ask(self.requests.begin())

    def ask(self, talk: Talk) -> None:
        """Its next turn."""
        body: dict[str, Any] = {"model": "m", "messages": talk.messages, "stream": True}
        if self.policy.startswith("sessions"):
            body["prompt_cache_key"] = talk.name
        raw = json.dumps(body, separators=(",", ":")).encode()
        headers = [
            (b"Host", b"a"),
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(raw)),
        ]
        head = read_head(b"POST", b"/v1/chat/completions", "1.1", headers, keep_alive=True)
        picker = self.random.choice(self.pickers)
        exchange = SimpleNamespace(
            facts=read_facts(head, raw, picker.cut),
            status=200,
            tunnelled=False,
            first_byte=0.0,
            chosen=None,
            asked=None,
        )
        prompt = chat_prompt([(one["role"], one["content"]) for one in talk.messages])
        self.asking = content = Content(prompt, "m")
        sent = picker.pick(cast("Exchange", exchange), (), self.now)
        assert isinstance(sent, SentRequest), sent
        job = Job(content, content.usual_length, 0, self.now)
        job.exchange, job.sent, job.talk = exchange, sent, talk
        number = self.numbers[sent.route.url]
        self.servers[number].arrive(job)
        if self.steps[number] == inf:
            self.step(number)

    def step(self, number: int) -> None:
        """A server begins a step."""
        took = self.servers[number].begin(self.now)
        self.steps[number] = inf if took is None else self.now + took
        if took is not None:
            self.call_later(took, lambda: self.stepped(number))

    def stepped(self, number: int) -> None:
        """And ends it."""
        for sequence in self.servers[number].end(self.now):
            job = cast("Job", sequence)
            if job.generated == 1 and job.first_at == self.now:
                self.first(job)
            if job.phase is Phase.FINISHED:
                self.ended(job, number)
        self.step(number)

    def first(self, job: Job) -> None:
        """A request has its first token."""
        job.exchange.first_byte = self.now
        if job.arrived >= WARM_UP_S:
            self.played.first.append(self.now - job.arrived)
            self.played.cached += job.cached_tokens
            self.played.asked += job.content.prompt_tokens

    def ended(self, job: Job, number: int) -> None:
        """A request has ended."""
        job.sent.flight.end(job.exchange, "answered")
        start = job.arrived
        while start < self.now:
            window = int(start / WINDOW_S)
            end = min((window + 1) * WINDOW_S, self.now)
            key = number, window
            self.played.held[key] = self.played.held.get(key, 0.0) + end - start
            start = end if end > start else self.now
        pause = self.requests.answered(job.talk, job.content.text(job.generated))
        if pause is not None and job.length < 7000:
            self.call_later(pause, lambda: self.ask(job.talk))


def figures(scene: Scene, policy: str, seeds: range, seconds: float) -> dict[str, float]:
    """One policy's, over all seeds together."""
    first: list[float] = []
    cvs, cached, asked, moved, all_ = [], 0, 0, 0, 0
    for seed in seeds:
        world = World(scene, policy, seed, seconds)
        played = world.play()
        first += played.first
        cached, asked = cached + played.cached, asked + played.asked
        cvs.append(played.cv())
        for picker in world.pickers:
            moved += sum(count for (_, yes), count in picker.choices.items() if yes)
            all_ += picker.choices.total()
    return {
        "hit": round(cached / asked, 3),
        "ttft_p50_s": round(float(np.quantile(first, 0.5)), 3),
        "ttft_p99_s": round(float(np.quantile(first, 0.99)), 3),
        "cv": round(sum(cvs) / len(cvs), 3),
        "moved": round(moved / all_, 3),
        "requests": len(first),
    }


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, two minutes")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--scene", choices=tuple(SCENES), action="append")
    parser.add_argument("--policy", choices=tuple(POLICIES), action="append")
    given = parser.parse_args()
    first = 0 if given.half == "first" else 1000
    seeds = range(first, first + (1 if given.quick else given.seeds))
    seconds = 180.0 if given.quick else 360.0
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name in given.scene or SCENES:
        print(name)
        for policy in given.policy or POLICIES:
            told = figures(SCENES[name], policy, seeds, seconds)
            result.setdefault(name, {})[policy] = told
            print(
                f"  {policy:22} " + "  ".join(f"{key} {value:8.3f}" for key, value in told.items()),
                flush=True,
            )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
