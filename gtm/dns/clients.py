"""What is remembered of clients: the meaning of OPT records seen before, and where addresses are.

It depends on the GeoIP data and on no policy, so it outlives Views. Resolvers repeat themselves byte for byte: one
dictionary hit then stands for reading the record, looking its network up, and writing the OPT record of the reply.
"""

from __future__ import annotations

from gtm.core.model import Location
from gtm.core.router import Ranker
from gtm.dns import wire
from gtm.dns.subnet import Locate, Subnet, SubnetError, locate_subnet, read_subnet

LIMIT = 1 << 17
"""How many of each are remembered. Past it the memory starts anew, so that hostile traffic cannot grow it."""

_MAX_REMEMBERED = 128
"""Longer OPT records, in bytes, are read each time: none that repeats is as long."""

_IGNORED = frozenset({wire.OPTION_NSID, wire.OPTION_KEEPALIVE, wire.OPTION_PADDING})
_COOKIE_SIZES = frozenset({8, *range(16, 41)})
"""RFC 7873 §4; any other length is a format error (§5.2.2)."""


class Client:
    """Where a client is. `kind` is what one Ranker tells clients apart by: the one in `ranker`."""

    __slots__ = ("kind", "location", "ranker")

    def __init__(self, location: Location) -> None:
        self.location = location
        self.ranker: Ranker | None = None
        self.kind: object = None

    def kind_for(self, ranker: Ranker) -> object:
        """What a Ranker tells this client from others by, remembered for the latest one."""
        if self.ranker is not ranker:
            self.kind = ranker.kind(self.location)
            self.ranker = ranker
        return self.kind


class Edns:
    """An OPT record of a query: how long an answer may be, whom it is for, and the OPT records of replies.

    `client` is None if the record says nothing of where the client is. `general` goes with answers that hold for
    everyone, `tailored` with answers that depend on the client's location.
    """

    __slots__ = ("_flags", "_subnet", "client", "general", "limit", "tailored")

    def __init__(self, flags: int, payload: int, subnet: Subnet | None, client: Client | None) -> None:
        self._flags = flags
        self._subnet = subnet
        self.client = client
        self.limit = wire.udp_limit(payload)
        self.general = self.opt(tailored=False)
        self.tailored = self.opt(tailored=True)

    def opt(self, *, tailored: bool, more: bytes = b"") -> bytes:
        """The OPT record of a reply, with `more` options after the client subnet."""
        options = more
        if self._subnet is not None:
            scope = self._subnet.scope(self.client.location) if tailored and self.client is not None else 0
            options = self._subnet.option(scope) + more
        return wire.opt_record(self._flags, options)


class Clients:
    """The memory, and the way to find out.

    Args:
        locate: where an address is.
        offered: the options that replies answer, which takes the full way.
    """

    __slots__ = ("_locate", "_offered", "_records", "_sources")

    def __init__(self, locate: Locate, offered: frozenset[int] = frozenset()) -> None:
        self._locate = locate
        self._offered = offered
        self._records: dict[bytes, Edns] = {}
        self._sources: dict[str, Client] = {}

    def edns(self, record: bytes) -> Edns | None:
        """What an OPT record says; None if it takes the full way to tell, or if `record` is something else."""
        found = self._records.get(record)
        if found is None:
            found = self._read(record)
            if found is not None and len(record) <= _MAX_REMEMBERED:
                if len(self._records) >= LIMIT:
                    self._records = {}
                self._records[record] = found
        return found

    def source(self, address: str) -> Client:
        """The client at an address."""
        found = self._sources.get(address)
        if found is None:
            found = Client(self._locate(address))
            if len(self._sources) >= LIMIT:
                self._sources = {}
            self._sources[address] = found
        return found

    def _read(self, record: bytes) -> Edns | None:
        """Read a record that is a whole OPT record of version 0 with options that we know, else None."""
        size = len(record)
        if size < 11 or record[:3] != b"\0\0\x29" or record[6] or int.from_bytes(record[9:11]) != size - 11:
            return None
        subnet = None
        at = 11
        while at < size:
            code, length = int.from_bytes(record[at : at + 2]), int.from_bytes(record[at + 2 : at + 4])
            data = record[at + 4 : at + 4 + length]
            at += 4 + length
            if at > size or code in self._offered:
                return None
            if code == wire.OPTION_SUBNET and subnet is None:
                try:
                    subnet = read_subnet(data)
                except SubnetError:
                    return None
            elif code not in _IGNORED and not (code == wire.OPTION_COOKIE and length in _COOKIE_SIZES):
                return None
        client = Client(locate_subnet(subnet, self._locate)) if subnet is not None and subnet.source else None
        return Edns(int.from_bytes(record[7:9]), int.from_bytes(record[3:5]), subnet, client)
