"""Single resources of any kind: list, get, put, patch, delete, each change a whole revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from gtm.control.errors import Conflict, Invalid, NotFound, PreconditionFailed
from gtm.control.policy.changes import Intent, edit, not_as_read
from gtm.control.policy.trial import ChangeOutcome
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import KINDS, label
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import AdminState
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.patching import patched
from gtm.documents.resources import ResourceDocument, with_drain_start
from gtm.documents.schema import DOCUMENTS, to_document
from gtm.documents.structure import problems_of
from gtm.storage.resources import Managed, PutOutcome, Stored
from gtm.storage.session import Database, Transaction

_VERBS = {AdminState.ACTIVE: "activate", AdminState.DRAINING: "drain", AdminState.DISABLED: "disable"}


@dataclass(frozen=True, slots=True)
class Precondition:
    """What the client says the resource is (RFC 9110 §13.1): entity tags, or `*` for any.

    `match`: one of these must be current. `none_match`: none of these may be.
    """

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    def check(self, tag: str | None) -> None:
        """Compare with the current tag, None where there is no resource.

        Raises:
            PreconditionFailed: it does not hold.
        """
        if self.match is not None and (tag is None or not self.match & {"*", tag}):
            state = "it does not exist" if tag is None else "it has been changed since you read it"
            raise PreconditionFailed(f"{state}: read it again, then repeat the change")
        if self.none_match is not None and tag is not None and self.none_match & {"*", tag}:
            raise PreconditionFailed("it exists already")


@dataclass(frozen=True, slots=True)
class Put:
    """What a put did, and what the resource is now, with who manages it."""

    outcome: PutOutcome
    stored: Stored[Any]
    change: ChangeOutcome
    managed: Managed | None


def tag(stored: Stored[Any]) -> str:
    """The entity tag of a resource, quoted as in the header."""
    return f'"{stored.version}"'


async def list_page(
    database: Database, kind: str, after: str | None, limit: int, *, manager: str | None = None
) -> list[Stored[Any]]:
    """At most `limit` resources by name, starting behind `after`; those of one manager, or all."""
    async with database.transaction() as transaction:
        return await transaction.resources(kind).list(after, limit, manager=manager)


async def get(database: Database, kind: str, name: str) -> Stored[Any]:
    """One resource.

    Raises:
        NotFound: there is none of that name.
    """
    async with database.transaction() as transaction:
        stored = await transaction.resources(kind).get(name)
    if stored is None:
        raise NotFound(f"there is no {label(kind)} `{name}`")
    return stored


async def put(
    database: Database,
    kind: str,
    document: ResourceDocument[Any],
    precondition: Precondition,
    intent: Intent,
) -> Put:
    """Create or replace a resource; an equal one stays as it is, and makes no revision.

    A region that begins to drain with it does so now.

    Raises:
        PreconditionFailed: the resource is not what the client thinks.
        Conflict: the name is a shipped jurisdiction's.
        ManagedByAnother: another tool manages it.
        PolicyError: the policy would not compile with it.
        UnsafeChange: the safety rules say no.
    """
    return await _write(database, "put", kind, document.name, lambda _: document, precondition, intent)


async def patch(  # noqa: PLR0917 - as `put`, whose document is what name and changes say here
    database: Database,
    kind: str,
    name: str,
    changes: Mapping[str, Any],
    precondition: Precondition,
    intent: Intent,
) -> Put:
    """Change some members of a resource (RFC 7396), of what it is at that moment: what others changed since it was read stays.

    Raises:
        NotFound: there is none of that name.
        Invalid: what it would be is no document of its kind.
        ControlError, PolicyError: as `put`.
    """

    def document(before: Stored[Any] | None) -> ResourceDocument[Any]:
        if before is None:
            raise NotFound(f"there is no {label(kind)} `{name}`: PUT creates one")
        return _patched(kind, to_document(before.value), changes)

    return await _write(database, "patch", kind, name, document, precondition, intent)


def _patched(kind: str, document: dict[str, Any], changes: Mapping[str, Any]) -> ResourceDocument[Any]:
    """A document with changes in it.

    Raises:
        Invalid: it is wrong, or they take away what no document of the kind has: a slip, which would silently do nothing.
    """
    model, name = DOCUMENTS[kind], document["name"]
    problems = []
    for keep_nulls in (True, False):
        try:
            found = model.model_validate({**patched(document, changes, keep_nulls=keep_nulls), "name": name})
        except ValidationError as error:
            wrong = problems_of(error, prefix=f"{kind}.{name}", model=model)
            problems += [one for one in wrong if not keep_nulls or one.code == "unknown_field"]
    if problems:
        raise Invalid("what the patch makes is wrong; nothing was changed", tuple(dict.fromkeys(problems)))
    return found


async def _write(  # noqa: PLR0917 - what a put is of
    database: Database,
    verb: str,
    kind: str,
    name: str,
    document: Callable[[Stored[Any] | None], ResourceDocument[Any]],
    precondition: Precondition,
    intent: Intent,
) -> Put:
    """Make a resource what a function of what it is says."""
    _check_writable(kind, name)
    said = _said(f"{verb} {label(kind)} {name}", intent)
    async with edit(database, intent, _action(kind, verb), said) as change:
        repository = change.transaction.resources(kind)
        before = await repository.get(name)
        await _require(precondition, change.transaction, before)
        value = document(before).to_core(KINDS[kind], before.value if before else None, intent.now)
        outcome, stored = await repository.put(value)
        change.written = {(kind, name)}
    return Put(outcome, stored, change.outcome, change.managed.get((kind, name)))


async def _require(precondition: Precondition, transaction: Transaction, stored: Stored[Any] | None) -> None:
    """Check what the client says the resource is; where it is not, say who has made it what it is.

    Raises:
        PreconditionFailed: it does not hold.
    """
    try:
        precondition.check(tag(stored) if stored else None)
    except PreconditionFailed as error:
        if stored is None:
            raise
        raise await not_as_read(transaction, stored, error.detail) from None


async def delete(
    database: Database, kind: str, name: str, precondition: Precondition, intent: Intent
) -> ChangeOutcome:
    """Delete a resource.

    Raises:
        NotFound: there is none of that name.
        PreconditionFailed: the resource is not what the client thinks.
        Conflict: it is shipped, or others still refer to it; `problems` says which.
        ManagedByAnother: another tool manages it.
        UnsafeChange: the safety rules say no.
    """
    _check_writable(kind, name)
    said = _said(f"delete {label(kind)} {name}", intent)
    try:
        async with edit(database, intent, _action(kind, "delete"), said) as change:
            repository = change.transaction.resources(kind)
            before = await repository.get(name)
            if before is None:
                raise NotFound(f"there is no {label(kind)} `{name}`")
            await _require(precondition, change.transaction, before)
            await repository.delete(name)
    except PolicyError as error:
        raise Conflict(
            f"{label(kind)} `{name}` is still needed by other resources", error.problems
        ) from error
    return change.outcome


async def set_admin_state(database: Database, name: str, state: AdminState, intent: Intent) -> Put:
    """Drain, disable or activate a region, and keep the comment with the revision. Whoever manages the region is not asked.

    A drain that is under way keeps its beginning; a new one begins now.

    Raises:
        NotFound: there is no such region.
        UnsafeChange: the safety rules say no.
    """
    said = _said(f"set region {name} {state.value}", intent)
    async with edit(database, intent, _action("regions", _VERBS[state]), said) as change:
        before = await change.transaction.regions.get(name)
        if before is None:
            raise NotFound(f"there is no region `{name}`")
        after = with_drain_start(replace(before.value, admin_state=state), before.value, intent.now)
        outcome, stored = await change.transaction.regions.put(after)
    return Put(outcome, stored, change.outcome, change.managed.get(("regions", name)))


def _said(what: str, intent: Intent) -> str:
    """What a revision says of itself."""
    return ": ".join(filter(None, (what, intent.comment)))


def _action(kind: str, verb: str) -> str:
    """What the audit log calls it."""
    return f"{label(kind).replace(' ', '-')}.{verb}"


def _check_writable(kind: str, name: str) -> None:
    """Shipped jurisdictions and country codes are nobody's to change."""
    if kind != "jurisdictions":
        return
    if name in COUNTRIES or any(item.name == name for item in shipped_jurisdictions()):
        raise Conflict(
            f"jurisdiction `{name}` comes with gtm and cannot be changed: choose another name and list `{name}` as a "
            "member"
        )
