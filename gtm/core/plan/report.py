"""What a solved programme says of regions and quotas: prices, rates allowed, and what is exhausted."""

from __future__ import annotations

import numpy as np

from gtm.core.plan.lp import Answer
from gtm.core.plan.model import Model
from gtm.core.plan.rows import Bound, Floats, total
from gtm.core.quota.names import QuotaText

_EXHAUSTED = 1e-6
_TRACE = 1e-9  # gives columns without flow a say where no column has any


def prices(model: Model, answer: Answer, most: float) -> dict[str, float]:
    """What one more request a second in each region would cost all others, in ms, for the mix of requests served there.

    0 where there is capacity left. Where demand is refused the dual value is that of the refusal, a number without
    meaning: `most` caps it.
    """
    capacity = np.where(model.rows.bound <= Bound.SERVICE_RATE, answer.price, 0.0)
    each = model.rows.matrix.transposed_dot(capacity)
    region, weight = model.columns.regions, answer.flow + _TRACE
    count = len(model.regions)
    mean = total(region, weight * each, count) / np.maximum(total(region, weight, count), _TRACE)
    return dict(zip(model.regions, np.minimum(mean, most).tolist(), strict=True))


def quota_rates(model: Model, flow: Floats) -> dict[QuotaText, float]:
    """The rate in requests/s that each rule, and each region for others' demand (`spill_in:REGION`), allows.

    Slots are turned into a rate by the mix of requests that spills there; a region that bounds services only allows
    the sum of theirs.
    """
    away = (flow + _TRACE) * model.columns.foreign
    used = model.rows.matrix.dot(away)
    counted = total(model.rows.matrix.row, away[model.rows.matrix.column], len(used))
    found: dict[QuotaText, float] = {}
    by_service: dict[QuotaText, float] = {}
    for row in np.flatnonzero(model.rows.bound > Bound.SERVICE_RATE).tolist():
        name, bound = model.quota(row), model.rows.bound[row]
        rate = float(model.rows.limits[row] * counted[row] / used[row])
        if bound in (Bound.SPILL_IN_SERVICE_SLOTS, Bound.SPILL_IN_SERVICE_RATE):
            by_service[name] = by_service.get(name, 0.0) + rate
        else:
            found[name] = min(rate, found.get(name, rate))
    return by_service | found


def binding(model: Model, flow: Floats) -> tuple[str, ...]:
    """The quotas and regions that are exhausted, in the order of the problem's bounds."""
    full = model.rows.matrix.dot(flow) >= model.rows.limits * (1 - _EXHAUSTED)
    return tuple(dict.fromkeys(model.label(row) for row in np.flatnonzero(full).tolist()))
