"""How one client's connection is read from or not, and how it ends: gone, refused, after its answer, for want of time; and what it is still told.

An answer that is complete reaches a client that is still sending: a reset would take it away, so what comes is thrown away for a while,
as long as something comes (RFC 9112 §9.6; NGINX's `lingering_close` does so). One that broke off ends by a reset, where its end could pass for the answer's.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from gtm.balancer.plane.client.downstream_state import DownstreamState
from gtm.balancer.plane.exchange_state import CONNECTING, NEW, READING, WAITING
from gtm.balancer.plane.flow import hung_up
from gtm.balancer.wire.refusals import Refusal, refusal_response

_RESET = struct.pack("ii", 1, 0)
"""No lingering: what is not sent is dropped, and the other side told so."""
PROBE = 1.0
"""Seconds after which a client that is not read from is asked whether it is there."""
LINGER, MOST_LINGER = 2.0, 30.0
"""Seconds in which a client that goes on sending what nobody reads sends some of it, and for which it may."""

_MAX_UNREAD = 64 * 1024
"""Bytes kept of what follows a request that is being answered, before reading stops."""


class DownstreamEnd(DownstreamState):
    """See above."""

    __slots__ = ()

    def _gone(self) -> None:
        self._ended = True
        self._unread.clear()
        current, self._current = self._current, None
        if current is not None:
            current.cancel()
        for exchange in self._waiting:
            exchange.cancel()
        self._waiting.clear()

    @property
    def _is_deaf(self) -> bool:
        """Whether nobody hears what comes next: the connection ends before."""
        last = self._waiting[-1] if self._waiting else self._current
        if last is None or last is self._receiving:
            return False
        return not last.head.keep_alive and not last.head.upgrade

    def regulate(self, *, full: bool | None = None) -> None:
        """Read from the client, or not: not while there is no room for what it sends.

        Args:
            full: there is no room for more of the present request's body; None: as before.
        """
        if full is not None:
            self._full = full
        pause = (self._full or len(self._unread) > _MAX_UNREAD) and not self._ended
        if pause != self.paused and not self.transport.is_closing():
            self.paused = pause
            if pause:
                self.transport.pause_reading()
                self.probe_at = self.proxy.now() + PROBE
            else:
                self.transport.resume_reading()
                self.heard = self.proxy.now()

    def refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be read, behind what was asked before, and end."""
        if self._ended or self._refusal is not None:
            return
        if self._is_deaf:
            self._refusal = refusal
            return
        current, receiving = self._current, self._receiving
        self.proxy.stats.refused(refusal)
        if receiving is not None and receiving.phase is not NEW:
            receiving.refusal = refusal  # its own end is told
        else:
            self.proxy.unread(self, refusal, self._url if receiving is None else receiving.head.target)
        if receiving is not None and receiving is not current:
            self._receiving = None  # one that waits, of whose body no more can be read
            self._waiting.remove(receiving)
            receiving.cancel()
        if current is not None and current is not receiving:
            self._refusal = refusal  # when its turn comes
            return
        self._ended = True
        if current is not None:
            self._current = None
            broken = current.answering
            current.cancel()
            if broken:  # the middle of an answer is no place for another
                self.abort()
                return
        self.transport.write(refusal_response(refusal, closes=True))
        self._linger()

    def end(self) -> None:
        """End the connection once everything is sent."""
        receiving = self._receiving
        more = receiving is not None and not receiving.complete
        if more or self._unread or self._waiting or self.paused or self._refusal is not None:
            self._linger()
            return
        self._ended = True
        self.deadline = self.proxy.now() + LINGER
        self.transport.close()

    def _linger(self) -> None:
        """Let the client send on what nobody reads, for a while: a reset would take the answer from it (RFC 9112 §9.6)."""
        self._ended = True
        self._unread.clear()
        if self.held:
            self.settle()
        now = self.proxy.now()
        self.deadline, self._lingers_until = now + LINGER, now + MOST_LINGER
        self.proxy.room.rests(self, arriving=True)  # nothing is answered any more: others may have its place
        self.regulate(full=False)
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    def abort(self) -> None:
        """End it at once, by a reset: the client shall not take what it got for all."""
        self._ended = True
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def settle(self) -> None:
        """Tell how much is kept of what came."""
        raise NotImplementedError

    def give_way(self, refusal: Refusal) -> None:
        """Keep nothing of what came: others need the room."""
        current = self._current
        if current is not None and current.phase in (READING, WAITING, CONNECTING):
            current.refuse(refusal)
        else:
            if current is not None:
                current.forget()
            self._unread.clear()
            for exchange in self._waiting:
                exchange.cancel()
            self._waiting.clear()
            if self._receiving is not current:
                self._receiving = None
            self.settle()
            if self.held or self._receiving is None:
                self.refuse(refusal)
        self.settle()

    def evict(self) -> None:
        """Make room for another connection."""
        if self.answering:
            self.abort()
            return
        self._ended = True
        self.transport.abort()

    def _is_gone(self) -> bool:
        """Of a tunnel, what it sent before still counts."""
        tunnelled = self._current is not None and self._current.tunnelled
        return not tunnelled and hung_up(self.transport)

    def drain(self) -> None:
        """No further request is taken: end now if nothing is asked, else after the answer.

        Whoever has just connected asked before it could know: its first request is on the way, and is waited for.
        """
        if self._current is None and not self.in_head and not self._unread and not self._ended:
            limits = self.proxy.limits
            if self.deadline == self.heard + limits.head_timeout:  # set when it came: it has sent nothing yet
                self.deadline = min(self.deadline, self.heard + limits.first_request)
            else:
                self.end()

    def time_is_up(self) -> None:
        """What was awaited from the client did not come."""
        if self.in_head:
            self.refuse(Refusal(408, "request_timeout", "the request's head did not arrive in time"))
        else:
            self.end()
