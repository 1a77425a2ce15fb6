"""When a call is made again, and after how long.

A call is made again where it cannot have had an effect, or may have it twice: the connection failed before anything was sent; the server said 503 or 429 and
that it may be tried again (`Retry-After`, RFC 9110 §10.2.3), which gtm says only of what it has not done; or the call is `repeatable` and its answer was lost.

The pauses grow twofold and are drawn from the upper half of their length, so that clients that failed together don't come back together; a server's word on it is the least.
"""

from __future__ import annotations

from dataclasses import dataclass

from gtm.client.calls import Call
from gtm.client.errors import ConnectionFailed, GtmError, ProblemError

_ASKED_TO_WAIT = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    Args:
        times: how often a call is made again at most; 0: never.
        first: seconds of the first pause.
        longest: of any pause; a server that asks for a longer one is not waited for.
    """

    times: int = 4
    first: float = 0.2
    longest: float = 10.0

    def pause(self, call: Call[object], failed: GtmError, made: int, drawn: float) -> float | None:
        """Seconds to wait before a call is made again; None: it is not.

        Args:
            call: which.
            failed: why.
            made: how often it has been made.
            drawn: a random number, 0 ≤ drawn < 1.
        """
        if made > self.times:
            return None
        pause = min(self.longest, self.first * 2 ** (made - 1)) * (0.5 + drawn / 2)
        if isinstance(failed, ConnectionFailed):
            return pause if call.repeatable or not failed.sent else None
        if (
            isinstance(failed, ProblemError)
            and failed.status in _ASKED_TO_WAIT
            and failed.retry_after is not None
        ):
            return max(pause, failed.retry_after) if failed.retry_after <= self.longest else None
        return None


PATIENT = Retries()
"""Four times more, over some three seconds; longer where the server asks for it."""
NEVER = Retries(times=0)
"""Each call is made once."""
