"""The way to the region's other balancers: datagrams to each as often as there is something to say, and what comes from them.

It needs no control: whom control has published is remembered, on disk too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gtm.core.balance.sharing import LOOK_EVERY, Use, due
from gtm.core.handoff.keys import OwnKey
from gtm.feed.wire import PeersMessage
from gtm.files import write_whole
from gtm.nesting import shallow
from gtm.options import peer_place, places
from gtm.runtime.balancer.carrier import Carriers
from gtm.runtime.balancer.peers.datagrams import MOST, Said, Sealer
from gtm.runtime.balancer.peers.known import Known
from gtm.runtime.balancer.words import together
from gtm.runtime.following.following import FollowerDisk
from gtm.runtime.process.listeners import Listener
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

FILE = "balancer-peers"
"""Of a balancer's directory: who was published last, as JSON."""
_PASS_EVERY = 1.0
"""Seconds after which those that carry are told again what they know: who is gone for good is forgotten."""
_AT_ONCE = 64
"""Datagrams that are read before others get their turn."""


@dataclass(eq=False, repr=False)
class PeerLine:
    """See above.

    Args:
        settings: of this balancer.
        instance: what tells this start from others.
        home: its directory.
        kept: the way to the disk.
        listeners: the sockets that others reach it at; none: it speaks to nobody.
        key: what it signs with; None: nothing yet.
        carriers: carry requests here.
    """

    settings: BalancerSettings
    instance: str
    _: KW_ONLY
    home: InitVar[Path]
    kept: FollowerDisk
    listeners: InitVar[Sequence[Listener]]
    key: Callable[[], OwnKey | None]
    carriers: Carriers

    def __post_init__(self, home: Path, listeners: Sequence[Listener]) -> None:
        self._path = home / FILE
        self._sockets = [one.socket for one in listeners]
        self._port = listeners[0].port if listeners else 0
        self._loop = asyncio.get_running_loop()
        self._known = Known(self.settings.region, self.instance, self._loop.time, time.time)
        self._sealer: tuple[OwnKey, Sealer] | None = None
        self._sequence = 0
        self._unsaved = False
        self._ending = False
        self._passed = 0
        self._passed_at = 0.0
        self._told: Use | None = None
        self.address = self._own_address() if listeners else ""
        """Where others reach it; empty: nowhere."""

    # --- who ---

    async def load(self) -> None:
        """Take in who was published last."""
        try:
            text = await self.kept.on_disk(self._path.read_bytes)
            self._known.learn(msgspec.json.decode(shallow(text), type=PeersMessage).peers)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("cannot read who else balances this region, control will say: %s", error)

    def learn(self, message: PeersMessage) -> None:
        """Control said who there is."""
        if self._known.learn(message.peers):
            others = [one.name for one in self._known.peers() if one.address != self.address]
            logger.info("other balancers of the region: %s", ", ".join(others) or "none")
            self._unsaved = True
            elsewhere = not all(ip_address(host).is_loopback for host, _ in self._places())
            if self.address and ip_address(peer_place(self.address)[0]).is_loopback and elsewhere:
                logger.warning(
                    "the region's other balancers cannot reach this one at %s: give --peer-address",
                    self.address,
                )

    async def keep(self) -> None:
        """Write down who there is, if that has changed. To be called each second."""
        if not self._unsaved:
            return
        self._unsaved = False
        text = msgspec.json.encode(PeersMessage(self._known.peers())) + b"\n"
        try:
            await self.kept.on_disk(write_whole, self._path, text)
        except OSError as error:
            logger.warning("cannot keep who else balances this region: %s", error)

    def _own_address(self) -> str:
        """Where others reach this balancer, as far as it can know."""
        if self.settings.peer_address:
            ((host, port),) = places([self.settings.peer_address])
            return _written(host, port or self._port)
        host = self.settings.bind[0]
        if not ip_address(host).is_unspecified:
            return _written(host, self._port)
        control = urlsplit(self.settings.control_url)
        try:
            with socket.socket(
                socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
            ) as asking:
                asking.connect((control.hostname or "", control.port or 443))  # sends nothing
                return _written(str(asking.getsockname()[0]), self._port)
        except OSError as error:
            logger.warning(
                "the region's other balancers cannot reach this one, for its address is not known (%s): give --peer-address",
                error,
            )
            return ""

    # --- what ---

    def listen(self) -> None:
        """Read words from now on."""
        for one in self._sockets:
            one.setblocking(False)
            self._loop.add_reader(one.fileno(), self._read, one)

    def leave(self) -> None:
        """Read no more, and go on saying what is left here, until `end`: a successor may read the same sockets."""
        if not self._ending:
            self._ending = True
            for one in self._sockets:
                self._loop.remove_reader(one.fileno())

    def end(self) -> None:
        """Say goodbye."""
        self.leave()
        self._say(ending=True)

    async def run(self) -> None:
        """Say what there is, until cancelled."""
        told_at = 0.0
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now, use = self._loop.time(), self.carriers.use()
            if self._places() and due(self._told, use, now - told_at) and self._say():
                self._told, told_at = use, now
            if now - self._passed_at > _PASS_EVERY:
                self._pass()

    def _pass(self) -> None:
        """Tell those that carry what the others said; also when nobody speaks any more."""
        words = self._known.words()
        if words or self._passed:
            self.carriers.heard(words)
        self._passed, self._passed_at = len(words), self._loop.time()

    def _places(self) -> list[tuple[str, int]]:
        """Where others are, each once; once this balancer leaves, where its successor is too."""
        return [peer_place(one) for one in self._known.addresses() if self._ending or one != self.address]

    def _say(self, *, ending: bool = False) -> bool:
        """Tell all others; whether there was a way to."""
        key, places = self.key(), self._places()
        if key is None or not places:
            return False
        if self._sealer is None or self._sealer[0] is not key:
            self._sealer = key, Sealer(key)
        self._sequence += 1
        word = together(list(self.carriers.words().values()))
        said = Said(self.settings.region, self.instance, self._sequence, time.time(), word, ending)
        datagram = self._sealer[1].seal(said)
        for host, port in places:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sender = next((one for one in self._sockets if one.family == family), None)
            if sender is None:
                continue
            try:
                sender.sendto(datagram, (host, port))
            except OSError as error:
                logger.debug("cannot tell the balancer at %s port %d: %s", host, port, error)
        return True

    def _read(self, sock: socket.socket) -> None:
        heard, starts = False, self._known.starts
        for _ in range(_AT_ONCE):
            try:
                datagram = sock.recv(MOST + 1)
            except OSError:  # nothing more; or a peer's machine says that nobody is there
                break
            heard |= self._known.hear(datagram)
        if self._known.starts > starts:
            self._told = None  # who has just begun is told at once
        if heard:
            self._pass()

    def shown(self) -> Mapping[str, object]:
        """The state of the line, for people."""
        words = self._known.words()
        return {
            "address": self.address,
            "known": [{"name": one.name, "address": one.address} for one in self._known.peers()],
            "heard": {
                name: {
                    "age_s": round(word.age, 3),
                    "running": sum(use.running for use in word.uses.values()),
                    "waiting": sum(use.waiting for use in word.uses.values()),
                }
                for name, word in words.items()
            },
            "refused": self._known.refused,
        }


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
