"""Names of quotas: what a lease, a token and a report are of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NewType

from gtm.core.model.joined import join, unescaped
from gtm.core.model.policy import Policy, SpilloverRule

_INTO = "spill_in"
_SHARE = "share"
_SEPARATOR = ":"

QuotaText = NewType("QuotaText", str)
"""A `QuotaName` as text, and nothing but `QuotaName.text` makes one of a name. Options, leases and buckets have this: a text
knows its hash, where a `QuotaName` would work it out anew for every bucket of every request that spills."""


_OF_SHARES = _SHARE + _SEPARATOR


def is_share(quota: QuotaText) -> bool:
    """Whether a quota's tokens are earned: those of a rule's share."""
    return quota.startswith(_OF_SHARES)


@dataclass(frozen=True, slots=True)
class QuotaName:
    """A quota: a spillover rule of this name, or (`into`) what the region of this name takes of others' demand.

    As text a rule's is its name, a region's `spill_in:REGION`. What a rule allows as a share of its home's demand (`share`) has
    tokens of its own, `share:RULE`, for these are earned and not leased (`gtm.core.quota.earned`).
    """

    name: str
    into: bool = False
    share: bool = False

    @classmethod
    def parse(cls, text: str) -> QuotaName:
        """A quota from its text; every text is one."""
        prefix, separator, region = text.partition(_SEPARATOR)
        if separator and prefix == _INTO:
            return cls(unescaped(_SEPARATOR, region), into=True)
        if separator and prefix == _SHARE:
            return cls(unescaped(_SEPARATOR, region), share=True)
        return cls(unescaped(_SEPARATOR, text))

    @property
    def text(self) -> QuotaText:
        """The name as it travels."""
        kind = (_INTO,) if self.into else (_SHARE,) if self.share else ()
        return QuotaText(join(_SEPARATOR, (*kind, self.name)))


# --- Which leased quotas a region's balancers may need: those of requests that can be pushed from there. ---


def concerning(policy: Policy, region: str) -> frozenset[QuotaText]:
    """The quotas that a push from a region may owe (`gtm.core.balance.spill.edge.owed`).

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
