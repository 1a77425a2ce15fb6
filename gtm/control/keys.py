"""DNSSEC keys of the policy's signed zones: made, rolled and signed with by whichever control process comes first.

Laws:
  1. One process at a time changes keys (a lock in the database), and reads all of them first: with a wrong key file
     nothing is changed.
  2. Losing the database, the key file or this process costs rolls, never answers: edges have what they sign with, and
     what is signed here lasts 30 days and is made anew daily.
  3. A private key leaves this module sealed, or as a zone-signing key for edges; never in a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gtm.control.errors import Conflict, NotFound, Unavailable
from gtm.control.key_file import KeyFile, KeyFileError
from gtm.control.parent import ds_records
from gtm.control.signing import RESIGN_AFTER, ds_rdata, generate, sign_sets
from gtm.core import rollover
from gtm.core.dnssec import NO_KEYS, Keys, ZoneKeys, key_tag
from gtm.core.rollover import DAY, Key, Keyring, KeyRole, KeyState, Times
from gtm.settings import DnssecSettings
from gtm.storage.dnssec import StoredKey, StoredZone
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database, Transaction

logger = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between looks at what is due."""
ASK_EVERY = 5
"""Looks between questions about the parents' DS records."""

Private = dict[str, bytes]
"""Private keys by key id."""
Change = Callable[["ZoneWork"], None]


@dataclass(slots=True)
class ZoneWork:
    """A zone while it is changed. `stored` is what it was, `private` has the private part of each of the `keys`."""

    stored: StoredZone
    keys: Keyring
    private: Private
    now: float
    withdrawing: bool

    def make(self, role: KeyRole, *, urgent: bool = False) -> Key:
        """Add a new key, published from now on."""
        taken = [key_tag(key.dnskey) for key in self.keys]
        key, private = generate(role, self.now, urgent=urgent, taken=taken)
        self.private[key.id] = private
        # The order of keys is that of their making, also by a clock that stepped back.
        key = replace(key, created=max([self.now, *(other.created + 0.001 for other in self.keys)]))
        self.keys = (*self.keys, key)
        return key


class KeyBook:
    """The keys as one control process knows them.

    Args:
        database: where they are kept.
        clock: POSIX seconds.
        settings: how; None: this process has no key file, and can neither make nor read keys.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], settings: DnssecSettings | None
    ) -> None:
        self.keys = NO_KEYS
        self.problem = ""
        """Why keys cannot be made or read now; empty if they can."""
        self.settings = settings
        self.times = Times(lifetime=settings.zsk_days * DAY) if settings is not None else Times()
        self._database = database
        self._clock = clock
        self._version = 0

    # --- what is due ---

    async def run(self, publish: Callable[[], None]) -> None:
        """Do what is due until cancelled.

        Args:
            publish: called when `keys` changed.
        """
        looks = 0
        while True:
            before = self.keys
            try:
                await self.settle()
                if looks % ASK_EVERY == 0:
                    await self.ask_parents()
            except StorageUnavailable as error:
                logger.debug("keys wait for the database: %s", error)
            except Exception:
                logger.exception("cannot look after the DNSSEC keys; those in use stay")
            if self.keys is not before:
                publish()
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
            self._take(*found)  # not before it is committed
            self._report(problem)
        except KeyFileError as error:
            self._report(str(error))

    async def refresh(self, transaction: Transaction) -> None:
        """Take in what other processes changed, if anything.

        Raises:
            StorageUnavailable: what is known stays.
        """
        version = await transaction.dnssec.version()
        if version != self._version:
            try:
                self._take(version, await transaction.dnssec.load())
            except KeyFileError as error:
                self._report(str(error))

    async def ask_parents(self) -> None:
        """Ask the resolver for the DS records of zones that wait for theirs, and go on where they are there.

        Raises:
            StorageUnavailable: nothing was changed.
        """
        if self.settings is None or self.settings.resolver is None:
            return
        for zone in (await self.zones()).values():
            if zone.paused_at is None and _ready_ksk(tuple(one.key for one in zone.keys)) is not None:
                found = await ds_records(zone.name, self.settings.resolver)
                if found:
                    await self._change(zone.name, partial(_seen_among, found=found))

    # --- what people ask for ---

    async def zones(self) -> dict[str, StoredZone]:
        """Every zone that has keys, also those that the policy has unsigned.

        Raises:
            StorageUnavailable: they are not known.
        """
        async with self._database.transaction() as transaction:
            return await transaction.dnssec.load()

    async def roll(self, zone: str, role: KeyRole, *, urgent: bool) -> None:
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

        await self._change(zone, change)

    async def ds_seen(self, zone: str) -> None:
        """Take an operator's word that the parent has the DS record of the newest key-signing key.

        Raises:
            NotFound: the zone is not signed.
            Conflict: no key waits for its DS record.
            Unavailable: keys cannot be read now.
            StorageUnavailable: nothing was changed.
        """

        def change(work: ZoneWork) -> None:
            key = _ready_ksk(work.keys)
            if key is None:
                raise Conflict(
                    f"no key of `{zone}` waits for its DS record now; "
                    f"`gtm dnssec status {zone}` says what it waits for"
                )
            work.keys = rollover.seen(work.keys, key.id, work.now)

        await self._change(zone, change)

    async def withdraw(self, zone: str, *, withdrawing: bool) -> None:
        """Ask the parent to drop its DS records (RFC 8078 §4), or no longer to.

        Raises:
            NotFound: the zone is not signed.
            Unavailable: keys cannot be read now.
            StorageUnavailable: nothing was changed.
        """

        def change(work: ZoneWork) -> None:
            work.withdrawing = withdrawing

        await self._change(zone, change)

    async def _change(self, name: str, change: Change) -> None:
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
                work = self._work(stored)
                change(work)
                await self._save(transaction, work)
                found = await transaction.dnssec.version(), await transaction.dnssec.load()
            self._take(*found)
        except KeyFileError as error:
            self._report(str(error))
            raise Unavailable(str(error)) from error

    # --- under the lock ---

    async def _settle(self, transaction: Transaction, zones: Collection[str]) -> str:
        """Do what is due; returns what is wrong, if anything."""
        stored = await transaction.dnssec.load()
        if not stored:
            self._key_file().create()
        works = {
            name: self._work(zone) for name, zone in stored.items()
        }  # reads every key before any changes
        lost = [name for name in zones if name not in stored and self.keys.of(name) is not None]
        for name in zones:
            if name not in lost:
                work = works.get(name) or self._work(StoredZone(name, ()))
                _due(work, self.times)
                await self._save(transaction, work)
        for name, work in works.items():
            if name not in zones and work.stored.paused_at is None:
                await transaction.dnssec.save(replace(work.stored, paused_at=work.now))
        if not lost:
            return ""
        return (
            f"the database has lost the keys of {', '.join(f'`{name}`' for name in sorted(lost))}: none are made "
            "anew, and those in use stay; restore the database (docs/dnssec.md)"
        )

    def _work(self, zone: StoredZone) -> ZoneWork:
        key_file = self._key_file()
        private = {one.key.id: key_file.open(zone.name, one.key.id, one.sealed) for one in zone.keys}
        keys = tuple(one.key for one in zone.keys)
        return ZoneWork(zone, keys, private, self._clock(), zone.withdrawing)

    async def _save(self, transaction: Transaction, work: ZoneWork) -> None:
        """Sign and store a zone if something changed, or its signatures are a day old."""
        before, now = work.stored, work.now
        same = work.keys == tuple(one.key for one in before.keys) and work.withdrawing == before.withdrawing
        if same and before.paused_at is None and 0 <= now - before.signed_at < RESIGN_AFTER:
            return
        sealed = {one.key.id: one.sealed for one in before.keys}
        key_file = self._key_file()
        keys = tuple(
            StoredKey(key, sealed.get(key.id) or key_file.seal(before.name, key.id, work.private[key.id]))
            for key in work.keys
        )
        sets = sign_sets(before.name, work.keys, work.private, now, withdrawing=work.withdrawing)
        _log_changes(before, work.keys)
        await transaction.dnssec.save(StoredZone(before.name, keys, sets, now, None, work.withdrawing))

    # --- what this process knows ---

    def _take(self, version: int, stored: Mapping[str, StoredZone]) -> None:
        """Use what the database holds, except that none of its zones being there takes no zone's keys away."""
        if version in (0, self._version):
            return
        kept = [keys for keys in self.keys.zones if keys.zone not in stored]
        taken = [self._zone_keys(zone) for zone in stored.values() if zone.paused_at is None]
        self.keys, self._version = Keys(version, (*taken, *kept)), version

    def _zone_keys(self, zone: StoredZone) -> ZoneKeys:
        signing = rollover.signing_key(tuple(one.key for one in zone.keys))
        (found,) = [one for one in zone.keys if signing is not None and one.key.id == signing.id]
        private = self._key_file().open(zone.name, found.key.id, found.sealed)
        return ZoneKeys(zone.name, zone.sets, key_tag(found.key.dnskey), found.key.dnskey, private)

    def _key_file(self) -> KeyFile:
        if self.settings is None:
            raise KeyFileError("this control process has no DNSSEC key file: set GTM_DNSSEC_KEY_FILE")
        return KeyFile(self.settings.key_file)

    def _report(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.error("DNSSEC keys stay as they are, and edges go on with those they have: %s", problem)
        elif self.problem and not problem:
            logger.info("DNSSEC keys can be made and read again")
        self.problem = problem


def _due(work: ZoneWork, times: Times) -> None:
    """Take every step that is due, and make the keys that are missing."""
    if work.stored.paused_at is not None:
        work.keys = rollover.resumed(work.keys, work.now)
    work.keys = rollover.advance(work.keys, work.now, times)
    for role in rollover.lacking(work.keys, work.now, times):
        new = not any(key.role is role for key in work.keys)
        made = work.make(role)
        if new:
            work.keys = (*work.keys[:-1], rollover.first(made, work.now))


async def _signed_zones(transaction: Transaction) -> frozenset[str]:
    """The zones that the policy in the database has signed."""
    stored = await transaction.resources("zones").all()
    return frozenset(one.value.name for one in stored if one.value.dnssec)


def _seen_among(work: ZoneWork, *, found: frozenset[bytes]) -> None:
    """Go on if the parent's DS records have the key that waits for one."""
    key = _ready_ksk(work.keys)
    if key is not None and ds_rdata(work.stored.name, key.dnskey) in found:
        work.keys = rollover.seen(work.keys, key.id, work.now)


def _ready_ksk(keys: Keyring) -> Key | None:
    """The key-signing key that waits for its DS record."""
    key = rollover.delegated(keys)
    return key if key is not None and key.state is KeyState.READY else None


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
