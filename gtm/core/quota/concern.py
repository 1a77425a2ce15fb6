"""Which leased quotas a region's balancers may need: those of requests that can be pushed from there."""

from __future__ import annotations

from collections import defaultdict

from gtm.core.model.policy import Policy, SpilloverRule
from gtm.core.quota.names import QuotaName, QuotaText


def concerning(policy: Policy, region: str) -> frozenset[QuotaText]:
    """The quotas that a push from a region may owe (`gtm.core.balance.spill.ways.owed`).

    A push is of a request whose home is the region itself, or one whose rules lead there (or that has no rules). It owes the quotas
    of the way from that home to the peer, less those that it counts against where it is.

    Args:
        policy: has the rules, and what regions take of others' demand.
        region: whose balancers push. One that the policy does not have concerns nothing.
    """
    regions = {one.name: one for one in policy.regions}
    if region not in regions:
        return frozenset()
    rules: dict[str, list[SpilloverRule]] = defaultdict(list)
    for rule in policy.spillover_rules:
        rules[rule.from_region].append(rule)
    found: set[QuotaText] = set()
    targets: set[str] = set()
    for home in regions:
        own = rules.get(home, [])
        leads_to = {target for rule in own for target in rule.to_regions} if own else set(regions)
        if home == region or region in leads_to:
            targets |= leads_to - {home, region}
            found.update(
                QuotaName(rule.name).text for rule in own if home == region or region not in rule.to_regions
            )
    return frozenset(found.union(QuotaName(target, into=True).text for target in targets))
