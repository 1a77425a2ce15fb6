"""Who of those that a request waits for is late (law 5 of `gtm.balancer.plane.exchange`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gtm.balancer.plane.timeouts import OTHERS_FIRST_BYTE
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.health import Failure

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.exchange import Exchange


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
    silent, all_silent = now - upstream.heard, now - upstream.route.heard
    own = sent is not None and sent.push is None
    bound = times.between if exchange.answering else times.first_byte
    if bound is None and not own:
        bound = OTHERS_FIRST_BYTE
    if bound is not None and silent > bound:
        if exchange.answering:
            refusal = Refusal(504, "backend_stalled", f"the backend sent nothing for {bound:g} s")
        else:
            refusal = Refusal(504, "backend_timeout", f"the backend did not answer within {bound:g} s")
        if all_silent > bound:
            exchange.time_is_up(refusal, Failure.STALL if exchange.answering else Failure.TIMEOUT)
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
