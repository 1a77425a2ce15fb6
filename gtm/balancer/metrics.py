"""A balancer's counters and gauges in Prometheus' text format (docs/balancer.md lists them)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from statistics import pstdev

from gtm.balancer.decide.gate import LawGate
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.pushing import Pusher
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.plane.stats import BOUNDS, EACH, Histogram
from gtm.core.balance.choosing.values import Candidate

_Samples = Iterable[tuple[float, dict[str, str]]]
_Family = Callable[[str, str, _Samples], None]
"""Adds a metric: its name, what it is, and its samples, by labels."""


def render(
    proxy: Proxy,
    picker: PoolPicker,
    queue: QueueAdmission,
    gate: LawGate,
    pusher: Pusher,
    *,
    said: Mapping[str, Mapping[str, float]],
    access: Mapping[str, int],
) -> bytes:
    """All of them, as text. `said`: backend → what its metrics say of its load. `access`: lines of the access log, by how; empty: there is none."""
    admission = queue.admission
    stats, snapshot = proxy.stats, admission.snapshot()
    lines: list[str] = []
    family = partial(_family, lines)
    family(
        "gtm_balancer_requests_total",
        "Requests that ended, by backend (empty: none had them), status, and how.",
        (
            (count, {"backend": url, "status": str(status), "how": how})
            for (url, status, how), count in stats.requests.items()
        ),
    )
    family(
        "gtm_balancer_requests_left_out_total",
        "Requests that ended and are not in gtm_balancer_requests_total, which tells 20,000 combinations apart.",
        [(stats.left_out, {})],
    )
    counters = (
        ("gtm_balancer_refusals_total", "Requests refused, by code.", "code", stats.refusals),
        ("gtm_balancer_backend_failures_total", "Failures of backends.", "backend", stats.failures),
        (
            "gtm_balancer_backend_full_total",
            "Requests that a backend had no room for, as it said.",
            "backend",
            stats.full,
        ),
        ("gtm_balancer_handoff_flaws_total", "Handoffs that were not believed, by why.", "code", gate.flaws),
    )
    for name, text, label, counts in counters:
        family(name, text, _by(label, counts))
    family(
        "gtm_balancer_pushes_total",
        "Requests that found no slot, by the region that took them (empty: none did) and why.",
        ((count, {"region": region, "why": why}) for (region, why), count in pusher.counts.items()),
    )
    family("gtm_balancer_pushed", "Requests at peer regions.", _by("region", pusher.in_flight))
    family(
        "gtm_balancer_choices_total",
        "Requests by what their backend was chosen by, and whether the bound of loads moved them on from where that led.",
        [
            (picker.choices[by, moved], {"by": by.value, "moved": "yes" if moved else "no"})
            for by, moved in sorted(picker.choices)
        ],
    )
    family(
        "gtm_balancer_decisions_total",
        f"Choices of a backend that were timed: one of {EACH}.",
        [(stats.decisions, {})],
    )
    family("gtm_balancer_decision_seconds_total", "What these took.", [(stats.decision_seconds, {})])
    family("gtm_balancer_retries_total", "Requests sent again.", [(stats.retries, {})])
    for name, text, table in (
        ("gtm_balancer_request_seconds", "From a request's head to its end.", stats.durations),
        (
            "gtm_balancer_first_byte_seconds",
            "From a request's head to the first byte of its answer's body: a stream's first token.",
            stats.first_bytes,
        ),
        (
            "gtm_balancer_inter_token_seconds",
            "From piece to piece of a stream of events, in the mean of each stream.",
            stats.between,
        ),
    ):
        _histograms(lines, name, text, table)
    if proxy.tracer is not None:
        told = {"exported": proxy.tracer.exported, "dropped": proxy.tracer.dropped}
        family("gtm_balancer_spans_total", "Recorded requests, by what became of them.", _by("how", told))
    if access:
        text = "Lines of the access log, by what became of them."
        family("gtm_balancer_access_log_lines_total", text, _by("how", access))
    candidates = picker.pool.candidates
    usable = {one.number for one in picker.pool.usable}
    for name, text, value in (
        ("gtm_balancer_in_flight", "Requests in flight.", lambda one: one.flight.requests),
        ("gtm_balancer_work_seconds", "Seconds of work in flight.", lambda one: one.flight.work_us / 1e6),
        ("gtm_balancer_backend_up", "Whether a backend is used.", lambda one: int(one.number in usable)),
    ):
        family(name, text, [(value(one), {"backend": one.backend.name}) for one in candidates])
    _backends(family, candidates, usable, said)
    _tenants(family, queue)
    family(
        "gtm_balancer_usage_cut_tokens_total",
        "Tokens that backends' answers said and no budget was charged: more than request and answer can be.",
        [(tokens, {"backend": url, "kind": kind}) for (url, kind), tokens in queue.cut.items()],
    )
    family(
        "gtm_balancer_spared_tokens_total",
        "Tokens that requests used beyond five minutes of their tenant's budget, and that it was not charged.",
        [(admission.spared_tokens, {})],
    )
    for name, text, of in (
        ("gtm_balancer_running", "Requests that were admitted and have not ended, by tier.", "running"),
        ("gtm_balancer_waiting", "Requests in the queue, by tier.", "waiting"),
    ):
        family(name, text, ((getattr(tier, of), {"tier": key.value}) for key, tier in snapshot.tiers.items()))
    family("gtm_balancer_connections", "Clients' connections.", [(proxy.connections, {})])
    text = "Bytes that are kept of what clients have sent: bodies that are read or wait, heads that are not whole, requests behind others."
    family("gtm_balancer_kept_bytes", text, [(proxy.held.total, {})])
    family(
        "gtm_balancer_connections_evicted_total",
        "Clients' connections that were closed for others, since there were as many as may be.",
        [(proxy.room.evicted, {})],
    )
    family(
        "gtm_balancer_without_room_total",
        "Connections to backends that could not be made for want of descriptors or memory here, by what for.",
        _by("for", stats.without_room),
    )
    return ("\n".join(lines) + "\n").encode()


def render_untold(untold: int) -> bytes:
    """What the one process counts that reports to control, whatever processes carry requests.

    Args:
        untold: requests that the report of their second left out.
    """
    lines: list[str] = []
    family = partial(_family, lines)
    family(
        "gtm_balancer_pushes_untold_total",
        "Requests that found no slot, or came for want of one elsewhere, and that the report of their second left out for its length: a later one tells of them.",
        [(untold, {})],
    )
    return ("\n".join(lines) + "\n").encode()


def _backends(
    family: _Family,
    candidates: Sequence[Candidate],
    numbers: Container[int],
    said: Mapping[str, Mapping[str, float]],
) -> None:
    """How full backends are, and what they say of themselves."""
    used = {
        one.backend.name: one.flight.requests / one.backend.slots for one in candidates if one.backend.slots
    }
    usable = [used[one.backend.name] for one in candidates if one.backend.slots and one.number in numbers]
    mean = sum(usable) / len(usable) if usable else 0.0
    memory = {
        one.backend.name: one.condition.memory for one in candidates if one.condition.memory is not None
    }
    for name, text, values in (
        ("gtm_balancer_utilization", "Requests in flight, as a part of the backend's slots.", used),
        ("gtm_balancer_memory_usage", "The used part of its KV cache, or else of its GPU memory.", memory),
    ):
        family(name, text, _by("backend", values))
    if mean:
        cv = pstdev(usable) / mean
        text = "The coefficient of variation of usable backends' utilization."
        family("gtm_balancer_utilization_cv", text, [(cv, {})])
    kinds = {"output": "tokens_per_second", "input": "input_tokens_per_second"}
    family(
        "gtm_balancer_tokens_per_second",
        "Tokens generated, and read in prompts, by the backend's own metrics: whoever asked for them.",
        [
            (one[signal], {"backend": url, "kind": kind})
            for url, one in said.items()
            for kind, signal in kinds.items()
            if signal in one
        ],
    )


def _tenants(family: _Family, queue: QueueAdmission) -> None:
    """Rate, errors and duration, by tenant and model."""
    rows = [
        (totals, {"tenant": tenant or "", "model": model or ""})
        for (tenant, model), totals in queue.totals.items()
    ]
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
        ("gtm_balancer_tenant_seconds_total", "Seconds from their coming to their end.", "seconds"),
    ):
        family(name, text, [(getattr(totals, of), labels) for totals, labels in rows])


def _by(label: str, values: Mapping[str, float]) -> _Samples:
    return [(value, {label: key}) for key, value in values.items()]


def _family(lines: list[str], name: str, text: str, samples: _Samples) -> None:
    kind = "counter" if name.endswith("_total") else "gauge"
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value:.10g}" for value, labels in samples]


def _histograms(lines: list[str], name: str, text: str, table: dict[str, Histogram]) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    for url, histogram in table.items():
        total = 0
        for bound, count in zip((*BOUNDS, None), histogram.counts, strict=True):
            total += count
            edge = "+Inf" if bound is None else f"{bound:g}"
            lines.append(f"{name}_bucket{_labels({'backend': url, 'le': edge})} {total}")
        lines.append(f"{name}_sum{_labels({'backend': url})} {histogram.total:.10g}")
        lines.append(f"{name}_count{_labels({'backend': url})} {total}")


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    parts = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(parts) + "}"


def _escaped(value: str) -> str:
    """A label's value: what is not printable is shown as such a character, for a reader may take it for the end of a line."""
    if not value.isprintable():
        value = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
