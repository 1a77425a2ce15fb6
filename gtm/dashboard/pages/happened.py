"""What happened: changes, verdicts that changed, alarms and refusals, one below the other, narrowed down by whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.dashboard.charts import moment
from gtm.dashboard.inside import Inside, name
from gtm.dashboard.pages.plan_history import OVER
from gtm.dashboard.pages.simulate import BACK
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

KINDS = {"change": "Changes", "verdict": "Verdicts", "alarm": "Alarms", "refusal": "Refusals"}
"""The kinds of what happened, by which the page can be filtered, with their headings."""
ALARM = "health"
"""The family of actions by which control writes alarms into the audit log."""
PAGE = 50
LITTLE = 0.005
"""Requests per second below which nothing was refused."""


@dataclass(frozen=True, slots=True)
class HappenedFilter:
    """What is shown; None: all. `edges`: verdicts of each edge, too, and not of all together alone. `before`: only what is older (POSIX seconds)."""

    kind: str | None = None
    over: str | None = None
    region: str | None = None
    service: str | None = None
    edges: str | None = None
    before: str | None = None

    @classmethod
    def of(cls, visit: Visit) -> HappenedFilter:
        """The filter that a page's address states."""
        return cls(**{one: visit.query(one) for one in cls.__slots__})

    @property
    def query(self) -> dict[str, str]:
        """The same for an address, without `before`."""
        return {key: value for key, value in asdict(self).items() if value is not None and key != "before"}

    def wants(self, kind: str) -> bool:
        """Whether this kind is told: what cannot be of the region or service asked for is not."""
        if self.kind in KINDS and kind != self.kind:
            return False
        return not (self.region and kind == "refusal") and not (self.service and kind in ("verdict", "alarm"))

    def until(self, now: datetime) -> datetime:
        """The end of what is shown."""
        try:
            return now if self.before is None else min(now, datetime.fromtimestamp(float(self.before), UTC))
        except (ValueError, OverflowError, OSError):
            return now


@page("/happened")
async def _happened(visit: Visit) -> Response:
    chosen, now = HappenedFilter.of(visit), datetime.now(UTC)
    over = chosen.over if chosen.over in OVER else "24h"
    assert over is not None  # noqa: S101 - it has a usual value
    names, found = await asyncio.gather(
        visit.api.list_names(), look(visit.api, chosen, now - BACK[over], now)
    )
    return visit.render(
        "happened.html",
        chosen=chosen,
        over=over,
        spans=OVER,
        kinds=KINDS,
        regions=[one.name for one in names.regions],
        services=names.services,
        older=found["older"] and urlencode({**chosen.query, "before": found["older"]}),
        newest=chosen.before is not None and urlencode(chosen.query),
        **{key: found[key] for key in ("items", "missing")},
    )


async def look(api: Inside, chosen: HappenedFilter, since: datetime, now: datetime) -> dict[str, Any]:
    """The newest that happened, the newest first; `older`: from when on to go on, if there is more; `missing`: what is not told now.

    Args:
        api: asked for whoever looks.
        chosen: what is told.
        since: the earliest time.
        now: the latest.
    """
    until = chosen.until(now)
    if until <= since:
        return {"items": [], "older": None, "missing": []}
    span: dict[str, Any] = {"since": since, "until": until}
    region = None if chosen.region is None else name(chosen.region)
    target = region or chosen.service

    async def audit(family: str | None) -> list[dict[str, Any]] | None:
        found = await api.ask_if_told(
            calls.list_audit(limit=PAGE + 1, action=family, target=target, public=True, **span)
        )
        return None if found is None else [_entry(one) for one in found.items_]

    async def verdicts() -> list[dict[str, Any]] | None:
        vantage = None if chosen.edges else "*"
        found = await api.ask_if_told(
            calls.list_health_changes(limit=PAGE + 1, region=region, vantage=vantage, **span)
        )
        return None if found is None else [_verdict(one) for one in found.items_]

    async def refusals() -> list[dict[str, Any]] | None:
        whole = {**span, "until": now}  # one that begins before `until` may go on behind it
        found = await api.ask_if_told(calls.get_demand_answers(service=chosen.service, **whole))
        if found is None:
            return None
        return [one for one in _refusals(found) if one["at"] < until.timestamp()]

    async def nothing() -> list[dict[str, Any]]:
        return []

    asked = {
        "change": lambda: audit(None),
        "alarm": lambda: audit(ALARM),
        "verdict": verdicts,
        "refusal": refusals,
    }
    told = dict(
        zip(
            asked,
            await asyncio.gather(
                *(ask() if chosen.wants(kind) else nothing() for kind, ask in asked.items())
            ),
            strict=True,
        )
    )
    return {**merged(told), "missing": [KINDS[kind] for kind, several in told.items() if several is None]}


def merged(told: Mapping[str, list[dict[str, Any]] | None]) -> dict[str, Any]:
    """What several lists say, each the newest first: so much of it as fits a page, and is whole."""
    found = sorted(_once(told), key=lambda one: -float(one["at"]))
    if len(found) <= PAGE:
        return {"items": found, "older": None}
    # What is of one moment stands on one page: the next one begins before it.
    last = found[PAGE - 1]["at"]
    return {"items": [one for one in found if one["at"] >= last], "older": last}


def _once(told: Mapping[str, list[dict[str, Any]] | None]) -> Iterator[dict[str, Any]]:
    """Alarms are in the audit log, and so among changes, too."""
    for kind, several in told.items():
        for one in several or ():
            if kind != "change" or one["kind"] == "change":
                yield one


def _entry(one: types.EntryView) -> dict[str, Any]:
    kind = "alarm" if one.action.startswith(f"{ALARM}.") else "change"
    return {"at": moment(one.at).timestamp(), "kind": kind, "entry": one}


def _verdict(one: types.ChangeView) -> dict[str, Any]:
    return {"at": moment(one.at).timestamp(), "kind": "verdict", "verdict": one}


def _refusals(found: types.AnswersView) -> Iterator[dict[str, Any]]:
    """Times in which requests of a service were refused for one reason, without a step in between in which none was."""
    sums: dict[tuple[str, str], list[float]] = {}
    for one in found.series:
        if one.region is None:
            rates = sums.setdefault((one.service, one.outcome), [0.0] * len(found.times))
            for place, rate in enumerate(one.rates):
                rates[place] += rate
    for (service, outcome), rates in sums.items():
        for places in _runs(rates, found.times, found.step_seconds):
            yield {
                "at": found.times[places[0]],
                "until": min(found.times[places[-1]] + found.step_seconds, moment(found.until).timestamp()),
                "kind": "refusal",
                "service": service,
                "outcome": outcome,
                "most": max(rates[place] for place in places),
            }


def _runs(rates: Iterable[float], times: list[float], step: float) -> Iterator[list[int]]:
    run: list[int] = []
    for place, rate in enumerate(rates):
        if run and (rate < LITTLE or times[place] - times[run[-1]] > 1.5 * step):
            yield run
            run = []
        if rate >= LITTLE:
            run.append(place)
    if run:
        yield run
