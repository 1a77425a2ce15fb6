"""What is due of zones' keys: made, moved on, sealed and signed with. It works on values; `gtm.control.dnssec.keys` keeps them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gtm.control.dnssec.key_file import Sealer
from gtm.control.dnssec.signing import RESIGN_AFTER, ds_rdata, generate, sign_sets
from gtm.core.signing import rollover
from gtm.core.signing.keys import ZoneKeys, key_tag
from gtm.core.signing.rollover import Key, Keyring, KeyRole, KeyState, RolloverTimes
from gtm.storage.dnssec import StoredKey, StoredZone

logger = logging.getLogger(__name__)


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
    def of(cls, zone: StoredZone, sealer: Sealer, now: float) -> ZoneWork:
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

    def signed(self, sealer: Sealer) -> list[StoredZone]:
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
    stored: Mapping[str, StoredZone], zones: Collection[str], sealer: Sealer, times: RolloverTimes, now: float
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


def all_keys(zones: Iterable[StoredZone], sealer: Sealer) -> tuple[ZoneKeys, ...]:
    """What edges sign these zones with.

    Raises:
        KeyFileError: a key cannot be read.
        ValueError: a zone has no active zone-signing key.
    """
    return tuple(_zone_keys(zone, sealer) for zone in zones)


def _zone_keys(zone: StoredZone, sealer: Sealer) -> ZoneKeys:
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
