"""Tenants of several balancers together, as a region's page and `gtm top` show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gtm.client.objects import JsonObject

if TYPE_CHECKING:
    from gtm.client import types

SUMS = ("running", "waiting", "requests_per_second", "errors_per_second", "refused_per_second")
"""What adds up of a tenant over balancers."""


def together(shown: Iterable[types.InsideView]) -> list[JsonObject]:
    """Tenants by region: what all its balancers have of each, and its `share` of what runs in the region; None: nothing runs there."""
    found: dict[tuple[str, str], JsonObject] = {}
    running: dict[str, float] = defaultdict(float)
    for balancer in shown:
        for tenant in balancer.tenants:
            key = balancer.region, tenant.name
            one = found.setdefault(
                key,
                JsonObject(dict.fromkeys(SUMS, 0), region=key[0], name=tenant.name, weight=tenant.weight),
            )
            for field in SUMS:
                one[field] += tenant[field]
            running[balancer.region] += tenant.running
    return [
        JsonObject(one, share=one.running / running[one.region] if running[one.region] else None)
        for one in found.values()
    ]
