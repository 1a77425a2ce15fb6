"""The way to the region's other balancers: datagrams to each as often as there is something to say, and what comes from them.

It needs no control: whom control has published is remembered, on disk too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gtm.core.balance.flights import PeerLoad
from gtm.core.balance.groups import MOST_GROUPS
from gtm.core.balance.sharing import FORGOTTEN_S, LOOK_EVERY, SlotUse, due
from gtm.core.handoff.keys import OwnKey, key_bytes
from gtm.core.model.addresses import host_port
from gtm.feed.wire import CounterValue, Moment, Peer, PeersMessage, Requests
from gtm.files import write_whole
from gtm.nesting import shallow
from gtm.options import peer_place, places
from gtm.runtime.balancer.carrier import Carriers, Word, together
from gtm.runtime.following.following import FollowerDisk
from gtm.runtime.process.listeners import Listener
from gtm.settings import BalancerSettings

# --- A word of one balancer to others of its region, as a signed datagram. ---
#
#     "GTMW1"  ·  public key (32 bytes)  ·  Ed25519 signature (64 bytes)  ·  JSON
#
# The signature is over the first six bytes, counting a zero byte for the key's place, and the JSON. What an edge or balancer signs otherwise
# are JWTs (`gtm.handoff.jwt`), which begin with `ey`: neither passes for the other.
#
# Laws:
#   1. Whatever bytes come, `opened` returns what somebody signed whose key is known, or raises `BadDatagram`, in time that is bounded by `MOST`.
#   2. Numbers that no balancer could mean are refused: a peer that is wrong, or lies, makes nobody's sums infinite.


MOST = 60_000
"""Bytes of a datagram, below what IP carries."""
MOST_MEMBERS = 256
MOST_BACKENDS = 2048
_MAGIC = b"GTMW1"
_KEY, _SIGNATURE = 32, 64
_HEAD = len(_MAGIC) + _KEY + _SIGNATURE

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=400)]


class _Use(NamedTuple):
    running: Requests
    waiting: Requests


class _Load(NamedTuple):
    requests: Requests
    work_us: CounterValue


class _Body(msgspec.Struct, forbid_unknown_fields=False):
    region: _Name
    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    sequence: CounterValue
    at: Moment
    uses: Annotated[dict[_Name, _Use], msgspec.Meta(max_length=MOST_MEMBERS)]
    loads: Annotated[dict[_Name, _Load], msgspec.Meta(max_length=MOST_BACKENDS)]
    age: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    ending: bool = False
    groups: Annotated[
        dict[_Name, Annotated[dict[_Name, _Use], msgspec.Meta(max_length=MOST_MEMBERS)]],
        msgspec.Meta(max_length=2 * MOST_GROUPS),
    ] = {}


class Said(NamedTuple):
    """What a datagram says.

    `instance` tells one start of a balancer from others, `sequence` numbers its datagrams, `at` is when it was sent, in POSIX seconds
    by its own clock. `ending`: it is the last. `key` is the public key that it was verified by; it is not said.
    """

    region: str
    instance: str
    sequence: int
    at: float
    word: Word
    ending: bool = False
    key: bytes = b""


class BadDatagram(ValueError):  # noqa: N818 - what it is
    """What came is no word of a peer."""


_encode = msgspec.json.Encoder().encode
_body = msgspec.json.Decoder(_Body)


class WordSealer:
    """Signs with one key."""

    def __init__(self, key: OwnKey) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key.private)
        self._public = key.public

    def seal(self, said: Said) -> bytes:
        """The datagram. Of more than it takes, backends with least work are left out, and groups: what is shared is slots."""
        word = said.word
        groups = {
            group: {name: _Use(*use) for name, use in uses.items()} for group, uses in word.groups.items()
        }
        loads = sorted(word.loads.items(), key=lambda one: -one[1].work_us)[:MOST_BACKENDS]
        while True:
            body = _encode(
                _Body(
                    said.region,
                    said.instance,
                    said.sequence,
                    said.at,
                    {name: _Use(*use) for name, use in word.uses.items()},
                    {name: _Load(round(load.requests), load.work_us) for name, load in loads},
                    word.age,
                    said.ending,
                    groups,
                )
            )
            if _HEAD + len(body) <= MOST or not (loads or groups):
                break
            loads, groups = loads[: len(loads) // 2], groups if loads else {}
        return _MAGIC + self._public + self._key.sign(_signed(body)) + body


def opened(datagram: bytes, known: Callable[[bytes], bool]) -> Said:
    """What a datagram says.

    Args:
        datagram: as it came.
        known: whether a public key is a peer's: others are not verified.

    Raises:
        BadDatagram: it is none, or not of one of these.
    """
    if not _HEAD < len(datagram) <= MOST or not datagram.startswith(_MAGIC):
        raise BadDatagram("not of this form")
    public = datagram[len(_MAGIC) : len(_MAGIC) + _KEY]
    if not known(public):
        raise BadDatagram("not by a key of a peer's")
    body = datagram[_HEAD:]
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(datagram[_HEAD - _SIGNATURE : _HEAD], _signed(body))
    except (InvalidSignature, ValueError) as error:
        raise BadDatagram("the signature is not of this key") from error
    try:
        found = _body.decode(shallow(body))
    except ValueError as error:
        raise BadDatagram(str(error)) from error
    return Said(found.region, found.instance, found.sequence, found.at, _word(found), found.ending, public)


def _word(body: _Body) -> Word:
    uses: Mapping[str, _Use] = body.uses
    groups: Mapping[str, Mapping[str, _Use]] = body.groups
    return Word(
        {name: SlotUse(*use) for name, use in uses.items()},
        {name: PeerLoad(*load) for name, load in body.loads.items()},
        body.age,
        groups={
            group: {name: SlotUse(*use) for name, use in of_it.items()} for group, of_it in groups.items()
        },
    )


def _signed(body: bytes) -> bytes:
    return _MAGIC + b"\0" + body


# --- Which balancers of its region one believes, and what they said last. ---
#
# Laws:
#   1. A word counts only if a key signed it that control published for a balancer of this region, it is newer than what that balancer said before,
#      it speaks of that start's own processes, and its sender's clock is not far from this one's: what was recorded is worth nothing later.
#   2. Silence of control takes nobody away: who was published is remembered, and those that are published no more (control has just begun
#      anew, and has not heard of them yet) for `REMEMBERED` seconds.
#   3. What is kept is bounded: peers, those of one token, starts of one peer, datagrams verified a second.


MOST_PEERS = 64
"""Balancers of one region that are heard."""
MOST_OF_A_TOKEN = 16
"""Of these, those whose keys one token told: who has stolen it must not crowd out the others."""
MOST_STARTS = 4
"""Starts of one of them that are: its successor's, and its predecessor's that finishes."""
REMEMBERED = 60.0
"""Seconds for which a peer counts that is published no more."""
CLOCKS_APART = 30.0
"""Seconds that clocks may differ by."""
_A_SECOND = 200.0
"""Datagrams of one key that are verified a second."""


@dataclass(slots=True)
class _Heard:
    """What one start of a peer said last: when it came, and which peer it is of."""

    said: Said
    came: float
    peer: str


@dataclass(slots=True)
class _Budget:
    """Datagrams of one key that may be verified now."""

    left: float
    at: float


class Known:
    """See above.

    Args:
        region: this one.
        instance: this balancer's own.
        now: monotonic seconds.
        wall: POSIX seconds.
    """

    def __init__(
        self, region: str, instance: str, now: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._region = region
        self._instance = instance
        self._now = now
        self._wall = wall
        self._peers: dict[tuple[str, str], tuple[Peer, float | None]] = {}
        self._keys: dict[bytes, str] = {}
        self._budgets: dict[bytes, _Budget] = {}
        self._heard: dict[str, _Heard] = {}
        self.refused = 0
        """Datagrams that did not count."""

    # --- who ---

    def learn(self, peers: Iterable[Peer]) -> bool:
        """Control published these, of all regions. Whether the region's are others than before."""
        now = self._now()
        before = self.peers()
        told = {(one.name, one.address): one for one in peers if one.region == self._region}
        for place, (one, gone) in list(self._peers.items()):
            if place not in told and gone is None:
                self._peers[place] = one, now
        for place, one in _bounded(sorted(told.items())):
            self._peers[place] = one, None
        self._sweep()
        return self.peers() != before

    def peers(self) -> tuple[Peer, ...]:
        """Those that count, this balancer itself among them."""
        return tuple(one for _, (one, _) in sorted(self._peers.items()))

    def addresses(self) -> tuple[str, ...]:
        """Where they are, each once: a place is told what there is as often, whatever number of names it has."""
        return tuple(dict.fromkeys(one.address for one in self.peers()))

    def _sweep(self) -> None:
        now = self._now()
        self._peers = {
            place: (one, gone)
            for place, (one, gone) in self._peers.items()
            if gone is None or now - gone <= REMEMBERED
        }
        self._keys = {key_bytes(key): one.name for one, _ in self._peers.values() for key in one.keys}
        self._budgets = {key: one for key, one in self._budgets.items() if key in self._keys}

    # --- what ---

    @property
    def starts(self) -> int:
        """How many starts of peers are heard."""
        return len(self._heard)

    def hear(self, datagram: bytes) -> bool:
        """Take in what came. Whether it counts."""
        try:
            said = opened(datagram, self._verifies)
        except BadDatagram:
            self.refused += 1
            return False
        peer = self._keys[said.key]
        before = self._heard.get(said.instance)
        stale = before is not None and (before.peer != peer or said.sequence <= before.said.sequence)
        far = abs(self._wall() - said.at) > CLOCKS_APART
        members = {*said.word.uses, *(name for uses in said.word.groups.values() for name in uses)}
        foreign = any(name.partition("/")[0] != said.instance for name in members)
        if said.region != self._region or said.instance == self._instance or stale or far or foreign:
            self.refused += said.instance != self._instance
            return False
        self._heard[said.instance] = _Heard(said, self._now(), peer)
        of_it = sorted((one.said.at, name) for name, one in self._heard.items() if one.peer == peer)
        for _, name in of_it[:-MOST_STARTS]:
            del self._heard[name]
        return True

    def words(self) -> Mapping[str, Word]:
        """What each start of a peer said last, by its name, with its age."""
        now = self._now()
        self._sweep()
        # Those that ended are remembered for as long as what they sent before could be taken for new.
        keep = max(FORGOTTEN_S, 2 * CLOCKS_APART)
        names = set(self._keys.values())
        self._heard = {
            name: one for name, one in self._heard.items() if now - one.came <= keep and one.peer in names
        }
        return {
            name: replace(one.said.word, age=one.said.word.age + now - one.came, balancer=one.peer)
            for name, one in self._heard.items()
            if not one.said.ending
        }

    def _verifies(self, key: bytes) -> bool:
        """Whether a datagram by this key is worth verifying."""
        if key not in self._keys:
            return False
        now = self._now()
        budget = self._budgets.setdefault(key, _Budget(_A_SECOND, now))
        budget.left = min(_A_SECOND, budget.left + (now - budget.at) * _A_SECOND)
        budget.at = now
        if budget.left < 1.0:
            return False
        budget.left -= 1.0
        return True


def _bounded(told: Iterable[tuple[tuple[str, str], Peer]]) -> Iterable[tuple[tuple[str, str], Peer]]:
    """The first of them that are heard, of no token too many."""
    tokens: Counter[str] = Counter()
    taken = 0
    for place, one in told:
        token = one.name.partition("/")[0]
        tokens[token] += 1
        if tokens[token] <= MOST_OF_A_TOKEN and taken < MOST_PEERS:
            taken += 1
            yield place, one


# --- The way to the region's other balancers: datagrams to each as often as there is something to say, and what comes from them. ---


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
        self._sealer: tuple[OwnKey, WordSealer] | None = None
        self._sequence = 0
        self._unsaved = False
        self._ending = False
        self._passed = 0
        self._passed_at = 0.0
        self._told: SlotUse | None = None
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
            return host_port(host, port or self._port)
        host = self.settings.bind[0]
        if not ip_address(host).is_unspecified:
            return host_port(host, self._port)
        control = urlsplit(self.settings.control_url)
        try:
            with socket.socket(
                socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
            ) as asking:
                asking.connect((control.hostname or "", control.port or 443))  # sends nothing
                return host_port(str(asking.getsockname()[0]), self._port)
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
            self._sealer = key, WordSealer(key)
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
