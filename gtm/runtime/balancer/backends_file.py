"""The file of a region's backends: read at the start, and again when it changes; a broken one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Container, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from gtm.balancer import config
from gtm.balancer.config import BackendDocument, BalancerDocument
from gtm.balancer.plane.backend.backends import is_srv, placed
from gtm.core.model.problems import PolicyError
from gtm.files import FileState, state_of
from gtm.settings import BalancerSettings

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

logger = logging.getLogger(__name__)


class BackendsFile:
    """See above.

    Args:
        settings: name the file, or the backends themselves.

    Raises:
        PolicyError: with every problem in it.
    """

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings
        self._signature = self._look()
        self.document: BalancerDocument = self._read()
        self._started = self.document
        self._gone = False
        """The log says that there is no file."""

    @property
    def waits_for_start(self) -> tuple[str, ...]:
        """The fields of the file that have changed since the start, and count from the next one."""
        return self.document.later_than(self._started)

    def forget(self) -> None:
        """Let the next look find it changed, whatever it holds."""
        self._gone = False
        if self._settings.file is None:
            logger.info("there is no file of backends to read again: they were given by --backend")
        else:
            self._signature = (0, 0, 0, 0, 0)

    def changed(self) -> bool:
        """Whether the file has changed and is right; `document` is what it says now."""
        signature = self._look()
        if signature == self._signature:
            return False
        if signature is None:
            if not self._gone:
                self._gone = True
                logger.error(
                    "the file of backends `%s` cannot be found, going on with what was in it before",
                    self._settings.file,
                )
            return False
        self._gone = False
        self._signature = signature
        try:
            self.document = self._read()
        except PolicyError as error:
            logger.error(
                "the file of backends cannot be used, going on with what was in it before: %s", error
            )
            return False
        return True

    def _read(self) -> BalancerDocument:
        settings = self._settings
        if settings.file is not None:
            return config.load(settings.file)
        return config.of_urls(settings.backend, settings.service)

    def _look(self) -> FileState | None:
        return None if self._settings.file is None else state_of(self._settings.file)


# --- The servers behind the host names of a balancer's file: each address is one, and they come and go as the name's records do.
#
# A name in the file stands for the servers that its records name now, as a headless service of Kubernetes does: each has its own health, counts
# and slots. How often records change is the DNS's affair: names are looked up every `EVERY` seconds by the machine's own resolver, whose cache
# goes by their TTL.
#
# Laws:
#   1. A name has as many servers as addresses of one family: the family of which it has more, or, of as many of both, the one that the machine
#      prefers (RFC 6724). With one address of each it is one server with two ways to it.
#   2. A name that cannot be looked up keeps its servers: an outage of the DNS takes none away. One that has no address any more loses them, once
#      two look-ups in a row have said so. Without servers a name is tried as it stands, so that `/state` shows what is wrong.
#   3. Servers whose addresses are gone take no further requests; but while none that the name has now passes its checks, those of before stay, for
#      `STAYING` seconds at most: where all records change at once, the new servers are looked at before they are needed.
#   4. A name whose first two labels begin with underscores has SRV records (RFC 2782): they name hosts and ports of the least priority, and their
#      weights, in proportion to each other, multiply the weight in the file.
#
# Example: `http://vllm.models.svc:8000` with the records 10.0.0.5 and 10.0.0.6 becomes the servers `http://vllm.models.svc:8000#10.0.0.5` and `…#10.0.0.6`.


EVERY = 5.0
"""Seconds between two look-ups of a name."""
STAYING = 60.0
"""Seconds for which servers whose addresses are gone stay at most."""
MOST_OF_NAME = 1_000
"""Servers that one name may have."""
MOST = 10_000
"""Servers that a balancer may have."""
_SRV_PATIENCE = 5.0
"""Seconds for SRV records to come."""
_LEAST_WEIGHT = 0.01
"""Of a target whose weight is 0 beside others: it "should have a very small chance" (RFC 2782)."""
_NO_ADDRESS = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class NamedServer(NamedTuple):
    """One server of a name: the addresses to try in order, each with its port where records say it, and its weight relative to the others."""

    addresses: tuple[tuple[str, int | None], ...]
    weight: float = 1.0


Lookup = Callable[[str], Awaitable[Sequence[NamedServer]]]
"""Says what servers a name has, none if it has no records; raises OSError where nobody knows."""


class BackendNames:
    """See above. Belongs to one event loop.

    Args:
        lookup: asks for a name's servers.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, lookup: Lookup | None = None, now: Callable[[], float] | None = None) -> None:
        self._lookup = lookup or look_up
        self._now = now or asyncio.get_running_loop().time
        self._known: dict[str, tuple[NamedServer, ...]] = {}
        self._left: dict[str, tuple[tuple[NamedServer, ...], float]] = {}
        """Of names whose servers have changed: those that are gone, and until when they stay at most."""
        self._asked: dict[str, float] = {}
        self._asking: dict[str, asyncio.Future[Sequence[NamedServer]]] = {}
        self._empty: set[str] = set()
        """Names that had no address at the last look-up, and are believed to have some still."""
        self._failing: set[str] = set()
        """Names of which the log says that they cannot be looked up."""

    async def look(self, document: BalancerDocument, patience: float = 0.0) -> bool:
        """Look up those names that it is time for, and take in what was found since.

        Args:
            document: the file.
            patience: seconds to wait for what is being looked up; what comes later is taken in by a later call.

        Returns:
            Whether any name has other servers than before, or has some that are about to go.
        """
        names = {one.name for one in document.backends if one.name is not None}
        for gone in self._asked.keys() - names:
            del self._asked[gone]
            self._known.pop(gone, None)
            self._left.pop(gone, None)
            self._empty.discard(gone)
            self._failing.discard(gone)
            if gone in self._asking:
                self._asking.pop(gone).cancel()
        now = self._now()
        for name in names - self._asking.keys():
            if now - self._asked.get(name, now - EVERY) >= EVERY:
                self._asked[name] = now
                self._asking[name] = asyncio.ensure_future(self._lookup(name))
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=patience)
        changed = False
        for name in [name for name, asking in self._asking.items() if asking.done()]:
            changed |= self._take(name, self._asking.pop(name))
        return changed or bool(self._left)

    def applied(self, document: BalancerDocument, up: Container[str]) -> BalancerDocument:
        """The file with a backend for each server of each name, as far as names are known.

        Args:
            document: the file.
            up: the servers that pass their checks, by the URLs that this gives them.
        """
        now, staying = self._now(), set()
        backends: list[BackendDocument] = []
        for one in document.backends:
            places = _servers_of(one, self._known.get(one.name or "", ()))
            left, until = self._left.get(one.name or "", ((), now))
            if now < until and not any(server.url in up for server in places):
                staying.add(one.name)
                places += _servers_of(one, left)
            backends += places or [one]
        for name in self._left.keys() - staying:
            del self._left[name]
        if len(backends) > MOST:
            logger.error(
                "names of the file of backends have %d servers; the first %d are used", len(backends), MOST
            )
        return document.model_copy(update={"backends": tuple(backends[:MOST])})

    async def close(self) -> None:
        """Look nothing up any more."""
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        self._asking = {}

    def _take(self, name: str, asked: asyncio.Future[Sequence[NamedServer]]) -> bool:
        """What a look-up has found. Whether it is something new."""
        before = self._known.get(name, ())
        try:
            found = tuple(asked.result())
        except OSError as error:
            if name not in self._failing:
                self._failing.add(name)
                logger.warning(
                    "the name `%s` of a backend cannot be looked up: %s; going on with %s",
                    name,
                    error.strerror or error,
                    f"the {len(before)} servers that it had" if before else "the name as it stands",
                )
            return False
        if name in self._failing:
            self._failing.discard(name)
            logger.info("the name `%s` of a backend can be looked up again", name)
        if not found and before and name not in self._empty:
            self._empty.add(name)
            return False
        self._empty.discard(name)
        if len(found) > MOST_OF_NAME:
            logger.error(
                "the name `%s` has %d servers; the first %d are used", name, len(found), MOST_OF_NAME
            )
            found = found[:MOST_OF_NAME]
        if found == before:
            return False
        self._known[name] = found
        has = {one.addresses for one in found}  # a server of another weight is the same
        left, until = self._left.pop(name, ((), 0.0))
        lost = [one for one in before if one.addresses not in has]
        gone = sorted([*lost, *(one for one in left if one.addresses not in has)])
        if gone:
            self._left[name] = tuple(gone[:MOST_OF_NAME]), self._now() + STAYING if lost else until
        logger.info("the name `%s` stands for %d servers now%s", name, len(found), _words(before, found))
        return True


def _servers_of(backend: BackendDocument, places: Sequence[NamedServer]) -> list[BackendDocument]:
    return [
        backend.model_copy(
            update={"url": placed(backend.url, place.addresses), "weight": backend.weight * place.weight}
        )
        for place in places
    ]


def _words(before: Sequence[NamedServer], after: Sequence[NamedServer]) -> str:
    """What has come and gone, of which the log names the first few."""
    had, has = {place.addresses for place in before}, {place.addresses for place in after}
    parts = []
    for what, places in (("new", has - had), ("gone", had - has)):
        if places:
            first = ", ".join(sorted(placed("", one)[1:] for one in places)[:5])
            parts.append(f"{what}: {first}{' …' if len(places) > 5 else ''}")
    return f" ({'; '.join(parts)})" if parts else ""


async def look_up(name: str) -> list[NamedServer]:
    """The servers of a name, by the machine's resolver.

    Raises:
        OSError: nobody knows.
    """
    return (
        await of_records(name) if is_srv(name) else [NamedServer(one) for one in await _servers(name, None)]
    )


async def _servers(name: str, port: int | None) -> list[tuple[tuple[str, int | None], ...]]:
    """The servers of a name by its addresses (law 1)."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return []
        raise
    except UnicodeError as error:  # a label is empty or too long
        raise OSError(None, f"`{name[:300]}` is no host name: {error}") from error
    return one_family([(family, str(address[0])) for family, _, _, _, address in found], port)


def one_family(
    found: Sequence[tuple[int, str]], port: int | None = None
) -> list[tuple[tuple[str, int | None], ...]]:
    """The servers of a name with these addresses, each with its family, as the machine prefers them (law 1)."""
    families: dict[int, dict[str, None]] = {}
    for family, address in found:
        families.setdefault(family, {})[address] = None
    best = max(families.values(), key=len, default={})  # the first of several, which the machine prefers
    if len(best) > 1:
        return [((one, port),) for one in sorted(best, key=_order)]
    both = sorted((one for family in families.values() for one in family), key=_order)
    return [tuple((one, port) for one in both)] if both else []


def _order(address: str) -> tuple[int, int]:
    found = ip_address(address.partition("%")[0])
    return found.version, int(found)


async def of_records(
    name: str, resolver: Resolver | None = None, patience: float = _SRV_PATIENCE
) -> list[NamedServer]:
    """The servers of a name by its SRV records (law 4). `resolver`: who is asked; None: whom the machine asks. `patience`: seconds.

    Raises:
        OSError: nobody knows.
    """
    # Imported where they are needed: balancers without such names do not pay for them.
    from dns.asyncresolver import Resolver
    from dns.exception import DNSException
    from dns.resolver import NXDOMAIN, NoAnswer

    try:
        answer = await (resolver or Resolver()).resolve(name, "SRV", lifetime=patience, search=True)
    except (NXDOMAIN, NoAnswer):
        return []
    except DNSException as error:
        raise OSError(None, f"no SRV records came: {error}") from error
    least = min(record.priority for record in answer)
    records = [record for record in answer if record.priority == least][:MOST_OF_NAME]
    mean = sum(record.weight for record in records) / len(records)
    found: dict[tuple[tuple[str, int | None], ...], float] = {}
    for record in records:
        target = record.target.to_text(omit_final_dot=True)
        if target in ("", "."):  # the service is decidedly not available there (RFC 2782)
            continue
        servers = await _servers(target, record.port)
        share = max(record.weight / mean, _LEAST_WEIGHT) if mean else 1.0
        for server in servers:
            found[server] = found.get(server, 0.0) + share / len(servers)
    return [
        NamedServer(server, weight) for server, weight in sorted(found.items(), key=lambda one: repr(one[0]))
    ]
