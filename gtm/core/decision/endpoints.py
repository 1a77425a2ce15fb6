"""Which ingress of the chosen region a client is sent to."""

from __future__ import annotations

from typing import Protocol

from gtm.core.decision.view import View
from gtm.core.model.affinity import key_hash, rendezvous
from gtm.core.model.outcomes import Reason
from gtm.core.model.regions import Endpoint


class Ended(Protocol):
    """How a request ends: in a region (its number, -1 for a refusal), and why. Options and Decisions are such."""

    @property
    def number(self) -> int: ...

    @property
    def reason(self) -> Reason: ...


def serving(view: View, option: Ended) -> tuple[Endpoint, ...]:
    """The endpoints of the option's region that may be handed out; empty for a refusal.

    These are the ones that are up, or all of them where the service ignores health for want of anything better.
    """
    if option.number < 0:
        return ()
    if option.reason is Reason.HEALTH_IGNORED:
        return view.snapshot.regions[option.number].endpoints
    return view.endpoints[option.number]


def endpoint_for(view: View, option: Ended, key: str) -> Endpoint | None:
    """One serving endpoint: the same one for the same key while it is up, spread evenly over keys.

    Args:
        view: the View the option was made from.
        option: any option.
        key: what the client is known by (its affinity key or its network).

    Returns:
        None for a refusal.
    """
    usable = serving(view, option)
    if len(usable) <= 1:
        return usable[0] if usable else None
    hashes = tuple(key_hash(endpoint.url) for endpoint in usable)
    return usable[rendezvous(key_hash(key), hashes, (1.0,) * len(usable))]
