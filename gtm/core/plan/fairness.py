"""Who is refused inside a priority tier: weighted max-min fairness over tenants.

Classes compete where they share an exhausted bound. Those connected by such bounds form a group; a group's admitted
work is shared among its tenants by water-filling: each gets its demand, or an equal level times its weight, whichever
is less (Bertsekas and Gallager, Data Networks, 1992, §6.5.2). Work is counted in slots where a bound on slots is
exhausted, else in requests a second, so that long requests do not count as short ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gtm.core.plan.lp import Allocation
from gtm.core.plan.model import BoundKind, Flags, Floats, Ints, Model, total

_EXHAUSTED = 1e-6
_BETTER = 0.01


def water_fill(demand: Floats, weight: Floats, amount: float) -> Floats:
    """Weighted max-min fair parts of an amount: at most each one's demand, otherwise one level times its weight."""
    order = np.argsort(demand / weight, kind="stable")
    sorted_demand, sorted_weight = demand[order], weight[order]
    before = np.cumsum(sorted_demand) - sorted_demand
    rest = np.cumsum(sorted_weight[::-1])[::-1]
    level = (amount - before) / rest
    stops = np.flatnonzero(sorted_demand > level * sorted_weight)
    if not len(stops):
        return demand
    parts: Floats = np.minimum(demand, np.maximum(level[stops[0]], 0.0) * weight)
    return parts


@dataclass(frozen=True, slots=True)
class Tenants:
    """The demand of classes by tenant, as parallel arrays: class, tenant's number, rate, and tenant's weight."""

    names: tuple[str, ...]
    classes: Ints
    tenant: Ints
    rate: Floats
    weight: Floats

    @classmethod
    def of(cls, model: Model, weights: dict[str, float]) -> Tenants:
        """Read the tenants of all classes; a class that states none is one of the tenant `""`."""
        number: dict[str, int] = {}
        classes, tenant, rate = [], [], []
        for index, one in enumerate(model.classes):
            total = sum(one.tenants.values())
            parts = one.tenants if total > 0 else {"": one.rate}
            for name, part in parts.items():
                classes.append(index)
                tenant.append(number.setdefault(name, len(number)))
                rate.append(part * one.rate / (total or one.rate))
        of_name = np.array([max(weights.get(name, 1.0), 1e-9) for name in number])
        at = np.array(tenant, dtype=np.intp)
        return cls(tuple(number), np.array(classes, dtype=np.intp), at, np.array(rate), of_name)

    def of_classes(self, classes: Ints) -> Ints:
        """The tenants with demand in some of the classes."""
        return self.tenant[np.isin(self.classes, classes) & (self.rate > 0)]


@dataclass(frozen=True, slots=True)
class Group:
    """Classes that compete for the same exhausted bounds, and whether some are bounds on slots."""

    members: Ints
    slots: bool


@dataclass(frozen=True, slots=True)
class Levels:
    """How far each class is from the others: the work per weight that its tenants are admitted in their groups.

    `least` is that of its worst-off tenant with something refused (infinite: none), `most` that of its best-off one.
    """

    least: Floats
    most: Floats


def levels(
    model: Model, tenants: Tenants, competing: Sequence[Group], within: Floats, served: Floats
) -> Levels:
    """The levels of all classes.

    Args:
        model: the problem.
        tenants: the demand by tenant.
        competing: the groups so far; before there are any, all classes count as one.
        within: the fair share of each entry of `tenants`, by which a class's rate is split.
        served: by class.
    """
    fair = total(tenants.classes, within, len(model.classes))
    ratio = np.divide(served, fair, out=np.zeros(len(fair)), where=fair > 0)
    admitted = np.minimum(within * ratio[tenants.classes], tenants.rate)
    group = np.zeros(len(model.classes), dtype=np.intp)
    for number, one in enumerate(competing):
        group[one.members] = number + 1
    key = group[tenants.classes] * len(tenants.names) + tenants.tenant
    work = np.where(model.work > 0, model.work, model.work.mean() or 1.0)[tenants.classes]
    level = total(key, admitted * work, int(key.max()) + 1)[key] / tenants.weight[tenants.tenant]
    least, most = np.full(len(model.classes), np.inf), np.zeros(len(model.classes))
    refused = tenants.rate - admitted > _EXHAUSTED * tenants.rate
    np.minimum.at(least, tenants.classes[refused], level[refused])
    np.maximum.at(most, tenants.classes[admitted > 0], level[admitted > 0])
    return Levels(least, most)


def groups(model: Model, answer: Allocation, unserved: Floats, tier: Flags, standing: Levels) -> list[Group]:
    """The groups of a tier in which something is refused. `unserved` and `tier` are by class.

    A class competes for a bound that its flows count against, and, where some of it is refused, for those that it could
    use and whose users stand better.
    """
    columns, rows = model.columns, model.rows
    entries = rows.matrix
    of_class = columns.classes[entries.column]
    flowing = (answer.flow > _EXHAUSTED * model.rate[columns.classes])[entries.column]
    best = np.zeros(len(rows.limits))
    users = flowing & tier[of_class]
    np.maximum.at(best, entries.row[users], standing.most[of_class[users]])
    contending = (unserved > 0)[of_class] & (best[entries.row] > standing.least[of_class] * (1 + _BETTER))
    exhausted = (rows.limits > 0) & (entries.dot(answer.flow) >= rows.limits * (1 - _EXHAUSTED))
    edge = exhausted[entries.row] & tier[of_class] & (flowing | contending)
    by_label, of_row = components(of_class[edge], entries.row[edge], len(model.classes), len(rows.limits))
    on_slots = np.isin(rows.bound, (BoundKind.SLOTS, BoundKind.SERVICE_SLOTS)) & exhausted
    slot_labels = set(of_row[on_slots].tolist())
    return [
        Group(np.flatnonzero((by_label == one) & tier), one in slot_labels)
        for one in np.unique(by_label[tier & (unserved > 0)]).tolist()
    ]


def components(one: Ints, other: Ints, ones: int, others: int) -> tuple[Ints, Ints]:
    """Labels of two kinds of vertices (`ones` and `others` of them): equal where edges connect them."""
    label, of_other = np.arange(ones), np.arange(ones, ones + others)
    while True:
        np.minimum.at(of_other, other, label[one])
        before = label.copy()
        np.minimum.at(label, one, of_other[other])
        label = label[label]  # of its label's: paths are halved
        if (label == before).all():
            return label, of_other


def fair_shares(
    model: Model, tenants: Tenants, competing: Sequence[Group], served: Floats, base: Floats
) -> Floats:
    """The rate within its fair share of each entry of `tenants`, given what each class is served.

    Entries outside the groups keep what `base` says.
    """
    within = base.copy()
    for group in competing:
        work = np.ones(len(model.classes))
        if group.slots:
            known = model.work[group.members]
            work[group.members] = np.where(known > 0, known, known[known > 0].mean() if known.any() else 1.0)
        mine = np.isin(tenants.classes, group.members)
        tenant = tenants.tenant[mine]
        demand = total(tenant, tenants.rate[mine] * work[tenants.classes[mine]], len(tenants.names))
        amount = float((served[group.members] * work[group.members]).sum())
        demanding = demand > 0
        admitted = np.zeros(len(demand))
        admitted[demanding] = (
            water_fill(demand[demanding], tenants.weight[demanding], amount) / demand[demanding]
        )
        within[mine] *= admitted[tenant]
    return within


def split(tenants: Tenants, within: Floats, number: int, served: float) -> dict[str, float]:
    """What each tenant of one class is refused: beyond the fair share first, then inside it, evenly."""
    mine = np.flatnonzero(tenants.classes == number)
    rate, fair = tenants.rate[mine], within[mine]
    weight = tenants.weight[tenants.tenant[mine]]
    missing = served - fair.sum()
    admitted = (
        fair + water_fill(rate - fair, weight, missing) if missing >= 0 else water_fill(fair, weight, served)
    )
    return {
        tenants.names[tenant]: float(refused)
        for tenant, refused in zip(tenants.tenant[mine], rate - admitted, strict=True)
    }
