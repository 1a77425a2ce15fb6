"""The life of a zone's keys: when each is published, used and removed (RFC 6781 §4.1, RFC 7583).

Zone-signing keys are pre-published (RFC 7583 §3.2.1), key-signing keys doubled (§3.3.1):

    zone-signing key:  published ──(1)──▶ active ──(2)──▶ retired ──(3)──▶ removed
    key-signing key:   published ──(4)──▶ ready ──(5)──▶ active ──(6)──▶ retired ──(7)──▶ removed

(1) every DNSKEY set without it has left all caches; (2) its successor is active; (3) every signature by it has left all
caches; (4) as (1), and so have unsigned answers; (5) the parent's DS record of it was seen; (6) likewise of a successor;
(7) every DS set without the successor has left all edges and caches.

Law: an edge may have been without control for as long as its DNSKEY set is valid. That time is in (1), (3), (4) and, since
edges may serve the parent too, (7): what any edge says is valid with what any other says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

HOUR = 3600.0
DAY = 86_400.0


class KeyRole(StrEnum):
    """What a key signs (RFC 6781 §3.1): the key set only, or the zone's data."""

    KSK = "ksk"
    """The DNSKEY, CDS and CDNSKEY sets; the parent's DS record points to it."""
    ZSK = "zsk"
    """Everything else."""


class KeyState(StrEnum):
    """Where a key stands in its life. All of these are in the DNSKEY set, and key-signing keys sign it in each."""

    PUBLISHED = "published"
    READY = "ready"
    ACTIVE = "active"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Key:
    """A key, without its private part.

    Args:
        id: no other key has it.
        role: what it signs.
        state: where it stands.
        created: POSIX seconds.
        since: POSIX seconds at which it came into its state.
        urgent: its steps wait for edges in reach alone, not for those that have lost control.
        dnskey: RDATA of its DNSKEY record.
    """

    id: str
    role: KeyRole
    state: KeyState
    created: float
    since: float
    urgent: bool
    dnskey: bytes


@dataclass(frozen=True, slots=True)
class RolloverTimes:
    """What the steps wait for, in seconds.

    Args:
        propagation: for which an edge may go on without control: a DNSKEY set's signatures are valid for as long.
        urgent: until edges in reach have what was published.
        key_ttl: of the DNSKEY set.
        max_ttl: of the answers; no document may have a longer one.
        parent: the TTL of the parent's DS set and the time until all of its servers have a new one, together.
        lifetime: after which a zone-signing key is replaced; 0: only by hand.
    """

    propagation: float = 30 * DAY
    urgent: float = HOUR
    key_ttl: float = HOUR
    max_ttl: float = DAY
    parent: float = 2 * DAY
    lifetime: float = 90 * DAY

    def reach(self, key: Key) -> float:
        """Until every edge that counts has what was published with this key."""
        return self.urgent if key.urgent else self.propagation

    def publication(self, key: Key) -> float:
        """From publication until the key is in every cached DNSKEY set; for a key-signing key no unsigned answer is left."""
        return self.reach(key) + (self.key_ttl if key.role is KeyRole.ZSK else self.max_ttl)

    def retirement(self, key: Key) -> float:
        """From retirement until nothing cached needs the key."""
        return self.reach(key) + (self.max_ttl if key.role is KeyRole.ZSK else self.parent)


Keyring = tuple[Key, ...]
"""A zone's keys, oldest first."""


def first(key: Key, now: float) -> Key:
    """A new key as it enters a zone that has none of its role.

    Nothing trusts the zone yet, so a zone-signing key signs at once, and edges without control do not count: they have
    an unsigned zone.
    """
    state = KeyState.ACTIVE if key.role is KeyRole.ZSK else KeyState.PUBLISHED
    return replace(key, state=state, since=now, urgent=True)


def lacking(keys: Keyring, now: float, times: RolloverTimes) -> tuple[KeyRole, ...]:
    """The roles that a key must be made for now: there is none, or the zone-signing key's successor is due."""
    roles = [role for role in KeyRole if not any(key.role is role for key in keys)]
    active = signing_key(keys)
    if active is not None and times.lifetime and successor(keys, KeyRole.ZSK) is None:
        due = active.since + times.lifetime - (times.propagation + times.key_ttl)
        if now >= due:
            roles.append(KeyRole.ZSK)
    return tuple(roles)


def successor(keys: Keyring, role: KeyRole) -> Key | None:
    """The key of a role that is on its way to take over from an older one; None if no roll is under way."""
    found = [key for key in keys if key.role is role]
    waiting = [key for key in found[1:] if key.state in (KeyState.PUBLISHED, KeyState.READY)]
    return waiting[-1] if waiting else None


def advance(keys: Keyring, now: float, times: RolloverTimes) -> Keyring:
    """The keys after every step of (1), (3), (4) and (7) that is due. A clock that stepped back delays steps only."""
    stepped = tuple(_step(key, now, times) for key in keys if not _ended(key, now, times))
    return _superseded(stepped, now, KeyRole.ZSK)


def seen(keys: Keyring, key_id: str, now: float) -> Keyring:
    """The keys once the parent's DS set has a key-signing key that was ready: it is active, older ones retire."""
    found = tuple(
        replace(key, state=KeyState.ACTIVE, since=now)
        if key.id == key_id and key.state is KeyState.READY
        else key
        for key in keys
    )
    return _superseded(found, now, KeyRole.KSK)


def hurried(keys: Keyring, role: KeyRole) -> Keyring:
    """The keys with the roll under way made urgent."""
    under_way = successor(keys, role)
    return tuple(replace(key, urgent=True) if key is under_way else key for key in keys)


def resumed(keys: Keyring, now: float) -> Keyring:
    """The keys of a zone that was unsigned for a while: what waited, waits anew; unsigned answers may be cached."""
    found = []
    for key in keys:
        state = key.state
        if state is KeyState.READY or (key.role is KeyRole.KSK and state is KeyState.ACTIVE):
            state = KeyState.PUBLISHED
        serves = key.role is KeyRole.ZSK and state is KeyState.ACTIVE
        found.append(key if serves else replace(key, state=state, since=now))
    return tuple(found)


def signing_key(keys: Keyring) -> Key | None:
    """The zone-signing key that answers are signed with."""
    found = [key for key in keys if key.role is KeyRole.ZSK and key.state is KeyState.ACTIVE]
    return found[-1] if found else None


def delegated(keys: Keyring) -> Key | None:
    """The key-signing key that the parent's DS record should point to now; None: it must not have one yet."""
    found = [
        key for key in keys if key.role is KeyRole.KSK and key.state in (KeyState.READY, KeyState.ACTIVE)
    ]
    return found[-1] if found else None


def next_step(key: Key, keys: Keyring, times: RolloverTimes) -> float | None:
    """When time alone brings a key into its next state, in POSIX seconds; None if something else has to happen."""
    if key.state is KeyState.PUBLISHED:
        return key.since + times.publication(key)
    if key.state is KeyState.RETIRED:
        return key.since + times.retirement(key)
    if key.state is KeyState.ACTIVE and key.role is KeyRole.ZSK:
        following = successor(keys, KeyRole.ZSK)
        if following is not None:
            return following.since + times.publication(following)
        return key.since + times.lifetime if times.lifetime else None
    return None


def _step(key: Key, now: float, times: RolloverTimes) -> Key:
    if key.state is not KeyState.PUBLISHED or now < key.since + times.publication(key):
        return key
    state = KeyState.ACTIVE if key.role is KeyRole.ZSK else KeyState.READY
    return replace(key, state=state, since=now)


def _ended(key: Key, now: float, times: RolloverTimes) -> bool:
    return key.state is KeyState.RETIRED and now >= key.since + times.retirement(key)


def _superseded(keys: Keyring, now: float, role: KeyRole) -> Keyring:
    """Retire what is older than an active key of the role. How urgent that is, the successor says."""
    active = [key for key in keys if key.role is role and key.state is KeyState.ACTIVE]
    if not active:
        return keys
    newest = active[-1]
    older = {
        key.id for key in keys[: keys.index(newest)] if key.role is role and key.state is not KeyState.RETIRED
    }
    return tuple(
        replace(key, state=KeyState.RETIRED, since=now, urgent=newest.urgent) if key.id in older else key
        for key in keys
    )
