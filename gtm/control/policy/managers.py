"""Which tool manages a resource of the policy: whose writes pass, and what becomes of the mark.

Law: at most one tool manages a resource. What it manages nobody else writes or deletes without saying so, and why. The mark is no
policy: it changes no decision and no checksum, and ends with the resource. A region's admin state is operators', a zone's challenges are ACME clients': no tool has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from gtm.control.errors import BadRequest, Conflict, ManagedByAnother, ManagedResource, NotFound
from gtm.core.model.kinds import KINDS, label
from gtm.documents.diff import Action, ResourceChange
from gtm.storage.history.audit import Actor
from gtm.storage.resources import Key, Managed
from gtm.storage.session import Database, Transaction

_MOST_NAMED = 50
"""Resources that the audit log names of one change; the revision has all."""
_STATES = {"regions": frozenset({"admin_state", "draining_since"}), "zones": frozenset({"challenges"})}


class OnManaged(StrEnum):
    """What somebody wants who writes what another tool manages."""

    OVERRIDE = "override"
    """To make this change. The tool goes on to manage the resource, and its next run shows the difference."""
    TAKE_OVER = "take_over"
    """To make it, and to manage the resource from now on."""


@dataclass(frozen=True, slots=True)
class PolicyWriter:
    """What a request says of itself: the tool that it speaks for (None: somebody in person), and what it does on purpose, and why."""

    manager: str | None = None
    on_managed: OnManaged | None = None
    reason: str = ""


PERSON = PolicyWriter()


@dataclass(frozen=True, slots=True)
class Settled:
    """What a change has to do with managers.

    `others` are resources that it writes or deletes and that another manages; `claimed` those that the writer manages from now on.
    """

    others: tuple[ManagedResource, ...] = ()
    claimed: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Manager:
    """A tool with what it manages: kind → how many resources. `since`: of the first of them."""

    manager: str
    """`terraform/prod-network`: the tool, and what of it owns the resources."""
    since: datetime
    """Since when it manages the first of them."""
    resources: Mapping[str, int]
    """Kind → how many. `GET /v1/resources?managed_by=…` lists them."""


def writer(manager: str | None, on_managed: OnManaged | None, reason: str) -> PolicyWriter:
    """What a request says of itself.

    Raises:
        BadRequest: a part of it is missing.
    """
    if on_managed is not None and not reason.strip():
        raise BadRequest("`on_managed` needs a reason: give `managed_reason` as well")
    if reason.strip() and on_managed is None:
        raise BadRequest(
            "`managed_reason` without `on_managed` means nothing: say what you want, `override` or `take_over`"
        )
    if on_managed is OnManaged.TAKE_OVER and manager is None:
        raise BadRequest(
            "`on_managed=take_over` needs the header `GTM-Managed-By`: who is to manage it? (`POST /v1/managers:reassign` "
            "ends a tool's management)"
        )
    return PolicyWriter(manager, on_managed, reason.strip())


def settle(
    by: PolicyWriter,
    managed: Mapping[Key, Managed],
    changes: Iterable[ResourceChange],
    written: Collection[Key] | None = None,
) -> Settled:
    """What a change has to do with managers. Pure.

    Args:
        by: who writes.
        managed: what is managed before the change.
        changes: all of it.
        written: what the writer says how it is to be, whether that differs or not; None: what it creates or updates.
    """
    changed = [change for change in changes if not only_state(change)]
    if written is None:
        written = [(one.kind, one.name) for one in changed if one.action is not Action.DELETED]
    touched = dict.fromkeys((one.kind, one.name) for one in changed)
    if by.manager is not None:
        touched |= dict.fromkeys(sorted(written))
    others = tuple(
        ManagedResource(kind, name, held.manager, held.since)
        for kind, name in touched
        if (held := managed.get((kind, name))) is not None and held.manager != by.manager
    )
    kept = set() if by.on_managed is OnManaged.TAKE_OVER else {(one.kind, one.name) for one in others}
    claimed = [
        key
        for key in sorted(written)
        if by.manager is not None
        and key not in kept
        and (key not in managed or managed[key].manager != by.manager)
    ]
    return Settled(others, tuple(claimed))


def only_state(change: ResourceChange) -> bool:
    """Whether a change is of nothing but a region's admin state or a zone's challenges."""
    return (
        change.kind in _STATES
        and change.action is Action.UPDATED
        and _STATES[change.kind].issuperset(field.path.partition("[")[0] for field in change.fields)
    )


def require(by: PolicyWriter, settled: Settled) -> str:
    """Let a change pass, or not.

    Returns:
        What is to be kept with its revision: for whom it was made, and whom it overrules. Empty: nobody.

    Raises:
        ManagedByAnother: it writes what another tool manages, and does not say so.
    """
    if settled.others and by.on_managed is None:
        raise ManagedByAnother(settled.others)
    said = [f"for {by.manager}"] if by.manager else []
    if settled.others:
        names = ", ".join(dict.fromkeys(one.manager for one in settled.others))
        verb = "overrides" if by.on_managed is OnManaged.OVERRIDE else "takes over from"
        said.append(f"{verb} {names}: {by.reason}")
    return "; ".join(said)


async def keep(
    transaction: Transaction, settled: Settled, writer: PolicyWriter, *, by: Actor, revision: int | None
) -> None:
    """Write down who manages what from now on, and what was overruled. `revision`: the one just made; None: there is none."""
    for kind, names in _by_kind(settled.claimed).items():
        await transaction.resources(kind).manage(names, writer.manager)
    others = {(one.kind, one.name): one.manager for one in settled.others}
    taken = [key for key in settled.claimed if key in others]
    fresh = [key for key in settled.claimed if key not in others]
    left = [key for key in others if key not in set(taken)] if revision is not None else []
    for action, keys, to in (
        ("managed.claim", fresh, f" to {writer.manager}"),
        ("managed.take_over", taken, f" to {writer.manager}"),
        ("managed.override", left, ""),
    ):
        if keys:
            held = ", ".join(sorted({others[key] for key in keys if key in others}))
            detail = f"{f'from {held}' if to else f'managed by {held}'}{to}" if held else to.strip()
            reason = writer.reason if held else ""
            await transaction.audit.add(
                by, action, named(keys), revision=revision, reason=reason, detail=detail
            )


def _by_kind(keys: Iterable[Key]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for kind, name in keys:
        found[kind].append(name)
    return found


def named(keys: Sequence[Key]) -> str:
    """What something was done to, as the audit log has it."""
    shown = [f"{label(kind)} {name}" for kind, name in keys[:_MOST_NAMED]]
    more = len(keys) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def summed(managed: Mapping[Key, Managed]) -> list[Manager]:
    """Every tool that manages something, by name."""
    found: dict[str, Manager] = {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (kind, _), one in managed.items():
        before = found.get(one.manager)
        since = one.since if before is None else min(before.since, one.since)
        counts[one.manager][kind] += 1
        found[one.manager] = Manager(one.manager, since, {})
    return [
        replace(found[name], resources={kind: counts[name][kind] for kind in KINDS if counts[name][kind]})
        for name in sorted(found)
    ]


async def reassign(
    database: Database, manager: str, to: str | None, keys: Sequence[Key] | None, *, by: Actor, reason: str
) -> list[Key]:
    """Let another tool manage what one does, or none; the resources stay as they are.

    Args:
        database: where.
        manager: who manages them now.
        to: who shall; None: nobody.
        keys: which of them; None: all.
        by: who wants it.
        reason: why.

    Raises:
        NotFound: it manages nothing.
        Conflict: one of them it does not manage.
    """
    async with database.change() as transaction:
        managed = await transaction.policy.managed()
        own = [key for key, one in managed.items() if one.manager == manager]
        wanted = own if keys is None else list(dict.fromkeys(keys))
        if not own:
            raise NotFound(f"`{manager}` manages nothing")
        for kind, name in wanted:
            held = managed.get((kind, name))
            if held is None or held.manager != manager:
                who = "no tool" if held is None else f"`{held.manager}`"
                raise Conflict(
                    f"{label(kind)} `{name}` is managed by {who}, not by `{manager}`; nothing was changed"
                )
        wanted = [] if to == manager else sorted(wanted)
        for kind, names in _by_kind(wanted).items():
            await transaction.resources(kind).manage(names, to)
        if wanted:
            detail = f"from {manager} to {to}" if to else f"from {manager}"
            action = "managed.hand_over" if to else "managed.release"
            await transaction.audit.add(by, action, named(wanted), reason=reason, detail=detail)
    return wanted
