"""What tunes the planner. The defaults suit a tick of one second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Knobs:
    """How the planner weighs and steps. Shares are 0–1, all but `keep_ms` and the solver's own are per tick.

    `keep_ms` is the advantage, in ms, of a flow that the previous plan has: a better one must be better by more.
    `max_step` is the share of a class that may move, `overload_step` that of a class with a share in an overloaded
    region or an exceeded quota; `free_rate` requests/s of any class may move whatever share of it they are. Smaller
    moves than `hysteresis` wait. `release_step` bounds how fast a shed share falls. Weights below `least_weight` are
    rounded away. A class keeps its plan for `idle_s` seconds without demand, and a service counts as moving until `settle_s`
    seconds after the last tick that left a class of it on its way.
    `shed_price_ms` is the highest price, that of a region where demand is refused. `time_limit_s` bounds what the
    solver takes for one plan.
    """

    keep_ms: float = 3.0
    max_step: float = 0.1
    overload_step: float = 0.5
    hysteresis: float = 0.02
    release_step: float = 0.1
    least_weight: float = 0.005
    free_rate: float = 1.0
    idle_s: float = 30.0
    settle_s: float = 10.0
    shed_price_ms: float = 10_000.0
    time_limit_s: float = 10.0


DEFAULT_KNOBS = Knobs()
