"""The secrets of DNS cookies: an edge's own, or those that it shares with the other edges of its address."""

from __future__ import annotations

import errno
import secrets
from pathlib import Path

from gtm.dns.protocol.cookies import SECRET_SIZE


def cookie_secrets(path: Path | None) -> tuple[bytes, ...]:
    """The secret in use and perhaps the one before, one a line in hexadecimal; without a file a random one.

    Raises:
        OSError: the file cannot be read, or holds something else.
    """
    if path is None:
        return (secrets.token_bytes(SECRET_SIZE),)
    try:
        found = tuple(bytes.fromhex(line) for line in path.read_text().split("\n") if line.strip())
    except OSError as error:
        raise OSError(error.errno, f"--dns-cookie-secret-file: `{path}`: {error.strerror}") from error
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 2 or {len(secret) for secret in found} != {SECRET_SIZE}:
        raise OSError(
            errno.EINVAL,
            f"--dns-cookie-secret-file: `{path}` must hold one or two lines of {2 * SECRET_SIZE} hexadecimal digits, "
            "the secret in use first; make one with `openssl rand -hex 16`",
        )
    return found
