"""JWK sets (RFC 7517 §5) of Ed25519 keys (RFC 8037 §2)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gtm.core.handoff.keys import key_bytes, thumbprint
from gtm.nesting import shallow

PATH = "/.well-known/gtm/jwks.json"
"""The path at which edges publish their keys."""
MEDIA_TYPE = "application/jwk-set+json"
MAX_SET = 1024 * 1024
"""Longest set read, in bytes."""
KEPT = 60
"""Seconds for which whoever fetched a set may keep it; keys are published an hour before they sign."""


class _Key(msgspec.Struct):
    """What is looked at of a key."""

    kty: str
    crv: str = ""
    x: str = ""
    use: str = "sig"
    alg: str = "EdDSA"


class _Set(msgspec.Struct):
    keys: list[_Key]


def jwk(x: str) -> dict[str, str]:
    """A public key as a JWK. It does not say whose it is: names of edges are nobody's business."""
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": thumbprint(x), "use": "sig", "alg": "EdDSA"}


def written(keys: Iterable[str]) -> bytes:
    """A set of public keys (`gtm.core.handoff.keys.key_text`), each once."""
    return msgspec.json.encode({"keys": [jwk(x) for x in sorted(set(keys))]})


def read(content: bytes) -> tuple[str, ...]:
    """The keys for EdDSA signatures in a set. Others, and those of other kinds, are passed over (RFC 7517 §5).

    Raises:
        ValueError: it is not a set, or too long.
    """
    if len(content) > MAX_SET:
        raise ValueError(f"a JWK set of {len(content)} bytes; the most read is {MAX_SET}")
    try:
        found = msgspec.json.decode(shallow(content), type=_Set)
    except ValueError as error:
        raise ValueError(f"not a JWK set: {error}") from error
    return tuple(
        dict.fromkeys(
            key.x
            for key in found.keys
            if key.kty == "OKP"
            and key.crv == "Ed25519"
            and key.use == "sig"
            and key.alg in ("EdDSA", "Ed25519")
            and _is_key(key.x)
        )
    )


def _is_key(text: str) -> bool:
    try:
        key_bytes(text)
    except ValueError:
        return False
    return True
