"""One simulated server without its sockets: time comes in as an argument, in seconds of any monotonic clock.

`advance` runs all steps that have ended by now, one after the other, each at its own time: who calls late gets the same tokens, with
the same times in the metrics, as who calls often. Only when it comes more than `MAX_BEHIND` late does the engine's time stand
still in between, so that a process that cannot keep up gets slow instead of stuck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, cast

from gtm.demo.backend.errors import ApiError, engine_dead, internal_error
from gtm.demo.backend.faults import HEALTHY, InjectedFault, Mode, described
from gtm.demo.backend.meters import Gauges, Meters, Reading
from gtm.demo.backend.models import Models
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.requests import Wanted, content_of
from gtm.demo.backend.scheduler import Phase, Scheduler, Sequence

MAX_BEHIND = 0.25


class EngineListener(Protocol):
    """Something that waits for a job's tokens."""

    def progressed(self) -> None:
        """The job has more tokens, has finished or has failed."""


class Job(Sequence):
    """A request in the engine."""

    __slots__ = ("base", "error", "listener", "meters", "wanted")

    wanted: Wanted
    listener: EngineListener
    meters: Meters
    base: str
    """The model whose weights serve it."""
    error: ApiError | None
    """Why it ended before its time."""

    @property
    def reason(self) -> str:
        """OpenAI's `finish_reason`."""
        return "stop" if self.wanted.answer_tokens is None else "length"


class Engine:
    """One server.

    Args:
        profile: its size and speed.
        models: what it has loaded.
    """

    def __init__(self, profile: Profile, models: Models) -> None:
        self.profile = profile
        self.models = models
        self.scheduler = Scheduler(profile)
        self.fault: InjectedFault = HEALTHY
        self._meters = {name: Meters() for name in models.names}
        self._loading: list[tuple[float, int, Job]] = []
        """Jobs that wait for their model, by the time at which it is there."""
        self._jobs = 0
        self._ends: float | None = None
        """The time at which the present step ends."""
        self._preempted = 0

    def resize(self, slots: int) -> None:
        """Have so many slots from now on; what runs goes on.

        Raises:
            ProfileError: a server cannot have so many.
        """
        self.profile = self.scheduler.profile = replace(self.profile, max_num_seqs=slots)

    def submit(self, wanted: Wanted, listener: EngineListener, now: float) -> Job:
        """Take a request.

        Raises:
            ApiError: it is too long, its model is not there, or the server fails.
        """
        if self.fault.mode is Mode.OOM:
            raise engine_dead()
        if self.fault.mode is Mode.ERROR:
            raise internal_error()
        if self.fault.mode is Mode.UNLOADED:
            raise self.models.unknown(wanted.model)
        base, ready = self.models.ready_at(wanted.model, now)
        content, tokens = content_of(wanted, self.profile.max_model_len)
        job = Job(content, tokens, wanted.priority, now)
        job.wanted, job.listener, job.base, job.error = wanted, listener, base, None
        job.meters = self._meters[base]
        self._jobs += 1
        if ready > now:
            heappush(self._loading, (ready, self._jobs, job))
        else:
            self.scheduler.arrive(job)
        return job

    def cancel(self, job: Job) -> None:
        """Forget a request, with all that it holds, if it has not ended yet."""
        if job.phase is Phase.WAITING and not job.order:
            job.phase = Phase.CANCELLED
            self._loading = [entry for entry in self._loading if entry[2] is not job]
            heapify(self._loading)
        else:
            self.scheduler.cancel(job)

    def advance(self, now: float) -> tuple[Iterable[Job], float | None]:
        """Run the steps that have ended by now, and begin the next.

        Returns:
            The jobs with more tokens, and when to call again (None: when something has arrived or been switched).
        """
        if self.fault.mode in (Mode.DEAD, Mode.OOM):
            return (), None
        touched: dict[Job, None] = {}
        at = now
        if self._ends is not None and now - self._ends > MAX_BEHIND:
            self._ends = now
        while True:
            if self._ends is None:
                self._loaded(at)
                took = self.scheduler.begin(at)
                self._meter_begin()
                if took is None:
                    break
                self._ends = at + took * (self.fault.factor if self.fault.mode is Mode.SLOW else 1.0)
            if self._ends > now:
                break
            at, self._ends = self._ends, None
            emitted = cast("list[Job]", self.scheduler.end(at))
            self._meter_end(emitted, at)
            touched.update(dict.fromkeys(emitted))
        times = [
            time for time in (self._ends, self._loading[0][0] if self._loading else None) if time is not None
        ]
        return touched, min(times, default=None)

    def switch(self, fault: InjectedFault, now: float) -> list[Job]:
        """Fail in a way, or go on.

        Returns:
            The jobs that this ends.
        """
        if self.fault.mode in (Mode.DEAD, Mode.OOM) and self._ends is not None:
            self._ends = max(self._ends, now)
        self.fault = fault
        if fault.mode is not Mode.OOM:
            return []
        ended = self.jobs()
        for job in ended:
            self.cancel(job)
            job.error = engine_dead()
        self.scheduler.blocks.forget()
        return ended

    def jobs(self) -> list[Job]:
        """All that run, wait, or wait for a model."""
        held = [*self.scheduler.running.values(), *self.scheduler.queue()]
        return [*cast("list[Job]", held), *(entry[2] for entry in self._loading)]

    def reading(self, unix: float) -> Reading:
        """What the metrics say now, at a time in Unix seconds."""
        running = cast("list[Job]", list(self.scheduler.running.values()))
        waiting = [job for job in self.jobs() if job.phase is Phase.WAITING]
        runs, waits = Counter(job.base for job in running), Counter(job.base for job in waiting)
        return Reading(
            now=unix,
            meters=self._meters,
            gauges={name: Gauges(runs[name], waits[name]) for name in self.models.names},
            kv_usage=self.scheduler.blocks.used / self.profile.kv_blocks,
            kv_blocks=self.profile.kv_blocks,
            max_loras=self.profile.max_loras,
            running_adapters=_adapters(running),
            waiting_adapters=_adapters(waiting),
        )

    def state(self, now: float) -> Mapping[str, Any]:
        """How the server stands, for people and tests."""
        scheduler = self.scheduler
        return {
            "fault": described(self.fault),
            "models": self.models.state(now),
            "running": len(scheduler.running),
            "waiting": scheduler.waiting + len(self._loading),
            "slots": self.profile.max_num_seqs,
            "arrived": self._jobs,
            "finished": scheduler.finished,
            "kv_blocks_used": scheduler.blocks.used,
            "kv_blocks_kept": scheduler.blocks.kept,
            "kv_blocks": self.profile.kv_blocks,
            "preemptions": scheduler.preemptions,
            "gpu_memory_used_bytes": self.models.memory_used(),
            "gpu_memory_total_bytes": self.profile.gpu_memory_bytes,
        }

    def _loaded(self, now: float) -> None:
        """Queue the jobs whose model is there now."""
        while self._loading and self._loading[0][0] <= now:
            self.scheduler.arrive(heappop(self._loading)[2])

    def _meter_begin(self) -> None:
        scheduler = self.scheduler
        if scheduler.preemptions != self._preempted:
            self._meters[self.models.names[0]].preemptions += scheduler.preemptions - self._preempted
            self._preempted = scheduler.preemptions

    def _meter_end(self, emitted: list[Job], at: float) -> None:
        gaps: dict[tuple[int, float], int] = {}
        by_number: dict[int, Meters] = {}
        for job in emitted:
            meters = job.meters
            meters.generation_tokens += 1
            last = job.last_at
            job.last_at = at
            if last is None:
                _meter_first(job, at)
            else:
                key = (id(meters), last)
                gaps[key] = gaps.get(key, 0) + 1
                by_number[key[0]] = meters
            if job.phase is Phase.FINISHED:
                _meter_finished(job, at)
        for (number, last), times in gaps.items():
            by_number[number].inter_token.observe(at - last, times)


def _meter_first(job: Job, at: float) -> None:
    meters = job.meters
    meters.prompt_tokens += job.content.prompt_tokens
    meters.prefix_queries += job.content.prompt_tokens
    meters.prefix_hits += job.cached_tokens
    meters.first_token.observe(at - job.arrived)


def _meter_finished(job: Job, at: float) -> None:
    assert job.started is not None  # noqa: S101 - it has finished
    assert job.first_at is not None  # noqa: S101 - likewise
    meters = job.meters
    meters.success[job.reason] += 1
    meters.latency.observe(at - job.arrived)
    meters.queued.observe(job.started - job.arrived)
    meters.inference.observe(at - job.started)
    meters.prefill.observe(job.first_at - job.started)
    meters.decode.observe(at - job.first_at)


def _adapters(jobs: Iterable[Job]) -> list[str]:
    return sorted({job.wanted.model for job in jobs if job.wanted.model != job.base})
