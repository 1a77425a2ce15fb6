"""A handoff as a JWT: compact JWS (RFC 7515 §3.1) of a JSON object (RFC 7519), signed with Ed25519 (RFC 8037 §3.1).

eyJhbGciOiJFZERTQSIs…  .  eyJhdWQiOiJldS13ZXN0Iiw…  .  yL3v…
{"alg":"EdDSA","kid":…}    {"iss":"fra-1","aud":…}       64 bytes over what stands before the second dot
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import islice
from operator import attrgetter
from typing import Annotated, Literal, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gtm.core.handoff.claims import Claims, is_client_network
from gtm.core.handoff.keys import OwnKey, key_text, thumbprint
from gtm.core.model.services import Priority
from gtm.nesting import shallow

MAX_TOKEN = 2048
"""Longest handoff accepted, in bytes."""
MAX_CREDITS = 8
"""Quotas that a handoff brings tokens of, at the most: those of one region's rules."""
_SIGNATURE = 64
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Tokens = Annotated[float, msgspec.Meta(gt=0, le=1)]


class MalformedTokenError(ValueError):
    """A text is no handoff of this form."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """RFC 7515 §4.1. Members unknown here, `crit` among them, make a token malformed: they may say how to read it."""

    alg: Literal["EdDSA"]
    kid: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    typ: Literal["JWT"] = "JWT"


_REGISTERED = {"issuer": "iss", "region": "aud", "issued": "iat", "expires": "exp", "nonce": "jti"}
"""Claims that have names of their own in JWTs (RFC 7519 §4.1)."""


class _Payload(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename=_REGISTERED):
    """Claims by the names that they have in a token. One that is unknown here may restrict, so none is passed over."""

    issuer: _Text
    region: _Text
    issued: _Seconds
    expires: _Seconds
    nonce: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    service: _Text
    fence: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    revision: _Seconds
    hop: Annotated[int, msgspec.Meta(ge=0, le=1)]
    tenant: _Text | None = None
    data_class: _Text | None = None
    model: _Text | None = None
    priority: Priority | None = None
    client: Annotated[str, msgspec.Meta(max_length=49)] = ""
    once: bool = False
    pushed: Annotated[str, msgspec.Meta(max_length=49)] | None = None
    credit: Annotated[dict[_Text, _Tokens], msgspec.Meta(max_length=MAX_CREDITS)] = {}


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(_Header)
_payload = msgspec.json.Decoder(_Payload)
_of_claims = attrgetter(*_Payload.__struct_fields__)


class ParsedToken(NamedTuple):
    """A token taken apart, not verified: the key that it names, what was signed, the signature, and what it says."""

    kid: str
    signed: bytes
    signature: bytes
    claims: Claims


class HandoffSigner:
    """Signs with one key.

    Args:
        key: the pair.
    """

    def __init__(self, key: OwnKey) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key.private)
        kid = thumbprint(key_text(key.public))
        self._header = _base64(_encode({"alg": "EdDSA", "kid": kid, "typ": "JWT"})) + b"."

    def sign(self, claims: Claims) -> bytes:
        """The handoff, in ASCII without anything that a URL or a header would need escaped."""
        payload = _Payload(*_of_claims(claims))
        payload.credit = dict(islice(claims.credit.items(), MAX_CREDITS))
        signed = self._header + _base64(_encode(payload))
        return signed + b"." + _base64(self._key.sign(signed))


def made() -> OwnKey:
    """A new key pair."""
    private = Ed25519PrivateKey.generate()
    return OwnKey(private.private_bytes_raw(), private.public_key().public_bytes_raw())


def parsed(token: str | bytes) -> ParsedToken:
    """Take a handoff apart.

    Raises:
        MalformedError: it is not one, or longer than `MAX_TOKEN`.
    """
    if len(token) > MAX_TOKEN:
        raise MalformedTokenError(f"longer than {MAX_TOKEN} bytes")
    text = token.decode("latin-1") if isinstance(token, bytes) else token
    if _COMPACT.fullmatch(text) is None:
        raise MalformedTokenError("not three parts of base64url")
    head, body, tail = text.split(".")
    try:
        header = _header.decode(shallow(_bytes(head)))
        payload = _payload.decode(shallow(_bytes(body)))
        signature = _bytes(tail)
    except ValueError as error:
        raise MalformedTokenError(str(error)) from error
    if len(signature) != _SIGNATURE or not is_client_network(payload.client):
        raise MalformedTokenError("the signature or `client` is not of its form")
    claims = Claims(**msgspec.structs.asdict(payload))
    if claims.pushed is not None and not (claims.carried and is_client_network(claims.pushed)):
        raise MalformedTokenError(
            "`pushed` is not of its form, stands beside `hop` 1 without `once`, or differs from `client` beside `hop` 0"
        )
    return ParsedToken(header.kid, f"{head}.{body}".encode(), signature, claims)


def _base64(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def _bytes(text: str) -> bytes:
    """What base64url without padding stands for.

    Raises:
        ValueError: it stands for nothing, or is not how it is written (RFC 4648 §3.5).
    """
    found = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _base64(found) != text.encode():
        raise ValueError("base64url with bits beyond its end")
    return found
