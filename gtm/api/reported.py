"""What reports of edges and of balancers have in common: public keys, and leases of quotas."""

from __future__ import annotations

from typing import Any

from gtm.core.handoff.keys import MOST, key_bytes
from gtm.core.model.problems import Problem
from gtm.core.quota.leases import LeaseUse

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
