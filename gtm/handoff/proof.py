"""How a balancer proves to another that it is one: it signs a nonce with a key that control publishes for a balancer of its region.

    GET /.well-known/gtm-peer                       →   200
    gtm-peer: iad.p2T8…  (region, 32 bytes drawn)   ←   gtm-peer: 11qYAY…  .  7sK1…  (key, signature)

The signature is over "GTMP1", a zero byte, the region, a zero byte and the nonce. What a balancer signs otherwise begins with `ey` (JWTs)
or "GTMW1" (datagrams between balancers): none passes for another.

docs/decisions/0040-peers-prove-themselves.md says what this proves, and what it cannot.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import OwnKey, PublicKeys, key_bytes, key_text
from gtm.core.model.access import matches

PATH = b"/.well-known/gtm-peer"
FIELD = b"gtm-peer"
NONCE = 32
"""Bytes."""
_QUESTION = re.compile(rb"([a-z0-9-]{1,63})\.([A-Za-z0-9_-]{43})")
_PROOF = re.compile(rb"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{86})")
_MAGIC = b"GTMP1\0"


def question(region: str, nonce: bytes) -> bytes:
    """What a balancer of a region is asked to sign."""
    return b"%b.%b" % (region.encode(), urlsafe_b64encode(nonce).rstrip(b"="))


def proof(asked: bytes, region: str, key: OwnKey) -> bytes | None:
    """The proof of a balancer of a region; None: it is asked for something else."""
    found = _QUESTION.fullmatch(asked)
    if found is None or found[1] != region.encode():
        return None
    signature = Ed25519PrivateKey.from_private_bytes(key.private).sign(_signed(asked))
    return b"%b.%b" % (key_text(key.public).encode(), urlsafe_b64encode(signature).rstrip(b"="))


def proves(asked: bytes, said: bytes, keys: PublicKeys) -> bool:
    """Whether what was said is the proof of a balancer whose token speaks for the region that was asked for.

    Args:
        asked: see `question`.
        said: as it came.
        keys: those that control publishes.
    """
    question_, found = _QUESTION.fullmatch(asked), _PROOF.fullmatch(said)
    if question_ is None or found is None:
        return False
    region, text = question_[1].decode(), found[1].decode()
    known = any(
        key.x == text and key.kind is Issuer.BALANCER and matches(key.regions, region) for key in keys.keys
    )
    if not known:
        return False
    try:
        signature = urlsafe_b64decode(found[2] + b"==")
        Ed25519PublicKey.from_public_bytes(key_bytes(text)).verify(signature, _signed(asked))
    except (InvalidSignature, ValueError):
        return False
    return True


def _signed(asked: bytes) -> bytes:
    return _MAGIC + asked.replace(b".", b"\0", 1)
