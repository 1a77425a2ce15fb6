"""The jurisdictions that come with gtm, and what is known of the law behind them.

A membership that rests on a decision with an end lapses with it (the start of that day, UTC). Beginnings, and memberships
that are over, are for questions about past days: policies in force are compiled without them, for a clock that is behind
would otherwise bind requests by law of long ago.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from gtm.core.model.policy import Jurisdiction, Term
from gtm.documents import yamls

APPLICABLE = "2018-05-25"
"""Since when the GDPR applies (its Art. 99(2)): earlier beginnings are not kept."""


@dataclass(frozen=True, slots=True)
class AdequacyDecision:
    """A decision of the European Commission under Art. 45 GDPR (or its predecessor); dates are ISO 8601."""

    country: str
    article: str
    """The ground it was taken on, and that it stands on."""
    act: str
    date: str
    """The date on which the decision was adopted."""
    scope: str
    url: str
    until: str | None = field(default=None, kw_only=True)
    """The day on which it lapses, and the membership with it (its start, UTC)."""
    status: str
    """What is known of challenges and renewals."""
    checked: str
    """Where number and dates were compared, and when, or `unverified`."""


@dataclass(frozen=True, slots=True)
class PastMembership:
    """A membership that is over: from one day (always, if None) until the start of another (ISO 8601)."""

    country: str
    since: str | None = field(default=None, kw_only=True)
    """Null: from ever, as far as kept (the GDPR applies since 25 May 2018)."""
    until: str
    """The first day on which it did not hold any more."""
    source: str
    checked: str


@dataclass(frozen=True, slots=True)
class LawNote:
    """A law of one country that concerns where data may be processed."""

    country: str
    act: str
    note: str
    url: str


@cache
def _data() -> dict[str, Any]:
    text = files("gtm.documents").joinpath("data/jurisdictions.yaml").read_bytes()
    document: dict[str, Any] = yamls.load(text)[0]
    return document


@cache
def shipped_jurisdictions(*, history: bool = False) -> tuple[Jurisdiction, ...]:
    """EU, EEA, … as `compile_policy` takes them.

    Args:
        history: with memberships since the GDPR applies (25 May 2018) that are over, and the beginnings of the others.
    """
    found = []
    for item in _data()["jurisdictions"]:
        name = item["name"]
        past = past_memberships().get(name, ()) if history else ()
        terms = [Term(one.country, _day(one.since), _day(one.until)) for one in past]
        for decision in adequacy_decisions().get(name, ()):
            begins = _day(decision.date) if history and decision.date > APPLICABLE else None
            if begins is not None or decision.until is not None:
                terms.append(Term(decision.country, begins, _day(decision.until)))
        members = dict.fromkeys((*item["members"], *(one.country for one in past)))
        found.append(Jurisdiction(name, item["display_name"], tuple(members), item["source"], tuple(terms)))
    return tuple(found)


def _day(day: str | None) -> datetime | None:
    return None if day is None else datetime.fromisoformat(day).replace(tzinfo=UTC)


@cache
def past_memberships() -> dict[str, tuple[PastMembership, ...]]:
    """Name of a shipped jurisdiction → its memberships that are over."""
    return {
        item["name"]: tuple(PastMembership(**one) for one in item["past"])
        for item in _data()["jurisdictions"]
        if "past" in item
    }


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
