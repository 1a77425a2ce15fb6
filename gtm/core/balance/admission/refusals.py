"""Each refusal in words: what limit it was, and when to come again.

429: the tenant is over its share. 503: the region cannot. 504: it could not in time.
"""

from __future__ import annotations

from gtm.core.balance.admission.tenants import OTHERS, TenantAccount
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, RefusalCode

_SOON = 1.0
"""Seconds to come again after, where nobody knows better."""
_LATE = 60.0
"""Never said to be longer, where it is an estimate."""


def _about(seconds: float | None) -> float:
    return _SOON if seconds is None else min(max(seconds, _SOON), _LATE)


def deadline(waited: float) -> AdmissionRefusal:
    """The refusal of a request whose deadline has passed."""
    if waited > 0.0:
        text = f"the request waited {waited:.3g} s for a free slot, until its deadline: allow it more time, or send fewer"
    else:
        text = "the request's deadline had passed when it came: allow it more time"
    return AdmissionRefusal(504, RefusalCode.DEADLINE, text)


def no_backend() -> AdmissionRefusal:
    """The limit is 0."""
    return AdmissionRefusal(
        503, RefusalCode.NO_BACKEND, "no backend of this region takes requests now", _SOON
    )


def wait_too_long(least: float, left: float) -> AdmissionRefusal:
    """It would wait `least` seconds at the least, and has `left`."""
    text = f"requests of its tenant and network that wait already take {least:.3g} s at least, and its deadline is in {left:.3g} s"
    return AdmissionRefusal(503, RefusalCode.WAIT_TOO_LONG, text, _about(least - left))


def queue_full(drained: float | None) -> AdmissionRefusal:
    """There is no place, and nobody who would give way; what waits begins in about so many seconds."""
    text = "the region's queue is full, and nothing in it gives way to this request"
    return AdmissionRefusal(503, RefusalCode.QUEUE_FULL, text, _about(drained))


def preempted(tier: str, drained: float | None) -> AdmissionRefusal:
    """It waited, and gave way to a request of this tier."""
    text = f"the region's queue was full, and this request in it gave way to one that is {tier} or whose tenant or network has less waiting"
    return AdmissionRefusal(503, RefusalCode.PREEMPTED, text, _about(drained))


def model_concurrency(model: str, most: int, turn: float | None, fallback: str | None) -> AdmissionRefusal:
    """The model has all the requests that it may have."""
    text = f"the model `{model}` has {most} requests in this region, as many as it may"
    return AdmissionRefusal(503, RefusalCode.MODEL_CONCURRENCY, text, _about(turn), fallback)


def tenant_concurrency(tenant: TenantAccount, turn: float | None) -> AdmissionRefusal:
    """The tenant has all the requests that it may have."""
    text = f"{_named(tenant)} has {tenant.running + tenant.waiting} requests running or waiting, and may have {tenant.concurrency}"
    return AdmissionRefusal(429, RefusalCode.TENANT_CONCURRENCY, text, _about(turn))


def over_budget(
    arrival: Arrival, tenant: TenantAccount, weight: float, fallback: str | None, now: float
) -> AdmissionRefusal | None:
    """Which of a tenant's rates and budgets a request is over: the one that takes longest to pass. None: none.

    Args:
        arrival: the request.
        tenant: its tenant.
        weight: what one token of its model counts.
        fallback: the model to offer it for instead.
        now: monotonic seconds.
    """
    longest, code = 0.0, RefusalCode.TENANT_RATE
    for bucket, amount, its_code in (
        (tenant.rate, 1.0, RefusalCode.TENANT_RATE),
        (tenant.inputs, arrival.input_tokens * weight, RefusalCode.INPUT_TOKENS),
        (tenant.outputs, arrival.output_tokens * weight, RefusalCode.OUTPUT_TOKENS),
    ):
        if bucket is not None:
            wait = bucket.wait(amount, now)
            if wait > longest:
                longest, code = wait, its_code
    if longest <= 0.0:
        return None
    if code is RefusalCode.TENANT_RATE and tenant.rate is not None:
        text = f"{_named(tenant)} is over its rate of {tenant.rate.rate:g} requests per second"
        return AdmissionRefusal(429, code, text, longest)
    bucket = tenant.inputs if code is RefusalCode.INPUT_TOKENS else tenant.outputs
    words = "input" if code is RefusalCode.INPUT_TOKENS else "output"
    budget = 0.0 if bucket is None else bucket.depth
    text = f"{_named(tenant)} is over its budget of {budget:g} {words} tokens per minute"
    return AdmissionRefusal(429, code, text, longest, fallback)


def _named(tenant: TenantAccount) -> str:
    if tenant.name is None:
        return "what comes without a tenant"
    if tenant.name == OTHERS:
        return "tenants that this balancer does not tell apart, together,"
    return f"tenant `{tenant.name}`"
