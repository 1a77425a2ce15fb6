"""Continuous batching: which sequences a step works on.

A step gives every running sequence what it lacks, as far as the step's tokens go: one token to those that decode, a chunk of the
prompt to the others. What is left of the step goes to those that wait, first come, first served within a priority, until slots, tokens
or KV blocks run out. A sequence needs blocks as it grows; where none are free, the one that matters least (lowest priority, then latest)
goes back to the head of the queue, its blocks are let go, and it is computed anew later (recompute preemption).

Laws:
  1. At most `max_num_seqs` run; at most `max_num_batched_tokens` tokens in a step; never more blocks than there are.
  2. Among those that wait, lower numbers of priority go first (as in vLLM), then earlier arrivals. Nobody overtakes the head of the
     queue where it does not fit.
  3. arrived = finished + cancelled + running + waiting, and who neither runs nor waits holds no block.
  4. A sequence that fits into the memory alone is served in the end: only those behind it are preempted for it.

Source: vLLM's `vllm/v1/core/sched/scheduler.py`. Left out: speculative decoding, encoders, a bound on distinct adapters in a batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum

from gtm.demo.backend.blocks import Blocks
from gtm.demo.backend.profile import BLOCK, Profile
from gtm.demo.backend.tokens import Content


class Phase(Enum):
    """The phase of a sequence: waiting, in prefill, or decoding."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Sequence:
    """A request inside the scheduler.

    Args:
        content: its prompt and answer.
        answer_tokens: after which it ends.
        priority: lower goes first.
        arrived: seconds on the engine's clock.
    """

    __slots__ = (
        "answer_tokens", "arrived", "cached_tokens", "computed", "content", "first_at", "generated", "keys", "last_at", "order",
        "phase", "preempted", "priority", "private", "started",
    )  # fmt: skip

    def __init__(self, content: Content, answer_tokens: int, priority: int, arrived: float) -> None:
        self.content = content
        self.answer_tokens = answer_tokens
        self.priority = priority
        self.arrived = arrived
        self.order = 0
        self.phase = Phase.WAITING
        self.generated = 0
        self.computed = 0
        """Tokens whose keys and values are in its blocks."""
        self.private = 0
        self.keys: list[int] = []
        """Of its shared blocks, which come first but for duplicates of others'."""
        self.cached_tokens = 0
        """Tokens of the prompt that were there when it first started."""
        self.preempted = 0
        self.started: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None

    @property
    def length(self) -> int:
        """Tokens known: of the prompt and of the answer so far."""
        return self.content.prompt_tokens + self.generated

    @property
    def blocks(self) -> int:
        """Blocks that it holds."""
        return self.private + len(self.keys)


class Scheduler:
    """The sequences of one server. `begin` and `end` take turns.

    Args:
        profile: how large the server is.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.blocks = Blocks(profile.kv_blocks, profile.cached_blocks)
        self.running: dict[int, Sequence] = {}
        self.arrived = self.finished = self.cancelled = self.preemptions = 0
        self.prefix_queries = self.prefix_hits = 0
        self._waiting: dict[int, OrderedDict[int, Sequence]] = {}
        self.step: dict[Sequence, int] = {}
        """What the present step computes: tokens by sequence."""
        self._preempted_now = False
        """In the present step: then nobody new is let in."""
        self.prefilled = 0
        """Tokens of prompts in the present step."""

    @property
    def waiting(self) -> int:
        """Sequences that wait."""
        return sum(map(len, self._waiting.values()))

    def queue(self) -> Iterator[Sequence]:
        """Those that wait, in the order in which they will start."""
        for priority in sorted(self._waiting):
            yield from self._waiting[priority].values()

    def arrive(self, sequence: Sequence) -> None:
        """Put a sequence into the queue."""
        self.arrived += 1
        sequence.order = self.arrived
        self._waiting.setdefault(sequence.priority, OrderedDict())[sequence.order] = sequence

    def cancel(self, sequence: Sequence) -> bool:
        """End a sequence now, wherever it is; False if it has ended."""
        if sequence.phase is Phase.RUNNING:
            del self.running[sequence.order]
            self._release(sequence)
        elif sequence.phase is Phase.WAITING:
            self._unqueue(sequence)
        else:
            return False
        sequence.phase = Phase.CANCELLED
        self.cancelled += 1
        return True

    def begin(self, now: float) -> float | None:
        """Begin a step; what it takes in seconds, or None where there is nothing to do."""
        budget = self._go_on(self.profile.max_num_batched_tokens)
        if not self._preempted_now:
            self._admit(budget, now)
        if not self.step:
            return None
        decoding = 0
        self.prefilled = 0
        for sequence, tokens in self.step.items():
            if sequence.generated and sequence.computed + 1 == sequence.length:
                decoding += 1
            else:
                self.prefilled += tokens
        return self.profile.step_seconds(decoding, self.prefilled)

    def end(self, now: float) -> list[Sequence]:
        """End the step.

        Returns:
            The sequences that have a token more; the phase of those that are done is `FINISHED`.
        """
        step, self.step = self.step, {}
        emitted = []
        for sequence, tokens in step.items():
            if sequence.phase is not Phase.RUNNING:
                continue
            sequence.computed += tokens
            if sequence.computed % BLOCK < tokens:
                self._fill(sequence, tokens)
            if sequence.computed == sequence.length:
                sequence.generated += 1
                if sequence.first_at is None:
                    sequence.first_at = now
                if sequence.generated >= sequence.answer_tokens:
                    sequence.phase = Phase.FINISHED
                    del self.running[sequence.order]
                    self._release(sequence)
                    self.finished += 1
                emitted.append(sequence)
        return emitted

    def _go_on(self, budget: int) -> int:
        """Give those that run what they lack; the tokens that are left."""
        self._preempted_now = False
        for sequence in list(self.running.values()):
            if sequence.phase is not Phase.RUNNING:
                continue  # for the sake of one before it
            tokens = min(sequence.length - sequence.computed, budget)
            if not tokens:
                continue
            lacking = -(-(sequence.computed + tokens) // BLOCK) - sequence.blocks
            if lacking > 0 and not self._make_room(sequence, lacking):
                continue
            self.step[sequence] = tokens
            budget = (
                self.profile.max_num_batched_tokens - sum(self.step.values())
                if self._preempted_now
                else budget - tokens
            )
        return budget

    def _make_room(self, sequence: Sequence, lacking: int) -> bool:
        """Take blocks, at the cost of those behind; False if the sequence itself is the last."""
        while not self.blocks.take(lacking):
            last = max(self.running.values(), key=lambda one: (one.priority, one.order))
            self._preempt(last)
            if last is sequence:
                return False
        sequence.private += lacking
        return True

    def _preempt(self, sequence: Sequence) -> None:
        del self.running[sequence.order]
        self.step.pop(sequence, None)
        self._release(sequence)
        sequence.computed = 0
        sequence.phase = Phase.WAITING
        sequence.preempted += 1
        self.preemptions += 1
        self._preempted_now = True
        queue = self._waiting.setdefault(sequence.priority, OrderedDict())
        queue[sequence.order] = sequence
        queue.move_to_end(sequence.order, last=False)

    def _admit(self, budget: int, now: float) -> None:
        """Start those that wait, as far as slots, tokens and blocks go."""
        while budget and self._waiting and len(self.running) < self.profile.max_num_seqs:
            sequence = next(self.queue())
            # The last token is computed in any case: the answer's first comes from it.
            most = (sequence.length - 1) // BLOCK
            hits = 0
            while hits < most and self.blocks.known(sequence.content.key(hits)):
                hits += 1
            keys = [sequence.content.key(number) for number in range(hits)]
            tokens = min(sequence.length - hits * BLOCK, budget)
            private = -(-(hits * BLOCK + tokens) // BLOCK) - hits
            if not self.blocks.admit(keys, private):
                return
            self._unqueue(sequence)
            sequence.keys, sequence.private, sequence.computed = keys, private, hits * BLOCK
            sequence.phase = Phase.RUNNING
            if sequence.started is None:
                sequence.started = now
                sequence.cached_tokens = hits * BLOCK
                self.prefix_queries += sequence.content.prompt_tokens
                self.prefix_hits += hits * BLOCK
            self.running[sequence.order] = sequence
            self.step[sequence] = tokens
            budget -= tokens

    def _fill(self, sequence: Sequence, tokens: int) -> None:
        """Share the blocks that a step's tokens have filled."""
        for number in range((sequence.computed - tokens) // BLOCK, sequence.computed // BLOCK):
            key = sequence.content.key(number)
            if self.blocks.fill(key):
                sequence.keys.append(key)
                sequence.private -= 1

    def _unqueue(self, sequence: Sequence) -> None:
        queue = self._waiting[sequence.priority]
        del queue[sequence.order]
        if not queue:
            del self._waiting[sequence.priority]

    def _release(self, sequence: Sequence) -> None:
        self.blocks.release(sequence.private, sequence.keys)
        sequence.private, sequence.keys = 0, []
