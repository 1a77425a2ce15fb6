"""What an operator sets of admission, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    """What is wrong with settings together: where, what, and what is allowed; nothing if they are good.

    The bounds of single numbers stand where a file is read.
    """
    return tuple(_problems(settings))


def checked(settings: AdmissionSettings) -> AdmissionSettings:
    """These settings. Raises ValueError, with every problem: they mean nothing."""
    wrong = problems(settings)
    if wrong:
        raise ValueError("\n".join(str(problem) for problem in wrong))
    return settings


def _problems(settings: AdmissionSettings) -> Iterator[Problem]:
    total = sum(settings.reserves.values())
    if total > 1 + 1e-9:
        yield Problem("reserves", "invalid", f"sum to {total:g}; all reserves together are at most 1")
    tenants = {f"tenants.{name}": limits for name, limits in settings.tenants.items()}
    others = {"default_tenant": settings.default_tenant, "without_tenant": settings.without_tenant}
    for path, limits in (others | tenants).items():
        if limits.burst is not None and limits.requests_per_second is None:
            yield Problem(
                f"{path}.burst",
                "unused",
                "decides nothing without `requests_per_second`: state it, or leave this out",
            )
    if "" in settings.tenants:
        yield Problem(
            "tenants", "invalid", "a tenant's name is empty; `without_tenant` is for requests without one"
        )
    for name in settings.models:
        yield from _model(name, settings.models)


def _model(name: str, models: Mapping[str, ModelLimits]) -> Iterator[Problem]:
    chain = [name]
    following = models[name].fallback
    while following is not None and following not in chain:
        chain.append(following)
        following = models[following].fallback if following in models else None
    if following == name:
        text = f"leads back to the model: {' → '.join([*chain, name])}; end the chain somewhere"
        yield Problem(f"models.{name}.fallback", "circle", text)
