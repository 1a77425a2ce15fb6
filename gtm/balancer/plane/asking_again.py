"""Whether a request may be asked of another server, after one has not answered it (law 3 of `gtm.balancer.plane.exchange`).

Said here once:

| the last server | may be asked of another |
|---|---|
| listened to nobody (`UNHEARD`: connection refused), took no connection (`UNSENT`), or said that it does not take it (`DECLINED`) | yes: it cannot have begun it |
| had it, and nothing of an answer came (`BEGUN`) | if it may be done twice: by its method (RFC 9110 §9.2.2) or an `Idempotency-Key` |
| began to answer | never |

And in each case only while all of its body that came is kept, while it is of no state that one server has (another would say 404, which is a lie), and within the tries
of one request and the budget of all; a connection that was refused takes nothing of the budget, for it cost no server anything.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange


class Reached(Enum):
    """How far a request has come at the server that has not answered it."""

    UNHEARD = auto()
    """Nobody listened."""
    UNSENT = auto()
    """Nothing of it was sent."""
    DECLINED = auto()
    """It said that it does not take it."""
    BEGUN = auto()
    """It has it, and may have begun it."""


_TWICE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))


def may_ask_another(exchange: Exchange, reached: Reached, *, home: bool = False) -> bool:
    """Whether another server may be asked; if so, it is counted.

    Args:
        exchange: a request that no server has answered, with those that were tried.
        reached: how far it has come at the last of them.
        home: that was a peer region, and the region's own servers are the other: it takes nothing of the budget, and any state is as it was.
    """
    head = exchange.head
    twice = head.method in _TWICE or b"idempotency-key" in head.seen
    if exchange.answering or not exchange.keeps_body:
        return False
    if reached is Reached.BEGUN and (exchange.heard or not twice):
        return False
    if home:
        return True
    if exchange.goes_on_with is not None:
        return False
    return exchange.proxy.may_retry(len(exchange.tried), free=reached is Reached.UNHEARD)
