"""DNS over TCP (RFC 7766): messages with their length in front, as many on a connection as the client likes.

Laws:
  1. No client holds up another: client prefixes are answered in turn, and of each prefix its connections, a few messages
     at a time between two looks at what else has arrived. So what one waits for grows with how many others ask, and not
     with how much, nor over how many connections, they do.
  2. No client holds on for nothing: a connection is idle until a whole query has arrived, however many bytes trickle
     in, and a client that takes no replies is read from no more.
  3. Memory is bounded: by the connections allowed, a message, a read and two write buffers each.
  4. A client keeps no other out: of a full server the connections that have asked nothing yet go first, and no client
     prefix has more than its part. Where the process has no descriptor left they go likewise, and accepting pauses.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import inf

from gtm.core.shares import client_prefix
from gtm.dns.io.guard import Respond
from gtm.dns.protocol.cookies import packed_address
from gtm.transport import no_room

_TURN = 16
"""Messages that are answered before the server looks at what else has arrived, divided among the prefixes that wait."""
_TURN_TIME = 0.005
"""Seconds after which it looks in any case: not all messages cost the same."""
_ACCEPTED = 16
"""Connections that are accepted before it does."""
_ACCEPT_PAUSE = 0.1
"""Seconds without accepting, after an accept for which the process or the system had no room."""
_SAID_EVERY = 60.0
"""Seconds between two words about that."""
_WRITE_BUFFER = 64 * 1024
"""Bytes of replies that wait for a client to read, or that one turn adds to them, and no more than a reply besides."""
_READ = 16 * 1024
"""Bytes read from one connection before the others have their turn."""
_SILENT = 2.0
"""Seconds without a message after which a connection is closed where the server is about to end."""
_FINISH_EVERY = 0.05

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """Times in seconds. RFC 7766 §6.2.3 asks for an idle time of a few."""

    idle: float = 10.0
    """How long a connection may last without a whole query."""
    first: float = 5.0
    """How long it may take to send its first, if that is less."""
    connections: int = 512
    """At most so many; one more closes the one that has been idle longest (RFC 7766 §6.2.2)."""
    per_client: int = 128
    """At most so many of one client prefix (`gtm.core.shares.client_prefix`), likewise: many may share an address."""

    def fitting(self, room: int) -> TcpLimits:
        """The same for a process that has room for so many connections; a prefix keeps its part of them."""
        connections = min(self.connections, max(1, room))
        per_client = max(1, self.per_client * connections // self.connections)
        return replace(self, connections=connections, per_client=per_client)


class TcpServer:
    """Serves bound sockets in an event loop of its own, so that a thread can run it.

    Args:
        sockets: that listen.
        respond: what answers; must not raise.
        limits: of connections.
    """

    def __init__(self, sockets: Sequence[socket.socket], respond: Respond, limits: TcpLimits) -> None:
        self._sockets = sockets
        self._respond = respond
        self._limits = limits
        self._loop = asyncio.SelectorEventLoop()
        self._stop = asyncio.Event()
        self._deadline = inf
        self._connections = _Connections(limits)
        self._turns = _Turns(self._loop)
        self._opening: set[asyncio.Task[object]] = set()
        self._scratch = memoryview(bytearray(_READ))
        self._said = -inf

    def run(self) -> None:
        """Serve until `stop`. Blocks; the sockets are closed at the end."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    def stop(self, grace: float = 0.0) -> None:
        """End `run`, from any thread, before or after it began.

        Args:
            grace: seconds that connections may take to end by themselves; asked again, it only gets shorter.
        """
        self._deadline = min(self._deadline, self._loop.time() + grace)
        try:
            self._loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            return  # it has ended already

    async def _serve(self) -> None:
        for sock in self._sockets:
            sock.setblocking(False)
            self._accept_again(sock)
        await self._stop.wait()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        await self._finish()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    async def _finish(self) -> None:
        """Serve the connections there are until they end, fall silent, or their time is up."""
        while self._opening or self._loop.time() < self._deadline:
            await asyncio.sleep(_FINISH_EVERY)  # first, because some may have been accepted this moment
            for connection in list(self._connections):
                connection.end_if_silent()
            if not self._connections and not self._opening:
                return

    def _accept(self, sock: socket.socket) -> None:
        """Take in clients that wait, as far as there is room."""
        for number in range(_ACCEPTED):
            try:
                client, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # there is no more, or it is gone
            except OSError as error:
                if number == 0:  # else nobody may wait: accept(2) wants a descriptor before it looks
                    self._pause(sock, error)
                return
            client.setblocking(False)
            opening = self._loop.create_task(self._loop.connect_accepted_socket(self._connection, client))
            self._opening.add(opening)
            opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Task[object]) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            opening.exception()  # the client is gone: its loss

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        """Accept nothing for a moment, and give a connection up for the next, where it is room that lacks."""
        if self._loop.time() - self._said > _SAID_EVERY:
            self._said = self._loop.time()
            _log.warning(
                "no dns connection can be accepted (%s): idle ones are closed and others wait until there is room; "
                "let the process have more descriptors (LimitNOFILE, ulimit -n)",
                (error.strerror or str(error)).lower(),
            )
        if no_room(error):
            self._connections.make_room()
        self._loop.remove_reader(sock)
        self._loop.call_later(_ACCEPT_PAUSE, self._accept_again, sock)

    def _accept_again(self, sock: socket.socket) -> None:
        if not self._stop.is_set():
            self._loop.add_reader(sock, self._accept, sock)

    def _connection(self) -> _Connection:
        return _Connection(
            self._loop,
            self._respond,
            self._limits,
            self._connections,
            turns=self._turns,
            scratch=self._scratch,
        )


class _Turns:
    """Which connections have messages to be answered: of one client prefix after the other, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[bytes, OrderedDict[_Connection, None]] = OrderedDict()
        self._next: asyncio.Handle | None = None
        self._at_once = 0
        """Messages answered since the last turn by connections for which nobody had to wait."""

    def arrived(self, connection: _Connection) -> None:
        """A connection has a whole message: it is answered at once if nobody waits, and not too much has been since the last turn."""
        if self._next is None and self._at_once < _TURN:
            until = self._loop.time() + _TURN_TIME
            self._at_once += connection.answer(_TURN - self._at_once, until)
            if self._loop.time() >= until:
                self._at_once = _TURN
        else:
            self.enter(connection)

    def enter(self, connection: _Connection) -> None:
        """A connection is answered when its turn comes."""
        connection.waits = True
        self._waiting.setdefault(connection.prefix, OrderedDict())[connection] = None
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def leave(self, connection: _Connection) -> None:
        """It has none any more, or takes no replies."""
        family = self._waiting.get(connection.prefix)
        if family is not None:
            family.pop(connection, None)
            if not family:
                del self._waiting[connection.prefix]

    def _turn(self) -> None:
        """Answer as many messages as one turn has, and come back for what is left."""
        self._next = None
        self._at_once = 0
        left = _TURN
        share = max(1, _TURN // max(1, len(self._waiting)))
        until = self._loop.time() + _TURN_TIME
        while self._waiting and left > 0 and self._loop.time() < until:
            prefix, family = next(iter(self._waiting.items()))
            connection, _ = family.popitem(last=False)
            if family:
                self._waiting.move_to_end(prefix)
            else:
                del self._waiting[prefix]
            left -= connection.answer(min(share, left), until)
        if self._waiting and self._next is None:
            self._next = self._loop.call_soon(self._turn)


class _Connections:
    """All connections there are, those idle longest first: without a message yet, with, and of each client prefix."""

    def __init__(self, limits: TcpLimits) -> None:
        self._limits = limits
        self._silent: OrderedDict[_Connection, None] = OrderedDict()
        self._heard: OrderedDict[_Connection, None] = OrderedDict()
        self._by_prefix: dict[bytes, OrderedDict[_Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._heard)

    def __iter__(self) -> Iterator[_Connection]:
        return iter([*self._silent, *self._heard])

    def add(self, connection: _Connection) -> None:
        """Take in a new one, and make room for it."""
        family = self._by_prefix.get(connection.prefix)
        if family is not None and len(family) >= self._limits.per_client:
            next(iter(family)).abort()
        elif len(self) >= self._limits.connections:
            self.make_room()
        self._silent[connection] = None
        self._by_prefix.setdefault(connection.prefix, OrderedDict())[connection] = None

    def make_room(self) -> None:
        """Close the connection that is worth the least, if there is one."""
        if self:
            next(iter(self._silent or self._heard)).abort()

    def heard(self, connection: _Connection) -> None:
        """A connection has sent a message."""
        self._silent.pop(connection, None)
        self._heard[connection] = None
        self._heard.move_to_end(connection)
        self._by_prefix[connection.prefix].move_to_end(connection)

    def remove(self, connection: _Connection) -> None:
        """Forget a connection that ends, so that its place is another's."""
        self._silent.pop(connection, None)
        self._heard.pop(connection, None)
        family = self._by_prefix.get(connection.prefix)
        if family is not None:
            family.pop(connection, None)
            if not family:
                del self._by_prefix[connection.prefix]


@dataclass(eq=False, repr=False)
class _Connection(asyncio.BufferedProtocol):
    """One connection.

    Args:
        loop: that it runs in.
        respond: what answers.
        limits: of its times.
        others: all there are, itself included.
        turns: when it is answered.
        scratch: where bytes are received; shared by all.
    """

    loop: asyncio.AbstractEventLoop
    respond: Respond
    limits: TcpLimits
    others: _Connections
    _: KW_ONLY
    turns: _Turns
    scratch: memoryview

    def __post_init__(self) -> None:
        self.prefix = b""
        self._buffer = bytearray()
        self._client = ""
        self._transport: asyncio.Transport | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._patience = min(self.limits.first, self.limits.idle)
        self._last_message = 0.0
        self.waits = False
        """Whether its turn comes."""
        self._writable = True
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            transport.close()
            return
        peer = transport.get_extra_info("peername")
        self._transport = transport
        self._client = peer[0] if peer else ""
        transport.set_write_buffer_limits(_WRITE_BUFFER)
        if not peer or not self._client:
            transport.abort()  # gone before it was accepted
            return
        self.prefix = client_prefix(packed_address(self._client))
        self.others.add(self)
        self._last_message = self.loop.time()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._forget()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio names it
        return self.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer += self.scratch[:nbytes]
        if self.waits:
            return
        if self._writable and self._complete():
            self.turns.arrived(self)
        else:
            self._next()

    def eof_received(self) -> bool:
        """The client sends no more, but may still read (RFC 9293 §3.6): replies that are due go out first."""
        self._ended = True
        return self.waits or not self._writable

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if not self.waits:
            self._next()

    def end_if_silent(self) -> None:
        """Close if nothing is under way, and nothing has been for a moment."""
        silent = self.loop.time() - self._last_message > _SILENT
        if silent and not self._buffer and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without writing what waits."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def answer(self, most: int, until: float) -> int:
        """Answer what has arrived whole, `most` messages of it and until a time, but one at least; how many there were."""
        self.waits = False
        if self._transport is None or self._transport.is_closing():
            return 0
        replies = bytearray()
        answered = 0
        while answered < most and len(replies) < _WRITE_BUFFER:
            message = self._message()
            if message is None:
                break
            answered += 1
            reply = self.respond(message, self._client, True)
            if reply is None:
                continue  # what is no query keeps no connection open
            self._active()
            replies += len(reply).to_bytes(2, "big") + reply
            if self.loop.time() >= until:
                break
        if replies:
            self._transport.write(bytes(replies))
        self._next()
        return answered

    def _next(self) -> None:
        """Read on, wait for the client to read, or for a turn to answer the messages that are left."""
        if self._transport is None:
            return
        waiting = self._complete()
        if waiting or not self._writable:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if waiting and self._writable:
            self.turns.enter(self)
        elif self._ended and not waiting:
            self._transport.close()

    def _complete(self) -> bool:
        """Whether a whole message has arrived."""
        buffer = self._buffer
        return len(buffer) >= 2 and len(buffer) - 2 >= int.from_bytes(buffer[:2], "big")

    def _message(self) -> bytes | None:
        """Take the next whole message out of the buffer."""
        if not self._complete():
            return None
        end = 2 + int.from_bytes(self._buffer[:2], "big")
        message = bytes(self._buffer[2:end])
        del self._buffer[:end]
        return message

    def _active(self) -> None:
        self._last_message = self.loop.time()
        self._patience = self.limits.idle
        self.others.heard(self)

    def _watch(self) -> None:
        """Close once idle for long enough; one timer a connection, set anew only when it fires."""
        left = self._last_message + self._patience - self.loop.time()
        if left <= 0:
            self.abort()
        else:
            self._idle_timer = self.loop.call_later(left, self._watch)

    def _forget(self) -> None:
        self.others.remove(self)
        self.turns.leave(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
