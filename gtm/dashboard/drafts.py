"""A draft of the policy as pages carry it: in hidden fields of a form, or in a link. The server keeps nothing of it."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BinasciiError
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gtm.client.objects import JsonObject
from gtm.core.model.kinds import KINDS
from gtm.dashboard.inside import ApiProblem, Inside, name
from gtm.nesting import shallow

if TYPE_CHECKING:
    from gtm.client import types

MAX_LINK = 24_000
"""Characters of a draft in a link: browsers and proxies take no longer ones."""
MAX_TEXT = 1024 * 1024
"""Characters of a draft; what is larger is edited in files."""
_MAX_RESOURCES = 1000
Key = tuple[str, str]
"""Kind and name."""


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft.

    `revision` is the one that it began from. `whole`: what it does not hold is deleted; otherwise only what `delete` names.
    `tags` are the entity tags, by kind and name, of what it changes, as it was read; empty: there was none.
    """

    text: str
    revision: int
    whole: bool = False
    tags: dict[str, str] = {}
    delete: list[str] = []

    @classmethod
    def of_form(cls, form: Mapping[str, str]) -> Self:
        """The draft that a form carries.

        Raises:
            ApiProblem: 400, the form is none of ours.
        """
        text = form.get("text", "").replace("\r\n", "\n")
        try:
            kept = msgspec.json.decode(shallow(form.get("draft", "")), type=cls)
        except ValueError as error:
            raise _unreadable() from error
        return msgspec.structs.replace(kept, text=text).checked()

    @classmethod
    def of_link(cls, packed: str) -> Self:
        """The draft in a link.

        Raises:
            ApiProblem: 400, it is not one that was made here, or was cut short.
        """
        try:
            unpacking = zlib.decompressobj()
            raw = unpacking.decompress(urlsafe_b64decode(packed[:MAX_LINK]), 4 * MAX_TEXT)
            if unpacking.unconsumed_tail or not unpacking.eof:
                raise _unreadable()
            return msgspec.json.decode(shallow(raw), type=cls).checked()
        except (zlib.error, BinasciiError, ValueError) as error:
            raise _unreadable() from error

    def checked(self) -> Self:
        """The same, if it is within bounds.

        Raises:
            ApiProblem: it is not.
        """
        if len(self.text) > MAX_TEXT:
            words = (
                f"a draft here has at most {MAX_TEXT} characters: edit files, then `gtm plan` and `gtm apply`"
            )
            raise ApiProblem(413, {"title": "too large", "detail": words})
        if not 0 <= self.revision < 2**63 or len(self.tags) + len(self.delete) > _MAX_RESOURCES:
            raise _unreadable()
        for key in (*self.tags, *self.delete):
            key_of(key)
        return self

    @property
    def kept(self) -> str:
        """What a form carries beside the text."""
        return msgspec.json.encode(msgspec.structs.replace(self, text="")).decode()

    @property
    def packed(self) -> str | None:
        """The draft as a link carries it; None if it is too long for one."""
        made = urlsafe_b64encode(zlib.compress(msgspec.json.encode(self), 9)).decode()
        return made if len(made) <= MAX_LINK else None

    @property
    def partial(self) -> dict[str, Any]:
        """How endpoints are told what it is a part of."""
        gone = [{"kind": kind, "name": called} for kind, called in map(key_of, self.delete)]
        return {"partial": not self.whole, "delete": gone}

    @property
    def held(self) -> list[dict[str, str]]:
        """How endpoints are told what it was read from."""
        return [
            {"kind": kind, "name": called, "tag": tag}
            for key, tag in self.tags.items()
            for kind, called in (key_of(key),)
        ]

    async def read(self, api: Inside) -> types.ReadView:
        """What control reads of the text."""
        body: Any = {"text": self.text, **self.partial}
        return await api.read_policy(body)

    def called(self, found: types.ReadView) -> str:
        """What a draft is of, in a word; `found` is what control reads of it."""
        if self.whole:
            return "the whole policy"
        held = (found.policy or JsonObject()).items()
        keys = [*self.delete, *(f"{kind}/{one.name}" for kind, items in held for one in items)]
        keys = keys or list(self.tags)
        return key_of(keys[0])[1] if len(keys) == 1 else f"{len(keys)} resources" if keys else "nothing yet"


def key_of(text: str) -> Key:
    """Kind and name of a resource as drafts write them, `KIND/NAME`.

    Raises:
        ApiProblem: it is none.
    """
    kind, _, called = text.partition("/")
    if kind not in KINDS:
        raise _unreadable()
    return kind, name(called)


def _unreadable() -> ApiProblem:
    words = "this is no draft that was made here, or it was cut short: begin again from the resource's page"
    return ApiProblem(400, {"title": "bad request", "detail": words})
