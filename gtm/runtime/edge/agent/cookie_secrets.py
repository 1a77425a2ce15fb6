"""The secrets of DNS cookies: an edge's own, or those that it shares with the other edges of its address."""

from __future__ import annotations

import errno
import re
import secrets
from pathlib import Path

from gtm.dns.protocol.cookies import SECRET_SIZE
from gtm.secret import SecretError, SecretKind, read_file

_DIGITS = rf"[0-9A-Fa-f]{{{2 * SECRET_SIZE}}}"
_SECRETS = SecretKind(
    "cookie secret",
    re.compile(rf"{_DIGITS}(?:\s+{_DIGITS})?"),
    f"one or two lines of {2 * SECRET_SIZE} hexadecimal digits, the secret in use first; make one with `openssl rand -hex 16`",
    exact=True,
)


def cookie_secrets(path: Path | None) -> tuple[bytes, ...]:
    """The secret in use and perhaps the one before, one a line in hexadecimal; without a file a random one.

    Raises:
        OSError: the file cannot be read, or holds something else.
    """
    if path is None:
        return (secrets.token_bytes(SECRET_SIZE),)
    try:
        text = read_file(path, "--dns-cookie-secret-file", _SECRETS)
    except SecretError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    return tuple(map(bytes.fromhex, text.split()))
