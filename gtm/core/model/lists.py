"""Lists of regions, for proxies that choose among them by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from gtm.core.model.regions import Endpoint


@dataclass(frozen=True, slots=True)
class ListedRegion:
    """A region of a list.

    `share` is its part of such requests (0-1): 0 for those that stand in where the others fail. `standby`: the service has it for
    that alone (weight 0, or a canary that takes no share now). `endpoints` are those that are up, with the addresses that are.
    """

    region: str
    share: float
    standby: bool
    endpoints: tuple[Endpoint, ...]
