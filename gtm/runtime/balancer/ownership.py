"""What a balancer owns on its machine: a directory, its listening sockets, a user; free, or from a predecessor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from gtm.runtime.following.handover import Ownership
from gtm.runtime.process.listeners import Listener, Use
from gtm.runtime.process.sockets import bind_datagrams, bind_tcp, explained
from gtm.settings import Address, BalancerSettings

logger = logging.getLogger(__name__)


def balancer_home(data_dir: Path, region: str) -> Path:
    """The directory of a region's balancer in a data directory."""
    return data_dir / f"balancer-{quote(region, safe='')}"


class BalancerOwnership(Ownership):
    """What one balancer owns: a directory of its own in the data directory, where an edge may be too; its sockets, a user."""

    def __init__(self, settings: BalancerSettings) -> None:
        super().__init__("balancer", balancer_home(settings.data_dir, settings.region), settings)
        self._settings = settings
        self._listeners: tuple[Listener, ...] = ()

    def take(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        super().take()

    def _open(self, inherited: Sequence[Listener]) -> None:
        settings = self._settings
        requests = self._of(Use.REQUESTS, settings.balancer_port, "--balancer-port", inherited)
        self._listeners = (
            *requests,
            *self._of_peers([(one.host, one.port) for one in requests], inherited),
            *self._of(Use.ADMIN, settings.admin_port, "--admin-port", inherited),
        )

    def listeners(self, use: Use) -> tuple[Listener, ...]:
        """The sockets of one use; they do not listen before somebody says so."""
        return tuple(one for one in self._listeners if one.use is use)

    async def leave_to_successor(self, give_way: Callable[[], None]) -> None:
        """Wait until the predecessor has ended, then for a successor that takes over, and then call `give_way`."""
        await self._relieved("balancer")
        await self.hand_over(self._listeners, give_way, "finishing what goes on")

    def release(self) -> None:
        for one in self._listeners:
            one.socket.close()
        super().release()

    def _of_peers(self, places: Sequence[Address], theirs: Sequence[Listener]) -> list[Listener]:
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

    def _of(self, use: Use, port: int, option: str, theirs: Sequence[Listener]) -> list[Listener]:
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
