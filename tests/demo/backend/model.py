"""Continuous batching as one would explain it, with lists and whole prefixes for keys: what the scheduler is held against."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.demo.backend.profile import BLOCK, Profile
from gtm.demo.backend.tokens import TOKEN_BYTES, Content

Prefix = bytes
"""All that comes up to the end of a block: nothing else can be confused with it."""


@dataclass(eq=False)
class Request:
    """What is known of a request."""

    number: int
    prompt: bytes
    answer: int
    priority: int
    content: Content
    generated: int = 0
    computed: int = 0
    own: int = 0
    shared: list[Prefix] = field(default_factory=list)

    def length(self) -> int:
        """Tokens known."""
        return len(self.prompt) // TOKEN_BYTES + self.generated

    def prefix(self, blocks: int) -> Prefix:
        """The content of its first blocks."""
        text = self.prompt + self.content.text(self.answer).encode()
        return text[: blocks * BLOCK * TOKEN_BYTES]


@dataclass
class Server:
    """A server, step by step."""

    profile: Profile
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    kept: list[Prefix] = field(default_factory=list)
    """Longest unused first."""
    doing: list[tuple[Request, int]] = field(default_factory=list)

    def used(self) -> int:
        """Blocks that somebody holds."""
        return sum(one.own for one in self.running) + len(self.held())

    def held(self) -> set[Prefix]:
        """Shared blocks."""
        return {prefix for one in self.running for prefix in one.shared}

    def arrive(self, request: Request) -> None:
        """A request comes."""
        self.waiting.append(request)
        self.waiting.sort(key=lambda one: (one.priority, one.number))

    def drop(self, request: Request) -> None:
        """Its blocks are let go: what only it held and what is known stays, as the most recent."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        others = self.held()
        self.kept += [prefix for prefix in reversed(request.shared) if prefix not in others]
        request.own, request.shared, request.computed = 0, [], 0
        self._trim()

    def begin(self) -> list[tuple[int, int]]:
        """Who gets how many tokens in the next step, in order."""
        self.doing = []
        preempted = False
        for one in list(self.running):
            if one not in self.running:
                continue
            tokens = min(one.length() - one.computed, self._left())
            if not tokens:
                continue
            more = _blocks(one.computed + tokens) - one.own - len(one.shared)
            while one in self.running and more > self.profile.kv_blocks - self.used():
                last = max(self.running, key=lambda other: (other.priority, other.number))
                self.drop(last)
                self.doing = [entry for entry in self.doing if entry[0] is not last]
                self.arrive(last)
                preempted = True
            if one in self.running:
                one.own += max(more, 0)
                self._trim()
                self.doing.append((one, tokens))
        while (
            not preempted and self.waiting and self._left() and len(self.running) < self.profile.max_num_seqs
        ):
            if not self._start(self.waiting[0]):
                break
        return [(one.number, tokens) for one, tokens in self.doing]

    def end(self) -> list[tuple[int, bool]]:
        """Who has a token more, and whether that was the last."""
        emitted = []
        for one, tokens in self.doing:
            if one not in self.running:
                continue
            before, one.computed = one.computed, one.computed + tokens
            for block in range(before // BLOCK, one.computed // BLOCK):
                prefix = one.prefix(block + 1)
                if self.profile.cached_blocks != 0 and prefix not in self.held() and prefix not in self.kept:
                    one.own -= 1
                    one.shared.append(prefix)
            if one.computed == one.length():
                one.generated += 1
                done = one.generated == one.answer
                if done:
                    self.drop(one)
                emitted.append((one.number, done))
        return emitted

    def _start(self, one: Request) -> bool:
        known = self.held() | set(self.kept)
        hits = 0
        while (hits + 1) * BLOCK < one.length() and one.prefix(hits + 1) in known:
            hits += 1
        tokens = min(one.length() - hits * BLOCK, self._left())
        own = _blocks(hits * BLOCK + tokens) - hits
        shared = [one.prefix(number + 1) for number in range(hits)]
        if own + len(set(shared) - self.held()) > self.profile.kv_blocks - self.used():
            return False
        self.waiting.remove(one)
        self.running.append(one)
        one.own, one.shared, one.computed = own, shared, hits * BLOCK
        self.kept = [prefix for prefix in self.kept if prefix not in shared]
        self._trim()
        self.doing.append((one, tokens))
        return True

    def _left(self) -> int:
        return self.profile.max_num_batched_tokens - sum(tokens for _, tokens in self.doing)

    def _trim(self) -> None:
        free = self.profile.kv_blocks - self.used()
        most = free if self.profile.cached_blocks is None else min(free, self.profile.cached_blocks)
        if len(self.kept) > most:
            self.kept = self.kept[len(self.kept) - most :]


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)
