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
from typing import TYPE_CHECKING, NamedTuple

from gtm.balancer.wire.endpoints import INFERENCE, Paths
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.health.values import Failure

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.exchange import Exchange

FIELD = b"gtm-timeout"
"""What a client says of its own patience: seconds until it must have begun, and bounds as parameters."""
_PARAMETER = re.compile(rb"[ \t]*(first-byte|between|whole)=(\d{1,9}(?:\.\d{1,3})?)[ \t]*")

_POSSIBLE = "must be seconds, and maybe `first-byte`, `between` and `whole` in seconds, as in `gtm-timeout: 30;first-byte=120;whole=600`"


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
        if wish(said) is None:
            raise ValueError(_POSSIBLE)
        found = self
        for number, one in enumerate(said.split(b";", 4)[1:]):
            read = _PARAMETER.fullmatch(one)
            if read is None or number > 2:
                raise ValueError(_POSSIBLE)
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


HEAD_HELD = 60.0
"""Seconds for which the head of a stream of events is kept back of which nothing else has come: within them its server is judged, and another can be asked
(`gtm.balancer.plane.exchange`); and those in front of a balancer who wait for a head for some minutes get one."""


# --- Who of those that a request waits for is late (law 5 of `gtm.balancer.plane.exchange`). ---


class LeastPace:
    """How bytes come or are taken, as looks at them see: they may fall behind a least rate by some time, and make up for it no faster than they come."""

    __slots__ = ("_at", "_credit", "_size")

    def __init__(self, size: int, now: float, grace: float) -> None:
        self._size, self._at, self._credit = size, now, grace

    def is_late(self, size: int, now: float, *, rate: float, grace: float) -> bool:
        """Whether too little has come, of which there are so many bytes now."""
        self._credit = min(grace, self._credit + (size - self._size) / rate - (now - self._at))
        self._size, self._at = size, now
        return self._credit < 0

    def rest(self, now: float) -> None:
        """Nothing was awaited since the last look."""
        self._at = now


def _comes_too_slowly(exchange: Exchange, now: float) -> bool:
    """Whether a body that is awaited comes slower than it must. Once there is an answer, who speaks when is between client and backend."""
    limits, pace = exchange.proxy.limits, exchange.pace
    if exchange.complete or exchange.answering or not limits.body_rate:
        return False
    if pace is None:
        exchange.pace = LeastPace(exchange.received, now, limits.body_grace)
    elif exchange.client.paused:
        pace.rest(now)
    else:
        return pace.is_late(exchange.received, now, rate=limits.body_rate, grace=limits.body_grace)
    return False


def _is_taken_too_slowly(exchange: Exchange, now: float) -> bool:
    """Whether a client takes its answer slower than it must: one that holds up its backend, whose slot others wait for.

    What a backend sends slower than its client takes it (a stream of tokens) is no matter, for nothing of it waits here for the client.
    """
    limits, client, pace = exchange.proxy.limits, exchange.client, exchange.taking
    if pace is None:
        if client.writable or not limits.take_rate:
            return False
        pace = exchange.taking = LeastPace(exchange.taken, now, limits.take_grace)
    elif not client.writable and exchange.proxy.admission.has_waiting:
        return pace.is_late(exchange.taken, now, rate=limits.take_rate, grace=limits.take_grace)
    pace.rest(now)
    return False


def end_if_late(exchange: Exchange, now: float) -> None:
    """End a request for which the client or the backend has not done its part in time: to send, or to take.

    Args:
        exchange: the one whose turn it is on its connection.
        now: monotonic seconds.
    """
    client, upstream, limits = exchange.client, exchange.upstream, exchange.proxy.limits
    whole = exchange.times.whole
    if whole is not None and not exchange.tunnelled and now - exchange.began > whole:
        detail = f"its time, {whole:g} s from its arrival to the end of its answer, ran out"
        exchange.cut_short(Refusal(504, "deadline", detail))
    elif client.stuck(now) > limits.stall_timeout:
        exchange.give_up()
    elif exchange.answering and _is_taken_too_slowly(exchange, now):
        detail = f"the client took less than {limits.take_rate:g} bytes a second of its answer, by more than {limits.take_grace:g} s of them, and others wait"
        exchange.give_up(Refusal(503, "answer_taken_too_slowly", detail))
    elif exchange.tunnelled:
        if upstream is not None and now - max(client.heard, upstream.heard) > limits.tunnel_timeout:
            exchange.give_up()
    elif not exchange.complete and not client.paused and now - client.heard > limits.stall_timeout:
        detail = f"nothing of the body came for {limits.stall_timeout:g} s"
        exchange.refuse(Refusal(408, "request_timeout", detail))
    elif _comes_too_slowly(exchange, now):
        detail = f"the body came slower than {limits.body_rate:g} bytes a second, by more than {limits.body_grace:g} s of them"
        exchange.refuse(Refusal(408, "body_too_slow", detail))
    elif upstream is not None and client.writable:
        _end_if_backend_late(exchange, upstream, now)


def _end_if_backend_late(exchange: Exchange, upstream: Upstream, now: float) -> None:
    limits = exchange.proxy.limits
    if upstream.stuck(now) > limits.stall_timeout:
        detail = f"the backend took nothing of the body for {limits.stall_timeout:g} s"
        exchange.time_is_up(Refusal(504, "backend_stalled", detail), Failure.STALL)
    elif exchange.answering or exchange.complete:
        _end_if_silent(exchange, upstream, now)


def _end_if_silent(exchange: Exchange, upstream: Upstream, now: float) -> None:
    """End a request whose backend sends nothing: for longer than is set, or while its checks fail.

    While they pass, silence is a request's own (a long prompt). It is the backend's where nothing came of any answer as long: an engine that is
    dead behind a server that answers checks.
    """
    times, picker, sent = exchange.times, exchange.proxy.picker, exchange.sent
    route = upstream.route
    silent, all_silent = now - upstream.heard, now - max(route.heard, route.work.heard)
    own = sent is not None and sent.push is None
    if exchange.unsaid is not None and silent > HEAD_HELD:
        exchange.begins()
        exchange.flush()
    began = exchange.answering or exchange.unsaid is not None
    bound = times.between if began else times.first_byte
    if bound is None and not own:
        bound = OTHERS_FIRST_BYTE
    if bound is not None and silent > bound:
        if began:
            refusal = Refusal(504, "backend_stalled", f"the backend sent nothing for {bound:g} s")
        else:
            refusal = Refusal(504, "backend_timeout", f"the backend did not answer within {bound:g} s")
        if all_silent > bound:
            exchange.time_is_up(refusal, Failure.STALL if began else Failure.TIMEOUT)
        else:
            exchange.cut_short(refusal)
    elif sent is None or not own:
        return
    elif (
        silent > times.failing
        and (since := picker.failing_since(sent)) is not None
        and now - since > times.failing
    ):
        detail = f"the backend fails its checks, and sent nothing for {times.failing:g} s"
        exchange.time_is_up(Refusal(504, "backend_failing", detail), Failure.STALL)
    elif (both := min(silent, all_silent)) > exchange.proxy.limits.silence and not upstream.told_silent:
        upstream.told_silent = True
        picker.silent(sent, now - both, now)
