"""Curves over time as templates have them, and what happened beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtm.client import types

MOST_MARKS = 24
"""Marks of a time axis, the newest: so many numbers can be told apart."""
_DIGITS = 5
"""Of a curve's values: more cannot be seen."""


def moment(text: str) -> datetime:
    """A time of the API's."""
    return datetime.fromisoformat(text).astimezone(UTC)


def drawn(value: float | None) -> float | None:
    """A value of a curve."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def chart(
    curves: Mapping[str, Sequence[float | None]],
    unit: str,
    times: Sequence[float],
    step: float,
    span: tuple[datetime, datetime],
    *,
    marks: Iterable[Mapping[str, Any]] = (),
    sync: str = "",
) -> dict[str, Any]:
    """A chart as `charts.js` draws it.

    Args:
        curves: by name, each as long as `times`; None: nothing is known.
        unit: `%`, `ms` or `/s`.
        times: POSIX seconds.
        step: seconds from one to the next, where nothing is missing.
        span: the axis.
        marks: of `marks`.
        sync: charts of one name show the same moment.
    """
    return {
        "unit": unit,
        "times": times,
        "since": span[0].timestamp(),
        "until": span[1].timestamp(),
        "step": step,
        "sync": sync,
        "marks": [{name: one[name] for name in ("at", "number", "kind")} for one in marks],
        "series": [
            {"name": name, "values": [drawn(value) for value in values]} for name, values in curves.items()
        ],
    }


def marks(
    since: datetime,
    revisions: Sequence[types.RevisionSchema],
    verdicts: Sequence[types.ChangeView],
) -> tuple[list[dict[str, Any]], int]:
    """What happened from a time on, the oldest first, with numbers; and how many older ones are left out."""
    found: list[dict[str, Any]] = [
        {"at": moment(one.created_at).timestamp(), "kind": "", "revision": one}
        for one in revisions
        if moment(one.created_at) >= since
    ]
    for one in verdicts:
        kind = {"up": "good", "down": "bad"}.get(one.after, "")
        found.append({"at": moment(one.at).timestamp(), "kind": kind, "verdict": one})
    found.sort(key=lambda one: float(one["at"]))
    kept = found[-MOST_MARKS:]
    return [{**one, "number": number} for number, one in enumerate(kept, 1)], len(found) - len(kept)
