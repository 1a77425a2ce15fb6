"""What demand is counted by, from an edge's counters to control's database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gtm.core.model.joined import cut, join

SEPARATOR = "\t"
TIERS = ("dns", "lookup", "redirect", "carry", "authorize")
"""What decisions are asked for by (`Row.via`)."""
LONGEST = 2_000
"""Characters of a row that is read."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is counted apart: service, region (empty: refused), outcome, tier (`via`), ranking class, demand cell.

    `ranking_class` and `cell` are the texts of a `ClassKey` and of a `Cell`: most rows are summed up and never looked into.
    """

    service: str
    region: str
    outcome: str
    via: str
    ranking_class: str
    cell: str

    @classmethod
    def parse(cls, text: str) -> Row:
        """A row from its text.

        Raises:
            ValueError: it is none.
        """
        parts = cut(SEPARATOR, text) if len(text) <= LONGEST else []
        if len(parts) != 6:
            raise ValueError(f"`{text[:100]}` is not a row of demand")
        return cls(*parts)

    @property
    def text(self) -> str:
        """The row as edges report it, and as it is stored."""
        return row_text(self.service, self.region, self.outcome, self.via, self.ranking_class, self.cell)


def row_text(*parts: str) -> str:
    """The text of a row from its fields in order, for who counts by it and needs no `Row`."""
    text = SEPARATOR.join(parts)
    # As `join`, without its call: every look-up makes such a text.
    return join(SEPARATOR, parts) if "%" in text or text.count(SEPARATOR) != 5 else text


# --- Names of ranking classes: the same on every edge, in control, and across revisions. ---


_PARTS, _ORDER = "|", ">"


class ClassKey(NamedTuple):
    """A ranking class by name (`gtm.core.decision.ranking.class_key` says what is in it).

    `order` are the first regions in the order of preference, `digest` stands for all that are allowed. As text
    (`chat|real_time|fra>dub|1f2e3d4c`) it keys plans and demand.
    """

    service: str
    priority: str
    order: tuple[str, ...]
    digest: str

    @classmethod
    def parse(cls, text: str) -> ClassKey:
        """A key from its text.

        Raises:
            ValueError: it is none.
        """
        parts = cut(_PARTS, text)
        if len(parts) != 4:
            raise ValueError(f"`{text[:100]}` is no ranking class: it has {len(parts)} parts instead of 4")
        service, priority, order, digest = parts
        return cls(service, priority, tuple(cut(_ORDER, order)) if order else (), digest)

    @property
    def text(self) -> str:
        """The key as it travels."""
        return join(_PARTS, (self.service, self.priority, join(_ORDER, self.order), self.digest))
