"""Which ingress of the chosen region a client is sent to."""

from __future__ import annotations

from gtm.core.affinity import key_hash, rendezvous
from gtm.core.decide import Decision, Reason
from gtm.core.model import Endpoint
from gtm.core.view import View


def serving(view: View, decision: Decision) -> tuple[Endpoint, ...]:
    """The endpoints of the decision's region that may be handed out; empty for a refusal.

    These are the ones that are up, or all of them where the service ignores health for want of anything better.
    """
    if decision.number < 0:
        return ()
    if decision.reason is Reason.HEALTH_IGNORED:
        return view.snapshot.regions[decision.number].endpoints
    return view.endpoints[decision.number]


def endpoint_for(view: View, decision: Decision, key: str) -> Endpoint | None:
    """One serving endpoint: the same one for the same key while it is up, spread evenly over keys.

    Args:
        view: the View the decision was made from.
        decision: any decision.
        key: what the client is known by (its affinity key or its network).

    Returns:
        None for a refusal.
    """
    usable = serving(view, decision)
    if len(usable) <= 1:
        return usable[0] if usable else None
    hashes = tuple(key_hash(endpoint.url) for endpoint in usable)
    return usable[rendezvous(key_hash(key), hashes, (1.0,) * len(usable))]
