"""What of a request tells how much work it is, and which backends can do it: from its body, where that is OpenAI's wire format.

Here bodies are read for hints, up to `MAX_INSPECTED` bytes: of longer ones no more than the model is looked for (`gtm.balancer.wire.bodies`), if it decides, and they are judged by their length. What
cannot be read is unknown here, and the backend's to refuse: a balancer that is stricter than what stands behind it refuses requests
that would be served. Where limits go by bodies, `gtm.balancer.wire.bodies` reads them.

Nothing that the law asks of comes from here: a client writes its body as it likes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import msgspec

from gtm.balancer.wire.endpoints import ENDPOINTS, endpoint_of
from gtm.balancer.wire.estimate import BYTES_A_TOKEN, MEDIA, Media, body_tokens, prompt_tokens, unread_tokens
from gtm.balancer.wire.heads import RequestHead
from gtm.core.balance.choosing.prefixes import LONGEST, blocks
from gtm.nesting import shallow

MAX_INSPECTED = 1024 * 1024
"""Bytes of a body that is read before a backend is chosen."""


class RequestFacts(NamedTuple):
    """What is known of a request's work; None: not stated.

    `input_tokens` is an estimate by the kind of what is in the body (`gtm.balancer.wire.estimate`). `max_tokens` bounds the output of one choice, `most_output` that of all. `prefix` has the hashes of the prompt's blocks
    (`prefixes.blocks`), none where nobody asked for them.
    """

    model: str | None = None
    input_tokens: int = 0
    max_tokens: int | None = None
    streams: bool = False
    session: str | None = None
    prefix: tuple[int, ...] = ()
    most_output: int | None = None
    state: str | None = None
    """The id of what one server has, and the request goes on with, as its body says (`gtm.balancer.wire.endpoints`)."""
    stored: bool = True
    """What it makes is to be kept by its server, if the endpoint keeps it."""
    background: bool = False
    """It is answered at once, and its server works on it after that (`background` of OpenAI's responses)."""


NOTHING = RequestFacts()
"""What is known of a request without a body."""


class PromptCut(NamedTuple):
    """How prompts are cut into blocks: of so many bytes, so many at the most."""

    size: int
    most: int = LONGEST


_ABSENT = msgspec.Raw(b"")


class Body(msgspec.Struct, gc=False):
    """What is read of a body, whatever its endpoint; `gtm.balancer.wire.endpoints` says which of it means something where."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    stream: bool | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    # Empty for absent: a union with None would take nothing but null.
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    # What one server has.
    previous_response_id: str | None = None
    input_file_id: str | None = None
    conversation: msgspec.Raw = _ABSENT
    store: bool | None = None
    background: bool | None = None
    # What the model reads before these, or what keeps caches apart.
    tools: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    # Where some servers have bounds of the output, and sessions.
    n_predict: int | None = None
    n_cmpl: int | None = None
    parameters: msgspec.Raw = _ABSENT
    sampling_params: msgspec.Raw = _ABSENT
    options: msgspec.Raw = _ABSENT
    metadata: msgspec.Raw = _ABSENT


DECODER = msgspec.json.Decoder(Body)
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Body)}
MEMBERS = msgspec.json.Decoder(
    msgspec.defstruct("Members", [(name, msgspec.Raw, _ABSENT) for name in _TYPES])
)
"""Reads the same members as JSON each, whatever they are; of all others nothing is kept."""
_WITHIN = {
    name: msgspec.json.Decoder(msgspec.defstruct("Within", [(name.partition(".")[2], kind | None, None)]))
    for row in ENDPOINTS
    for names, kind in ((row.says.tokens, int), (row.says.session, str))
    for name in names
    if "." in name
}
"""Readers of members of objects within a body, by their names."""


_PLAIN = frozenset(("max_tokens", "max_completion_tokens", "max_output_tokens"))
"""The bounds of the output that all endpoints may have (`_limits`)."""


class _Choices(msgspec.Struct):
    n: int | None = None
    best_of: int | None = None


_CHOICES = msgspec.json.Decoder(_Choices)


class _Conversation(msgspec.Struct):
    id: str


_CONVERSATION = msgspec.json.Decoder(str | _Conversation)
STATE_MEMBERS = frozenset(("previous_response_id", "input_file_id", "conversation"))
"""Members of a body that name what one server has."""
_ALL = msgspec.json.Decoder(dict[str, msgspec.Raw])
MAX_NAME = 256
"""Characters of a model's name or a session's key: longer ones are none."""


def read_facts(
    head: RequestHead, body: bytes, cut: PromptCut | None = None, media: Media = MEDIA
) -> RequestFacts:
    """What a request says of its work.

    Args:
        head: of the request.
        body: all of it, if it is awaited and may be JSON, else nothing.
        cut: how its prompt is cut into blocks; None: it is not.
        media: what counts for pictures, recordings and files.
    """
    size = len(body) or head.length or 0
    found = _read(body) if body else None
    if found is None:
        if body or not size:
            return RequestFacts(input_tokens=size // BYTES_A_TOKEN) if size else NOTHING
        kind = head.seen.get(b"content-type", b"")
        return RequestFacts(input_tokens=unread_tokens(head.path, kind, size, media))
    found.model = _short(found.model)
    return facts_of(head, found, body, cut, media)


def facts_of(
    head: RequestHead, found: Body, body: bytes, cut: PromptCut | None, media: Media = MEDIA
) -> RequestFacts:
    """What a body says, by what was read of it."""
    messages = bytes(found.messages)
    text = messages or bytes(found.prompt) or bytes(found.input)
    if text:
        tokens = prompt_tokens(text, media)
        if not (found.tools is found.system is found.instructions is _ABSENT):
            beside = (found.tools, found.system, found.instructions)
            tokens += sum(len(bytes(one)) for one in beside) // BYTES_A_TOKEN
    else:
        tokens = body_tokens(body, media)
    limit, most = _limits(found)
    session = state = None
    if found.prompt_cache_key or found.user:
        session = _short(found.prompt_cache_key) or _short(found.user)
    alone = found.options is found.parameters is found.sampling_params is _ABSENT
    if not alone or found.n_predict is not None:  # some servers have bounds there
        limit, most = _limits_elsewhere(head, found, limit, most)
    if session is None and found.metadata is not _ABSENT:
        session = _session_elsewhere(head, found)
    if found.previous_response_id or found.input_file_id or found.conversation is not _ABSENT:
        state = _state(found)
    # As `RequestFacts(…)`, in half of the time.
    facts = (
        found.model,
        tokens,
        limit,
        bool(found.stream),
        session,
        _prefix(found, text, cut) if cut is not None else (),
        # A list may be of prompts: each has its choices.
        most if messages or text[:1] != b"[" else None,
        state,
        found.store is not False,
        found.background is True and not found.stream,
    )
    return tuple.__new__(RequestFacts, facts)


def _state(found: Body) -> str | None:
    """The id of what one server has: a response, a conversation, by its id or as an object that has one, or a file."""
    said = found.previous_response_id or found.input_file_id
    if said is None and found.conversation is not _ABSENT:
        return named_state(found.conversation)
    return _short(said) or None


def named_state(value: bytes | msgspec.Raw) -> str | None:
    """The id that one of these members has as its value, or that an object has which is its value; None: it is none."""
    with suppress(ValueError):
        said = _CONVERSATION.decode(value)
        return _short(said.id if isinstance(said, _Conversation) else said) or None
    return None


def _limits_elsewhere(
    head: RequestHead, found: Body, limit: int | None, most: int | None
) -> tuple[int | None, int | None]:
    """The bounds of the output, by the names that the request's endpoint has for one beside OpenAI's: that of a choice, if OpenAI's do not say it, and the larger of all that all choices have.

    A server may go by either. Beside `sampling_params` a request may have several prompts (SGLang's `text`), so that nothing bounds them all.
    """
    row = endpoint_of(head.method, head.path)
    for name in () if row is None else row.says.tokens:
        said = None if name in _PLAIN else _member(found, name)
        if not isinstance(said, int):
            continue
        if not 0 <= said < 2**31:
            return limit, None
        whole = None if name.startswith("sampling_params") else _of_choices(found, name, said)
        if limit is not None and (most is None or whole is None):
            whole = None
        elif most is not None and whole is not None:
            whole = max(most, whole)
        return said if limit is None else limit, whole
    return limit, most


def _of_choices(found: Body, name: str, said: int) -> int | None:
    """The bound of all choices, where they are asked for in the body or beside the bound of one; None: nobody can tell."""
    inner = None
    if "." in name:
        try:
            inner = _CHOICES.decode(getattr(found, name.partition(".")[0]))
        except ValueError:
            return None
    many = (found.n, found.best_of, found.n_cmpl, *((inner.n, inner.best_of) if inner else ()))
    return said * max(1, *(one or 1 for one in many))


def _session_elsewhere(head: RequestHead, found: Body) -> str | None:
    row = endpoint_of(head.method, head.path)
    for name in () if row is None else row.says.session:
        key = _member(found, name)
        if isinstance(key, str) and key:
            return _short(key)
    return None


def _member(found: Body, name: str) -> int | str | None:
    """A member of a body, or of an object in it."""
    decoder = _WITHIN.get(name)
    if decoder is None:
        member: int | str | None = getattr(found, name)
        return member
    try:
        within = decoder.decode(getattr(found, name.partition(".")[0]))
    except ValueError:  # it is absent, or odd
        return None
    inner: int | str | None = getattr(within, name.partition(".")[2])
    return inner


def _prefix(found: Body, text: bytes, cut: PromptCut) -> tuple[int, ...]:
    """The blocks of a prompt as it was written: what begins alike in JSON begins alike for the model, if what comes before is alike.

    That is the model or LoRA adapter, tools and instructions; and what the client says that keeps its cache apart. A chat and a completion
    differ by their first byte.
    """
    if len(text) < cut.size:
        return ()
    before = (found.tools, found.system, found.instructions, found.cache_salt)
    salt = b"\0".join(((found.model or "").encode("utf-8", "surrogatepass"), *map(bytes, before)))
    return blocks(text, cut.size, salt, cut.most)


def _limits(found: Body) -> tuple[int | None, int | None]:
    """The bound of the output of one choice, and of all choices; None: there is none."""
    alone = found.max_tokens
    lone = found.max_completion_tokens is found.max_output_tokens is found.n is found.best_of is None
    if lone and (alone is None or 0 <= alone < 2**31):  # nearly every request: both are the same
        return alone, alone
    return _limit(found), _most_output(found)


def _limit(found: Body) -> int | None:
    """The first bound of the output that can be one."""
    for limit in (found.max_completion_tokens, found.max_tokens, found.max_output_tokens):
        if limit is not None and 0 <= limit < 2**31:
            return limit
    return None


def _most_output(found: Body) -> int | None:
    """The bound of the output of all choices: whichever of the limits a server goes by. None: there is none."""
    most = -1
    for limit in (found.max_tokens, found.max_completion_tokens, found.max_output_tokens):
        if limit is not None:
            if limit < 0:
                return None
            most = max(most, limit)
    return most * max(found.n or 1, found.best_of or 1, 1) if most >= 0 else None


def _short(text: str | None) -> str | None:
    return text if text is not None and len(text) <= MAX_NAME else None


def _read(body: bytes) -> Body | None:
    """A body as far as it can be read: a field that is odd does not take the others with it."""
    try:
        return DECODER.decode(shallow(body))
    except msgspec.ValidationError:
        pass
    except ValueError:
        return None
    try:
        return leniently(MEMBERS.decode(body))
    except ValueError:
        return None


def stated(members: msgspec.Struct, name: str) -> msgspec.Raw | None:
    """One of an object's members (`MEMBERS`); None: it is not there."""
    found: msgspec.Raw = getattr(members, name)
    return None if found is _ABSENT else found


def leniently(members: msgspec.Struct) -> Body:
    """What can be read of an object's members (`MEMBERS`): one that is odd does not take the others with it."""
    found = Body()
    for name, kind in _TYPES.items():
        said = stated(members, name)
        if said is not None:
            with suppress(ValueError):  # a text that is not UTF-8, too
                setattr(found, name, msgspec.json.decode(said, type=kind))
    return found


def with_model(body: bytes, model: str) -> bytes | None:
    """The same body for another model; None if it is no object that names one."""
    try:
        members = _ALL.decode(shallow(body))
        msgspec.json.decode(members["model"], type=str)
    except (KeyError, ValueError):
        return None
    return msgspec.json.encode({**members, "model": model})
