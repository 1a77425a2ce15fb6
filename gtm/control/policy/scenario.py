"""Scenarios of simulations as documents: what may happen beside a change of policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from gtm.control.errors import Invalid
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import meant
from gtm.core.simulate.scenario import Scenario
from gtm.documents import fields as f
from gtm.documents.resources import MAX_RESOURCES, Document

MAX_FACTOR = 1000.0
_Names = Annotated[tuple[f.Name, ...], Field(max_length=MAX_RESOURCES)]
_Demand = Annotated[f.Number, Field(gt=0, le=MAX_FACTOR)]
_Capacity = Annotated[f.Number, Field(ge=0, le=MAX_FACTOR)]


class ScenarioDocument(Document):
    """What happens beside the draft; factors are multiples of what is now."""

    down: _Names = ()
    """Regions that fail: all their endpoints are down."""
    drain: _Names = ()
    """Regions that drain."""
    capacity: Annotated[dict[f.Name, _Capacity], Field(max_length=MAX_RESOURCES)] = Field(
        default_factory=dict
    )
    """Region → what it can take, 0 to 1000 times what it can take now, where a bound is known."""
    demand: _Demand = 1.0
    """All requests, up to 1000 times as many."""
    services: Annotated[dict[f.Name, _Demand], Field(max_length=MAX_RESOURCES)] = Field(default_factory=dict)
    """Service → its requests, besides."""
    at: f.Moment | None = None
    """By the law, and the policy's dates, of this moment to come; left out: of now."""

    @property
    def scenario(self) -> Scenario:
        """The scenario as a value of the core."""
        return Scenario(
            down=frozenset(self.down),
            drain=frozenset(self.drain),
            capacity=self.capacity,
            demand=self.demand,
            services=self.services,
            at=None if self.at is None else self.at.timestamp(),
        )


def check(scenario: Scenario, policy: Policy, now: float) -> None:
    """See that a scenario can be: its regions and services are the policy's, and its day is to come.

    Raises:
        Invalid: it cannot; every problem is listed.
    """
    problems = [
        *_unknown("down", "region", scenario.down, [one.name for one in policy.regions]),
        *_unknown("drain", "region", scenario.drain, [one.name for one in policy.regions]),
        *_unknown("capacity", "region", scenario.capacity, [one.name for one in policy.regions]),
        *_unknown("services", "service", scenario.services, [one.name for one in policy.services]),
    ]
    if scenario.at is not None and scenario.at < now:
        said = (
            f"{datetime.fromtimestamp(scenario.at, UTC).isoformat()} is over: a simulation is of days to come"
        )
        problems.append(Problem("scenario.at", "out_of_range", said))
    if problems:
        raise Invalid("; ".join(one.message for one in problems[:10]), problems)


def _unknown(field: str, kind: str, names: Iterable[str], known: Collection[str]) -> list[Problem]:
    wrong = sorted(set(names) - set(known))[:10]
    return [
        Problem(f"scenario.{field}", "unknown_reference", f"there is no {kind} `{name}`{meant(name, known)}")
        for name in wrong
    ]
