"""Regions with a balancer each, in one process: real gates, queues, pickers and pushers over real sockets; what control says, a test says.

Model servers hold what they get until a test lets go, and note whose it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from gtm.balancer.decide.gate import HandoffReader, LawGate, OwnHandoffs
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.pushing import PeerPusher
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.admission import settings as core
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.backends import Condition
from gtm.core.balance.choosing.values import ChoosingSettings
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.spill.room import Slots
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import OwnKey, PublicKey, PublicKeys, key_text
from gtm.core.model.policy import Policy
from gtm.core.model.requests import Location
from gtm.core.model.state import State
from gtm.core.quota.names import QuotaText
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage, RoomMessage, RoomReport, SnapshotMessage, StateMessage
from gtm.geoip.client import ClientFinder
from gtm.handoff.jwt import made
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from gtm.settings import LOOPBACK
from tests import worlds
from tests.balancer.world import Backend, Message, Peer, Script, read_body, read_head
from tests.patience import PATIENCE

HOST = b"chat.test"
NO_RESERVES = dict.fromkeys(("real_time", "near_real_time", "batch"), 0.0)
COUNTRIES = ("DE", "IE", "US", "BR")
"""Clients' countries; one at 10.(its number).0.0/16. A balancer's own address is in none that a law is about: Japan."""

_AT = {"DE": (52.5, 13.4), "IE": (53.3, -6.3), "US": (40.7, -74.0), "BR": (-23.5, -46.6), "JP": (35.7, 139.7)}


def locate(address: str | bytes) -> Location:
    """Where a client is."""
    packed = address if isinstance(address, bytes) else bytes(map(int, address.split(".")))
    country = COUNTRIES[packed[1]] if packed[0] == 10 and packed[1] < len(COUNTRIES) else "JP"
    lat, lon = _AT[country]
    return Location(country, lat=lat, lon=lon, source="geoip", accuracy_km=5.0)


def address_of(country: str) -> str:
    """A client's there."""
    return f"10.{COUNTRIES.index(country)}.0.7"


class Gate(LawGate):
    """A gate that counts what it has judged."""

    judged = 0

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:
        """See `LawGate`."""
        self.judged += 1
        return super().judge(exchange, now)


class Bank:
    """Tokens of quotas."""

    def __init__(self, tokens: int = 10**9) -> None:
        self.tokens = tokens
        self.spent: dict[QuotaText, int] = {}

    def afford(self, quotas: tuple[QuotaText, ...]) -> bool:
        """One of each, or none."""
        if any(self.spent.get(quota, 0) >= self.tokens for quota in quotas):
            return False
        for quota in quotas:
            self.spent[quota] = self.spent.get(quota, 0) + 1
        return True


@dataclass
class Here:
    """One region."""

    name: str
    proxy: Proxy
    gate: Gate
    admission: QueueAdmission
    picker: PoolPicker
    pusher: PeerPusher
    current: CurrentView
    bank: Bank
    key: OwnKey
    slots: int
    port: int
    arrived: list[Message] = field(default_factory=list)
    held: list[Peer] = field(default_factory=list)
    listening: list[asyncio.Server] = field(default_factory=list)
    sequence: int = 0
    answers: bool = False
    """What arrives is answered at once."""
    says: bytes = b""
    """JSON that its answers are, in place of its name."""

    def free(self) -> Slots:
        """As `gtm balancer` says it."""
        taken = sum(one.flight.outstanding for one in self.picker.pool.candidates)
        waiting = self.admission.admission.waiting
        return Slots(max(0.0, self.slots - taken), float(self.slots), float(waiting))

    async def serve(self, peer: Peer) -> None:
        """A model server's script."""
        while True:
            self.arrived.append(await peer.request())
            if self.answers:
                self.answer(peer)
            else:
                self.held.append(peer)

    def answer(self, peer: Peer) -> None:
        body, kind = self.says or self.name.encode(), b"application/json" if self.says else b"text/plain"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
        peer.send(head + body)

    def let_go(self) -> None:
        """Answer what is held the longest."""
        if self.held and not (peer := self.held.pop(0)).writer.transport.is_closing():
            self.answer(peer)


class Regions:
    """All of them, and clients."""

    def __init__(self) -> None:
        self.all: dict[str, Here] = {}
        self.clients: list[Peer] = []

    def tell(self, *silent: str) -> None:
        """Everybody hears what everybody has free, but of those that are silent."""
        rooms: dict[str, tuple[RoomReport, ...]] = {}
        for here in self.all.values():
            here.sequence += 1
            if here.name not in silent:
                rooms[here.name] = (RoomReport(here.name, 1.0, here.sequence, 0.0, here.free()),)
        for here in self.all.values():
            here.current.apply(RoomMessage(rooms, 1))

    def publish(self, *without: str) -> None:
        """The keys of all balancers but these."""
        keys = sorted(
            PublicKey(f"{here.name}-token", key_text(here.key.public), Issuer.BALANCER, here.name)
            for here in self.all.values()
            if here.name not in without
        )
        for here in self.all.values():
            here.current.apply(HandoffKeysMessage(PublicKeys(tuple(keys), 1 + len(without))))

    async def ask(self, region: str, country: str, *lines: bytes, body: bytes = b"", more: int = 0) -> Peer:
        """Somebody asks a region; so many bytes more of the body are to follow, which the balancer waits for."""
        reader, writer = await asyncio.open_connection("::1", self.all[region].port, limit=2**21)
        peer = Peer(reader, writer)
        self.clients.append(peer)
        written = b"".join(line + b"\r\n" for line in lines)
        peer.send(
            b"POST %b HTTP/1.1\r\nhost: %b\r\nx-forwarded-for: %b\r\nx-client: %b\r\n%bcontent-length: %d\r\n\r\n%b"
            % (
                b"/v1/completions" if more else b"/v1/x",
                HOST,
                address_of(country).encode(),
                country.encode(),
                written,
                len(body) + more,
                body,
            )
        )
        return peer

    async def fill(self, region: str) -> None:
        """Take all slots of a region, by Germans where they may be, else Americans."""
        here = self.all[region]
        for _ in range(here.slots):
            await self.ask(region, "DE" if region in ("fra", "dub") else "US")
        await self.until(lambda: len(here.held) == here.slots, f"{region} is full")
        self.tell()

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        """Wait until something holds that will."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():  # noqa: ASYNC110 - looks are cheap
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"never: {what}") from None

    async def answer(self, peer: Peer) -> Message:
        """What a client gets."""
        return await asyncio.wait_for(_answer(peer), PATIENCE)

    async def nothing_left(self) -> None:
        """Whatever is held is answered, and then nothing is in flight anywhere."""

        def done() -> bool:
            for here in self.all.values():
                here.let_go()
            return all(
                not here.pusher.in_flight.total()
                and not here.admission.admission.running
                and not here.admission.admission.waiting
                and not sum(one.flight.requests for one in here.picker.pool.candidates)
                for here in self.all.values()
            )

        await self.until(done, "nothing is in flight")


async def _answer(peer: Peer) -> Message:
    return await read_body(peer.reader, await read_head(peer.reader))


def _served_by(holder: list[Here]) -> Script:
    async def script(peer: Peer) -> None:
        await holder[0].serve(peer)

    return script


@contextlib.asynccontextmanager
async def regions(
    make: Callable[[Mapping[str, int]], Policy],
    slots: Mapping[str, int],
    *,
    older: Mapping[str, Callable[[Mapping[str, int]], Policy]] | None = None,
    tokens: int = 10**9,
    settings: core.AdmissionSettings | None = None,
    service_s: Callable[[], float] | None = None,
) -> AsyncIterator[Regions]:
    """Balancers of these regions with so many slots each, by a policy made for their ports; some may have an older one.

    `service_s` tells how long requests hold a slot; None: what they did.
    """
    loop, found = asyncio.get_running_loop(), Regions()
    servers = []
    for name, count in slots.items():
        current = CurrentView(time.time)
        key = made()
        own = OwnHandoffs(current, name)
        own.use(key)
        holder: list[Here] = []
        backend = Backend(_served_by(holder))
        server = Server(await backend.start(), slots=count)
        picker = PoolPicker(
            [server], ChoosingSettings(), BackendHealth(HealthSettings(), [server], loop.time()), loop=loop
        )
        picker.conditions({server.name: Condition(healthy=True)})
        admission = QueueAdmission(
            settings or core.AdmissionSettings(reserves=NO_RESERVES), loop=loop, cost=lambda _: 1.0
        )
        admission.resize(count)
        gate = Gate(
            current, name, locate, ClientFinder([ip_network("::1/128")]), HandoffReader(current, locate)
        )
        bank = Bank(tokens)

        def beside(holder: list[Here] = holder) -> Slots:
            free = holder[0].free()
            return Slots(free.free, free.limit, max(0.0, free.waiting - 1))

        pusher = PeerPusher(
            current,
            name,
            f"{name}-1",
            own,
            slots=beside,
            service_s=service_s or picker.service_s,
            afford=bank.afford,
            now=loop.time,
            allowed=LOOPBACK,
        )
        proxy = Proxy(
            gate, admission, picker, room=Connections(MAX_CONNECTIONS), loop=loop, region=name, pusher=pusher
        )
        proxy.start()
        listening = await loop.create_server(proxy.connection, ["127.0.0.1"], 0)
        port = listening.sockets[0].getsockname()[1]
        # Clients come by another address, from which a proxy is trusted to say who they are. A balancer is not.
        servers += [listening, await loop.create_server(proxy.connection, ["::1"], port)]
        here = Here(name, proxy, gate, admission, picker, pusher, current, bank, key, count, port)
        here.listening = servers[-2:]
        holder.append(here)
        found.all[name] = here
    try:
        ports = {name: here.port for name, here in found.all.items()}
        for name, here in found.all.items():
            policy = (older or {}).get(name, make)(ports)
            here.current.apply(SnapshotMessage.of(1, 1.0, policy, shipped_jurisdictions()))
            here.current.apply(StateMessage(State(epoch=1, health=worlds.health(policy.regions))))
        found.publish()
        found.tell()
        yield found
        for client in found.clients:
            client.abort()
        await found.nothing_left()
    finally:
        for here in found.all.values():
            here.proxy.close()
            here.picker.stop()
        for one in servers:
            one.close()
