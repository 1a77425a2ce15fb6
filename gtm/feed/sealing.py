"""Zone-signing keys on their way to one edge: sealed by control, opened at that edge alone (HPKE, RFC 9180).

TLS may end at a proxy, and feeds may be recorded. Each edge therefore has an X25519 key pair of its own, and says its
public key when it asks for the feed. Sealing is HPKE in base mode, single-shot (RFC 9180 §6.1), with DHKEM(X25519,
HKDF-SHA256), HKDF-SHA256 and AES-256-GCM.

Law: what is sealed opens at the edge of that key, under that name and with that token, whole, or not at all.

Base mode hides content; it does not say who sealed. What an edge follows is as trustworthy as its connection to control.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from gtm.feed.wire import MAX_LINE, FeedError, KeysMessage, SealedKeysMessage, decode, encode
from gtm.files import write_whole

logger = logging.getLogger(__name__)

FILE = "edge-key"
"""Of an edge's data directory: the private key, 32 bytes in base64."""
MAX_CONTENT = MAX_LINE // 4 * 3 - 1024
"""Most bytes that can be sealed: base64 and the message around it make them at most `MAX_LINE`."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_BYTES = 32
_PURPOSE = "gtm feed: zone-signing keys, 1"


class SealingKey:
    """An edge's key pair.

    Args:
        private: 32 bytes; None for a new one.
    """

    def __init__(self, private: bytes | None = None) -> None:
        self._key = (
            X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        )
        self.public = b64encode(self._key.public_key().public_bytes_raw()).decode()
        """The public key, as control is told it: 32 bytes in base64."""

    @classmethod
    def kept(cls, directory: Path) -> SealingKey:
        """The key pair in a data directory, made there (mode 0600) if there is none that can be read.

        On a disk that refuses it is another one at each start, and the log says so: control seals to whichever it is told.
        """
        path = directory / FILE
        try:
            with path.open("rb") as file:
                return cls(b64decode(file.read(200).strip(), validate=True))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            logger.warning("`%s` holds no key, making another: %s", path, error)
        made = cls()
        try:
            write_whole(path, b64encode(made._key.private_bytes_raw()) + b"\n")
        except OSError as error:
            logger.warning("cannot keep the key that zone-signing keys are sealed to: %s", error)
        return made

    def open(self, message: SealedKeysMessage, edge: str, token: str) -> KeysMessage:
        """The keys in a message to the edge of this name, which asked with this token.

        Raises:
            FeedError: it was sealed to another key, name or token, is damaged, or holds no keys.
        """
        context = _context(edge, sha256(token.encode()).hexdigest())
        try:
            content = _SUITE.decrypt(message.sealed, self._key, context)
        except (InvalidTag, ValueError) as error:
            raise FeedError(
                "the zone-signing keys cannot be opened: they are damaged, or sealed to another key than this edge's; "
                "those in use stay"
            ) from error
        keys = decode(content)
        if not isinstance(keys, KeysMessage):
            raise FeedError("what is sealed as zone-signing keys holds none; those in use stay")
        return keys


class Seal:
    """What seals to one edge.

    Args:
        public: its public key, as `SealingKey.public` has it.
        edge: its name.
        token: the SHA-256 of its token's text, in hex.

    Raises:
        ValueError: `public` is no such key.
    """

    def __init__(self, public: str, edge: str, token: str) -> None:
        self.public = public
        self._context = _context(edge, token)
        self._key = X25519PublicKey.from_public_bytes(b64decode(public, validate=True))
        X25519PrivateKey.generate().exchange(self._key)  # refuses points that agree on zero (RFC 7748 §6.1)

    def seal(self, content: bytes) -> bytes:
        """A line of the feed for that edge alone: `content`, an encoded `KeysMessage` of at most `MAX_CONTENT` bytes, sealed."""
        return encode(SealedKeysMessage(_SUITE.encrypt(content, self._key, self._context)))


def _context(edge: str, token: str) -> bytes:
    """What sealed keys are bound to (`info` of RFC 9180 §5.1): purpose and its version, the edge's name, its token's hash."""
    return f"{_PURPOSE}\n{edge}\n{token}".encode()
