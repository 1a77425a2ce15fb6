"""Traffic as documents, and as it was recorded."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StrictStr, model_validator

from gtm.control.errors import Invalid, NotFound
from gtm.core.demand.cells import Cell, cell_of
from gtm.core.demand.traffic import MINUTE, Traffic, TrafficBuilder, TrafficSample
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.documents import fields as f
from gtm.documents.places import StatedPlace
from gtm.documents.resources import Document
from gtm.documents.traffic_csv import TrafficError, read_csv

if TYPE_CHECKING:  # which processes that look at drafts have no use for
    from gtm.storage.session import Database

MAX_CELLS = 100_000
"""Cells accepted in one document."""
MAX_FILE = 8 * 1024 * 1024
"""Characters of a file in a request; larger ones the command adds up."""
LOOK_BACK = timedelta(hours=24)
"""How much recorded traffic is taken unless told otherwise."""
# Centres of the 5° cells at the poles and the date line lie beyond them.
_Lat = Annotated[f.Number, Field(ge=-92.5, le=92.5)]
_Lon = Annotated[f.Number, Field(ge=-182.5, le=182.5)]


class PlaceDocument(StatedPlace):
    """Where clients are: a country, coordinates in degrees, or nothing (unknown)."""

    lat: _Lat | None = None
    lon: _Lon | None = None
    spans: Annotated[tuple[Literal["?", "*"] | f.CountryCode, ...], Field(max_length=len(COUNTRIES) + 1)] = ()
    """In place of the country: those of a client subnet that is in several; `?`: parts that nobody can locate, `*` alone:
    too many parts to look at."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.spans and self.country is not None:
            raise f.invalid("overlap", "give either `country` or `spans`")
        if "*" in self.spans and len(self.spans) > 1:
            raise f.invalid("overlap", "`*` stands alone in `spans`")
        return self

    @property
    def location(self) -> Location:
        return super().location._replace(spans=self.spans)


class RequestDocument(PlaceDocument):
    """A request, but for who makes it."""

    service: f.Name
    tenant: f.Name | None = None
    data_class: f.Name | None = None
    model: f.ModelName | None = None
    priority: Priority | None = None
    """Left out: the service's."""
    family: AddressFamily | None = None
    """Of the addresses that DNS is asked for, at a service whose `families` are separate; left out: none is asked for."""


class CellDocument(RequestDocument):
    """So many requests that are alike."""

    count: Annotated[f.Number, Field(ge=0, le=1e15)]


class SampleDocument(Document):
    """The requests of some time."""

    seconds: Annotated[f.Number, Field(gt=0, le=1e9)]
    """The duration of the sample, in seconds."""
    start: Annotated[f.Number, Field(ge=0, le=1e11)] | None = None
    """When it began, in POSIX seconds."""
    cells: Annotated[tuple[CellDocument, ...], Field(max_length=MAX_CELLS)]

    def sample(self, priorities: Mapping[str, Priority]) -> TrafficSample:
        """The sample that the document describes. `priorities` are those of services, for requests that state none."""
        counts: dict[str, float] = {}
        for item in self.cells:
            request = Request(
                item.service, item.location, item.tenant, item.data_class, item.model, family=item.family
            )
            priority = item.priority or priorities.get(item.service, Priority.REAL_TIME)
            cell = cell_of(request, priority)
            counts[cell] = counts.get(cell, 0.0) + item.count
        return TrafficSample(counts, self.seconds, self.start)


class TrafficDocument(SampleDocument):
    """Traffic, and its busiest interval apart where it is known."""

    peak: SampleDocument | None = None

    def traffic(self, priorities: Mapping[str, Priority]) -> Traffic:
        """The traffic that the document describes; `priorities` as `SampleDocument.sample` takes them."""
        whole = self.sample(priorities)
        return Traffic(whole, whole if self.peak is None else self.peak.sample(priorities))


class TrafficFile(Document):
    """Traffic as the text of a CSV file (docs/simulate.md)."""

    text: Annotated[StrictStr, Field(max_length=MAX_FILE)]
    seconds: Annotated[f.Number, Field(gt=0, le=1e9)] = 3600.0
    """How long its requests took, if it has no times."""

    def traffic(self, priorities: Mapping[str, Priority], locate: Callable[[str], Location]) -> Traffic:
        """The traffic that the file describes.

        Raises:
            Invalid: lines are wrong; each is named.
            NotFound: no line says that anybody asked for anything.
        """
        builder = TrafficBuilder(self.seconds)
        try:
            # As a file that is opened with `newline=""` gives lines, so that quoted ones may go on.
            read_csv("traffic", io.StringIO(self.text, newline=""), builder, locate, priorities)
        except TrafficError as error:
            raise Invalid("the file is no traffic that can be simulated", error.problems) from error
        found = builder.traffic()
        if not any(found.whole.counts.values()):
            raise NotFound("the file has no requests: each line after the first needs a service and a count")
        return found


def traffic_json(traffic: Traffic) -> dict[str, Any]:
    """Traffic as a `TrafficDocument`."""
    peak = None if traffic.peak is traffic.whole else _sample_json(traffic.peak)
    return {**_sample_json(traffic.whole), "peak": peak}


def _sample_json(sample: TrafficSample) -> dict[str, Any]:
    cells = sorted(sample.counts.items(), key=lambda one: -one[1])
    return {
        "seconds": sample.seconds,
        "start": sample.start,
        "cells": [{**cell_json(Cell.parse(text)), "count": count} for text, count in cells],
    }


def cell_json(cell: Cell) -> dict[str, Any]:
    """A cell as a `RequestDocument`."""
    found = asdict(cell)
    if cell.family is None:
        del found["family"]  # an older control does not know it
    return found


async def recorded(database: Database, since: datetime, until: datetime) -> Traffic:
    """The traffic recorded in a time; minutes that were not recorded are not part of it.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as transaction:
        demand = transaction.demand
        busiest = await demand.busiest(since, until)
        steps = await demand.timeline(since, until, until - since) if busiest is not None else []
        if busiest is None or not steps:
            raise NotFound(
                f"no demand is recorded from {since.isoformat()} to {until.isoformat()}: control records it minute by "
                "minute while edges report to it"
            )
        cells = await demand.cells(since, until, None)
        minute = timedelta(seconds=MINUTE)
        peak = await demand.cells(busiest, busiest + minute, None)
        watched = sum(step.seconds for step in await demand.timeline(busiest, busiest + minute, minute))
    return Traffic(
        TrafficSample(
            await asyncio.to_thread(_known, cells), sum(step.seconds for step in steps), since.timestamp()
        ),
        TrafficSample(await asyncio.to_thread(_known, peak), watched, busiest.timestamp()),
    )


async def watched(
    database: Database, since: datetime, until: datetime, services: Collection[str]
) -> tuple[dict[str, float], float, float]:
    """What was recorded in a time: the requests of some services by demand cell, for how many seconds, and all requests."""
    async with database.transaction() as transaction:
        steps = await transaction.demand.timeline(since, until, until - since)
        cells = await transaction.demand.cells(since, until, services) if services else {}
    return cells, sum(step.seconds for step in steps), sum(step.requests for step in steps)


def _known(cells: Mapping[str, float]) -> dict[str, float]:
    """Those that are cells still."""
    found: dict[str, float] = {}
    for text, count in cells.items():
        with suppress(ValueError):
            Cell.parse(text)
            found[text] = count
    return found


def since_now(since: datetime | None, now: float) -> tuple[datetime, datetime]:
    """The time from a moment (24 hours ago, if None) to now."""
    until = datetime.fromtimestamp(now, UTC)
    return (until - LOOK_BACK if since is None else since), until
