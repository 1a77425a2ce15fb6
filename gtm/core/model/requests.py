"""Requests, and where clients are: what is known, and what a fence looks at of it (of a subnet, all its parts together).

What a request states of itself, its host name may state too. Law: nothing is loosened by putting two statements together. What
one leaves open the other may say; where they differ there is no reading that is the strictest, and the request is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.regions import AddressFamily
from gtm.core.model.services import HostName, Priority


class Location(NamedTuple):  # made for each client that is new: a frozen dataclass takes four times as long
    """Where a client is, as far as a GeoIP database or an operator's override says. None: unknown.

    `network` is the widest CIDR around the client for which all of this holds: its length is the SCOPE
    PREFIX-LENGTH of a DNS answer (RFC 7871 §7.2.1). `source` names what said so: `geoip`, `override` or `none`.
    `anonymous`: the network is a VPN, a proxy, Tor or a hosting provider, so that the client may be anywhere.
    `accuracy_km` is the radius around the coordinates within which the database expects the client. `central`: nobody
    said coordinates, and these are the middle of its country. `doubtful`: measured round trips contradict it
    (docs/latency.md); whoever locates clients leaves it False, for a ranking finds out by its latency table.

    A client may be a subnet, of which DNS resolvers keep the answer for every part. `subnet` is it, where it holds more
    than `network`. `spans` are its countries, where what a fence looks at differs inside it: `?` for parts that nobody
    can locate, `*` alone for one of too many parts to look at. Then `anonymous` says that some part is, `accuracy_km` is
    the worst, and `country` the one that all parts are in. `parts` are its networks and what is claimed of each
    (`gtm.core.latency.doubt.claim_of`), but those that an override places.
    """

    country: str | None = None
    subdivision: str | None = None
    continent: str | None = None
    lat: float | None = None
    lon: float | None = None
    asn: int | None = None
    network: str | None = None
    prefix_length: int = 0
    source: str = "none"
    anonymous: bool = False
    accuracy_km: float | None = None
    subnet: str | None = None
    spans: tuple[str, ...] = ()
    central: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    doubtful: bool = False


UNKNOWN_LOCATION = Location()
UNLOCATED = "?"
"""Among the countries that a subnet spans: a part of it that nobody can locate."""
ANYWHERE = ("*",)
"""What a subnet spans that has too many parts to look at."""


class Request(NamedTuple):  # made for each question
    """One question: which region should serve this? None: the request does not say.

    `family` is that of the addresses asked for: of A and AAAA at services whose families are separate
    (`CompiledService.pools`), None of all else.
    """

    service: str
    location: Location = UNKNOWN_LOCATION
    tenant: str | None = None
    data_class: str | None = None
    model: str | None = None
    affinity: str | None = None
    priority: Priority | None = None
    family: AddressFamily | None = None


class LocationFacts(NamedTuple):
    """All of a location that a fence depends on: locations with equal facts have equal fences.

    `countries` has one for each that some part is in, None for parts whose country is unknown. `anonymous`: some part
    is. `accuracy_km` is that of the worst part: 0 where an operator vouches for the country, infinite where nobody
    says. `mixed`: parts of a subnet differ; `anywhere`: there are too many to look at. `doubtful`: of some part that no
    operator vouches for.

    A rule concerns a part for its country, for its anonymity, for doubt, or for its accuracy, each by itself. So it concerns
    some part exactly if it concerns what all parts have together, and no more has to be kept of them.
    """

    countries: tuple[str | None, ...]
    anonymous: bool
    accuracy_km: float
    mixed: bool
    anywhere: bool
    doubtful: bool


_ALONE: Mapping[str | None, tuple[str | None, ...]] = {code: (code,) for code in COUNTRIES}
_NOWHERE: tuple[str | None, ...] = (None,)


def location_facts(location: Location) -> LocationFacts:
    """What a fence looks at of a location; fit to be part of a key under which fences are remembered."""
    accuracy = inf if location.accuracy_km is None else location.accuracy_km
    if location.spans:
        countries = tuple(code if code in COUNTRIES else None for code in location.spans)
        anywhere = location.spans == ANYWHERE
        return LocationFacts(countries, location.anonymous, accuracy, True, anywhere, location.doubtful)
    countries = _ALONE.get(location.country, _NOWHERE)
    if location.source == "override":
        return LocationFacts(countries, False, 0.0, False, False, False)
    # As `LocationFacts(…)`, in two thirds of the time: this is the one that nearly every client takes.
    return tuple.__new__(
        LocationFacts, (countries, location.anonymous, accuracy, False, False, location.doubtful)
    )


def spanning(first: Location, subnet: str, parts: Collection[LocationFacts] | None) -> Location:
    """The location of a client subnet.

    Args:
        first: the location of its first address. Its coordinates stay: they only rank, and a wrong rank costs time,
            while a wrong country opens a fence.
        subnet: its CIDR.
        parts: the facts of all its parts; None: they are too many to look at.
    """
    if parts is None:
        return first._replace(
            country=None,
            subdivision=None,
            continent=None,
            source="mixed",
            accuracy_km=None,
            subnet=subnet,
            spans=ANYWHERE,
        )
    if len(parts) == 1:
        return first._replace(subnet=subnet)
    spans = sorted(
        {country or UNLOCATED for facts in parts for country in facts.countries},
        key=lambda country: (country == UNLOCATED, country),
    )
    one = spans[0] if len(spans) == 1 and spans[0] != UNLOCATED else None
    worst = max(facts.accuracy_km for facts in parts)
    return first._replace(
        country=one,
        subdivision=None,
        continent=None if one is None else first.continent,
        source="mixed",
        anonymous=any(facts.anonymous for facts in parts),
        accuracy_km=None if worst == inf else worst,
        doubtful=any(facts.doubtful for facts in parts),
        subnet=subnet,
        spans=tuple(spans),
    )


class ContradictionError(ValueError):
    """A request states another tenant or data class than the host name that it came by."""

    def __init__(self, kind: str, host: HostName, named: str, said: str) -> None:
        super().__init__(
            f"the request states the {kind} `{said}`, but the host name `{host.name}` is for the {kind} `{named}`: use a host "
            f"name of that {kind}, or leave the statement out"
        )


def agreed(host: HostName, tenant: str | None, data_class: str | None) -> tuple[str | None, str | None]:
    """The tenant and data class of a request that came by a host name.

    Args:
        host: the name, with what it states.
        tenant: that the request states; None: none.
        data_class: likewise.

    Raises:
        ContradictionError: it states another than the name.
    """
    return (
        _one("tenant", host, host.tenant, tenant),
        _one("data class", host, host.data_class, data_class),
    )


def _one(kind: str, host: HostName, named: str | None, said: str | None) -> str | None:
    if named is not None and said is not None and named != said:
        raise ContradictionError(kind, host, named, said)
    return said if named is None else named
