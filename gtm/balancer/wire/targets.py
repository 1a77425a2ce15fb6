"""What follows from a request's method and target alone: worked out once for each of those that come again."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gtm.balancer.wire.endpoints import BodyKind, body_kind
from gtm.balancer.wire.states import makes_state, named_in
from gtm.balancer.wire.usage import makes_text

_SHORT = 256
"""Bytes of a target that is remembered: anybody can make up targets."""


class RequestTarget(NamedTuple):
    """What a request asks for, by its method and target.

    Args:
        path: the target without its query.
        kind: where its body names the model.
        makes_text: it is answered with tokens that a model makes for it.
        makes_state: its server keeps what it makes, for later requests.
        names: the id of what one server has, which the path names; None: it names none.
    """

    path: bytes = b""
    kind: BodyKind = BodyKind.NONE
    makes_text: bool = False
    makes_state: bool = False
    names: str | None = None


NOWHERE = RequestTarget()


def target_of(method: bytes, target: bytes) -> RequestTarget:
    """What a request of this method and target asks for."""
    return _remembered(method, target) if len(target) <= _SHORT else _worked_out(method, target)


def _worked_out(method: bytes, target: bytes) -> RequestTarget:
    path = target.partition(b"?")[0]
    return RequestTarget(
        path, body_kind(method, path), makes_text(method, path), makes_state(method, path), named_in(target)
    )


_remembered = lru_cache(maxsize=1024)(_worked_out)
