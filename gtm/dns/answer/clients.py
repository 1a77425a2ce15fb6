"""What is remembered of clients: the meaning of OPT records seen before, and where addresses are.

It depends on the GeoIP data and on no policy, so it outlives Views. Resolvers repeat themselves byte for byte: one
dictionary hit then stands for reading the record, looking its network up, and writing the OPT record of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from types import MappingProxyType

from gtm.core.model.requests import Location
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import SIZES, ServerCookies
from gtm.dns.protocol.options import NO_OPTIONS, ServerOptions
from gtm.dns.protocol.subnet import Subnet, SubnetError, read_subnet
from gtm.geoip.networks import Locate, locate_network

LIMIT = 1 << 17
"""How many of each are remembered. Past it the memory starts anew, so that hostile traffic cannot grow it."""

MAX_PARTS = 1 << 18
"""How many parts of subnets (`Location.parts`, 256 at most of each) are remembered in all: some 80 MB, at 300 bytes each."""

_MAX_REMEMBERED = 128
"""Longer OPT records, in bytes, are read each time: none that repeats is as long."""

_KNOWN = frozenset({wire.OPTION_SUBNET, wire.OPTION_NSID, wire.OPTION_KEEPALIVE, wire.OPTION_PADDING})
NO_DATA: Mapping[int, bytes] = MappingProxyType({})


@dataclass(slots=True, eq=False, repr=False)
class Client:
    """Where a client is. `audience` is the number of those it is one of where `questions` are asked: the latest ones."""

    location: Location
    questions: object = field(init=False, default=None)
    audience: int = field(init=False, default=0)


@dataclass(slots=True, eq=False, repr=False)
class Edns:
    """An OPT record of a query: how long an answer may be, whom it is for, and the OPT records of replies.

    `client` is None if the record says nothing of where the client is; `audience` and `questions` are as its. `cookie` is its cookie, if replies answer it;
    `keepalive`: it asks how long a connection may be idle (RFC 7828), which is answered over TCP alone.
    """

    flags: int
    payload: InitVar[int]
    subnet: Subnet | None = None
    client: Client | None = None
    _: KW_ONLY
    more: InitVar[Mapping[int, bytes]] = NO_DATA
    server: InitVar[ServerOptions] = NO_OPTIONS
    audience: int = field(init=False, default=0)
    questions: object = field(init=False, default=None)
    limit: int = field(init=False)
    dnssec_ok: bool = field(init=False)
    keepalive: bool = field(init=False)
    cookie: bytes | None = field(init=False)
    _cookies: ServerCookies | None = field(init=False)
    _more: bytes = field(init=False)
    general: bytes = field(init=False)
    tailored: bytes = field(init=False)

    def __post_init__(self, payload: int, more: Mapping[int, bytes], server: ServerOptions) -> None:
        self.limit = wire.udp_limit(payload)
        self.dnssec_ok = bool(self.flags & wire.DO)
        self.keepalive = server.idle is not None and wire.OPTION_KEEPALIVE in more
        self.cookie = more.get(wire.OPTION_COOKIE) if server.cookies is not None else None
        self._cookies = server.cookies
        self._more = (
            wire.option(wire.OPTION_NSID, server.nsid) if wire.OPTION_NSID in more and server.nsid else b""
        )
        self.general = self._opt(b"", b"", tailored=False)
        self.tailored = self._opt(b"", b"", tailored=True)

    def opt(self, error: bytes, source: str, *, tailored: bool) -> bytes:
        """The OPT record of a reply with an error or a cookie; `tailored` and `general` are those of all others.

        Args:
            error: the option of an extended error, or nothing.
            source: the client's address as text, for its cookie.
            tailored: the answer depends on where the client is, and has the scope of its location.
        """
        if self.cookie is not None and self._cookies is not None:
            return self._opt(error, self._cookies.answer(self.cookie, source)[1], tailored=tailored)
        return self._opt(error, b"", tailored=tailored)

    def _opt(self, error: bytes, cookie: bytes, *, tailored: bool) -> bytes:
        subnet = b""
        if self.subnet is not None:
            scope = self.subnet.scope(self.client.location) if tailored and self.client is not None else 0
            subnet = self.subnet.option(scope)
        return wire.opt_record(self.flags, subnet + error + self._more + cookie)


class NoEdns(Edns):
    """A query without an OPT record, whose reply has none either (RFC 6891 §7)."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, wire.PLAIN_PAYLOAD)
        self.general = self.tailored = b""

    def opt(self, error: bytes, source: str, *, tailored: bool) -> bytes:  # noqa: ARG002 - as `Edns` has it
        """Nothing: who sent no OPT record gets none, whatever the error."""
        return b""


@dataclass(slots=True, eq=False, repr=False)
class Clients:
    """The memory, and the way to find out.

    Args:
        locate: where an address is.
        server: what replies may say of the server.
    """

    locate: Locate
    server: ServerOptions = NO_OPTIONS
    records: dict[bytes, Edns] = field(init=False, default_factory=dict)
    sources: dict[str, Client] = field(init=False, default_factory=dict)
    subnets: dict[Subnet, Client] = field(init=False, default_factory=dict)
    """Those that queries named, as far as they are remembered."""
    _parts: int = field(init=False, default=0)

    def edns(self, record: bytes) -> Edns | None:
        """What an OPT record says; None if it takes the full way to tell, or if `record` is something else."""
        found = self.records.get(record)
        if found is None:
            found = self._read(record)
            if found is not None and len(record) <= _MAX_REMEMBERED:
                if len(self.records) >= LIMIT:
                    self.records.clear()  # not replaced: `Questions` holds it too
                self.records[record] = found
        return found

    def source(self, address: str) -> Client:
        """The client at an address."""
        found = self.sources.get(address)
        if found is None:
            found = Client(self.locate(address))
            if len(self.sources) >= LIMIT:
                self.sources.clear()
            self.sources[address] = found
        return found

    def subnet(self, subnet: Subnet) -> Client:
        """The clients in a subnet. Wide ones take up to a millisecond to look through, whatever else the query says."""
        found = self.subnets.get(subnet)
        if found is None:
            found = Client(locate_network(subnet.packed, subnet.source, self.locate))
            parts = len(found.location.parts)
            if len(self.subnets) >= LIMIT or self._parts + parts > MAX_PARTS:
                self.subnets.clear()
                self.records.clear()  # they hold their subnets' clients
                self._parts = 0
            self.subnets[subnet] = found
            self._parts += parts
        return found

    def _read(self, record: bytes) -> Edns | None:
        """Read a record that is a whole OPT record of version 0 with options that we know, else None."""
        size = len(record)
        if size < 11 or record[:3] != b"\0\0\x29" or record[6] or int.from_bytes(record[9:11]) != size - 11:
            return None
        more: dict[int, bytes] = {}
        at = 11
        while at < size:
            code, length = int.from_bytes(record[at : at + 2]), int.from_bytes(record[at + 2 : at + 4])
            data = record[at + 4 : at + 4 + length]
            at += 4 + length
            known = code in _KNOWN or (code == wire.OPTION_COOKIE and length in SIZES)
            if at > size or not known or code in more:
                return None
            more[code] = data
        return self._edns(int.from_bytes(record[7:9]), int.from_bytes(record[3:5]), more)

    def _edns(self, flags: int, payload: int, options: dict[int, bytes]) -> Edns | None:
        subnet = client = None
        if wire.OPTION_SUBNET in options:
            try:
                subnet = read_subnet(options[wire.OPTION_SUBNET])
            except SubnetError:
                return None
            if subnet.source:
                client = self.subnet(subnet)
        return Edns(flags, payload, subnet, client, more=options, server=self.server)
