"""DNSSEC keys of the policy's signed zones: made, rolled and signed with by whichever control process comes first.

Laws:
  1. One process at a time changes keys (a lock in the database), and reads all of them first: with a wrong key file
     nothing is changed.
  2. Losing the database, the key file or this process costs rolls, never answers: edges have what they sign with, and
     what is signed here lasts 30 days and is made anew daily.
  3. A private key leaves this module sealed, or as a zone-signing key for edges; never in a log.

`ZoneWork` makes, moves on and seals what is due of a zone's keys, and signs with them: it works on values, which `KeyBook` keeps. `ds_records`
asks a resolver what the parent of a zone has for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import msgspec

from gtm.control.dnssec.key_file import KeyFile, KeyFileError, KeySealer
from gtm.control.dnssec.signing import RESIGN_AFTER, ds_rdata, generate, sign_sets
from gtm.control.errors import Conflict, NotFound, Unavailable
from gtm.core.signing import rollover
from gtm.core.signing.keys import NO_KEYS, Keys, ZoneKeys, key_tag
from gtm.core.signing.rollover import DAY, Key, Keyring, KeyRole, KeyState, RolloverTimes
from gtm.settings import DnssecSettings
from gtm.storage.dnssec import StoredKey, StoredZone
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Actor
from gtm.storage.session import Database, Transaction


@dataclass(slots=True)
class ZoneWork:
    """A zone while it is changed.

    Args:
        stored: what it was.
        keys: what it becomes, oldest first.
        private: the private part of each, by id.
        now: POSIX seconds.
        withdrawing: whether the parent is to drop its DS records.
    """

    stored: StoredZone
    keys: Keyring
    private: dict[str, bytes]
    now: float
    withdrawing: bool

    @classmethod
    def of(cls, zone: StoredZone, sealer: KeySealer, now: float) -> ZoneWork:
        """A zone as it is stored.

        Raises:
            KeyFileError: a key of it cannot be read.
        """
        private = {one.key.id: sealer.open(zone.name, one.key.id, one.sealed) for one in zone.keys}
        return cls(zone, tuple(one.key for one in zone.keys), private, now, zone.withdrawing)

    def make(self, role: KeyRole, *, urgent: bool = False) -> Key:
        """Add a new key, published from now on."""
        taken = [key_tag(key.dnskey) for key in self.keys]
        key, private = generate(role, self.now, urgent=urgent, taken=taken)
        # The order of keys is that of their making, also by a clock that stepped back.
        key = replace(key, created=max([self.now, *(other.created + 0.001 for other in self.keys)]))
        self.private[key.id] = private
        self.keys = (*self.keys, key)
        return key

    def settle(self, times: RolloverTimes) -> None:
        """Take every step that is due, and make the keys that are missing."""
        if self.stored.paused_at is not None:
            self.keys = rollover.resumed(self.keys, self.now)
            self.withdrawing = False
        self.keys = rollover.advance(self.keys, self.now, times)
        for role in rollover.lacking(self.keys, self.now, times):
            alone = not any(key.role is role for key in self.keys)
            made = self.make(role)
            if alone:
                self.keys = (*self.keys[:-1], rollover.first(made, self.now))

    def signed(self, sealer: KeySealer) -> list[StoredZone]:
        """The zone as it is to be stored; nothing, if nothing changed and its signatures are younger than a day."""
        before, now = self.stored, self.now
        same = self.keys == tuple(one.key for one in before.keys) and self.withdrawing == before.withdrawing
        if same and before.paused_at is None and 0 <= now - before.signed_at < RESIGN_AFTER:
            return []
        sealed = {one.key.id: one.sealed for one in before.keys}
        keys = tuple(
            StoredKey(key, sealed.get(key.id) or sealer.seal(before.name, key.id, self.private[key.id]))
            for key in self.keys
        )
        sets = sign_sets(before.name, self.keys, self.private, now, withdrawing=self.withdrawing)
        _log_changes(before, self.keys)
        return [StoredZone(before.name, keys, sets, now, None, self.withdrawing)]


def settled(
    stored: Mapping[str, StoredZone],
    zones: Collection[str],
    sealer: KeySealer,
    times: RolloverTimes,
    now: float,
) -> list[StoredZone]:
    """What is to be stored so that nothing is due any more. Every key is read before anything is made.

    Args:
        stored: all zones that have keys.
        zones: those that are to be signed; the others pause.
        sealer: reads and seals private keys.
        times: that steps wait for.
        now: POSIX seconds.

    Raises:
        KeyFileError: a key cannot be read.
    """
    works = {name: ZoneWork.of(zone, sealer, now) for name, zone in stored.items()}
    changed = []
    for name in sorted(zones):
        work = works.get(name) or ZoneWork.of(StoredZone(name, ()), sealer, now)
        work.settle(times)
        changed += work.signed(sealer)
    changed += [
        replace(zone, paused_at=now)
        for name, zone in stored.items()
        if name not in zones and zone.paused_at is None
    ]
    return changed


def all_keys(zones: Iterable[StoredZone], sealer: KeySealer) -> tuple[ZoneKeys, ...]:
    """What edges sign these zones with.

    Raises:
        KeyFileError: a key cannot be read.
        ValueError: a zone has no active zone-signing key.
    """
    return tuple(_zone_keys(zone, sealer) for zone in zones)


def _zone_keys(zone: StoredZone, sealer: KeySealer) -> ZoneKeys:
    signing = rollover.signing_key(tuple(one.key for one in zone.keys))
    found = next((one for one in zone.keys if signing is not None and one.key.id == signing.id), None)
    if found is None:
        raise ValueError(f"zone `{zone.name}` has no active zone-signing key in the database")
    private = sealer.open(zone.name, found.key.id, found.sealed)
    return ZoneKeys(zone.name, zone.sets, key_tag(found.key.dnskey), found.key.dnskey, private)


def ready_ksk(keys: Keyring) -> Key | None:
    """The key-signing key that waits for its DS record."""
    key = rollover.delegated(keys)
    return key if key is not None and key.state is KeyState.READY else None


def seen_among(work: ZoneWork, *, found: frozenset[bytes]) -> None:
    """Go on if the parent's DS records have the key that waits for one."""
    key = ready_ksk(work.keys)
    if key is not None and ds_rdata(work.stored.name, key.dnskey) in found:
        work.keys = rollover.seen(work.keys, key.id, work.now)


def _log_changes(before: StoredZone, keys: Keyring) -> None:
    known = {one.key.id: one.key.state for one in before.keys}
    for key in keys:
        if known.get(key.id) is not key.state:
            logger.info(
                "%s %d of zone `%s` is %s", key.role.name, key_tag(key.dnskey), before.name, key.state
            )
    for stored in before.keys:
        if all(key.id != stored.key.id for key in keys):
            tag = key_tag(stored.key.dnskey)
            logger.info("%s %d of zone `%s` is removed", stored.key.role.name, tag, before.name)


logger = logging.getLogger(__name__)

_UNREADABLE = (KeyFileError, ValueError, msgspec.ValidationError)
"""Keys cannot be read: the key file is wrong, or somebody changed the database by hand."""

EVERY = 60.0
"""Seconds between looks at what is due."""
ASK_EVERY = 5
"""Looks between questions about the parents' DS records."""
_AT_ONCE = 20
"""Questions that wait for an answer at once."""

Change = Callable[[ZoneWork], None]


@dataclass(frozen=True, slots=True)
class _Deed:
    """What somebody does, as the audit log has it."""

    by: Actor
    action: str
    what: str


class KeyBook:
    """The keys as one control process knows them.

    Args:
        database: where they are kept.
        clock: POSIX seconds.
        settings: how.
        publish: called with the keys whenever they have changed.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float],
        settings: DnssecSettings,
        publish: Callable[[Keys], None] = lambda _: None,
    ) -> None:
        self.keys = NO_KEYS
        self.problem = ""
        """Why keys cannot be made or read now; empty if they can."""
        self.settings = settings
        self.times = RolloverTimes(lifetime=settings.zsk_days * DAY)
        self._key_file = KeyFile(settings.key_file)
        self._database = database
        self._clock = clock
        self._version = 0
        self._publish = publish

    # --- what is due ---

    async def run(self) -> None:
        """Do what is due until cancelled."""
        looks = 0
        while True:
            try:
                await self.settle()
                if looks % ASK_EVERY == 0:
                    await self.ask_parents()
            except StorageUnavailable as error:
                logger.debug("keys wait for the database: %s", error)
            except Exception:
                logger.exception("cannot look after the DNSSEC keys; those in use stay")
            looks += 1
            await asyncio.sleep(EVERY)

    async def settle(self) -> None:
        """Make, roll and sign whatever is due, and take in what other processes did.

        Raises:
            StorageUnavailable: nothing was changed.
        """
        try:
            async with self._database.transaction() as transaction:
                zones = await _signed_zones(transaction)
                if not zones and not await transaction.dnssec.version():
                    return
                await transaction.dnssec.lock()
                problem = await self._settle(transaction, zones)
                found = await transaction.dnssec.version(), await transaction.dnssec.load()
            await self._take(*found)  # not before it is committed
            self._report(problem)
        except _UNREADABLE as error:
            self._report(str(error))

    async def refresh(self, transaction: Transaction) -> None:
        """Take in what other processes changed, if anything.

        Raises:
            StorageUnavailable: what is known stays.
        """
        version = await transaction.dnssec.version()
        if version != self._version:
            try:
                await self._take(version, await transaction.dnssec.load())
            except _UNREADABLE as error:
                self._report(str(error))

    async def ask_parents(self) -> None:
        """Ask the resolver for the DS records of zones that wait for theirs, and go on where they are there.

        Raises:
            StorageUnavailable: nothing was changed.
        """
        if self.settings.resolver is None:
            return
        resolver, limit = self.settings.resolver, asyncio.Semaphore(_AT_ONCE)

        async def ask(zone: str) -> frozenset[bytes] | None:
            async with limit:
                return await ds_records(zone, resolver)

        waiting = [
            name
            for name, zone in (await self.zones()).items()
            if zone.paused_at is None and ready_ksk(tuple(one.key for one in zone.keys)) is not None
        ]
        answers = await asyncio.gather(*map(ask, waiting))
        for name, found in zip(waiting, answers, strict=True):
            if found:
                await self._change(name, partial(seen_among, found=found))

    # --- what people ask for ---

    async def zones(self) -> dict[str, StoredZone]:
        """Every zone that has keys, also those that the policy has unsigned.

        Raises:
            StorageUnavailable: they are not known.
        """
        async with self._database.transaction() as transaction:
            return await transaction.dnssec.load()

    async def roll(self, zone: str, role: KeyRole, *, urgent: bool, by: Actor) -> None:
        """Begin to replace a key, or hurry a replacement under way.

        Raises:
            NotFound: the zone is not signed.
            Conflict: a replacement is under way already, as urgent as this.
            Unavailable: keys cannot be made now.
            StorageUnavailable: nothing was changed.
        """

        def change(work: ZoneWork) -> None:
            under_way = rollover.successor(work.keys, role)
            if under_way is None:
                work.make(role, urgent=urgent)
            elif urgent and not under_way.urgent:
                work.keys = rollover.hurried(work.keys, role)
            else:
                raise Conflict(
                    f"the {role.name} of `{zone}` is being replaced already, by key {key_tag(under_way.dnskey)} "
                    f"({under_way.state.value}); `gtm dnssec status {zone}` says what it waits for"
                )

        what = f"replace the {role.name}{', urgently' if urgent else ''}"
        await self._change(zone, change, _Deed(by, "dnssec.roll", what))

    async def ds_seen(self, zone: str, *, by: Actor) -> None:
        """Take an operator's word that the parent has the DS record of the newest key-signing key.

        Raises:
            NotFound: the zone is not signed.
            Conflict: no key waits for its DS record.
            Unavailable: keys cannot be read now.
            StorageUnavailable: nothing was changed.
        """

        def change(work: ZoneWork) -> None:
            key = ready_ksk(work.keys)
            if key is None:
                raise Conflict(
                    f"no key of `{zone}` waits for its DS record now; "
                    f"`gtm dnssec status {zone}` says what it waits for"
                )
            work.keys = rollover.seen(work.keys, key.id, work.now)

        await self._change(zone, change, _Deed(by, "dnssec.ds_seen", "the parent has the DS record"))

    async def withdraw(self, zone: str, *, withdrawing: bool, by: Actor) -> None:
        """Ask the parent to drop its DS records (RFC 8078 §4), or no longer to.

        Raises:
            NotFound: the zone is not signed.
            Unavailable: keys cannot be read now.
            StorageUnavailable: nothing was changed.
        """

        def change(work: ZoneWork) -> None:
            work.withdrawing = withdrawing

        what = (
            "ask the parent to drop the DS records" if withdrawing else "the parent may keep the DS records"
        )
        await self._change(zone, change, _Deed(by, "dnssec.withdraw", what))

    async def _change(self, name: str, change: Change, deed: _Deed | None = None) -> None:
        try:
            async with self._database.transaction() as transaction:
                await transaction.dnssec.lock()
                zones = await _signed_zones(transaction)
                if name not in zones:
                    raise NotFound(f"`{name}` is no signed zone: set `dnssec: true` in its policy first")
                problem = await self._settle(transaction, zones)
                stored = (await transaction.dnssec.load()).get(name)
                if stored is None:
                    raise Unavailable(problem)
                sealer = self._key_file.load()
                work = ZoneWork.of(stored, sealer, self._clock())
                change(work)
                await transaction.dnssec.save(work.signed(sealer))
                if deed is not None:
                    await transaction.audit.add(deed.by, deed.action, f"zone {name}", detail=deed.what)
                found = await transaction.dnssec.version(), await transaction.dnssec.load()
            await self._take(*found)
        except _UNREADABLE as error:
            self._report(str(error))
            raise Unavailable(str(error)) from error

    # --- under the lock ---

    async def _settle(self, transaction: Transaction, zones: frozenset[str]) -> str:
        """Do what is due; returns what is wrong, if anything."""
        stored = await transaction.dnssec.load()
        if not stored:
            self._key_file.create()
        lost = sorted(zone.zone for zone in self.keys.zones if zone.zone in zones and zone.zone not in stored)
        sealer, now = self._key_file.load(), self._clock()
        # Beside the event loop: a thousand zones take a second.
        changed = await asyncio.to_thread(settled, stored, zones.difference(lost), sealer, self.times, now)
        await transaction.dnssec.save(changed)
        if not lost:
            return ""
        return (
            f"the database has lost the keys of {', '.join(f'`{name}`' for name in lost)}: none are made "
            "anew, and those in use stay; restore the database (docs/dnssec.md)"
        )

    # --- what this process knows ---

    async def _take(self, version: int, stored: Mapping[str, StoredZone]) -> None:
        """Use what the database holds, except that none of its zones being there takes no zone's keys away."""
        if version in (0, self._version):
            return
        known = self.keys
        signed = [zone for zone in stored.values() if zone.paused_at is None]
        kept = [keys for keys in known.zones if keys.zone not in stored]
        taken = await asyncio.to_thread(all_keys, signed, self._key_file.load())
        if self.keys is known:  # else something newer was taken meanwhile, or will be at the next look
            self.keys, self._version = Keys(version, (*taken, *kept)), version
            self._publish(self.keys)

    def _report(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.error("DNSSEC keys stay as they are, and edges go on with those they have: %s", problem)
        elif self.problem and not problem:
            logger.info("DNSSEC keys can be made and read again")
        self.problem = problem


async def _signed_zones(transaction: Transaction) -> frozenset[str]:
    """The zones that the policy in the database has signed."""
    stored = await transaction.resources("zones").all()
    return frozenset(one.value.name for one in stored if one.value.dnssec)


_TIMEOUT = 5.0


async def ds_records(zone: str, resolver: tuple[str, int]) -> frozenset[bytes] | None:
    """RDATA of the DS records that the parent has for a zone; None if that could not be learned.

    Asked over TCP: an answer that was forged on the way would let a key be removed that is still trusted.
    """
    name = dns.name.from_text(zone)
    query = dns.message.make_query(name, dns.rdatatype.DS)
    host, port = resolver
    try:
        answer = await dns.asyncquery.tcp(query, host, _TIMEOUT, port)
    except (OSError, EOFError, dns.exception.DNSException) as error:
        logger.warning("cannot ask %s for the DS records of `%s`: %s", host, zone, error)
        return None
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        logger.warning(
            "%s answers %s for the DS records of `%s`", host, dns.rcode.to_text(answer.rcode()), zone
        )
        return None
    found = [one for one in answer.answer if one.name == name and one.rdtype == dns.rdatatype.DS]
    return frozenset(record.to_wire() or b"" for one in found for record in one)
