"""What backends are asked, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from gtm.adapters.orca import FORMAT_HEADER
from gtm.adapters.servers import ServerType
from gtm.balancer.config.document import Document
from gtm.balancer.health.check_settings import (
    CheckSettings,
    CompletionCheck,
    CompletionKind,
    GrpcHealthCheck,
    HealthCheck,
    MetricsScrape,
    ModelList,
    OwnChecks,
)
from gtm.balancer.health.keys import CheckKey
from gtm.documents.fields import invalid


class _Repeated(Document):
    path: str = Field(max_length=1000)
    interval: float = Field(gt=0, le=3600)
    timeout: float = Field(gt=0, le=600)


class HealthDocument(_Repeated):
    """GET of a path, answered with one of these statuses; or gRPC's health check of a service, answered with SERVING."""

    type: Literal["http", "grpc"] = "http"
    path: str = Field(default="/health", max_length=1000)
    service: str = ""
    """Of gRPC; empty: the whole server."""
    port: int | None = Field(default=None, ge=1, le=65535)
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = Field(default=(200,), min_length=1)
    interval: float = Field(default=1.0, gt=0, le=3600)
    timeout: float = Field(default=0.8, gt=0, le=600)
    up: int = Field(default=2, ge=1, le=100)
    down: int = Field(default=2, ge=1, le=100)

    def settings(self) -> HealthCheck | GrpcHealthCheck:
        """The same for whoever asks.

        Raises:
            ValueError: a field of the other type is said.
        """
        others = {"service"} if self.type == "http" else {"path", "status"}
        for name in sorted(others & self.model_fields_set):
            raise ValueError(
                f"checks: `health` has `{name}`, which a check of `type: {self.type}` has no use for: leave it out, "
                f"or write `type: {'grpc' if self.type == 'http' else 'http'}`"
            )
        made = HealthCheck if self.type == "http" else GrpcHealthCheck
        return made(**self.model_dump(exclude=others | {"type"}))


class ModelsDocument(_Repeated):
    """GET of the list of models, which says what is loaded; `required`: what the backend is for must be."""

    path: str = Field(default="/v1/models", max_length=1000)
    required: bool = False
    interval: float = Field(default=5.0, gt=0, le=3600)
    timeout: float = Field(default=2.0, gt=0, le=600)


class CompletionDocument(Document):
    """A completion of one token: what finds an engine that is dead behind a server that says 200."""

    path: str | None = Field(default=None, max_length=1000)
    kind: CompletionKind = CompletionKind.AUTO
    model: str | None = None
    interval: float = Field(default=30.0, gt=0, le=3600)
    timeout: float = Field(default=10.0, gt=0, le=600)


class KeyDocument(Document):
    """Where the key stands that checks show to servers."""

    file: Path | None = None
    """Relative to the file's own folder."""
    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)] | None = None

    @model_validator(mode="after")
    def _one(self, info: ValidationInfo) -> Self:
        if (self.file is None) == (self.env is None):
            raise invalid("invalid", "must say where the key stands: `{file: PATH}` or `{env: NAME}`")
        if self.file is None:
            return self
        folder = info.context["folder"] if info.context else Path()
        return self.model_construct(file=folder / self.file, env=None)

    def key(self) -> CheckKey:
        """The same for whoever asks."""
        return CheckKey(self.file, self.env)


class OwnChecksDocument(Document):
    """What checks of one backend have of their own."""

    key: KeyDocument | None = None
    kind: CompletionKind | None = None
    model: str | None = None

    def settings(self) -> OwnChecks:
        """The same for whoever asks."""
        return OwnChecks(None if self.key is None else self.key.key(), self.kind, self.model)


class ScrapeDocument(_Repeated):
    """Metrics; `type` says whose they are, where that cannot be told by their names."""

    path: str = Field(default="/metrics", max_length=1000)
    port: int | None = Field(default=None, ge=1, le=65535)
    type: ServerType | None = None
    interval: float = Field(default=1.0, gt=0, le=3600)
    timeout: float = Field(default=0.8, gt=0, le=600)


class ChecksDocument(Document):
    """What backends are asked, and how often: see docs/backend-health.md. `null`: that is not asked."""

    health: HealthDocument | None = HealthDocument()
    models: ModelsDocument | None = ModelsDocument()
    completion: CompletionDocument | None = None
    scrape: ScrapeDocument | None = ScrapeDocument()
    orca: Literal["text", "json"] | None = None
    """The form in which each request asks for the backend's load in the answer's head; absent: only what backends say unasked is read."""
    warm_up: int = Field(default=0, ge=0, le=100)
    key: KeyDocument | None = None
    """What they show to servers that want a key; a backend's own goes before it."""

    def asks(self) -> bytes:
        """Header lines that ask for it."""
        if self.orca is None:
            return b""
        return b"%b: %b\r\n" % (FORMAT_HEADER.encode(), self.orca.upper().encode())

    def settings(self) -> CheckSettings:
        """The same for whoever asks."""
        scrape = None
        if self.scrape is not None:
            scrape = MetricsScrape(**self.scrape.model_dump(exclude={"type"}), server_type=self.scrape.type)
        return CheckSettings(
            None if self.health is None else self.health.settings(),
            None if self.models is None else ModelList(**self.models.model_dump()),
            None if self.completion is None else CompletionCheck(**self.completion.model_dump()),
            scrape,
            self.warm_up,
            None if self.key is None else self.key.key(),
        )
