"""Who of those that a request waits for is late (law 5 of `gtm.balancer.plane.exchange`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.health import Failure

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.exchange import Exchange


def end_if_late(exchange: Exchange, now: float) -> None:
    """End a request for which the client or the backend has not done its part in time: to send, or to take.

    Args:
        exchange: the one whose turn it is on its connection.
        now: monotonic seconds.
    """
    client, upstream, limits = exchange.client, exchange.upstream, exchange.proxy.limits
    if client.stuck(now) > limits.stall_timeout:
        exchange.give_up()
    elif exchange.tunnelled:
        if upstream is not None and now - max(client.heard, upstream.heard) > limits.tunnel_timeout:
            exchange.give_up()
    elif not exchange.complete and not client.paused and now - client.heard > limits.stall_timeout:
        detail = f"nothing of the body came for {limits.stall_timeout:g} s"
        exchange.refuse(Refusal(408, "request_timeout", detail))
    elif upstream is not None and client.writable:
        _end_if_backend_late(exchange, upstream, now)


def _end_if_backend_late(exchange: Exchange, upstream: Upstream, now: float) -> None:
    limits = exchange.proxy.limits
    silent = now - upstream.heard
    if upstream.stuck(now) > limits.stall_timeout:
        detail = f"the backend took nothing of the body for {limits.stall_timeout:g} s"
        exchange.time_is_up(Refusal(504, "backend_stalled", detail), Failure.STALL)
    elif exchange.answering and silent > limits.stall_timeout:
        detail = f"the backend sent nothing for {limits.stall_timeout:g} s"
        exchange.time_is_up(Refusal(504, "backend_stalled", detail), Failure.STALL)
    elif not exchange.answering and exchange.complete and silent > limits.response_timeout:
        detail = f"the backend did not answer within {limits.response_timeout:g} s"
        exchange.time_is_up(Refusal(504, "backend_timeout", detail), Failure.TIMEOUT)
