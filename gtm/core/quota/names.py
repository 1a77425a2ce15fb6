"""Names of quotas: what a lease, a token and a report are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from gtm.core.model.joined import join, unescaped

_INTO = "spill_in"
_SEPARATOR = ":"

QuotaText = NewType("QuotaText", str)
"""A `QuotaName` as text, and nothing but `QuotaName.text` makes one of a name. Options, leases and buckets have this: a text
knows its hash, where a `QuotaName` would work it out anew for every bucket of every request that spills."""


@dataclass(frozen=True, slots=True)
class QuotaName:
    """A quota: a spillover rule of this name, or (`into`) what the region of this name takes of others' demand.

    As text a rule's is its name, a region's `spill_in:REGION`.
    """

    name: str
    into: bool = False

    @classmethod
    def parse(cls, text: str) -> QuotaName:
        """A quota from its text; every text is one."""
        prefix, separator, region = text.partition(_SEPARATOR)
        if separator and prefix == _INTO:
            return cls(unescaped(_SEPARATOR, region), into=True)
        return cls(unescaped(_SEPARATOR, text))

    @property
    def text(self) -> QuotaText:
        """The name as it travels."""
        return QuotaText(join(_SEPARATOR, (_INTO, self.name) if self.into else (self.name,)))
