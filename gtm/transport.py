"""How gtm's own connections are protected: which certificates count, and where a token may be sent in the clear; and when none can be made here."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def no_room(error: BaseException) -> bool:
    """Whether a connection could not be made for want of descriptors or memory here, which is nobody's fault elsewhere (accept(2), socket(2)).

    Resolvers say no more than that they failed: then a descriptor is tried for.
    """
    if isinstance(error, socket.gaierror):
        try:
            os.close(os.dup(0))
        except OSError as found:
            return found.errno in _NO_ROOM
        return False
    return isinstance(error, OSError) and error.errno in _NO_ROOM


class CertificatesError(OSError):
    """Certificates to trust cannot be read; the message says which."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """What certificates are checked against: those of `SSL_CERT_FILE` or `SSL_CERT_DIR` if set, else the public ones.

    Args:
        ca_file: certificates (PEM) that count besides; None: no others.

    Raises:
        CertificatesError: a file cannot be read, or holds no certificate.
    """
    import httpx  # takes 60 ms, and an edge's workers need it only once they are alone

    try:
        context = httpx.create_ssl_context(trust_env=True)
    except (OSError, ssl.SSLError) as error:
        raise CertificatesError(
            f"cannot read the certificates that SSL_CERT_FILE or SSL_CERT_DIR names: {error}"
        ) from error
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise CertificatesError(
                f"GTM_CA_FILE: cannot read certificates (PEM) from `{ca_file}`: {error}"
            ) from error
    return context


def tls_when_needed(ca_file: Path | None) -> Callable[[], ssl.SSLContext]:
    """`tls_context`, made at the first call: 2 MB and 30 ms. Where files are named it is made now, for what is wrong with them is wrong now.

    Raises:
        CertificatesError: as `tls_context`.
    """
    made = cache(partial(tls_context, ca_file))
    if ca_file is not None or any(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")):
        made()
    return made


def context_for(url: str, ca_file: Path | None, *, direct: bool) -> ssl.SSLContext:
    """What `tls_context` gives where a connection may need it; else one that trusts nobody, made in no time.

    Reading the public certificates takes 30 ms, which is much of a short command.

    Args:
        url: whom the connection is to.
        ca_file: as for `tls_context`: if there is one, it is read in any case, for what is wrong with it is wrong now.
        direct: no proxy leads there, to which the connection might need TLS.

    Raises:
        CertificatesError: as `tls_context`.
    """
    if direct and ca_file is None and urlsplit(url).scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return tls_context(ca_file)


def in_the_clear(url: str) -> bool:
    """Whether what is sent to a URL can be read on the way: http to another machine."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    host = parts.hostname or ""
    try:
        return not ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")  # RFC 6761 §6.3
