"""A balancer's counters and gauges: read in each process, merged over several, written in Prometheus' text format.

docs/balancer.md lists them.

Laws:
  1. A counter never falls because a worker has ended: what it had counted stays counted.
  2. Of every gauge it is said, where it is read, how those of several workers become one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import pstdev
from typing import NamedTuple

from gtm.balancer.decide.gate import LawGate
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.pushing import PeerPusher
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.stats import BOUNDS, EACH, Histogram
from gtm.core.balance.choosing.values import Candidate
from gtm.core.capacity.durations import OTHER

_CV = "gtm_balancer_utilization_cv"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, and what one process has of it (or several have): each value with what follows the name in its line.

    `shared`: a gauge of what all processes see of the same backends, of which the largest counts; of any other the sum does.
    """

    name: str
    kind: str
    text: str
    samples: list[tuple[str, float]]
    shared: bool = False


_Values = Mapping[str, float] | Mapping[tuple[str, str], float] | Mapping[tuple[str, str, str], float] | float
"""By the values of a metric's labels, in their order; of one without labels the one that there is."""


def _counter(name: str, text: str, values: _Values, *labels: str) -> Family:
    return Family(name, "counter", text, list(_samples(values, labels)))


def _gauge(name: str, text: str, values: _Values, *labels: str, shared: bool = False) -> Family:
    return Family(name, "gauge", text, list(_samples(values, labels)), shared)


def _histogram(name: str, text: str, table: Mapping[str, Histogram]) -> Family:
    return Family(name, "histogram", text, list(_buckets(table)))


class ShownGroup(NamedTuple):
    """A group of unlike servers: their names, the slots of the usable ones (None: one does not say), and what runs and waits."""

    backends: list[str]
    limit: int | None
    running: int
    waiting: int


def groups_shown(picker: PoolPicker, queue: QueueAdmission) -> dict[str, ShownGroup]:
    """The groups that requests wait for, by name; nothing where all servers are alike."""
    uses, groups = queue.admission.uses, picker.groups()
    if not uses:
        return {}
    return {
        # Of one that is new since a moment nothing is counted yet.
        name: ShownGroup(sorted(servers), picker.slots(servers), *uses.get(name, (0, 0)))
        for name, servers in zip(groups.names, groups.servers, strict=True)
    }


def collect(
    proxy: Proxy,
    picker: PoolPicker,
    queue: QueueAdmission,
    gate: LawGate,
    pusher: PeerPusher,
    *,
    said: Mapping[str, Mapping[str, float]],
    access: Mapping[str, int],
    silence: float,
) -> Iterator[Family]:
    """All that one process has. `said`: backend → what its metrics say of its load. `access`: lines of the access log, by how; empty: there is none. `silence`: seconds since control was heard, or since the start."""
    admission, candidates = queue.admission, picker.pool.candidates
    stats, tiers = proxy.stats, admission.snapshot().tiers
    stats.settle()
    usable = {one.number for one in picker.pool.usable}

    def of_backends(value: Callable[[Candidate], float | None]) -> dict[str, float]:
        found = ((one.backend.name, value(one)) for one in candidates)
        return {name: value for name, value in found if value is not None}

    yield _counter(
        "gtm_balancer_requests_total",
        "Requests that ended, by backend (empty: none had them), status, and how.",
        {(url, str(status), how): count for (url, status, how), count in stats.requests.items()},
        *("backend", "status", "how"),
    )
    yield _counter(
        "gtm_balancer_requests_left_out_total",
        "Requests that ended and are not in gtm_balancer_requests_total, which tells 20,000 combinations apart.",
        stats.left_out,
    )
    yield _counter("gtm_balancer_refusals_total", "Requests refused, by code.", stats.refusals, "code")
    yield _counter("gtm_balancer_backend_failures_total", "Failures of backends.", stats.failures, "backend")
    text = "Requests that a backend had no room for, as it said."
    yield _counter("gtm_balancer_backend_full_total", text, stats.full, "backend")
    text = "Requests without a byte of an answer at a backend that was judged down, by what became of them."
    yield _counter("gtm_balancer_rescued_total", text, stats.taken, "backend", "how")
    text = "Requests that were late, by what became of asking a second backend."
    yield _counter("gtm_balancer_hedges_total", text, stats.hedges, "outcome")
    text = "Handoffs that were not believed, by why."
    yield _counter("gtm_balancer_handoff_flaws_total", text, gate.flaws, "code")
    text = "Requests that found no slot, by the region that took them (empty: none did) and why."
    yield _counter("gtm_balancer_pushes_total", text, pusher.counts, "region", "why")
    yield _gauge("gtm_balancer_pushed", "Requests at peer regions.", pusher.in_flight, "region")
    yield _counter(
        "gtm_balancer_choices_total",
        "Requests by what their backend was chosen by, and whether the bound of loads moved them on from where that led.",
        {
            (by.value, "yes" if moved else "no"): picker.choices[by, moved]
            for by, moved in sorted(picker.choices)
        },
        *("by", "moved"),
    )
    text = f"Choices of a backend that were timed: one of {EACH}."
    yield _counter("gtm_balancer_decisions_total", text, stats.decisions)
    yield _counter("gtm_balancer_decision_seconds_total", "What these took.", stats.decision_seconds)
    yield _counter("gtm_balancer_retries_total", "Requests sent again.", stats.retries)
    text = "From a request's head to its end."
    yield _histogram("gtm_balancer_request_seconds", text, stats.durations)
    text = "From a request's head to the first byte of its answer's body: a stream's first token."
    yield _histogram("gtm_balancer_first_byte_seconds", text, stats.first_bytes)
    text = "From piece to piece of a stream of events, in the mean of each stream."
    yield _histogram("gtm_balancer_inter_token_seconds", text, stats.between)
    if proxy.tracer is not None:
        counts = {"exported": proxy.tracer.exported, "dropped": proxy.tracer.dropped}
        text = "Recorded requests, by what became of them."
        yield _counter("gtm_balancer_spans_total", text, counts, "how")
    if access:
        text = "Lines of the access log, by what became of them."
        yield _counter("gtm_balancer_access_log_lines_total", text, access, "how")
    in_flight = of_backends(lambda one: one.flight.requests)
    yield _gauge("gtm_balancer_in_flight", "Requests in flight.", in_flight, "backend")
    work = of_backends(lambda one: one.flight.work_us / 1e6)
    yield _gauge("gtm_balancer_work_seconds", "Seconds of work in flight.", work, "backend")
    up = of_backends(lambda one: int(one.number in usable))
    yield _gauge("gtm_balancer_backend_up", "Whether a backend is used.", up, "backend", shared=True)
    text = "Requests in flight, as a part of the backend's slots."
    used = of_backends(lambda one: one.flight.requests / one.backend.slots if one.backend.slots else None)
    yield _gauge("gtm_balancer_utilization", text, used, "backend")
    text = "The used part of its KV cache, or else of its GPU memory."
    memory = of_backends(lambda one: one.condition.memory)
    yield _gauge("gtm_balancer_memory_usage", text, memory, "backend", shared=True)
    uneven = _uneven(up, used)
    if uneven is not None:
        text = "The coefficient of variation of usable backends' utilization."
        yield _gauge(_CV, text, uneven, shared=True)
    kinds = {"output": "tokens_per_second", "input": "input_tokens_per_second"}
    yield _gauge(
        "gtm_balancer_tokens_per_second",
        "Tokens generated, and read in prompts, by the backend's own metrics: whoever asked for them.",
        {(url, kind): one[name] for url, one in said.items() for kind, name in kinds.items() if name in one},
        *("backend", "kind"),
        shared=True,
    )
    for name, text, of in (
        (
            "gtm_balancer_tenant_requests_total",
            "Requests that were admitted or waited, and ended.",
            "requests",
        ),
        (
            "gtm_balancer_tenant_errors_total",
            "Those whose answer was a failure (5xx), or that had none.",
            "errors",
        ),
        (
            "gtm_balancer_tenant_refused_total",
            "Requests that were not admitted, or waited in vain: a spent budget, no slot in time.",
            "refused",
        ),
        ("gtm_balancer_tenant_seconds_total", "Seconds from their coming to their end.", "seconds"),
    ):
        totals = {
            (tenant or "", model or ""): getattr(one, of) for (tenant, model), one in queue.totals.items()
        }
        yield _counter(name, text, totals, "tenant", "model")
    text = (
        "Tokens that backends' answers said and no budget was charged: more than request and answer can be."
    )
    yield _counter("gtm_balancer_usage_cut_tokens_total", text, queue.cut, "backend", "kind")
    text = (
        "Tokens that requests used beyond five minutes of their tenant's budget, and that it was not charged."
    )
    yield _counter("gtm_balancer_spared_tokens_total", text, admission.spared_tokens)
    text = "Requests that were admitted and have not ended, by tier."
    running = {tier.value: counts.running for tier, counts in tiers.items()}
    yield _gauge("gtm_balancer_running", text, running, "tier")
    waiting = {tier.value: counts.waiting for tier, counts in tiers.items()}
    yield _gauge("gtm_balancer_waiting", "Requests in the queue, by tier.", waiting, "tier")
    groups = groups_shown(picker, queue)
    text = "Which backends are of which group: requests wait for one of these."
    members = {(name, backend): 1 for name, one in groups.items() for backend in one.backends}
    yield _gauge("gtm_balancer_group_backend", text, members, "group", "backend", shared=True)
    text = "Slots of a group's usable backends, of those groups in which all say how many they have."
    slots = {name: one.limit for name, one in groups.items() if one.limit is not None}
    yield _gauge("gtm_balancer_group_slots", text, slots, "group", shared=True)
    text = "Requests that hold slots of a group of backends."
    yield _gauge(
        "gtm_balancer_group_running", text, {name: one.running for name, one in groups.items()}, "group"
    )
    text = "Requests in the queue for a group of backends."
    yield _gauge(
        "gtm_balancer_group_waiting", text, {name: one.waiting for name, one in groups.items()}, "group"
    )
    text = "Seconds since control was last heard, or since the start: the policy may be as old."
    yield _gauge("gtm_balancer_control_silence_seconds", text, silence, shared=True)
    yield _gauge("gtm_balancer_connections", "Clients' connections.", proxy.connections)
    text = "Bytes that are kept of what clients have sent: bodies that are read or wait, heads that are not whole, requests behind others."
    yield _gauge("gtm_balancer_kept_bytes", text, proxy.held.total)
    text = "Clients' connections that were closed for others, since there were as many as may be."
    yield _counter("gtm_balancer_connections_evicted_total", text, proxy.room.evicted)
    text = (
        "Connections to backends that could not be made for want of descriptors or memory here, by what for."
    )
    yield _counter("gtm_balancer_without_room_total", text, stats.without_room, "for")


def _uneven(up: Mapping[str, float], used: Mapping[str, float]) -> float | None:
    """The coefficient of variation of what is used of those that are up; None: nothing is."""
    usable = [value for backend, value in used.items() if up.get(backend)]
    mean = sum(usable) / len(usable) if usable else 0.0
    return pstdev(usable) / mean if mean else None


def _samples(values: _Values, labels: Sequence[str]) -> Iterator[tuple[str, float]]:
    if not isinstance(values, Mapping):
        yield "", values
        return
    for key, value in values.items():
        yield _labels(dict(zip(labels, (key,) if isinstance(key, str) else key, strict=True))), value


def _buckets(table: Mapping[str, Histogram]) -> Iterator[tuple[str, float]]:
    for url, histogram in table.items():
        total = 0
        for bound, count in zip((*BOUNDS, None), histogram.counts, strict=True):
            total += count
            edge = "+Inf" if bound is None else f"{bound:g}"
            yield f"_bucket{_labels({'backend': url, 'le': edge})}", total
        yield f"_sum{_labels({'backend': url})}", histogram.total
        yield f"_count{_labels({'backend': url})}", total


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    parts = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(parts) + "}"


def _escaped(value: str) -> str:
    """A label's value: what is not printable is shown as such a character, for a reader may take it for the end of a line."""
    if not value.isprintable():
        value = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(families: Iterable[Family]) -> bytes:
    """Prometheus' text."""
    lines: list[str] = []
    for one in families:
        lines += [f"# HELP {one.name} {one.text}", f"# TYPE {one.name} {one.kind}"]
        lines += [f"{one.name}{key} {value:.10g}" for key, value in one.samples]
    return ("\n".join(lines) + "\n").encode()


def render_untold(untold: int) -> bytes:
    """What the one process counts that reports to control, whatever processes carry requests.

    Args:
        untold: requests that the report of their second left out.
    """
    text = "Requests that found no slot, or came for want of one elsewhere, and that the report of their second left out for its length: a later one tells of them."
    return render([_counter("gtm_balancer_pushes_untold_total", text, untold)])


_BY_TENANT = "{tenant="
_OTHERS = _labels({"tenant": OTHER, "model": OTHER})
_BACKEND = re.compile(r'backend="((?:[^"\\]|\\.)*)"')
MOST_ENDED = 20_000
"""Samples of ended workers that are kept apart: clients make names of models up, and each worker that ends leaves its own."""


class MergedMetrics:
    """The metrics of workers that come and go."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[Family, dict[str, float]]] = {}
        self._kept = 0

    def ended(self, families: Iterable[Family]) -> None:
        """A worker has ended, and last said this."""
        for one in families:
            if one.kind == "gauge":
                continue
            _, table = self._ended.setdefault(one.name, (one, {}))
            for own, value in one.samples:
                key = own
                if key not in table and self._kept >= MOST_ENDED and own.startswith(_BY_TENANT):
                    key = _OTHERS
                self._kept += key not in table
                table[key] = table.get(key, 0.0) + value

    def merged(self, workers: Sequence[Sequence[Family]]) -> list[Family]:
        """The metrics of all that live, with what the others had counted: of backends that none of these knows any more nothing is left."""
        living = [one for families in workers for one in families]
        if workers and self._ended:
            keys = (key for one in living for key, _ in one.samples)
            self._sweep({of[1] for key in keys if (of := _BACKEND.search(key))})
        found = {name: (one, dict(table)) for name, (one, table) in self._ended.items()}
        for one in living:
            _, table = found.setdefault(one.name, (one, {}))
            for key, value in one.samples:
                had = table.get(key)
                table[key] = value if had is None else max(had, value) if one.shared else had + value
        if _CV in found:  # what is even in sum may be odd in each
            up, used = found["gtm_balancer_backend_up"][1], found["gtm_balancer_utilization"][1]
            uneven = _uneven(up, used)
            if uneven is not None:
                found[_CV][1][""] = uneven
        return [replace(one, samples=list(table.items())) for one, table in found.values()]

    def _sweep(self, backends: Container[str]) -> None:
        """Forget what ended workers had counted of backends that no living one tells of."""
        for _, table in self._ended.values():
            for key in list(table):
                of = _BACKEND.search(key)
                if of is not None and of[1] and of[1] not in backends:
                    del table[key]
                    self._kept -= 1
