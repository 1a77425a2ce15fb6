"""How a request ends: refused, broken off, cancelled, out of time; and what the client is told.

Laws 2 and 4 of `gtm.balancer.plane.exchange` are kept here: the backend is let go of at once, and what breaks off is never made to look whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from gtm.balancer.plane.exchange_flow import ExchangeFlow
from gtm.balancer.plane.exchange_state import ANSWERING, ENDED
from gtm.balancer.wire.refusals import Refusal, last_event, refusal_response
from gtm.balancer.wire.responses import CLOSE
from gtm.core.balance.health import Failure

if TYPE_CHECKING:
    from gtm.balancer.plane.contracts import Sent
    from gtm.balancer.plane.exchange import Exchange


class ExchangeEnd(ExchangeFlow):
    """See above."""

    __slots__ = ()

    def _broken(self, detail: str) -> None:
        """The answer breaks off: the client is told, in a stream of events by one, and always by the connection's end."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._failed_at(sent, detail)
        if self.streams_events:
            self.answer.last_event(last_event(self.head.path, detail))
        self._cut("broken")

    def _cut(self, how: str) -> None:
        """End it in the middle of its answer."""
        self.flush()
        self._end(how)
        if self.answer.framing is CLOSE:
            self.client.abort()  # its end must not look like the answer's
        else:
            self.client.end()  # without the last chunk, or short of its length: nobody takes it for whole

    def time_is_up(self, refusal: Refusal, failure: Failure) -> None:
        """What was awaited from the backend did not come in time."""
        self.failure = failure
        self._drop()
        if self.phase is ANSWERING:
            self._broken(refusal.detail)
            return
        sent, self._sent = self._sent, None
        if sent is not None:
            self._failed_at(sent, refusal.detail)
        self.refuse(refusal)

    def cut_short(self, refusal: Refusal) -> None:
        """End it, for no fault of its backend's."""
        if self.phase is not ANSWERING:
            self.refuse(refusal)
            return
        self.proxy.stats.refused(refusal)
        self.refusal = refusal
        self._drop()
        if self.streams_events:
            self.answer.last_event(last_event(self.head.path, refusal.detail))
        self._cut("refused")

    def refuse(self, refusal: Refusal) -> None:
        """End it with a refusal."""
        if self.phase is ENDED:
            return
        if self.phase is ANSWERING:
            self._drop()
            self._broken(refusal.detail)
            return
        self.proxy.stats.refused(refusal)
        self.refusal = refusal
        self.status = refusal.status
        if b"gtm-push" in self.head.seen and not self._begun and refusal.status != 504:
            refusal = replace(refusal, headers=(*refusal.headers, (b"gtm-push", b"not-taken")))
        fields = self.proxy.readable(cast("Exchange", self))
        if fields:
            refusal = replace(refusal, headers=(*refusal.headers, *fields))
        self._say(
            refusal_response(refusal, closes=self.closes, head_only=self.head.method == b"HEAD"), "refused"
        )

    def _say(self, response: bytes, how: str = "answered") -> None:
        """End it with an answer of gtm's own."""
        closes = self.closes
        self._drop()
        self.answer.take()
        self.client.write(response)
        self._end(how)
        self.client.finished(self, keep_alive=not closes)

    def cancel(self) -> None:
        """The client is gone."""
        if self.phase is ENDED:
            return
        self._drop()
        self._end("answered" if self.tunnelled else "cancelled")

    def give_up(self, why: Refusal | None = None) -> None:
        """The client is there, and takes nothing, or too little: which is counted and logged."""
        if why is not None:
            self.proxy.stats.refused(why)
            self.refusal = why
        self.cancel()
        self.client.abort()

    def _drop(self) -> None:
        """Let go of the backend, at once."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        if self.tunnelled:
            upstream.finish(self.proxy.loop)
        else:
            upstream.abort()

    def _end(self, how: str) -> None:
        """Give back what was taken. Once."""
        raise NotImplementedError

    def _failed_at(self, sent: Sent, detail: str) -> None:
        """Its backend did not answer, or broke off."""
        self.proxy.failed(cast("Exchange", self), sent, detail)
