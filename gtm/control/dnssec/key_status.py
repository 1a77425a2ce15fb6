"""What people see of DNSSEC keys: states, what comes next and when, and the DS record that the parent should have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from gtm.control.dnssec.signing import SIGNATURE_LIFE, ds_text
from gtm.core.signing import rollover
from gtm.core.signing.keys import key_tag
from gtm.core.signing.rollover import Keyring, KeyRole, KeyState, RolloverTimes
from gtm.storage.dnssec import StoredZone


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A key of a signed zone, with what it is at."""

    id: str
    tag: int
    """As in DS and RRSIG records (RFC 4034 appendix B)."""
    role: KeyRole
    state: KeyState
    created_at: datetime
    since: datetime
    """When it came into its state."""
    next_at: datetime | None
    """When time alone brings its next state; null: something else has to happen, or nothing will."""
    urgent: bool
    """Its steps wait for edges in reach alone."""


@dataclass(frozen=True, slots=True)
class ZoneStatus:
    """A zone with keys, and what they wait for."""

    zone: str
    signed: bool
    """Whether the policy has it signed; keys of zones that it no longer has signed are kept."""
    withdrawing: bool
    """Whether the parent is asked to drop its DS records."""
    keys: tuple[KeyStatus, ...]
    """Oldest first."""
    ds: tuple[str, ...]
    """The DS records that the parent should have, and no others."""
    ds_from: datetime | None
    """When they may be put there; null: at once."""
    waits_for: str
    """What somebody has to do, in words; empty: nothing."""
    signatures_until: datetime
    """Edges without control answer validly until then."""
    problem: str
    """Why keys cannot be made, rolled or read now; empty if they can."""


def zone_status(zone: StoredZone, times: RolloverTimes, *, asks: bool, problem: str = "") -> ZoneStatus:
    """The state of a zone's keys.

    Args:
        zone: as stored.
        times: that its steps wait for.
        asks: whether control asks a resolver for the parents' DS records.
        problem: of all keys.
    """
    keys = tuple(one.key for one in zone.keys)
    trusted = rollover.delegated(keys) or next(key for key in keys if key.role is KeyRole.KSK)
    early = trusted.state is KeyState.PUBLISHED
    signed = zone.paused_at is None
    return ZoneStatus(
        zone=zone.name,
        signed=signed,
        withdrawing=zone.withdrawing,
        keys=tuple(
            KeyStatus(
                id=key.id,
                tag=key_tag(key.dnskey),
                role=key.role,
                state=key.state,
                created_at=_moment(key.created),
                since=_moment(key.since),
                next_at=_if_known(rollover.next_step(key, keys, times)) if signed else None,
                urgent=key.urgent,
            )
            for key in keys
        ),
        ds=() if zone.withdrawing or not signed else (ds_text(zone.name, trusted.dnskey),),
        ds_from=_if_known(rollover.next_step(trusted, keys, times)) if early and signed else None,
        waits_for=_waits_for(zone, keys, times, asks=asks),
        signatures_until=_moment(zone.signed_at + SIGNATURE_LIFE),
        problem=problem,
    )


def _waits_for(zone: StoredZone, keys: Keyring, times: RolloverTimes, *, asks: bool) -> str:
    if zone.paused_at is not None:
        return "the policy to have the zone signed again; its keys are kept"
    if zone.withdrawing:
        days = times.parent / rollover.DAY
        return f"the parent to drop its DS records; {days:.0f} days after that, `dnssec: false` in the policy breaks nobody"
    key = rollover.delegated(keys)
    if key is not None and key.state is KeyState.READY:
        look = "control looks for it every five minutes" if asks else "then run"
        confirm = "" if asks else f" `gtm dnssec roll {zone.name} --ds-seen`"
        return f"the DS record of key {key_tag(key.dnskey)} at the parent, in place of any other; {look}{confirm}"
    return ""


def _if_known(posix: float | None) -> datetime | None:
    return None if posix is None else _moment(posix)


def _moment(posix: float) -> datetime:
    return datetime.fromtimestamp(posix, UTC)
