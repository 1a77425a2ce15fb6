"""What becomes of a request whose server says that it is full (`gtm.adapters.fullness`): another is asked, once.

Law 3 of `gtm.balancer.plane.exchange` is kept here: a server that says so has begun nothing, and none of its answer went to the client. A short answer that may say it
is kept back until it is whole. Where nobody else is asked it goes to the client as it is: with the server's own `Retry-After`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gtm.adapters.fullness import MOST_BYTES, says_full
from gtm.balancer.plane.answer import Answer, KeptAnswer
from gtm.balancer.plane.asking_again import Reached, may_ask_another
from gtm.balancer.plane.contracts import Sent
from gtm.balancer.plane.exchange_end import ExchangeEnd
from gtm.balancer.plane.exchange_state import CONNECTING
from gtm.balancer.wire.responses import LENGTH, Framing, ResponseHead
from gtm.balancer.wire.states import NOT_THERE, says_absent

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange


class ExchangeFull(ExchangeEnd):
    """A request whose server may say that it is full."""

    __slots__ = ()

    def _kept_back(self, response: ResponseHead, framing: Framing) -> bool:
        """Keep an answer of one of the statuses back whose body may say that the server is full. False: the client gets it now."""
        sent = self._sent
        if sent is None or sent.push is not None:
            return False
        if framing is LENGTH and response.length is not None and response.length <= MOST_BYTES:
            self.flush()
            self.answer, self._doubted, self._heard = KeptAnswer(), response, True
            return True
        self.full = says_full(response.status, b"", retry_after=response.retry_after)
        return False

    def _asks_another(self) -> bool:
        """The answer that was kept back is whole. Whether another server is asked now; else the client gets it."""
        response, sent = self._doubted, self._sent
        assert response is not None  # noqa: S101 - see `_kept_back`
        assert isinstance(self.answer, KeptAnswer)  # noqa: S101 - likewise
        body = self.answer.body_so_far
        if sent is not None:
            exchange, before = cast("Exchange", self), self._tried
            self._tried = (*before, sent.route.url)  # what follows goes by it
            if self.seeks and response.status in NOT_THERE:
                absent = says_absent(response.status, body, self.goes_on_with or "")
                if (
                    absent
                    and self._body_ended
                    and self._keeps
                    and self.proxy.may_seek(self.tries)
                    and self._goes_to_another(self.proxy.not_there)
                ):
                    return True
            elif says_full(response.status, body, retry_after=response.retry_after):
                others = self._body_ended and not self._moved and self.proxy.picker.usable() > self.tries
                if (
                    others
                    and may_ask_another(exchange, Reached.DECLINED)
                    and self._goes_to_another(self.proxy.was_full)
                ):
                    self._moved = True
                    return True
                self.full = True
            self._tried = before
        self._lets_go(response)
        return False

    def _goes_to_another(self, told: Callable[[Exchange, Sent], None]) -> bool:
        """Send it to a server that was not tried, if one takes it; what its last one said is told then."""
        exchange, sent = cast("Exchange", self), self._sent
        found = self.proxy.pick(exchange, self._tried)
        if sent is None or not isinstance(found, Sent):
            return False
        self._doubted, self.answer = None, Answer()
        told(exchange, sent)
        self.phase = CONNECTING
        self._send(found)
        return True

    def _lets_go(self, response: ResponseHead) -> None:
        """Give the client what was kept back of an answer."""
        kept = self.answer
        self._doubted, self.answer = None, Answer()
        self._answers(response, LENGTH)
        if isinstance(kept, KeptAnswer) and kept.body_so_far:
            self.answer.body(kept.body_so_far)

    def _answers(self, response: ResponseHead, framing: Framing) -> None:
        """The client gets this answer."""
        raise NotImplementedError

    def _send(self, sent: Sent) -> None:
        """Send the request there."""
        raise NotImplementedError
