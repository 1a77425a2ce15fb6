"""Deletions that wait: of resources that something still names, or whose deletion alone would open a fence.

A tool that makes its changes one by one (Terraform deletes a region before it changes the services that name it) says of a
deletion that it may wait. It is made by the change that takes away what keeps it, in the same revision.

Laws:
  1. A deletion that waits never keeps another change from being made: if a change with it would be refused, it waits on.
  2. A deletion of an earlier change is judged by itself, after the change that lets it go, and never forced: nobody gave a reason for it.
  3. What is written anew waits for its deletion no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gtm.control.live.compiled import compiled
from gtm.core.model.kinds import label
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.policy.snapshot import Snapshot
from gtm.documents.parts import merged
from gtm.documents.referrers import referrers
from gtm.storage.deletions import Deferred
from gtm.storage.errors import StorageUnavailable
from gtm.storage.resources import Key
from gtm.storage.session import Database

_LAW = frozenset(("residency_rules", "jurisdictions"))
"""Kinds whose deletion may open a fence: without them the others may go."""


def without(policy: Policy, keys: Collection[Key]) -> Policy:
    """A policy without some of its resources."""
    return merged(policy, Policy(), keys) if keys else policy


class Obstacle(NamedTuple):
    """Why a resource is not deleted yet; `refused`: because of the safety rules, and not of a resource that names it."""

    why: str
    refused: bool


def freed(policy: Policy, keys: Collection[Key]) -> tuple[Snapshot, dict[Key, Obstacle]]:
    """The policy without as many of some resources as nothing else names; and of the others, what keeps them.

    Raises:
        PolicyError: the policy does not compile with all of them.
    """
    referring, left, kept = referrers(policy) if keys else {}, set(keys), dict[Key, Obstacle]()
    while True:
        named = {
            key: f"{one.kind}.{one.name}.{one.path} names it"
            for key in left
            for one in reversed(referring.get(key, ()))
            if (one.kind, one.name) not in left
        }
        if not named:
            break
        kept |= {key: Obstacle(why, refused=False) for key, why in named.items()}
        left -= named.keys()
    try:
        return compiled(without(policy, left)), kept
    except PolicyError as error:
        if not left:
            raise
        first = error.problems[0]  # nothing names them, and without them the policy is wrong in another way
        wrong = Obstacle(f"without it, {first.path}: {first.message}", refused=False)
        return compiled(policy), kept | dict.fromkeys(left, wrong)


def attempts(keys: Collection[Key]) -> Iterator[frozenset[Key]]:
    """Which of the deletions that wait a change is tried with: all, those that are no law, none."""
    told = frozenset(keys)
    yield from dict.fromkeys((told, frozenset(key for key in told if key[0] not in _LAW), frozenset[Key]()))


async def warnings(database: Database) -> list[str]:
    """What status says of deletions that wait; nothing while the database is down."""
    try:
        async with database.transaction() as transaction:
            return [_sentence(one) for one in await transaction.deferred.list()]
    except StorageUnavailable:
        return []


def _sentence(one: Deferred) -> str:
    who = one.manager or one.asked_by
    return (
        f"{label(one.kind)} `{one.name}` is to be deleted since {one.asked_at:%Y-%m-%d %H:%M} UTC, as `{who}` asked, and waits: "
        f"{one.why}"
    )
