"""Bytes between the two sides of a request: neither is read from faster than the other takes it (law 5 of `gtm.balancer.plane.exchange`)."""

from __future__ import annotations

from gtm.balancer.plane.exchange_state import CONNECTING, WAITING, ExchangeState

_MAX_BUFFER = 256 * 1024
"""Bytes kept of a body while its backend is connected to, beyond which the client waits."""


class ExchangeFlow(ExchangeState):
    """See above."""

    __slots__ = ()

    def flush(self) -> None:
        """Send the client what there is for it."""
        out = self.answer.take()
        if out:
            self.client.transport.write(out)

    def regulate(self) -> None:
        """Neither side is read from faster than the other takes it."""
        upstream = self.upstream
        if upstream is not None and not upstream.transport.is_closing():
            if self.client.writable and not upstream.behind:
                if not upstream.transport.is_reading():
                    upstream.transport.resume_reading()
                    upstream.heard = self.proxy.now()
            elif upstream.transport.is_reading():
                upstream.transport.pause_reading()
        if upstream is not None:
            full = not upstream.writable
        else:
            # What waits in the queue counts there with what of it has come: no more of it is read.
            full = not self._body_ended and (
                self.phase is WAITING or (self.phase is CONNECTING and self.received > _MAX_BUFFER)
            )
        self.client.regulate(full=full)

    def carry(self, data: bytes) -> None:
        """Bytes of a tunnel for the client."""
        self.answer.size += len(data)
        self.client.write(data)

    def carry_up(self, data: bytes) -> None:
        """Bytes of a tunnel for the backend."""
        self.received += len(data)
        if self.upstream is not None:
            self.upstream.transport.write(data)
