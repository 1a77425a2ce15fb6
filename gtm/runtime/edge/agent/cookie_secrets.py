"""The secrets of DNS cookies: an edge's own, or those that it shares with the other edges of its address."""

from __future__ import annotations

import errno
import secrets
from pathlib import Path

from gtm.dns.protocol.cookies import SECRET_SIZE
from gtm.secret import LINES, SecretError, read_file


def cookie_secrets(path: Path | None) -> tuple[bytes, ...]:
    """The secret in use and perhaps the one before, one a line in hexadecimal; without a file a random one.

    Raises:
        OSError: the file cannot be read, or holds something else.
    """
    if path is None:
        return (secrets.token_bytes(SECRET_SIZE),)
    try:
        text = read_file(path, "--dns-cookie-secret-file", LINES)
    except SecretError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        found = tuple(bytes.fromhex(line) for line in text.splitlines() if line.strip())
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 2 or {len(secret) for secret in found} != {SECRET_SIZE}:
        raise OSError(
            errno.EINVAL,
            f"--dns-cookie-secret-file: `{path}` must hold one or two lines of {2 * SECRET_SIZE} hexadecimal digits, "
            "the secret in use first; make one with `openssl rand -hex 16`",
        )
    return found
