"""What a handoff says, and how it follows from a decision (docs/handoff.md, "What it says")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from ipaddress import ip_address, ip_network
from math import floor

from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Option
from gtm.core.decision.view import Window, bound_within, law_lasts
from gtm.core.model.services import Priority
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.earned import LEAST, Worth

LONGEST = 3600
"""Seconds that a handoff holds at the most, whatever the TTL."""
CARRY_LASTS = 60
"""Seconds that the handoff of a request that is carried holds at the most: it says whom an edge or a balancer saw, and comes at once."""
PREFIX_V4, PREFIX_V6 = 24, 48
"""Bits of a client's address that a handoff names: no network of one person's (docs/latency.md)."""
_ANY_V4 = bytes(4 - PREFIX_V4 // 8)
_ANY_V6 = bytes(16 - PREFIX_V6 // 8)


class Issuer(StrEnum):
    """The process that signs with a key: an edge or a balancer."""

    EDGE = "edge"
    BALANCER = "balancer"


@dataclass(frozen=True, slots=True)
class Claims:
    """A handoff's content; `issued` and `expires` are POSIX seconds.

    `client` is the client's /24 or /48 in CIDR notation, empty where it is unknown. `hop` is 0 from an edge, 1 from a
    balancer. `once`: it is for one request. `pushed`: the issuer carries the request itself, so whoever it comes to sees the
    issuer and not the client; then it is the network of the client that the issuer saw, empty if it saw none. None: the
    client comes itself. `credit` is what the issuer could not save of the tokens that the request earned there, by the quota's
    name (`gtm.core.quota.earned`).
    """

    issuer: str
    region: str
    service: str
    issued: int
    expires: int
    nonce: str
    fence: str
    revision: int
    tenant: str | None = None
    data_class: str | None = None
    model: str | None = None
    priority: Priority | None = None
    client: str = ""
    hop: int = 0
    once: bool = False
    pushed: str | None = None
    credit: Mapping[str, float] = field(default_factory=dict)

    @property
    def carried(self) -> bool:
        """Whether it says whose requests its issuer carries: a balancer's is for one request, which goes no further; an edge's for those of the client that it saw."""
        return self.pushed is not None and (self.once if self.hop else self.pushed == self.client)

    @property
    def is_push(self) -> bool:
        """Whether it says whose request a balancer carries."""
        return self.carried and self.hop == 1

    @property
    def longest(self) -> int:
        """Seconds that one of its kind holds at the most, whoever issued it: what its issuer keeps to is also all that is believed."""
        return LONGEST if self.pushed is None else CARRY_LASTS


def fence_hash(regions: Iterable[str]) -> str:
    """What stands for a fence in a handoff: of the names of the regions that the law allows, in any order."""
    return sha256("\n".join(sorted(regions)).encode()).hexdigest()[:16]


def hash_of(snapshot: Snapshot, allowed: int) -> str:
    """The same of a mask."""
    return fence_hash(snapshot.names(allowed))


def client_network(client: bytes) -> str:
    """The network of a client that a handoff names, empty if its address (4 or 16 bytes) is unknown (empty)."""
    if len(client) == 4:
        return f"{ip_address(client[: PREFIX_V4 // 8] + _ANY_V4)}/{PREFIX_V4}"
    if len(client) == 16:
        return f"{ip_address(client[: PREFIX_V6 // 8] + _ANY_V6)}/{PREFIX_V6}"
    return ""


def network_address(network: str) -> bytes:
    """The first address of a network that `client_network` wrote, in network order; empty for an empty one."""
    return ip_network(network).network_address.packed if network else b""


def is_client_network(text: str) -> bool:
    """Whether a text is what `client_network` writes, or empty."""
    if not text:
        return True
    try:
        network = ip_network(text)
    except ValueError:
        return False
    return text == f"{network.network_address}/{PREFIX_V4 if network.version == 4 else PREFIX_V6}"


def lifetime(routing: Routing, window: Window, *, carried: bool = False) -> tuple[int, int]:
    """When a handoff made now is issued and when it expires, POSIX seconds: they are equal where none can be made.

    From the earliest time that it may be, so that the end stays before the boundary by every clock that this process knows. Of a request
    that is carried at once the TTL says nothing: nobody keeps the answer.
    """
    issued, view, service = floor(window.now), routing.view, routing.ranking.group.service
    if carried:
        left = law_lasts(view.snapshot, service.service.name, window)
        return issued, issued + min(bound_within(left), CARRY_LASTS)
    return issued, issued + min(view.ttl_of(service), LONGEST)


def handed(
    routing: Routing,
    option: Option,
    issuer: str,
    window: Window,
    nonce: str,
    *,
    once: bool,
    credit: Worth = (),
    carried: bool = False,
) -> Claims | None:
    """What an edge says of a request that it sends to a region, or carries there.

    Args:
        routing: the request's way.
        option: how it ends.
        issuer: the edge's name.
        window: the time it is.
        nonce: random text that no other handoff has.
        once: it is for one request, and not for all until the answer ends.
        credit: what this request earned and the edge could not save. It counts at its home only.
        carried: the edge carries the request there itself.

    Returns:
        None for a refusal, and where an answer may not be kept for a second.
    """
    if option.region is None:
        return None
    issued, expires = lifetime(routing, window, carried=carried)
    if expires <= issued:
        return None
    client = client_network(routing.client)
    snapshot, request, ranking = routing.view.snapshot, routing.request, routing.ranking
    return Claims(
        issuer=issuer,
        region=option.region,
        service=request.service,
        issued=issued,
        expires=expires,
        nonce=nonce,
        fence=hash_of(snapshot, ranking.within.allowed),
        revision=snapshot.revision,
        tenant=request.tenant,
        data_class=request.data_class,
        model=request.model,
        priority=ranking.group.priority,
        client=client,
        once=once,
        pushed=client if carried else None,
        credit=_rounded(credit) if option.number == routing.choice.at_home else {},
    )


def _rounded(credit: Worth) -> dict[str, float]:
    """Down to a ten-thousandth of a token: a handoff is short."""
    return {quota: floor(tokens / LEAST) / 10_000 for quota, tokens in credit}
