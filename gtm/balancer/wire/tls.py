"""TLS on both sides: what clients are shown, whom of them is believed, and what backends must show.

Certificates are read again when their files change, without an end to any connection: handshakes that begin afterwards get the new
ones. Files that cannot be read, or do not belong together (the chain is there already, the key is not), change nothing, and are said.

The context of a listener's sockets shows nothing itself: for each handshake its SNI callback (RFC 6066 §3) puts the
context of the certificate in place that has the name asked for: the name itself, else a wildcard of one label (RFC 6125 §6.4.3), else
the first certificate, which is also what clients get that name nobody.

A session that is resumed shows no certificate again, so it must not outlive the authorities under which it was made. OpenSSL keeps sessions
in the context of the socket (RFC 5246 §7.4.1.2: those that have an id), and tickets' keys there too. So there is another such context each
time that files are read again: handshakes that begin later know of no session before. One that had begun (a connection that is open, and
has said nothing) and resumes a session after all is refused. Where client certificates are asked for, there are no tickets at all.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Generic, Self, TypeVar

from cryptography import x509
from pydantic import Field, model_validator

from gtm.documents.fields import File, invalid
from gtm.documents.resources import Document
from gtm.files import FileState, state_of

_Loaded = TypeVar("_Loaded")


class TlsError(ValueError):
    """Settings or files that cannot be used: which, why, and what to do."""


class ClientCertificates(StrEnum):
    """Whether clients show certificates."""

    NONE = "none"
    WANTED = "wanted"
    """One that is shown must be good."""
    REQUIRED = "required"


_VERIFIED = dict(zip(ClientCertificates, ssl.VerifyMode, strict=True))


class ServerCertificate(Document):
    """Files (PEM): a certificate with what leads to its authority, and its private key."""

    chain: File
    key: File


class ServerTls(Document):
    """What a listener shows and asks for. Files are read again when they change.

    `certificates`: the first is for clients that ask for no name, or one that none has. `client_ca`: authorities (PEM) of clients'
    certificates.
    """

    certificates: tuple[ServerCertificate, ...] = Field(min_length=1)
    client_certificates: ClientCertificates = ClientCertificates.NONE
    client_ca: File | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        asked = self.client_certificates is not ClientCertificates.NONE
        if asked != (self.client_ca is not None):
            raise invalid(
                "invalid",
                "client certificates and their authorities go together: set both `client_certificates` and `client_ca`, or neither",
            )
        return self


class BackendTls(Document):
    """What a backend must show, and what is shown to it.

    `ca`: the authorities (PEM) that count; None: the public ones. `certificate`: for backends that ask for one. `server_name`: the
    name that is asked for and must be shown; None: the host of the backend's URL.
    """

    ca: File | None = None
    certificate: ServerCertificate | None = None
    server_name: str | None = None


class _Watched(Generic[_Loaded]):
    """What was made of some files, as they were when they could last be used.

    Without a file nothing can be wrong, and it is made when it is first used: the public authorities take 2 MB and 30 ms.
    """

    def __init__(self, files: Iterable[Path], load: Callable[[], _Loaded]) -> None:
        self._files = tuple(files)
        self._load = load
        self._seen = self._state()
        self._value = load() if self._files else None

    @property
    def value(self) -> _Loaded:
        """This is what the files held when they could last be used."""
        if self._value is None:
            self._value = self._load()
        return self._value

    def look(self) -> str | None:
        """Load again if a file has changed; what is wrong with them now, if so and it is. Then they keep their old meaning."""
        state = self._state()
        if state == self._seen:
            return None
        # Before they are read: what changes meanwhile is seen next time.
        self._seen = state
        try:
            self._value = self._load()
        except TlsError as error:
            return f"{error}; what was read before still counts"
        return None

    def _state(self) -> tuple[FileState | None, ...]:
        return tuple(map(state_of, self._files))


class ServerContext:
    """A listener's certificates: `context` is for its sockets, `look` reads them again.

    Raises:
        TlsError: a file cannot be used.
    """

    def __init__(self, settings: ServerTls) -> None:
        files = [file for one in settings.certificates for file in (one.chain, one.key)]
        if settings.client_ca is not None:
            files.append(settings.client_ca)
        self.settings = settings
        self._loaded = _Watched(files, self._load)

    @property
    def context(self) -> ssl.SSLContext:
        """For the sockets of connections that begin now."""
        return self._loaded.value[0]

    def _load(self) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        context = _server_context(self.settings)
        context.sni_callback = self._choose
        return context, _by_name(self.settings)

    def look(self) -> str | None:
        """Read the files again if they have changed. It blocks for the reading of some small files."""
        return self._loaded.look()

    def _choose(self, handshake: ssl.SSLObject, name: str | None, began: ssl.SSLContext) -> int | None:
        """Put the context in place that has the name; or say by which alert the handshake ends."""
        context, contexts = self._loaded.value
        if handshake.session_reused and began is not context and self.settings.client_ca is not None:
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        asked = (name or "").lower().rstrip(".")
        found = contexts.get(asked) or contexts.get("*." + asked.partition(".")[2])
        handshake.context = found or contexts[""]
        return None


class BackendContext:
    """What connections to backends are made with: `context` is for the next one, `look` reads the files again.

    Raises:
        TlsError: a file cannot be used.
    """

    def __init__(self, settings: BackendTls) -> None:
        files = [] if settings.ca is None else [settings.ca]
        if settings.certificate is not None:
            files += [settings.certificate.chain, settings.certificate.key]
        self.server_name = settings.server_name
        self._files, self._settings = files, settings
        self._context = _Watched(files, lambda: backend_context(settings))
        self._http2: _Watched[ssl.SSLContext] | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """The context that was made of the files at the last look."""
        return self._context.value

    @property
    def http2(self) -> ssl.SSLContext:
        """The same for connections that speak HTTP/2: checks by gRPC."""
        if self._http2 is None:
            self._http2 = _Watched(self._files, lambda: backend_context(self._settings, "h2"))
        return self._http2.value

    def look(self) -> str | None:
        """Read the files again if they have changed. It blocks for the reading of some small files."""
        other = None if self._http2 is None else self._http2.look()
        return self._context.look() or other


def _server_context(settings: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = _VERIFIED[settings.client_certificates]
    if settings.client_ca is not None:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _load_authorities(settings.client_ca, context.load_verify_locations)
    return context


def _by_name(settings: ServerTls) -> dict[str, ssl.SSLContext]:
    """Contexts by the names that their certificates are for; by `` the first."""
    contexts: dict[str, ssl.SSLContext] = {}
    for certificate in settings.certificates:
        context = _server_context(settings)
        _load_own(context, certificate)
        for name in _names(certificate.chain):
            contexts.setdefault(name, context)
        contexts.setdefault("", context)
    return contexts


def backend_context(settings: BackendTls, alpn: str = "http/1.1") -> ssl.SSLContext:
    """What one connection to a backend is made with, that speaks this protocol.

    Raises:
        TlsError: a file cannot be used.
    """
    context = ssl.create_default_context() if settings.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([alpn])
    if settings.ca is not None:
        _load_authorities(settings.ca, context.load_verify_locations)
    if settings.certificate is not None:
        _load_own(context, settings.certificate)
    return context


def _load_authorities(file: Path, load: Callable[[Path], None]) -> None:
    try:
        load(file)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"cannot read authorities (PEM) from `{file}`: {error}") from error


def _load_own(context: ssl.SSLContext, certificate: ServerCertificate) -> None:
    try:
        # A password is not asked for on the terminal of a server.
        context.load_cert_chain(certificate.chain, certificate.key, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        raise TlsError(
            f"cannot use the certificate `{certificate.chain}` with the key `{certificate.key}`: {error}; "
            "write both (PEM, the key without a password) so that they belong together"
        ) from error


def _names(chain: Path) -> list[str]:
    """The DNS names that a certificate is for, in lower case."""
    try:
        found = x509.load_pem_x509_certificate(chain.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (OSError, ValueError) as error:
        raise TlsError(f"cannot read the certificate `{chain}`: {error}") from error
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]
