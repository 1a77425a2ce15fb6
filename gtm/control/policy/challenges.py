"""Answers to certificate authorities (ACME's DNS-01, RFC 8555 §8.4): record sets of a zone that are written one by one.

Laws:
  1. A challenge changes no other answer: one that would take a name from a wildcard is refused.
  2. It is nobody's part of a zone as code: who manages the zone is not asked, and whole writes leave it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gtm.control.errors import BadRequest, Conflict, NotFound
from gtm.control.live.compiled import compiled
from gtm.control.policy.changes import Intent, edit
from gtm.control.policy.trial import ChangeOutcome
from gtm.core.model.names import WILDCARD, absolute, ancestors, closest
from gtm.core.model.policy import Policy
from gtm.core.model.services import RecordSet, Zone
from gtm.storage.history.audit import Actor
from gtm.storage.session import Database, Transaction

LABEL = "_acme-challenge"
MAX_CHALLENGES = 1000
"""Names with challenges in one zone."""
MAX_VALUES = 100
"""Values of one name: each certificate under way has one or two."""
TTL = 30
"""Seconds, if a client says nothing: an authority asks once, and the next value is another."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The TXT values at a name, which is written out; none: there are no records. `ttl` in seconds."""

    zone: str
    name: str
    values: tuple[str, ...]
    ttl: int = TTL


def full_name(zone: str, name: str) -> str:
    """A challenge's name as a client may give it, written out: whole, with a dot at its end or not, or within the zone.

    Raises:
        BadRequest: it is no name of a challenge.
    """
    text = name.lower()
    whole = text.removesuffix(".")
    if not text.endswith(".") and not whole.endswith(f".{zone}"):
        whole = f"{text}.{zone}"
    if not (whole.startswith(f"{LABEL}.") and whole.endswith(f".{zone}")):
        message = (
            f"`{name}` is no name of a challenge in `{zone}`: those are `{LABEL}` and `{LABEL}.NAME`; "
            f"write other records with the zone, by PUT /v1/zones/{zone}"
        )
        raise BadRequest(message)
    return whole


async def get(database: Database, zone: str, name: str) -> tuple[Challenge, int]:
    """What is at a name, and the revision in force.

    Raises:
        NotFound: there is no such zone, or no challenge at the name.
        BadRequest: it is no name of a challenge.
    """
    whole = full_name(zone, name)
    async with database.transaction() as transaction:
        found = _at(await _zone(transaction, zone), whole)
        latest = await transaction.revisions.latest()
    if not found.values:
        raise NotFound(f"there is no challenge at `{whole}`")
    return found, latest.number if latest else 0


async def put(
    database: Database, zone: str, name: str, values: tuple[str, ...], ttl: int, *, add: bool, by: Actor
) -> tuple[Challenge, ChangeOutcome]:
    """Write the values at a name. An equal set stays as it is, and makes no revision.

    Args:
        database: where.
        zone: by its name.
        name: as `full_name` takes it.
        values: one of each.
        ttl: in seconds.
        add: to those that are there, which may be of another certificate (the zone's own and a wildcard's share a name).
        by: who.

    Raises:
        NotFound: there is no such zone.
        BadRequest: it is no name of a challenge.
        Conflict: the name is an alias, it would take a name from a wildcard, or there are as many as may be.
        PolicyError: the policy would not compile with it, such as where the name is delegated.
    """
    whole = full_name(zone, name)
    async with edit(database, Intent(by), "challenge.put", f"challenge at {whole}") as change:
        before = await _zone(change.transaction, zone)
        _require_no_alias(before, whole)
        _require_harmless(change.policy, before, whole)
        held = _at(before, whole)
        wanted = Challenge(zone, whole, tuple(dict.fromkeys((*(held.values if add else ()), *values))), ttl)
        await _write(change.transaction, before, wanted)
    return wanted, change.outcome


async def delete(database: Database, zone: str, name: str, value: str | None, *, by: Actor) -> ChangeOutcome:
    """Delete a value at a name, or all (None). What is not there is no error: clients clean up twice.

    Raises:
        NotFound: there is no such zone.
        BadRequest: it is no name of a challenge.
    """
    whole = full_name(zone, name)
    async with edit(database, Intent(by), "challenge.delete", f"no challenge at {whole}") as change:
        before = await _zone(change.transaction, zone)
        held = _at(before, whole)
        left = () if value is None else tuple(one for one in held.values if one != value)
        await _write(change.transaction, before, replace(held, values=left))
    return change.outcome


async def _zone(transaction: Transaction, name: str) -> Zone:
    stored = await transaction.resources("zones").get(name)
    if stored is None:
        raise NotFound(f"there is no zone `{name}`")
    zone: Zone = stored.value
    return zone


def _at(zone: Zone, whole: str) -> Challenge:
    for one in zone.challenges:
        if absolute(one.name, zone.name) == whole:
            return Challenge(zone.name, whole, tuple(text.strip('"') for text in one.data), one.ttl or TTL)
    return Challenge(zone.name, whole, ())


async def _write(transaction: Transaction, zone: Zone, wanted: Challenge) -> None:
    others = tuple(one for one in zone.challenges if absolute(one.name, zone.name) != wanted.name)
    own: tuple[RecordSet, ...] = ()
    if wanted.values:
        if len(others) >= MAX_CHALLENGES:
            raise Conflict(f"zone `{zone.name}` has challenges at {MAX_CHALLENGES} names: delete old ones")
        if len(wanted.values) > MAX_VALUES:
            raise Conflict(f"`{wanted.name}` has {MAX_VALUES} values: delete old ones")
        relative = wanted.name.removesuffix(f".{zone.name}")
        own = (RecordSet(relative, "TXT", tuple(f'"{one}"' for one in wanted.values), wanted.ttl),)
    after = replace(zone, challenges=tuple(sorted((*others, *own), key=lambda one: one.name)))
    if after != zone:
        await transaction.resources("zones").put(after)


def _require_no_alias(zone: Zone, whole: str) -> None:
    """Let a challenge at a name pass that is no alias: authorities ask where an alias leads (RFC 8555 §8.4).

    Raises:
        Conflict: it is one.
    """
    for record in zone.records:
        if record.type == "CNAME" and absolute(record.name, zone.name) == whole:
            target = absolute(record.data[0], zone.name)
            raise Conflict(
                f"`{whole}` is an alias (CNAME) for `{target}`, where authorities ask then: write the challenge there, "
                "or take the alias out of the zone's records"
            )


def _require_harmless(policy: Policy, zone: Zone, whole: str) -> None:
    """Let a challenge at a name pass where no other name comes to exist by it that a wildcard answers for (RFC 4592 §2.2.2).

    Raises:
        Conflict: one would.
    """
    existing = compiled(policy).existing
    _, *above = ancestors(whole)
    for name in above:
        if name in existing or not name.endswith(f".{zone.name}"):
            continue
        wildcard = f"{WILDCARD}{closest(existing, name)}"
        if wildcard in existing:
            raise Conflict(
                f"with `{whole}` the name `{name}` would exist, and `{wildcard}` would answer for it no more (RFC 4592 §2.2.2): "
                f"ask for a certificate of `{wildcard}`, or give `{name}` as a host name of its own"
            )
