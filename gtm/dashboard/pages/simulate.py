"""Simulate: what a draft, or what may happen, would make of traffic, as `gtm simulate` works it out. The address says all of what is asked."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.responses import Response

from gtm.client.generated import control_calls as calls
from gtm.dashboard import static_files
from gtm.dashboard.drafts import Draft
from gtm.dashboard.effects import latency_curves, told
from gtm.dashboard.form_bodies import MAX_UPLOAD
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.pages.ask import choices
from gtm.dashboard.pages.policy.revisions import shown
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

TRAFFIC = {
    "now": "as of this moment",
    "1h": "of the last hour",
    "24h": "of the last 24 hours",
    "7d": "of the last 7 days",
}
"""What can be simulated with: the choice in the address, in words."""
BACK = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
"""Those that are recorded: how far back."""
USUAL = "24h"
"""What `gtm simulate --traffic recorded` takes too."""
EVENTS = {"down": "fails", "drain": "drains", "capacity": "has capacity"}
"""What may happen to a region: the parameter of the address, in words."""
LASTS: Mapping[str, tuple[str, float]] = {
    "1m": ("a minute", 60.0),
    "1h": ("an hour", 3600.0),
    "24h": ("a day", 86_400.0),
    "7d": ("a week", 604_800.0),
}
"""How long a file's requests took: the choice, in words, in seconds."""
MOST_EVENTS = 100
_COUNTRIES = 20


@dataclass(frozen=True, slots=True)
class SimulationAsked:
    """What is to be simulated. Factors are text, as they were written: the API says what is wrong with them.

    `file` is the text of one with traffic, which took as long as `lasts` says if it has no times; empty: there is none.
    `events` are (what, region, percent of its capacity now), `services` (service, factor); `demand` a factor of all requests.
    """

    traffic: str = USUAL
    events: Sequence[tuple[str, str, str]] = ()
    demand: str = ""
    services: Sequence[tuple[str, str]] = ()
    at: str = ""
    draft: Draft | None = field(default=None)
    file: str = ""
    lasts: str = "1h"

    @classmethod
    def of_address(cls, query: QueryParams) -> Self:
        """What an address asks.

        Raises:
            ApiProblem: 400, its draft is none.
        """
        events = [(what, *_pair(text)) for what in EVENTS for text in query.getlist(what) if text.strip(" :")]
        return cls(
            traffic=_known(query.get("traffic", "")),
            events=events[:MOST_EVENTS],
            demand=query.get("demand", "").strip(),
            services=[_pair(text) for text in query.getlist("service") if text.strip(" :")][:MOST_EVENTS],
            at=query.get("at", "").strip(),
            draft=Draft.of_link(query["d"]) if query.get("d") else None,
        )

    @classmethod
    def of_form(cls, form: Mapping[str, str]) -> Self:
        """What the form asks: its rows are numbered; those without a region, or a service, say nothing.

        Raises:
            ApiProblem: its draft is none, or too large.
        """
        rows = range(MOST_EVENTS)
        events = [
            (form.get(f"what{row}", "down"), form[f"region{row}"], form.get(f"percent{row}", "").strip())
            for row in rows
            if form.get(f"region{row}", "").strip() and form.get(f"what{row}") in EVENTS
        ]
        services = [
            (form[f"service{row}"].strip(), form.get(f"factor{row}", "").strip())
            for row in rows
            if form.get(f"service{row}", "").strip()
        ]
        return cls(
            traffic=_known(form.get("traffic", "")),
            events=events,
            demand=form.get("demand", "").strip(),
            services=services,
            at=form.get("at", "").strip(),
            draft=Draft.of_form(form) if form.get("draft") else None,
            file=form.get("file", ""),
            lasts=form.get("lasts", "1h") if form.get("lasts") in LASTS else "1h",
        )

    @property
    def address(self) -> str | None:
        """Where it can be shared; None: its draft is too long for that, or it has a file."""
        if self.file:
            return None
        packed = None if self.draft is None else self.draft.packed
        if self.draft is not None and packed is None:
            return None
        said = [("traffic", self.traffic)]
        said += [
            (what, f"{region}:{percent}" if what == "capacity" else region)
            for what, region, percent in self.events
        ]
        said += [("demand", self.demand)] if self.demand else []
        said += [("service", f"{name}:{factor}") for name, factor in self.services]
        said += [("at", self.at)] if self.at else []
        said += [("d", packed)] if packed else []
        return f"/simulate?{urlencode(said)}"

    @property
    def scenario(self) -> dict[str, Any]:
        """As the API takes it; what is no number stays text, for the API to say so."""
        found: dict[str, Any] = {
            "down": [region for what, region, _ in self.events if what == "down"],
            "drain": [region for what, region, _ in self.events if what == "drain"],
            "capacity": {
                region: _percent(percent) for what, region, percent in self.events if what == "capacity"
            },
            "services": {name: _number(factor) for name, factor in self.services},
            "demand": _number(self.demand) if self.demand else None,
            "at": _zoned(self.at) if self.at else None,
        }
        return {key: value for key, value in found.items() if value not in (None, [], {})}

    def body(self, policy: Mapping[str, Any] | None, now: datetime) -> Any:
        """What the API is asked; `policy` is what the draft says."""
        asked: dict[str, Any] = {"scenario": self.scenario, "traffic": "current"}
        if self.draft is not None:
            asked |= {"policy": policy or {}, **self.draft.partial}
        if self.file:
            asked |= {"traffic_csv": {"text": self.file, "seconds": LASTS[self.lasts][1]}}
        elif self.traffic in BACK:
            asked |= {"traffic": "recorded", "since": (now - BACK[self.traffic]).isoformat()}
        return asked


@page("/simulate", methods=("GET", "POST"), files=True)
async def _simulate(visit: Visit) -> Response:
    """The form; and the report, which a part of the page asks for once it is shown, since it takes seconds."""
    if visit.request.method == "POST":
        asked = SimulationAsked.of_form(await visit.form())
        if asked.address is not None:
            return visit.go(asked.address)
        return await _page(visit, asked, run=True)
    asked = SimulationAsked.of_address(visit.request.query_params)
    if visit.partial:
        return visit.render("simulate_report.html", **await _report(visit.api, asked))
    return await _page(visit, asked, run=visit.query("show") == "now")


async def _page(visit: Visit, asked: SimulationAsked, *, run: bool) -> Response:
    names = await choices(visit.api)
    report = await _report(visit.api, asked) if run else {"asked": asked, "traffic": TRAFFIC, "lasts": LASTS}
    return visit.render(
        "simulate.html",
        **report,
        names=names,
        kinds=EVENTS,
        most_kib=MAX_UPLOAD >> 10,
        events=[*asked.events, *[("down", "", "")] * 2],
        services=[*asked.services, ("", "")],
        run=run,
        wanted=bool(visit.request.query_params) or run,
        called=None if asked.draft is None else asked.draft.called(await asked.draft.read(visit.api)),
    )


async def _report(api: Inside, asked: SimulationAsked) -> dict[str, Any]:
    """What `simulate_report.html` shows: the simulation with the draft's findings, or what the matter is."""
    facts: dict[str, Any] = {
        "asked": asked,
        "traffic": TRAFFIC,
        "lasts": LASTS,
        "problem": None,
        "effect": None,
        "curves": None,
        "tried": None,
        "land": static_files.url("vendor/countries-110m.json"),
        "commands": commands(asked),
        **shown([]),
    }
    try:
        policy = None if asked.draft is None else (await asked.draft.read(api)).policy
        if asked.draft is not None and policy is None:
            words = {"title": "The draft has problems", "detail": "open it at its own page: they stand there"}
            return {**facts, "problem": words}
        body = asked.body(policy, datetime.now(UTC))
        made, tried = await asyncio.gather(api.simulate_policy(body), _tried(api, asked.draft, policy))
    except ApiProblem as error:
        return {**facts, "problem": error.document}
    changes = {} if tried is None else shown(tried.changes)
    return {
        **facts,
        "tried": tried,
        **changes,
        "effect": told(made, _COUNTRIES),
        "curves": latency_curves(*(made.average[side].latency_ms for side in ("before", "after"))),
    }


async def _tried(
    api: Inside, draft: Draft | None, policy: Mapping[str, Any] | None
) -> types.PolicyChanged | None:
    """What applying the draft would change, with what is perhaps not meant; None: there is no draft, or it cannot be applied."""
    if draft is None:
        return None
    body: Any = {"policy": policy or {}, **draft.partial, "dry_run": True}
    return await api.ask_if_told(calls.apply_policy(body))


def commands(asked: SimulationAsked) -> list[str]:
    """What does the same without a browser."""
    options = ["--policy FOLDER"] if asked.draft is not None else []
    options += (
        ["--traffic FILE.csv", f"--duration {asked.lasts}"]
        if asked.file
        else ["--traffic current"]
        if asked.traffic == "now"
        else ["--traffic recorded", f"--since {asked.traffic}"]
    )
    for what, region, percent in asked.events:
        value = f"{region}={_percent(percent)}" if what == "capacity" else region
        options.append(f"--{what} {shlex.quote(value)}")
    options += [f"--demand {shlex.quote(asked.demand)}"] if asked.demand else []
    options += [f"--demand {shlex.quote(f'{name}={factor}')}" for name, factor in asked.services]
    options += [f"--at {shlex.quote(_zoned(asked.at))}"] if asked.at else []
    body: dict[str, Any] = {"scenario": asked.scenario, "traffic": "current"}
    if asked.file:
        body = {"scenario": asked.scenario, "traffic_csv": {"text": "…", "seconds": LASTS[asked.lasts][1]}}
    elif asked.traffic in BACK:
        body |= {"traffic": "recorded", "since": "RFC 3339"}
    if asked.draft is not None:
        body |= {"policy": "…", "partial": not asked.draft.whole}
    document = shlex.quote(json.dumps(body, ensure_ascii=False))
    call = 'curl -X POST -H "Authorization: Bearer $GTM_TOKEN" "$GTM_CONTROL_URL/v1/policy:simulate"'
    return [
        f"gtm simulate {' '.join(options)} --html report.html",
        f'{call} -H "Content-Type: application/json" -d {document}',
    ]


def _known(text: str) -> str:
    return text if text in TRAFFIC else USUAL


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


def _number(text: str) -> float | str:
    try:
        found = float(text)
    except ValueError:
        return text
    return found if abs(found) < float("inf") else text


def _percent(text: str) -> float | str:
    found = _number(text or "100")
    return round(found / 100, 6) if isinstance(found, float) else found


def _zoned(text: str) -> str:
    """A time as browsers' forms write it, in UTC unless it says otherwise."""
    return text if text[-1:] in "Zz" or "+" in text[10:] or "-" in text[10:] else f"{text}Z"
