"""The world that the spillover simulation runs in: regions, their clients, a trace's requests made into a day.

A trace is a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens, one request a line, in the order of
time (the form of the Azure LLM inference traces: Patel et al., "Splitwise", ISCA 2024).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gtm.core.model.geometry import great_circle_km

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

PEAK_HOUR = 15.0
"""The local hour of most demand."""


@dataclass(frozen=True, slots=True)
class Area:
    """Clients around a city, and the region they are nearest to. `copies`: how many traces their demand amounts to."""

    region: str
    lat: float
    lon: float
    city: tuple[float, float]
    utc_offset: float
    copies: int
    fenced: bool = False


AREAS = (
    Area("eu-central", 50.11, 8.68, (52.52, 13.40), 1, 8, fenced=True),  # Berlin
    Area("us-east", 39.04, -77.49, (40.71, -74.01), -5, 12),  # New York
    Area("ap-northeast", 35.68, 139.69, (34.69, 135.50), 9, 8),  # Osaka
    Area("eu-west", 53.35, -6.26, (38.72, -9.14), 0, 6, fenced=True),  # Lisbon
    Area("us-west", 45.84, -119.70, (37.77, -122.42), -8, 8),  # San Francisco
    Area("ap-southeast", 1.35, 103.82, (-6.21, 106.85), 7, 6),  # Jakarta
)


@dataclass(frozen=True)
class Rates:
    """How fast a slot works, in tokens per second: prefill reads the context, decode writes what is generated."""

    prefill: float = 10_000.0
    decode: float = 25.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of a real service: arrival in s since the first, context and generated tokens."""

    arrival: Floats
    context: Floats
    generated: Floats


@dataclass(frozen=True)
class Windows:
    """The parts of a day that are simulated: `count` windows of `seconds`, spread evenly.

    The first `warm_up` s of each are not measured.
    """

    count: int = 24
    seconds: int = 150
    warm_up: int = 90

    @property
    def total(self) -> int:
        """Seconds simulated."""
        return self.count * self.seconds

    def measured(self, at: Floats) -> Flags:
        """Which times are in the measured part of their window."""
        return np.asarray(at % self.seconds >= self.warm_up)


@dataclass(frozen=True, slots=True)
class Workload:
    """One day's requests in the order of time: its windows one after the other, without what is between them.

    `at` in s, `area` the clients' (an index), `prefill` and `hold` in s. `cache` is the resolver cache that the client
    asks, -1 for one that asks over HTTP at each request; `draw` is uniform in [0, 1).
    Only `measured` requests count.
    """

    at: Floats
    area: Ints
    prefill: Floats
    hold: Floats
    cache: Ints
    draw: Floats
    measured: Flags
    caches: int
    windows: Windows


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        SystemExit: the file is not a trace: says the line.
    """
    times, context, generated = [], [], []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                times.append(datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp())
                context.append(float(row["ContextTokens"]))
                generated.append(float(row["GeneratedTokens"]))
            except (KeyError, ValueError, TypeError) as error:
                raise SystemExit(
                    f"{path}, line {len(times) + 2}: not a request of a trace ({error!r})"
                ) from error
    if len(times) < 2:
        raise SystemExit(f"{path}: a trace needs at least two requests")
    arrival = np.array(times) - times[0]
    if (np.diff(arrival) < 0).any() or arrival[-1] == 0:
        raise SystemExit(f"{path}: its requests are not in the order of time")
    return Trace(arrival, np.array(context), np.array(generated))


def round_trips(areas: tuple[Area, ...]) -> Floats:
    """The estimated round trip in ms from each area's clients to each area's region."""
    table = np.zeros((len(areas), len(areas)))
    for row, clients in enumerate(areas):
        for column, region in enumerate(areas):
            distance = great_circle_km(clients.city[0], clients.city[1], region.lat, region.lon)
            table[row, column] = (
                16.0 + 0.0175 * distance
            )  # by the great circle alone, in every strategy alike
    return table


def between(areas: tuple[Area, ...]) -> Floats:
    """The estimated round trip in ms between each two regions."""
    return np.array(
        [[16.0 + 0.0175 * great_circle_km(a.lat, a.lon, b.lat, b.lon) for b in areas] for a in areas]
    )


def intensity(area: Area, hour: Floats, peak_to_trough: float) -> Floats:
    """Demand at an hour of the day (UTC) relative to the peak: a sinusoid over the local day."""
    trough = 1 / peak_to_trough
    swing = (1 + np.cos(2 * np.pi * (hour + area.utc_offset - PEAK_HOUR) / 24)) / 2
    return np.asarray(trough + (1 - trough) * swing)


def peak_erlangs(areas: tuple[Area, ...], trace: Trace, rates: Rates) -> Floats:
    """Each area's offered load at its peak: mean arrivals per second × mean service time, in slots."""
    rate = len(trace.arrival) / trace.arrival[-1]
    hold = float(np.mean(trace.context / rates.prefill + trace.generated / rates.decode))
    return np.array([area.copies * rate * hold for area in areas])


def make_day(
    areas: tuple[Area, ...],
    trace: Trace,
    rates: Rates,
    windows: Windows,
    *,
    peak_to_trough: float,
    dns_share: float,
    caches: int,
    generator: np.random.Generator,
) -> Workload:
    """Make a trace into windows of one day of all areas, one after the other, each at its hour's rate.

    In each window an area's demand is as many copies of the trace as its hour asks for, each from a random place and
    repeated as needed. So bursts and sizes keep their order and, nearly, their pace: what is left of a whole number of
    copies slows all clocks of the window.
    """
    parts: list[tuple[Floats, Ints, Ints]] = []
    for window in range(windows.count):
        hour = np.array([24 * (window + 0.5) / windows.count])
        for number, area in enumerate(areas):
            wanted = area.copies * float(intensity(area, hour, peak_to_trough)[0])
            copies = ceil(wanted)
            for _ in range(copies):
                at, request = _cut(trace, wanted / copies, windows.seconds, generator)
                parts.append((at + window * windows.seconds, np.full(len(at), number), request))
    at = np.concatenate([part[0] for part in parts])
    order = np.argsort(at, kind="stable")
    area_of = np.concatenate([part[1] for part in parts])[order]
    request = np.concatenate([part[2] for part in parts])[order]
    prefill = trace.context[request] / rates.prefill
    popularity = zipf(caches)
    cache = generator.choice(caches, len(order), p=popularity) + area_of * caches
    cache[generator.random(len(order)) >= dns_share] = -1
    return Workload(
        at=at[order],
        area=area_of,
        prefill=prefill,
        hold=prefill + trace.generated[request] / rates.decode,
        cache=cache,
        draw=generator.random(len(order)),
        measured=windows.measured(at[order]),
        caches=caches * len(areas),
        windows=windows,
    )


def chosen(day: Workload, which: Flags) -> Workload:
    """A part of a day's requests."""
    return replace(
        day,
        at=day.at[which],
        area=day.area[which],
        prefill=day.prefill[which],
        hold=day.hold[which],
        cache=day.cache[which],
        draw=day.draw[which],
        measured=day.measured[which],
    )


def _cut(trace: Trace, speed: float, seconds: float, generator: np.random.Generator) -> tuple[Floats, Ints]:
    """Arrivals (s) and numbers of a trace's requests, from a random place at a speed."""
    length = trace.arrival[-1] + trace.arrival[-1] / len(trace.arrival)
    begin = generator.uniform(0, length)
    rounds = int((begin + seconds * speed) // length) + 1
    ticks = (trace.arrival[None, :] + length * np.arange(rounds)[:, None]).ravel()
    first, last = np.searchsorted(ticks, (begin, begin + seconds * speed))
    return (ticks[first:last] - begin) / speed, np.arange(first, last) % len(trace.arrival)


def zipf(count: int, exponent: float = 1.0) -> Floats:
    """Shares of `count` populations by Zipf's law; they sum to 1."""
    weights = 1 / np.arange(1, count + 1) ** exponent
    return np.asarray(weights / weights.sum())
