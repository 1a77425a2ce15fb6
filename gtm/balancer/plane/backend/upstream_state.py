"""What is known of one connection to a backend; `gtm.balancer.plane.backend.upstream` says what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from httptools import HttpResponseParser

from gtm.balancer.plane.flow import Outflow
from gtm.balancer.wire.chunks import Chunks
from gtm.balancer.wire.responses import ResponseHead

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.backends import Route
    from gtm.balancer.plane.exchange import Exchange


class UpstreamState(Outflow):
    """Whose it is, what was read of the present response, and where the reading stands.

    Args:
        route: whose connection it is.
        clock: monotonic seconds.
    """

    __slots__ = (
        "_bare",
        "_chunks",
        "_clock",
        "_done",
        "_eof",
        "_fed",
        "_headers",
        "_interim",
        "_later",
        "_parser",
        "_parts",
        "_reason",
        "_response",
        "_tunnel",
        "counted",
        "exchange",
        "heard",
        "idle_since",
        "route",
        "served",
        "told_silent",
        "usable",
        "writable",
    )

    def __init__(self, route: Route, clock: Callable[[], float]) -> None:
        super().__init__()
        self.route = route
        self.exchange: Exchange | None = None
        self.usable = False
        """Open, and nothing wrong was heard on it."""
        self.counted = False
        """Its route counts it as open."""
        self.writable = True
        self.idle_since = 0.0
        self.heard = 0.0
        """When the backend last said something to the present exchange, or had all of its request."""
        self.told_silent = False
        """It was told that nothing came for the present exchange for long."""
        self.served = 0
        """Exchanges before the present one."""
        self._clock = clock
        self._parser: HttpResponseParser
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._response: ResponseHead | None = None
        self._done = False
        self._eof = False
        self._tunnel = False
        self._interim = self._bare = 0
        self._fed = 0
        """Bytes of the present response that the parser was fed, framing and all."""
        self._parts = 0
        """Pieces of bodies in this turn that the parser has told of."""
        self._later = b""
        """What came of the present response and is read in later turns."""
        self._chunks: Chunks | None = None
        """Where the present response's chunks are told apart without the parser, which stands before the next."""

    @property
    def behind(self) -> bool:
        """Whether some of what came has not been read: no more is taken of the connection before."""
        return bool(self._later)
