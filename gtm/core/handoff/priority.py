"""How urgent a request is at a region's balancer: who may claim what.

Theory. A priority takes slots from others, so a request may claim no more than somebody grants it, and anybody may claim less. Granted
is, by whom:

    the policy         the service's own priority, to everybody
    the balancer's     the tenant's `priority`: in its place to who shows a key of the tenant; to others only if it is lower,
    file               for a host name names a tenant without proof
    the file's         any, to who connects from one of these networks
    `priority_from`
    a balancer         what it granted itself, which its handoff says: exactly that of a push, that at the most of a redirect

What an edge's handoff says of it is a statement like the header `gtm-priority`: edges sign what clients state.
"""

from __future__ import annotations

from typing import NamedTuple

from gtm.core.handoff.claims import Claims
from gtm.core.model.services import Priority
from gtm.core.policy.snapshot import CompiledService

_ORDER = {priority: number for number, priority in enumerate(Priority)}
"""A priority's place, counted from the highest one."""


class PriorityGrant(NamedTuple):
    """What a balancer's own file grants a request.

    `setting`: the priority that it has for the tenant, None: none. `proven`: a key shows that the request is that tenant's. `free`: it
    comes from a network whose clients may claim any priority.
    """

    setting: Priority | None = None
    proven: bool = False
    free: bool = False


NOBODY = PriorityGrant()


def lower(one: Priority, other: Priority) -> Priority:
    """The less urgent of two priorities."""
    return one if _ORDER[one] >= _ORDER[other] else other


def no_higher(stated: Priority, service: CompiledService | None) -> Priority | None:
    """What counts of a priority that is stated at an edge: it takes capacity from others, so it lowers the service's own, and never raises it."""
    if service is None:
        return stated
    own = service.service.priority
    return None if lower(own, stated) is own else stated  # remembered as those that state none


def higher(one: Priority, other: Priority) -> Priority:
    """The more urgent of two priorities."""
    return one if _ORDER[one] <= _ORDER[other] else other


def priority_of(
    service: Priority, stated: Priority | None, grant: PriorityGrant, claims: Claims | None
) -> Priority:
    """The priority that a request has.

    Args:
        service: the service's own.
        stated: what the request's header says; None: nothing that can be read.
        grant: what the balancer's file grants.
        claims: of a handoff that is believed and counts for this client; None: there is none.
    """
    signed = None if claims is None else claims.priority
    if claims is not None and claims.carried and signed is not None:
        return signed
    own = service
    if grant.setting is not None:
        own = grant.setting if grant.proven else lower(grant.setting, service)
    most = Priority.REAL_TIME if grant.free else own
    if claims is not None and claims.hop and signed is not None:
        most = higher(most, signed)
    wanted = stated or signed
    return own if wanted is None else lower(wanted, most)
