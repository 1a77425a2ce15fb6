"""Two people who edit the same: what a draft began from, what somebody else has made of it since, and what the draft wants."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gtm.client.generated import control_calls as calls
from gtm.core.model.kinds import KINDS
from gtm.dashboard.drafts import Draft, Key, key_of
from gtm.dashboard.inside import ApiProblem, Inside, resource
from gtm.dashboard.pages.policy.words import as_yaml, complete
from gtm.documents.merging import FieldVersions, merge, versions

Documents = dict[Key, dict[str, Any]]
_AT_ONCE = 20
"""Resources that are looked up at the same time."""


@dataclass(frozen=True, slots=True)
class ChangedMeanwhile:
    """A resource that somebody else has changed since the draft began; None: there was, or is, none."""

    key: Key
    was: dict[str, Any] | None
    theirs: dict[str, Any] | None
    yours: dict[str, Any] | None

    @property
    def fields(self) -> tuple[FieldVersions, ...]:
        """The fields in which the two versions differ."""
        return versions(self.was, self.theirs, self.yours)

    @property
    def conflict(self) -> bool:
        """Whether somebody has to choose."""
        return any(one.conflict for one in self.fields)


@dataclass(frozen=True, slots=True)
class Against:
    """A draft against what is in force now. `seen` names that: what is chosen is chosen among these versions only.

    `carried` are resources that somebody else has changed, and that were put together with the draft's.
    """

    conflicts: tuple[ChangedMeanwhile, ...] = ()
    carried: tuple[Key, ...] = ()
    seen: str = ""


@dataclass(frozen=True, slots=True)
class _Now:
    """What is in force: the revision, and the entity tags of what a draft changes."""

    revision: int
    tags: dict[str, str]
    changed: tuple[ChangedMeanwhile, ...]

    @property
    def seen(self) -> str:
        """A name of it."""
        return msgspec.json.encode(self.tags or self.revision).decode()


async def current(api: Inside, kind: str, called: str) -> tuple[dict[str, Any], str, int]:
    """A resource with all defaults, its entity tag, and a revision that is not newer.

    Raises:
        ApiProblem: there is none, or it is not to be changed.
    """
    # The revision first: what is read afterwards is this or newer, so that nobody's change is taken for the draft's.
    revision: int = (await api.ask(calls.search_resources(limit=1))).revision
    document, tag = await _read(api, (kind, called))
    if document is None:
        words = (
            f"there is none of this name: `{called}` does not exist, or comes with gtm and cannot be changed"
        )
        raise ApiProblem(404, {"title": "not found", "detail": words})
    return document, tag, revision


async def _read(api: Inside, key: Key) -> tuple[dict[str, Any] | None, str]:
    kind, called = key
    try:
        found = await api.send(resource(kind, called))
    except ApiProblem as error:
        if error.status != 404:
            raise
        return None, ""
    if kind == "jurisdictions" and found.value.origin != "operator":
        return None, ""
    return complete(kind, found.value), found.headers["etag"]


async def managers(api: Inside, draft: Draft) -> list[dict[str, Any]]:
    """Which tools manage what a draft began from: of a few resources by name, of more or all of them each tool once."""
    keys = [key_of(one) for one in draft.tags]
    if draft.whole or len(keys) > _AT_ONCE:
        found = (await api.list_managers()).items_
        return [{"manager": one.manager, "since": None, "name": ""} for one in found]

    async def one(key: Key) -> dict[str, Any] | None:
        kind, called = key
        try:
            headers = (await api.send(resource(kind, called))).headers
        except ApiProblem:
            return None
        manager = headers.get("gtm-managed-by")
        since = headers.get("gtm-managed-since")
        return {"manager": manager, "since": since, "name": called} if manager else None

    return [found for found in await asyncio.gather(*map(one, keys)) if found is not None]


def documents(policy: Mapping[str, Any], *, states: bool = False) -> Documents:
    """A policy's resources by kind and name, with all defaults; with admin states of regions only if somebody wrote them (`states`)."""
    return {
        (kind, one.name): complete(kind, one, states=states)
        for kind in KINDS
        for one in policy.get(kind) or ()
    }


async def _then(api: Inside, revision: int) -> Mapping[str, Any]:
    """The policy of a revision."""
    if revision == 0:
        return {}
    return (await api.get_revision(revision)).policy


async def _now(api: Inside, draft: Draft, mine: Documents) -> _Now:
    return await (_now_whole if draft.whole else _now_part)(api, draft, mine)


async def _now_whole(api: Inside, draft: Draft, mine: Documents) -> _Now:
    found = await api.send(calls.get_policy())
    revision = int(found.headers["etag"].strip('"'))
    if revision == draft.revision:
        return _Now(revision, {}, ())
    then = documents(await _then(api, draft.revision))
    today = documents(found.value.policy)
    changed = [
        ChangedMeanwhile(key, then.get(key), today.get(key), mine.get(key))
        for key in {**then, **today}
        if then.get(key) != today.get(key)
    ]
    return _Now(revision, {}, tuple(changed))


async def _now_part(api: Inside, draft: Draft, mine: Documents) -> _Now:
    revision: int = (await api.ask(calls.search_resources(limit=1))).revision
    keys = list(dict.fromkeys([*mine, *map(key_of, draft.delete)]))
    bound = asyncio.Semaphore(_AT_ONCE)

    async def read(key: Key) -> tuple[dict[str, Any] | None, str]:
        async with bound:
            return await _read(api, key)

    found = dict(zip(keys, await asyncio.gather(*map(read, keys)), strict=True))
    tags = {_text(key): tag for key, (_, tag) in found.items()}
    # What has no tag was not there when the draft began, as far as it knows.
    stale = [key for key in keys if draft.tags.get(_text(key), "") != tags[_text(key)]]
    then = documents(await _then(api, draft.revision)) if stale else {}
    changed = [
        ChangedMeanwhile(key, then.get(key), found[key][0], mine.get(key))
        for key in stale
        if then.get(key) != found[key][0]
    ]
    return _Now(revision, tags, tuple(changed))


def _text(key: Key) -> str:
    return "/".join(key)


async def against(api: Inside, draft: Draft, policy: Mapping[str, Any]) -> tuple[Draft, Against]:
    """A draft as it stands on what is in force now, if nobody has to choose.

    Args:
        api: asked.
        draft: the draft.
        policy: what it says.
    """
    mine = documents(policy, states=True)
    now = await _now(api, draft, mine)
    conflicts = tuple(one for one in now.changed if one.conflict)
    if conflicts:
        return draft, Against(conflicts, (), now.seen)
    together = _together(draft, now, mine, {})
    return together, Against((), tuple(one.key for one in now.changed if one.theirs != one.yours))


async def merged(api: Inside, draft: Draft, form: Mapping[str, str]) -> Draft:
    """A draft with what somebody has chosen, field by field; as it was, if there was another change meanwhile."""
    found = await draft.read(api)
    mine = documents(found.policy or {}, states=True)
    now = await _now(api, draft, mine)
    if found.problems or form.get("seen") != now.seen:
        return draft
    taken = {
        one.key: [
            field.path for field in one.fields if form.get(f"take/{_text(one.key)}/{field.path}") == "theirs"
        ]
        for one in now.changed
    }
    return _together(draft, now, mine, taken)


def _together(draft: Draft, now: _Now, mine: Documents, taken: Mapping[Key, Collection[str]]) -> Draft:
    """Both changes in one draft, that began from what is in force now."""
    made, gone = dict(mine), {key_of(one) for one in draft.delete}
    for one in now.changed:
        found = merge(one.was, one.theirs, one.yours, taken.get(one.key, ()))
        made.pop(one.key, None)
        if (found is not None and found != one.theirs) or (found is not None and draft.whole):
            made[one.key] = dict(found)
        if found == one.theirs:
            gone.discard(one.key)
    text = draft.text if made == mine else _written(made)
    return Draft(
        text,
        now.revision,
        draft.whole,
        {key: tag for key, tag in now.tags.items() if key_of(key) in made or key_of(key) in gone},
        [_text(key) for key in gone],
    )


def _written(made: Documents) -> str:
    if not made:
        return ""
    return as_yaml({kind: items for kind in KINDS if (items := list(_of(made, kind)))}, states=True)


def _of(made: Documents, kind: str) -> Iterable[dict[str, Any]]:
    return (document for (one, _), document in made.items() if one == kind)
