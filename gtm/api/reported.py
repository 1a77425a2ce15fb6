"""What reports of edges and of balancers have in common: public keys, leases of quotas, and what was learned of round trips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from gtm.control.lead.latency import MAX_DELTAS, delta_problem, witness_problem
from gtm.core.handoff.keys import MOST, key_bytes
from gtm.core.latency import Delta, Witness
from gtm.core.model.problems import Problem
from gtm.core.quota.leases import LeaseUse

_MAX_LISTED = 10
"""Problems listed of one list."""
_T = TypeVar("_T")

LEASES: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "report": {"type": "integer"},
                "sequence": {"type": "integer"},
                "duration": {"type": "number", "description": "Seconds."},
                "leases": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "quota": {"type": "string"},
                            "rate": {"type": "number"},
                            "parts": {"type": "integer"},
                        },
                    },
                },
            },
        },
        {"type": "null"},
    ]
}
"""The schema of `gtm.core.quota.leases.LeaseGrant`."""


def key_problems(keys: tuple[str, ...]) -> list[Problem]:
    """What is wrong with the public keys that somebody tells."""
    if len(keys) > MOST:
        return [Problem("handoff_keys", "too_long", f"there may be {MOST} of them")]
    problems = []
    for number, key in enumerate(keys):
        try:
            key_bytes(key)
        except ValueError as error:
            problems.append(Problem(f"handoff_keys[{number}]", "invalid_format", str(error)))
    return problems


def lease_problems(leases: LeaseUse | None) -> list[Problem]:
    """What is wrong with what somebody says of its leases."""
    if leases is not None and len(leases.instance) > 100:
        return [Problem("leases.instance", "too_long", "an instance may have 100 characters")]
    return []


def learned_problems(deltas: Sequence[Delta], witnesses: Sequence[Witness]) -> list[Problem]:
    """What is wrong with what somebody learned of round trips and of claimed locations."""
    return [
        *_listed("latency", deltas, delta_problem),
        *_listed("witnesses", witnesses, witness_problem),
    ]


def _listed(field: str, items: Sequence[_T], problem: Callable[[_T], str | None]) -> list[Problem]:
    """What is wrong with a list of a report: its length, or the first of its items that are wrong."""
    if len(items) > MAX_DELTAS:
        return [Problem(field, "too_long", f"a report may have {MAX_DELTAS} of them")]
    wrong = (
        Problem(f"{field}[{number}]", "out_of_range", text)
        for number, item in enumerate(items)
        if (text := problem(item)) is not None
    )
    return list(islice(wrong, _MAX_LISTED))
