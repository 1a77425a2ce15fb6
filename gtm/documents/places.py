"""Where clients are, as people state it: in requests to be simulated or explained, in expectations, in files of traffic."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator

from gtm.core.model.requests import Location
from gtm.documents import fields as f
from gtm.documents.resources import Document
from gtm.geoip.centres import country_centres
from gtm.geoip.networks import parse_client


def _client(value: str) -> str:
    try:
        return parse_client(value)
    except ValueError as error:
        raise f.invalid("invalid_format", str(error)) from error


Client = Annotated[StrictStr, AfterValidator(_client)]
"""A client's address or network."""


class StatedPlace(Document):
    """Where clients are: a country, coordinates in degrees, or nothing (unknown)."""

    country: f.CountryCode | None = None
    """Without coordinates, the mean position of its addresses."""
    lat: Annotated[f.Number, Field(ge=-90, le=90)] | None = None
    lon: Annotated[f.Number, Field(ge=-180, le=180)] | None = None
    anonymous: f.Flag = False
    """Behind a VPN, a proxy, Tor or a hosting provider."""
    doubtful: f.Flag = False
    """Measured round trips contradict the place."""
    accuracy_km: Annotated[f.Number, Field(ge=0, le=20_040)] | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.lat is None) != (self.lon is None):
            raise f.invalid("missing", "`lat` and `lon` need each other")
        return self

    @property
    def location(self) -> Location:
        """The location that the statement describes."""
        return stated_location(**{name: getattr(self, name) for name in StatedPlace.model_fields})


def stated_location(country: str | None, lat: float | None, lon: float | None, **more: Any) -> Location:
    """The location that somebody states; a country alone is taken for its middle, as an edge does for a database that knows countries only."""
    if lat is None and country is not None:
        lat, lon = country_centres().get(country, (None, None))
    return Location(country=country, lat=lat, lon=lon, source="stated", **more)
