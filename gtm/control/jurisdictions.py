"""The jurisdictions that come with gtm, and what is known of the law behind them.

A membership that rests on a decision with an end lapses with it (the start of that day, UTC).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from gtm.control import yamls
from gtm.core.model import Jurisdiction, Term


@dataclass(frozen=True, slots=True)
class AdequacyDecision:
    """A decision of the European Commission under Art. 45 GDPR (or its predecessor); dates are ISO 8601.

    `article` is the ground it was taken on, `date` that of its adoption, `until` the day on which it lapses.
    """

    country: str
    article: str
    act: str
    date: str
    scope: str
    url: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class LawNote:
    """A law of one country that concerns where data may be processed."""

    country: str
    act: str
    note: str
    url: str


@cache
def _data() -> dict[str, Any]:
    text = files("gtm.control").joinpath("data/jurisdictions.yaml").read_bytes()
    document: dict[str, Any] = yamls.load(text)[0]
    return document


@cache
def shipped_jurisdictions() -> tuple[Jurisdiction, ...]:
    """EU, EEA, … as `compile_policy` takes them."""
    return tuple(
        Jurisdiction(
            item["name"],
            item["display_name"],
            tuple(item["members"]),
            item["source"],
            tuple(
                Term(
                    decision.country,
                    effective_until=datetime.fromisoformat(decision.until).replace(tzinfo=UTC),
                )
                for decision in adequacy_decisions().get(item["name"], ())
                if decision.until is not None
            ),
        )
        for item in _data()["jurisdictions"]
    )


@cache
def adequacy_decisions() -> dict[str, tuple[AdequacyDecision, ...]]:
    """Name of a shipped jurisdiction → the decisions it rests on."""
    return {
        item["name"]: tuple(AdequacyDecision(**decision) for decision in item["decisions"])
        for item in _data()["jurisdictions"]
        if "decisions" in item
    }


@cache
def law_notes() -> dict[str, tuple[LawNote, ...]]:
    """Country code → laws to know when writing rules about it."""
    notes: dict[str, tuple[LawNote, ...]] = {}
    for item in _data()["laws"]:
        note = LawNote(**item)
        notes[note.country] = (*notes.get(note.country, ()), note)
    return notes
