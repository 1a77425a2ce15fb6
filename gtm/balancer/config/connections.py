"""What connections speak, and what is told of requests: TLS, traces, the access log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
)

from gtm.balancer.config.document import Document, server_url
from gtm.balancer.plane.access import Clients
from gtm.balancer.wire.paths import Paths
from gtm.balancer.wire.tls import BackendTls, Certificate, ClientCertificates, ServerTls
from gtm.documents.fields import invalid


class CertificateDocument(Document):
    """Files (PEM): a certificate with what leads to its authority, and its private key."""

    chain: Path
    key: Path

    def at(self, folder: Path) -> Certificate:
        """The same for who loads them; names are relative to the file's own folder."""
        return Certificate(folder / self.chain, folder / self.key)


class TlsDocument(Document):
    """What clients are shown, and what is asked of them. Files are read again when they change."""

    certificates: tuple[CertificateDocument, ...] = Field(min_length=1)
    client_certificates: Literal["none", "wanted", "required"] = "none"
    client_ca: Path | None = None

    def settings(self, folder: Path) -> ServerTls:
        """The same for a listener.

        Raises:
            TlsError: they do not fit each other.
        """
        return ServerTls(
            tuple(one.at(folder) for one in self.certificates),
            ClientCertificates[self.client_certificates.upper()],
            None if self.client_ca is None else folder / self.client_ca,
        )


class BackendTlsDocument(Document):
    """What https backends must show, and what is shown to them."""

    ca: Path | None = None
    certificate: CertificateDocument | None = None
    server_name: str | None = None

    def settings(self, folder: Path) -> BackendTls:
        """The same for connections."""
        return BackendTls(
            None if self.ca is None else folder / self.ca,
            None if self.certificate is None else self.certificate.at(folder),
            self.server_name,
        )


class TracingDocument(Document):
    """Where traces go: an OTLP collector's HTTP address, as in `http://collector:4318`."""

    endpoint: Annotated[str, AfterValidator(server_url)]
    sample: float = Field(default=0.01, ge=0, le=1)
    """The share of requests that are recorded of those whose client does not say."""
    follow: bool = True
    """A client's `traceparent` says whether its request is recorded."""


def paths_of(value: object) -> object:
    """A list that is not empty, or `any`, which is no list."""
    if value == "any":
        return None
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise invalid(
            "invalid_format",
            "must be `any`, or a list of `METHOD /path` and of `inference` and `tokenize`, as in `[inference, GET /v1/files/*]`",
        )
    try:
        Paths(one for one in value if isinstance(one, str))
    except ValueError as error:
        raise invalid("invalid_format", f"has an entry that is none: {error}") from error
    return value


def _log_path(value: str) -> str:
    if not value or value.endswith("/") or "\0" in value:
        raise invalid("invalid_format", "must be a file's path, or `-` for standard output")
    return value


def log_of(value: object) -> object:
    """A path alone says the rest by default."""
    return {"path": value} if isinstance(value, str) else value


class AccessLogDocument(Document):
    """A line of each request; a path alone is short for `{path: …}`."""

    path: Annotated[str, Field(max_length=4000), AfterValidator(_log_path)]
    """Relative to the file's own folder; `-`: standard output."""
    clients: Clients = Clients.NETWORK
    """How much of a client's address is in it."""
