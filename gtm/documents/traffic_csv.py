"""Traffic from a CSV file: one line per client, network or country, with how many requests it made.

Columns, in any order: `service`, `count`, and `client` (an address) or `country` with `lat` and `lon`; also `tenant`,
`data_class`, `model`, `priority` and `time` (RFC 3339, or POSIX seconds). What a line leaves empty is not known.
Files may be larger than memory: lines are added up by demand cell as they are read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from math import isfinite, nan

from gtm.core.demand.cells import cell_of
from gtm.core.demand.traffic import TrafficBuilder
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.problems import Problem
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.documents.fields import MODEL_PATTERN, NAME_PATTERN, PATTERN_WORDS
from gtm.documents.places import stated_location

COLUMNS = (
    "service",
    "count",
    "client",
    "country",
    "lat",
    "lon",
    "tenant",
    "data_class",
    "model",
    "priority",
    "time",
)
MAX_PROBLEMS = 20
"""Wrong lines after which reading ends."""
MAX_COUNT = 1e15
_KNOWN = 200_000
"""Different lines whose cells are remembered."""
_PATTERNS = {
    "service": re.compile(NAME_PATTERN),
    "tenant": re.compile(NAME_PATTERN),
    "data_class": re.compile(NAME_PATTERN),
    "model": re.compile(MODEL_PATTERN),
}
_EARLIEST, _LATEST = 0.0, 1e11
_PLACE = frozenset({"client", "country", "lat", "lon"})

Locate = Callable[[str], Location]


class TrafficError(Exception):
    """A file that is no traffic. `problems` says where and what, one for each wrong line, twenty at most."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    """What is wrong in a column."""

    def __init__(self, column: str, code: str, message: str) -> None:
        super().__init__(message)
        self.column = column
        self.code = code


def read_csv(
    name: str,
    lines: Iterable[str],
    builder: TrafficBuilder,
    locate: Locate,
    priorities: Mapping[str, Priority],
) -> int:
    """Add the traffic of a CSV file up.

    Args:
        name: of the file, for messages.
        lines: the text; may raise `UnicodeDecodeError`.
        builder: what it is added to.
        locate: where an address is; raises `ValueError` for what is none.
        priorities: service → its priority, for lines that state none.

    Returns:
        How many lines there were.

    Raises:
        TrafficError: the file is no CSV, lacks a column, or has wrong lines; nothing of it is to be used.
    """
    return _Reader(name, builder, locate, priorities).read(lines)


class _Reader:
    def __init__(
        self, name: str, builder: TrafficBuilder, locate: Locate, priorities: Mapping[str, Priority]
    ) -> None:
        self._name = name
        self._builder = builder
        self._locate = locate
        self._priorities = priorities
        self._cells: dict[tuple[str, ...], str] = {}
        self._columns: tuple[str, ...] = ()

    def read(self, lines: Iterable[str]) -> int:
        rows = csv.reader(_without_mark(lines), strict=True)
        problems: list[Problem] = []
        count = 0
        try:
            header = next(rows, [])
            self._columns = tuple(column.strip().lower() for column in header)
            problems += self._header()
            if problems:
                raise TrafficError(problems)
            count_at = self._columns.index("count")
            time_at = self._columns.index("time") if "time" in self._columns else None
            for row in rows:
                if not row:
                    continue
                count += 1
                try:
                    self._add(row, count_at, time_at)
                except _Wrong as error:
                    problems.append(self._problem(rows.line_num, error.column, error.code, str(error)))
                    if len(problems) >= MAX_PROBLEMS:
                        break
        except csv.Error as error:
            problems.append(self._problem(rows.line_num, "", "invalid_format", f"is not CSV: {error}"))
        except UnicodeDecodeError as error:
            message = f"is not UTF-8 text ({error.reason})"
            problems.append(self._problem(rows.line_num + 1, "", "invalid_format", message))
        if problems:
            raise TrafficError(problems)
        return count

    def _header(self) -> Iterator[Problem]:
        if not any(self._columns):
            known = ", ".join(COLUMNS)
            message = f"the first line must name the columns: service, count, and some of {known}"
            yield self._problem(1, "", "missing", message)
            return
        for column in dict.fromkeys(self._columns):
            if column not in COLUMNS:
                known = ", ".join(COLUMNS)
                yield self._problem(1, column, "unknown_field", f"unknown column; known are {known}")
            elif self._columns.count(column) > 1:
                yield self._problem(1, column, "duplicate", "the column is there twice")
        for column in ("service", "count"):
            if column not in self._columns:
                yield self._problem(1, column, "missing", "the column is missing")
        if ("lat" in self._columns) != ("lon" in self._columns):
            yield self._problem(1, "lat", "missing", "`lat` and `lon` need each other")

    def _add(self, row: list[str], count_at: int, time_at: int | None) -> None:
        if len(row) != len(self._columns):
            message = f"has {len(row)} values for {len(self._columns)} columns"
            raise _Wrong("", "invalid_format", message)
        count = _count(row[count_at])
        at = None if time_at is None or not row[time_at].strip() else _time(row[time_at].strip())
        row[count_at] = ""
        if time_at is not None:
            row[time_at] = ""
        key = tuple(row)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cell(dict(zip(self._columns, (value.strip() for value in row), strict=True)))
            if len(self._cells) >= _KNOWN:
                self._cells.clear()
            self._cells[key] = cell
        self._builder.add(cell, count, at)

    def _cell(self, values: dict[str, str]) -> str:
        for column, pattern in _PATTERNS.items():
            value = values.get(column, "")
            if column == "service" and not value:
                raise _Wrong(column, "missing", "is empty: say which service the requests are for")
            if value and not (len(value) <= 200 and pattern.fullmatch(value)):
                raise _Wrong(column, "invalid_format", f"`{_cut(value)}` {PATTERN_WORDS[pattern.pattern]}")
        stated = values.get("priority", "")
        try:
            priority = Priority(stated) if stated else None
        except ValueError:
            known = ", ".join(item.value for item in Priority)
            message = f"`{_cut(stated)}` is none of {known}"
            raise _Wrong("priority", "invalid_choice", message) from None
        request = Request(
            values["service"],
            self._location(values),
            values.get("tenant") or None,
            values.get("data_class") or None,
            values.get("model") or None,
        )
        return cell_of(request, priority or self._priorities.get(values["service"], Priority.REAL_TIME))

    def _location(self, values: dict[str, str]) -> Location:
        client = values.get("client", "")
        stated = sorted(column for column in _PLACE if values.get(column))
        if client:
            if len(stated) > 1:
                others = ", ".join(f"`{column}`" for column in stated if column != "client")
                raise _Wrong("client", "overlap", f"give either `client` or {others}, not both")
            try:
                return self._locate(client)
            except ValueError as error:
                raise _Wrong("client", "invalid_format", str(error)) from error
        country = values.get("country", "") or None
        if country is not None and country not in COUNTRIES:
            message = f"`{_cut(country)}` is not a country code (ISO 3166-1 alpha-2, upper case)"
            raise _Wrong("country", "unknown_reference", message)
        lat, lon = _degrees(values, "lat", 90), _degrees(values, "lon", 180)
        if (lat is None) != (lon is None):
            raise _Wrong("lat", "missing", "`lat` and `lon` need each other")
        return stated_location(country, lat, lon)

    def _problem(self, line: int, column: str, code: str, message: str) -> Problem:
        where = f", column `{_cut(column)}`" if column else ""
        return Problem(f"{self._name}: line {line}{where}", code, message)


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the byte order mark that some programs begin files with."""
    for number, line in enumerate(lines):
        yield line.removeprefix("\ufeff") if number == 0 else line


def _number(text: str) -> float:
    """A number; what is none is not a number to Python either."""
    try:
        return float(text)
    except ValueError:
        return nan


def _count(text: str) -> float:
    count = _number(text)
    if not 0 <= count <= MAX_COUNT:
        raise _Wrong("count", "out_of_range", f"`{_cut(text)}` is not a number of requests")
    return count


def _time(text: str) -> float:
    try:
        at = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            message = f"`{_cut(text)}` is neither a time with its zone such as 2026-01-31T12:00:00Z nor POSIX seconds"
            raise _Wrong("time", "invalid_format", message) from None
        at = moment.timestamp()
    if not (isfinite(at) and _EARLIEST <= at <= _LATEST):
        raise _Wrong("time", "out_of_range", f"`{_cut(text)}` is no time after 1970")
    return at


def _degrees(values: dict[str, str], column: str, most: int) -> float | None:
    text = values.get(column, "")
    if not text:
        return None
    value = _number(text)
    if not -most <= value <= most:
        raise _Wrong(
            column, "out_of_range", f"`{_cut(text)}` is not a number of degrees from -{most} to {most}"
        )
    return value


def _cut(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"
