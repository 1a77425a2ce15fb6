"""What is gone from the policy and keeps its rules: remembered with each change, and brought to the judgement of the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gtm.control.live.compiled import compiled
from gtm.core.change.leads import Former, may_be_back, moves, targets_led_to
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Region
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.zone.leads import leads_of
from gtm.storage.deletions import Gone, GoneKind
from gtm.storage.session import Transaction

MOST_POLICIES = 20
"""Revisions that a change is compared with beside the one in force."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What of it matters to a change: of each revision the policy, and the names, services and targets that it was the last to have.

    `targets` are endpoints' addresses and names with the regions that had them last; `untold` says in sentences what cannot be looked at.
    """

    revisions: tuple[tuple[int, Policy, frozenset[str], frozenset[str], frozenset[str]], ...] = ()
    targets: tuple[tuple[str, Region], ...] = ()
    untold: tuple[str, ...] = ()

    def former(self) -> Former:
        """The same, compiled."""
        revisions, untold = [], list(self.untold)
        for number, policy, names, services, back in self.revisions:
            try:
                revisions.append((compiled(policy), names, services, back))
            except PolicyError as error:
                untold.append(
                    f"revision {number} was the last to have them and does not compile any more ({error})"
                )
        targets: dict[str, tuple[Region, ...]] = {}
        for target, region in self.targets:
            targets[target] = (*targets.get(target, ()), region)
        return Former(tuple(revisions), targets, tuple(untold))


async def remembered(
    transaction: Transaction, gone: Sequence[Gone], may_return: Callable[[GoneKind, str], bool]
) -> Remembered:
    """What matters to a change.

    Args:
        transaction: where revisions are read.
        gone: all of it.
        may_return: whether a change may bring a name or a service back.
    """
    found: dict[int, dict[GoneKind, set[str]]] = {}
    for one in gone:
        kind = GoneKind(one.kind)
        if may_return(kind, one.name):
            found.setdefault(one.revision, {}).setdefault(kind, set()).add(one.name)
    revisions: list[tuple[int, Policy, frozenset[str], frozenset[str], frozenset[str]]] = []
    untold: list[str] = []
    for number in sorted(found, reverse=True):
        names, services, back = (frozenset(found[number].get(kind, ())) for kind in GoneKind)
        policy = await transaction.revisions.policy(number) if len(revisions) < MOST_POLICIES else None
        if policy is None:
            untold.append(
                f"revision {number} was the last to have {_shown(names | services | back)}, and no more than {MOST_POLICIES} are compared with"
            )
        else:
            revisions.append((number, policy, names, services, back))
    targets = tuple(
        (one.name, Region(one.region, 0.0, 0.0, one.country or "", (), operator_country=one.operator_country))
        for one in gone
        if one.kind == GoneKind.TARGET
    )
    return Remembered(tuple(revisions), targets, tuple(untold))


def in_policy(before: Policy, snapshot: Snapshot) -> Callable[[GoneKind, str], bool]:
    """Whether a change of a policy may have what is gone answered, or lead to it."""
    led = cache(lambda: targets_led_to(snapshot, leads_of(snapshot)))

    def may_return(kind: GoneKind, name: str) -> bool:
        if kind is GoneKind.TARGET:
            return name in led()
        return name in snapshot.services if kind is GoneKind.SERVICE else may_be_back(name, before, snapshot)

    return may_return


def in_text(body: bytes) -> Callable[[GoneKind, str], bool]:
    """Whether a policy that is not read yet may: by the first label of a name, a wildcard, name servers, or an address somewhere in its text."""
    text = body.lower()

    def may_return(kind: GoneKind, name: str) -> bool:
        if kind is GoneKind.TARGET:
            return name.encode() in text
        label = name.removeprefix("*.").partition(".")[0]
        return b"*" in text or b"@" in text or b"name_servers" in text or label.encode() in text

    return may_return


async def remember(
    transaction: Transaction,
    before: Policy,
    after: Snapshot,
    gone: Sequence[Gone],
    *,
    revision: int,
    released: bool,
) -> None:
    """Keep what a change takes away, and forget what it brings back.

    Args:
        transaction: of the change.
        before: the policy that it changes.
        after: what it makes of it.
        gone: what was gone before.
        revision: of the policy before.
        released: somebody who may has let out what the change opens.
    """
    names = frozenset(one.name for one in gone if one.kind == GoneKind.NAME)

    def work() -> tuple[list[Gone], dict[GoneKind, frozenset[str]]]:
        old = compiled(before)
        made = moves(old, after, leads_of, names, released=released)
        put = [Gone(GoneKind.NAME.value, name, "", revision) for name in sorted(made.names)]
        put += [Gone(GoneKind.SERVICE.value, name, "", revision) for name in sorted(made.services)]
        put += [
            Gone(GoneKind.TARGET.value, name, region.name, revision, region.country, region.operator_country)
            for name, region in made.targets
        ]
        back = {
            GoneKind.NAME: made.names_back,
            GoneKind.SERVICE: made.services_back,
            GoneKind.TARGET: made.targets_back,
        }
        return put, back

    put, back = await asyncio.to_thread(work)
    for kind, those in back.items():
        await transaction.gone.forget(kind, {one.name for one in gone if one.kind == kind} & those)
    await transaction.gone.put(put)


def _shown(names: frozenset[str]) -> str:
    some = sorted(names)[:3]
    more = f" and {len(names) - len(some)} more" if len(names) > len(some) else ""
    return ", ".join(f"`{name}`" for name in some) + more
