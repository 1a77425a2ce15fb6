"""JWK sets (RFC 7517 §5) of Ed25519 keys (RFC 8037 §2)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gtm.core.handoff.keys import thumbprint

PATH = "/.well-known/gtm/jwks.json"
"""The path at which edges publish their keys."""
MEDIA_TYPE = "application/jwk-set+json"
KEPT = 60
"""Seconds for which whoever fetched a set may keep it; keys are published an hour before they sign."""


def jwk(x: str) -> dict[str, str]:
    """A public key as a JWK. It does not say whose it is: names of edges are nobody's business."""
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": thumbprint(x), "use": "sig", "alg": "EdDSA"}


def written(keys: Iterable[str]) -> bytes:
    """A set of public keys (`gtm.core.handoff.keys.key_text`), each once."""
    return msgspec.json.encode({"keys": [jwk(x) for x in sorted(set(keys))]})
