"""Lists of regions, for proxies that choose among them by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from gtm.core.model.regions import Endpoint


@dataclass(frozen=True, slots=True)
class ListedRegion:
    """A region of a list. `endpoints` are those that are up, with the addresses that are."""

    region: str
    share: float
    """Its part of such requests, 0 to 1; 0: it stands in where the others fail."""
    standby: bool
    """The service has it for that alone: of weight 0, or a canary that takes no share now."""
    endpoints: tuple[Endpoint, ...]
