"""What is known of one client's connection; `gtm.balancer.plane.client.downstream` says what becomes of it."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from httptools import HttpRequestParser

from gtm.balancer.plane.flow import Outflow
from gtm.balancer.wire.refusals import Refusal

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange
    from gtm.balancer.plane.exchange_state import ExchangeState
    from gtm.balancer.plane.proxy import Proxy


class DownstreamState(Outflow):
    """Whose it is, what was read of it, whose turn it is, and what is awaited.

    Args:
        proxy: what all connections share.
        secure: whether the client speaks TLS.
    """

    __slots__ = (
        "_ahead",
        "_bare",
        "_current",
        "_ended",
        "_fed",
        "_frame",
        "_full",
        "_gathered",
        "_headers",
        "_lingers_until",
        "_parser",
        "_parts",
        "_receiving",
        "_refusal",
        "_told",
        "_unread",
        "_url",
        "_waiting",
        "deadline",
        "heard",
        "held",
        "in_head",
        "paused",
        "peer",
        "probe_at",
        "proxy",
        "secure",
        "writable",
    )

    def __init__(self, proxy: Proxy, *, secure: bool = False) -> None:
        super().__init__()
        self.proxy = proxy
        self.secure = secure
        self.peer: str | None = None
        """The client's address, as the connection or a trusted proxy before it (PROXY protocol) says; None: it is unknown."""
        self._told = False
        """A trusted proxy has said who the client is."""
        self.heard = 0.0
        """When the client last sent something."""
        self.writable = True
        self.deadline = inf
        """Monotonic seconds at which what is awaited from the client is late."""
        self._parser: HttpRequestParser
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self.in_head = False
        """A request's head has begun, and is not whole."""
        self.held = 0
        """Bytes that are kept of what it has sent, as they were last told."""
        self._ahead = 0
        """Bytes of the last read that were not parsed when the present piece began."""
        self._fed = 0
        """Bytes fed since the present request began, as long as its head is not complete."""
        self._frame = self._bare = 0
        """Bytes of a chunked body that are not of the body."""
        self._parts = 0
        """Pieces of bodies in this turn."""
        self._gathered: list[bytes] = []
        """Those of them that the exchange has not been told of."""
        self._receiving: Exchange | None = None
        self._current: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._unread = bytearray()
        self.paused = False
        """Nothing is read from it for now."""
        self.probe_at = inf
        """Monotonic seconds at which it is asked whether it is there, as long as nothing is read from it."""
        self._full = False
        """There is no room for what the present request sends."""
        self._refusal: Refusal | None = None
        """What follows could not be read: said when its turn comes."""
        self._lingers_until = 0.0
        """Monotonic seconds until which what it sends is thrown away, so that it can take its answer; 0: it is not."""
        self._ended = False
        """Nothing more is read from the client."""

    @property
    def answering(self) -> bool:
        """Whether something of the present request's answer went to the client."""
        return self._current is not None and self._current.answering

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    def come(self, exchange: ExchangeState) -> int:
        """How many bytes of a request's body have come, those too that are yet to be parsed: a head's length more at most."""
        received, length = exchange.received, exchange.head.length
        if exchange is not self._receiving and self._receiving is not None:
            return received
        return received + (self._ahead if length is None else min(self._ahead, length - received))

    @property
    def kept(self) -> int:
        """Bytes that came and wait here: what is not read, and of the head that is being read."""
        return len(self._unread) + sum(len(name) + len(value) for name, value in self._headers)
