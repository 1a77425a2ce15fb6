"""How long what a backend does may take, by what a request is for.

A late answer is no dead one: a long prompt is silent for minutes before its first token, and a whole answer for longer. So silence has no bound of its own while
the backend's checks pass, but for a stream in which tokens came; and one that fails its checks has `failing` seconds, from then on or from its last
byte. What is set is a bound in any case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import NamedTuple

from gtm.balancer.wire.endpoints import INFERENCE
from gtm.balancer.wire.paths import Paths

FIELD = b"gtm-timeout"
"""What a client says of its own patience: seconds until it must have begun, and bounds as parameters."""
_PARAMETER = re.compile(rb"[ \t]*(first-byte|between|whole)=(\d{1,9}(?:\.\d{1,3})?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times in seconds; None: no bound.

    `connect`: for a backend to take a connection. `first_byte`: from when it has all of a request to the head of its answer. `between`: between
    two pieces of its answer. `failing`: of silence of a backend whose checks fail, since they do. `whole`: from the request's arrival to the
    end of its answer, the queue included; not of tunnels.
    """

    connect: float = 5.0
    first_byte: float | None = None
    between: float | None = 600.0
    failing: float = 60.0
    whole: float | None = None

    def within(self, said: bytes) -> Timeouts:
        """These, where a client is less patient: by the parameters of its field.

        Raises:
            ValueError: they are none; says what is possible.
        """
        found = self
        for number, one in enumerate(said.split(b";", 4)[1:]):
            read = _PARAMETER.fullmatch(one)
            if read is None or number > 2:
                raise ValueError(
                    "must be seconds, and maybe `first-byte`, `between` and `whole` in seconds, as in `gtm-timeout: 30;first-byte=120;whole=600`"
                )
            name, seconds = read[1].replace(b"-", b"_").decode(), float(read[2])
            own = getattr(self, name)
            found = replace(found, **{name: seconds if own is None else min(own, seconds)})
        return found


OTHERS_FIRST_BYTE = 600.0
"""Seconds until the first byte where nothing is set and the request is for none of the known inference endpoints, or goes to a peer region, whose checks are its own."""


class TimeoutRule(NamedTuple):
    """Times of requests for a service and paths (None: for all): for the known inference endpoints, and for all else that is carried."""

    service: str | None
    paths: Paths | None
    inference: Timeouts
    others: Timeouts


class TimeoutRules:
    """The first rule that a request meets says its times; where none does, these hold.

    Args:
        inference: for the known inference endpoints.
        others: for all else that is carried.
        rules: the first ones first.
    """

    def __init__(
        self,
        inference: Timeouts = Timeouts(),
        others: Timeouts = Timeouts(first_byte=OTHERS_FIRST_BYTE),
        rules: Sequence[TimeoutRule] = (),
    ) -> None:
        self.inference, self.others = inference, others
        self._rules = (*rules, TimeoutRule(None, None, inference, others))

    def of(self, service: str | None, method: bytes, target: bytes) -> Timeouts:
        """The times of one request."""
        rule = next(
            one
            for one in self._rules
            if one.service in (None, service) and (one.paths is None or one.paths.lists(method, target))
        )
        return rule.inference if _INFERENCE.lists(method, target) else rule.others


_INFERENCE = Paths((INFERENCE,))


def wish(said: bytes) -> float | None:
    """Within how many seconds a client wants its request to begin; None: it says nothing that can be read."""
    try:
        seconds = float(said.partition(b";")[0])
    except ValueError:
        return None
    return max(seconds, 0.0) if isfinite(seconds) else None
