"""The key file: a key that encrypts the private DNSSEC keys in the database (AES-256-GCM, NIST SP 800-38D).

Law: a file that is missing or wrong is never replaced while the database holds keys made with another.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gtm.files import write_whole
from gtm.secret import SecretError, SecretKind, read_file

_BYTES = 32
_NONCE = 12
_KEY = SecretKind("key", re.compile(r"[A-Za-z0-9+/]{43}="), f"{_BYTES} bytes in base64", exact=True)


class KeyFileError(Exception):
    """Private keys cannot be read or written now: the key file is missing, malformed, or another one."""


class KeyFile:
    """Where the key is. It is read at every use, so that a file put back works at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the file with a new key, readable by its owner only; one that exists stays as it is.

        Raises:
            KeyFileError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                write_whole(self.path, b64encode(secrets.token_bytes(_BYTES)) + b"\n", over=False)
        except OSError as error:
            raise KeyFileError(
                f"cannot make the DNSSEC key file `{self.path}`: {error.strerror}; "
                "let control write there, or name another with GTM_DNSSEC_KEY_FILE"
            ) from error

    def load(self) -> KeySealer:
        """What encrypts and decrypts with the key in the file.

        Raises:
            KeyFileError: the file is missing, cannot be read, or holds no key.
        """
        try:
            text = read_file(self.path, "the DNSSEC key file (GTM_DNSSEC_KEY_FILE)", _KEY)
        except SecretError as error:
            raise KeyFileError(f"{error}; put back the one that was there, or name it") from None
        return KeySealer(self.path, b64decode(text))


class KeySealer:
    """Encrypts and decrypts private keys with one key.

    Args:
        path: of the file that it is in, for errors.
        key: 32 bytes.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._cipher = AESGCM(key)

    def seal(self, zone: str, key_id: str, private: bytes) -> bytes:
        """A private key, encrypted for storage: nonce, then ciphertext with tag."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, private, _context(zone, key_id))

    def open(self, zone: str, key_id: str, sealed: bytes) -> bytes:
        """The inverse of `seal`.

        Raises:
            KeyFileError: it was sealed with another key, for another zone or id, or is damaged.
        """
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _context(zone, key_id))
        except (InvalidTag, ValueError) as error:
            raise KeyFileError(
                f"the DNSSEC key `{key_id}` of zone `{zone}` in the database cannot be decrypted with the key file "
                f"`{self._path}`: put back the file that it was made with; nothing was changed"
            ) from error


def _context(zone: str, key_id: str) -> bytes:
    """What a ciphertext is bound to, so that one cannot stand in for another."""
    return f"gtm dnssec\n{zone}\n{key_id}".encode()
