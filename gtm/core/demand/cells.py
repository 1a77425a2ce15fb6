"""Demand, as edges count it: by cell, a kind of request that no policy is needed to understand.

A cell says what a request was (service, country, whereabouts, tenant, data class, model, priority), not what became of
it. So the same counts feed the planner under this revision, and a simulation under any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.joined import cut, escaped, join
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import ANYWHERE, UNLOCATED, Location, Request, location_facts
from gtm.core.model.services import Priority

CELL_DEGREES = 5.0
"""Cells are 5° wide: within one, estimates differ by less (some 6 ms) than estimates err."""

SEPARATOR = "|"
"""Between the parts of a cell's text, of which the service is the first."""
_SPAN = "+"
"""Between the countries that a client subnet spans."""
MAX_SPAN = 8
"""How many countries a cell tells apart; a subnet that spans more may be anywhere: never surer than its requests."""
_FLAGS = {
    (False, False): "",
    (True, False): "anonymous",
    (False, True): "doubtful",
    (True, True): "anonymous+doubtful",
}
"""What a cell says of whether its clients are anonymous, and whether their location is doubtful."""
_RADII = (10.0, 50.0, 200.0, 1000.0, 20_040.0)
"""Radii of accuracy that cells tell apart, in km; the last is half the equator."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A demand cell. `lat` and `lon` are of its centre, None where the location was unknown.

    `accuracy_km` bounds the accuracy radius of its clients' locations, where the database has one. `doubtful`: measurements contradict them. `spans` are the
    countries of client subnets that are in several (as `Location.spans`), which have no `country`. `family` is that of the request
    (`Request.family`), the last part of a cell's text, which is left out where there is none.
    """

    service: str
    country: str | None
    lat: float | None
    lon: float | None
    tenant: str | None
    data_class: str | None
    model: str | None
    priority: Priority
    anonymous: bool = False
    accuracy_km: float | None = None
    spans: tuple[str, ...] = ()
    doubtful: bool = False
    family: AddressFamily | None = None

    @classmethod
    def parse(cls, text: str) -> Cell:
        """A cell from its text.

        Raises:
            ValueError: it is none.
        """
        parts = cut(SEPARATOR, text)
        if len(parts) not in {10, 11}:
            raise ValueError(
                f"`{text[:100]}` is not a demand cell: it has {len(parts)} parts instead of 10 or 11"
            )
        service, country, lat, lon, tenant, data_class, model, priority, flags, accuracy, *family = parts
        if bool(lat) != bool(lon) or flags not in _FLAGS.values():
            raise ValueError(f"`{text[:100]}` is not a demand cell")
        spans = _spans(country)
        return cls(
            service=service,
            country=None if spans else country or None,
            lat=_degrees(lat, 90) if lat else None,
            lon=_degrees(lon, 180) if lon else None,
            tenant=tenant or None,
            data_class=data_class or None,
            model=model or None,
            priority=Priority(priority),
            anonymous="anonymous" in flags,
            doubtful="doubtful" in flags,
            accuracy_km=_known_radius(accuracy) if accuracy else None,
            spans=spans,
            family=AddressFamily(family[0]) if family else None,
        )

    @property
    def request(self) -> Request:
        """A request as they are in this cell."""
        location = Location(
            country=self.country,
            lat=self.lat,
            lon=self.lon,
            source="cell",
            anonymous=self.anonymous,
            accuracy_km=self.accuracy_km,
            spans=self.spans,
            doubtful=self.doubtful,
        )
        return Request(
            self.service,
            location,
            self.tenant,
            self.data_class,
            self.model,
            priority=self.priority,
            family=self.family,
        )


def cell_of(request: Request, priority: Priority) -> str:
    """The text of a request's cell."""
    location = request.location
    facts = location_facts(location)
    return join(
        SEPARATOR,
        (
            request.service,
            _country(location),
            _centre(location.lat),
            _centre(location.lon),
            request.tenant or "",
            request.data_class or "",
            request.model or "",
            priority.value,
            _FLAGS[facts.anonymous, facts.doubtful],
            _radius(facts.accuracy_km),
            *(() if request.family is None else (request.family.value,)),
        ),
    )


def with_service(cell: str, service: str) -> str:
    """The text of the cell of the same requests to another service."""
    return escaped(SEPARATOR, service) + cell[cell.index(SEPARATOR) :]


def _country(location: Location) -> str:
    """The country, or those that a subnet spans: `DE+US+?`, `*`."""
    if not location.spans:
        return location.country or ""
    if len(location.spans) > MAX_SPAN:
        return ANYWHERE[0]
    alone = len(location.spans) < 2 and location.spans != ANYWHERE
    return location.country or "" if alone else _SPAN.join(location.spans)


def _spans(country: str) -> tuple[str, ...]:
    """What a cell's country says that a subnet spans; nothing for one country."""
    if country == ANYWHERE[0]:
        return ANYWHERE
    spans = tuple(country.split(_SPAN))
    if len(spans) == 1:
        return ()
    if len(spans) > MAX_SPAN or not all(code in COUNTRIES or code == UNLOCATED for code in spans):
        raise ValueError(f"`{country[:100]}` are not up to {MAX_SPAN} countries")
    return spans


def _degrees(text: str, most: int) -> float:
    value = float(text)
    if not -most - CELL_DEGREES <= value <= most + CELL_DEGREES:  # also keeps NaN out
        raise ValueError(f"`{text}` is not a number of degrees up to {most}")
    return value


def _radius(km: float) -> str:
    """A radius of accuracy in km as the next of few that is no smaller: a cell is never surer than its requests."""
    if km == inf:
        return ""
    return f"{next((known for known in _RADII if km <= known), _RADII[-1]):g}"


def _known_radius(text: str) -> float:
    value = float(text)
    if value not in _RADII:
        raise ValueError(f"`{text}` is not one of a cell's radii")
    return value


def _centre(degrees: float | None) -> str:
    if degrees is None:
        return ""
    return f"{(floor(degrees / CELL_DEGREES) + 0.5) * CELL_DEGREES:g}"
