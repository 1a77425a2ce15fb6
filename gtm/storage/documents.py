"""Core values ↔ JSON documents, exactly.

PostgreSQL's `jsonb` keeps numbers as decimals: `1e+22` would come back as the integer 10000000000000000000000,
and `-0.0` as `0.0`. Large floats are therefore written in full with a fraction, and zero without a sign. `jsonb`
cannot hold NUL characters; `gtm.documents.schema` rejects them where outside text becomes a value.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from gtm.core.model.policy import Policy

T = TypeVar("T")

_EXPONENT_FROM = 1e16  # repr() of a float uses an exponent from here on
_INEXACT = re.compile(rb"(?:^|[\[:,])-?[\d.]+e\+?\d|-0\.0")
"""What a large float or a zero with a sign looks like in JSON; texts of resources may look so, too."""
_encoder = msgspec.json.Encoder(decimal_format="number", order="deterministic")
_policies = msgspec.json.Decoder(Policy)
"""msgspec describes a type to itself when it first meets it, and where two threads meet it at once the process crashes. Here all
kinds of objects of a policy are described while modules are loaded, by one thread."""


def _exact(value: Any) -> Any:
    match value:
        case float():
            return Decimal(f"{value:.1f}") if abs(value) >= _EXPONENT_FROM else value + 0.0
        case dict():
            return {k: _exact(v) for k, v in value.items()}
        case list() | tuple():
            return [_exact(v) for v in value]
        case _:
            return value


def dumps(document: Any) -> str:
    """JSON text with sorted keys; equal documents give equal text."""
    text = _encoder.encode(document)
    # Hardly any document has such a number, and to look at each value of a large one takes ten times as long as to write it.
    return (_encoder.encode(_exact(document)) if _INEXACT.search(text) else text).decode()


def loads(text: str | bytes) -> Any:
    """The inverse of `dumps`."""
    return msgspec.json.decode(text)


def to_document(value: Any) -> dict[str, Any]:
    """A core dataclass as a JSON object; integers given for float fields become floats, as after loading."""
    kind = type(value)
    document: dict[str, Any] = msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(value), kind))
    return document


def from_document(document: Any, kind: type[T]) -> T:
    """The core dataclass that `to_document` wrote.

    Raises:
        msgspec.ValidationError: the document is not of this kind (the database was edited by hand).
    """
    return msgspec.convert(document, kind)


def policy_of(text: str) -> Policy:
    """The policy whose document a JSON text is: its parts are not made objects of Python in between.

    Raises:
        msgspec.ValidationError: as `from_document`.
    """
    return _policies.decode(text)


def policy_sha256(policy: Policy) -> str:
    """The hexadecimal SHA-256 of a policy's canonical JSON; equal policies have equal sums."""
    return text_sha256(dumps(to_document(policy)))


def text_sha256(text: str) -> str:
    """The same of a policy's canonical JSON."""
    return hashlib.sha256(text.encode()).hexdigest()
