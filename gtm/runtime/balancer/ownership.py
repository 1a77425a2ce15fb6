"""What a balancer owns on its machine: a directory, its listening sockets, a user; free, or from a predecessor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from gtm.lockfile import LockFile
from gtm.runtime.following.handover import Handover, Predecessor
from gtm.runtime.process import privileges
from gtm.runtime.process.listeners import Listener, Use
from gtm.runtime.process.sockets import bind_datagrams, bind_tcp, explained
from gtm.settings import Address, BalancerSettings

logger = logging.getLogger(__name__)


def balancer_home(data_dir: Path, region: str) -> Path:
    """The directory of a region's balancer in a data directory."""
    return data_dir / f"balancer-{quote(region, safe='')}"


class Ownership:
    """What one balancer owns, from its start to its end.

    `home` is a directory of its own in the data directory, where an edge may be too.
    """

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings
        self.home = balancer_home(settings.data_dir, settings.region)
        self.replaced = False
        """Whether a successor has taken over."""
        self._lock = LockFile(self.home / "balancer.lock")
        self._predecessor: Predecessor | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._handover: Handover | None = None

    @property
    def inherited(self) -> bool:
        """Whether another balancer runs, whose place this one takes once it is ready."""
        return self._predecessor is not None

    def take(self) -> None:
        """Take everything, then be the user that was asked for.

        Raises:
            PortInUseError: an address is taken.
            HandoverError: the balancer that runs cannot be replaced.
            UserError: this process cannot become the user.
            OSError: another balancer runs there, or an address cannot be listened on.
        """
        settings = self._settings
        user = privileges.find_user(settings.user) if settings.user else None
        self.home.mkdir(parents=True, exist_ok=True)
        if user is not None:
            privileges.give(self.home, user)
        self._predecessor = Predecessor.find(self.home) if settings.replace else None
        if self._predecessor is None:
            with privileges.acting_as(user):
                self._lock.acquire()
        else:
            logger.info("replacing the balancer of process %d", self._predecessor.process)
        theirs = self._predecessor.listeners if self._predecessor is not None else ()
        requests = self._open(Use.REQUESTS, settings.balancer_port, "--balancer-port", theirs)
        self._listeners = (
            *requests,
            *self._open_to_peers([(one.host, one.port) for one in requests], theirs),
            *self._open(Use.ADMIN, settings.admin_port, "--admin-port", theirs),
        )
        if user is not None:
            privileges.become(user)

    def listeners(self, use: Use) -> tuple[Listener, ...]:
        """The sockets of one use; they do not listen before somebody says so."""
        return tuple(one for one in self._listeners if one.use is use)

    def settle(self) -> None:
        """Once requests are taken: the predecessor is told to finish."""
        predecessor = self._predecessor
        if predecessor is None:
            return
        try:
            predecessor.stop()
        except OSError as error:
            logger.warning(
                "process %d, which was to be replaced, is gone already: %s", predecessor.process, error
            )
        if predecessor.lock is not None:
            self._lock.adopt(predecessor.lock)
            predecessor.lock = None

    async def leave_to_successor(self, give_way: Callable[[], None]) -> None:
        """Wait for a successor that takes over, and then call `give_way`."""
        predecessor = self._predecessor
        if predecessor is not None:
            await predecessor.ended()
            logger.info("the balancer of process %d has ended", predecessor.process)
        self._handover = Handover(self.home, self._listeners, self._lock.descriptor)
        try:
            await self._handover.serve()
        except OSError as error:
            logger.warning("this balancer cannot be replaced without a gap: %s", error)
            return
        logger.info("a successor has taken over; finishing what goes on")
        self.replaced = True
        give_way()

    def release(self) -> None:
        """Give everything up. A predecessor that was not told to stop goes on."""
        for one in self._listeners:
            one.socket.close()
        if self._predecessor is not None:
            self._predecessor.close()
        if self._handover is not None:
            self._handover.close()
        self._lock.release()

    def _open_to_peers(self, places: Sequence[Address], theirs: Sequence[Listener]) -> list[Listener]:
        """The sockets for what other balancers of the region say; none where another program has an address."""
        if self._settings.peer_address == "none":
            return []
        found = []
        for host, port in places:
            place = (Use.PEERS, host, port)
            same = next((one for one in theirs if one.place == place), None)
            if same is None:
                try:
                    same = Listener(*place, bind_datagrams(host, port))
                except OSError as error:
                    logger.warning(
                        "hearing nothing of the region's other balancers on %s: UDP port %d: %s (--peer-address none: none is wanted)",
                        host,
                        port,
                        error.strerror or error,
                    )
                    continue
            found.append(same)
        return found

    def _open(self, use: Use, port: int, option: str, theirs: Sequence[Listener]) -> list[Listener]:
        found = []
        for host in self._settings.bind:
            same = next(
                (one for one in theirs if one.use is use and one.host == host and port in (0, one.port)), None
            )
            if same is None:
                with explained(host, port, use.kind, option):
                    bound = bind_tcp(host, port)
                same = Listener(use, host, int(bound.getsockname()[1]), bound)
            found.append(same)
        return found
