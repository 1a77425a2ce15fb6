"""What an operator sets of admission, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType

from gtm.core.model.problems import Problem
from gtm.core.model.services import Priority


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one tenant may have in this region, by each process of its balancer. None: no limit.

    `weight`: its part of a tier's slots while others wait there too, in proportion to theirs. `requests_per_second` with
    `burst`, the most at once (None: a second's worth, at least one). `concurrency`: requests running and waiting. Tokens per
    minute: over any t seconds at most the budget of t seconds and one minute more.
    """

    weight: float = 1.0
    requests_per_second: float | None = None
    burst: float | None = None
    concurrency: int | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one model may have in this region.

    `concurrency`: requests running and waiting. `token_weight`: what one of its tokens counts in tenants' budgets.
    `fallback`: the model to offer a request for, when this one has no room or costs more tokens than are left.
    """

    concurrency: int | None = None
    token_weight: float = 1.0
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """All of admission's settings; `problems` says what is wrong with them.

    `reserves`: tier → part of the region's slots (0–1) kept for it. `waits`: tier → the longest wait in seconds where a request
    states no deadline. The queue holds `queue_length` requests of `queue_bytes` of bodies, all tiers together. `tenants` by
    name; `default_tenant` holds for each that is not named, `without_tenant` for all requests together that have none.
    `max_tenants` are told apart at a time; beyond that, those not named in `tenants` count as one.
    """

    reserves: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {Priority.REAL_TIME: 0.2, Priority.NEAR_REAL_TIME: 0.1, Priority.BATCH: 0.05}
        )
    )
    waits: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {Priority.REAL_TIME: 5.0, Priority.NEAR_REAL_TIME: 30.0, Priority.BATCH: 300.0}
        )
    )
    queue_length: int = 10_000
    queue_bytes: int = 256 * 2**20
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict)
    default_tenant: TenantLimits = TenantLimits()
    without_tenant: TenantLimits = TenantLimits()
    models: Mapping[str, ModelLimits] = field(default_factory=dict)
    max_tenants: int = 10_000


def problems(settings: AdmissionSettings) -> tuple[Problem, ...]:
    """Everything that is wrong with settings: where, what, and what is allowed; nothing if they are good."""
    return tuple(_problems(settings))


def checked(settings: AdmissionSettings) -> AdmissionSettings:
    """These settings. Raises ValueError, with every problem: they mean nothing."""
    wrong = problems(settings)
    if wrong:
        raise ValueError("\n".join(str(problem) for problem in wrong))
    return settings


def _problems(settings: AdmissionSettings) -> Iterator[Problem]:
    yield from _tiers("reserves", settings.reserves, least=0.0, most=1.0)
    yield from _tiers("waits", settings.waits, least=0.0, most=86_400.0)
    total = sum(share for share in settings.reserves.values() if _number(share))
    if total > 1 + 1e-9:
        yield Problem("reserves", "invalid", f"sum to {total:g}; all reserves together are at most 1")
    for name, least in (("queue_length", 0), ("queue_bytes", 0), ("max_tenants", 1)):
        count = getattr(settings, name)
        if not _whole(count) or count < least:
            yield Problem(name, "invalid", f"is {count!r}; use a whole number of at least {least}")
    yield from _tenant("default_tenant", settings.default_tenant)
    yield from _tenant("without_tenant", settings.without_tenant)
    for name, limits in settings.tenants.items():
        if not name:
            yield Problem(
                "tenants", "invalid", "a tenant's name is empty; `without_tenant` is for requests without one"
            )
        yield from _tenant(f"tenants.{name}", limits)
    for name in settings.models:
        yield from _model(name, settings.models)


def _tiers(path: str, values: Mapping[str, float], least: float, most: float) -> Iterator[Problem]:
    names = [str(tier) for tier in Priority]
    for tier, value in values.items():
        if tier not in names:
            yield Problem(f"{path}.{tier}", "unknown", f"there is no such tier; use {', '.join(names)}")
        elif not _number(value) or not least <= value <= most:
            yield Problem(
                f"{path}.{tier}", "invalid", f"is {value!r}; use a number from {least:g} to {most:g}"
            )
    for tier in names:
        if tier not in values:
            yield Problem(f"{path}.{tier}", "missing", f"state it: a number from {least:g} to {most:g}")


def _tenant(path: str, limits: TenantLimits) -> Iterator[Problem]:
    if not _number(limits.weight) or not 1e-3 <= limits.weight <= 1e6:
        yield Problem(
            f"{path}.weight", "invalid", f"is {limits.weight!r}; use a number from 0.001 to 1000000"
        )
    for name in ("requests_per_second", "input_tokens_per_minute", "output_tokens_per_minute"):
        rate = getattr(limits, name)
        if rate is not None and (not _number(rate) or rate <= 0):
            yield Problem(
                f"{path}.{name}",
                "invalid",
                f"is {rate!r}; use a number above 0, or leave it out for no limit",
            )
    burst = limits.burst
    if burst is not None and limits.requests_per_second is None:
        yield Problem(
            f"{path}.burst",
            "unused",
            "decides nothing without `requests_per_second`: state it, or leave this out",
        )
    elif burst is not None and (not _number(burst) or burst < 1):
        yield Problem(f"{path}.burst", "invalid", f"is {burst!r}; use a number of at least 1")
    yield from _concurrency(path, limits.concurrency)


def _concurrency(path: str, concurrency: int | None) -> Iterator[Problem]:
    if concurrency is not None and (not _whole(concurrency) or concurrency < 1):
        text = f"is {concurrency!r}; use a whole number of at least 1, or leave it out for no limit"
        yield Problem(f"{path}.concurrency", "invalid", text)


def _model(name: str, models: Mapping[str, ModelLimits]) -> Iterator[Problem]:
    path, limits = f"models.{name}", models[name]
    yield from _concurrency(path, limits.concurrency)
    weight = limits.token_weight
    if not _number(weight) or weight < 0:
        yield Problem(f"{path}.token_weight", "invalid", f"is {weight!r}; use a number of at least 0")
    chain = [name]
    following = limits.fallback
    while following is not None and following not in chain:
        chain.append(following)
        following = models[following].fallback if following in models else None
    if following == name:
        text = f"leads back to the model: {' → '.join([*chain, name])}; end the chain somewhere"
        yield Problem(f"{path}.fallback", "circle", text)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
