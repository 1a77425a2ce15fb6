"""Which checks and scrapes of backends are made, how often, and what they expect, as the balancer's file says it. The defaults are for vLLM.

Times are in seconds, and `up` and `down` results in a row. `port`: where something is answered; None: the backend's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gtm.adapters.orca import FORMAT_HEADER
from gtm.adapters.servers import ServerType
from gtm.core.balance.health.settings import Thresholds
from gtm.core.balance.health.values import Check
from gtm.documents.fields import File, invalid
from gtm.documents.resources import Document
from gtm.secret import KEY, SecretError, clean, read_file

MAX_SERVICE = 200
"""Characters of a gRPC service's name."""


def _path(value: str) -> str:
    if not value.startswith("/") or not value.isascii() or not value.isprintable() or " " in value:
        raise invalid("invalid_format", f"is `{value[:80]}`; write one like `/health`")
    return value


def _service(value: str) -> str:
    if len(value) > MAX_SERVICE or not (value.isascii() and value.isprintable()):
        raise invalid(
            "invalid_format",
            f"is `{value[:80]}`; write a gRPC service's full name, as `inference.GRPCInferenceService`, of at most "
            f"{MAX_SERVICE} characters",
        )
    return value


_Path = Annotated[str, Field(max_length=1000), AfterValidator(_path)]
_Interval = Annotated[float, Field(gt=0, le=3600)]
_Timeout = Annotated[float, Field(gt=0, le=600)]
_Port = Annotated[int, Field(ge=1, le=65535)]
_Results = Annotated[int, Field(ge=1, le=100)]


class HealthCheck(Document):
    """GET of a path, answered with one of these statuses; or gRPC's health check of a service, answered with SERVING."""

    type: Literal["http", "grpc"] = "http"
    path: _Path = "/health"
    service: Annotated[str, AfterValidator(_service)] = ""
    """Of gRPC; empty: the whole server."""
    port: _Port | None = None
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = Field(default=(200,), min_length=1)
    interval: _Interval = 1.0
    timeout: _Timeout = 0.8
    up: _Results = 2
    down: _Results = 2

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        others = {"service"} if self.type == "http" else {"path", "status"}
        for name in sorted(others & self.model_fields_set):
            raise invalid(
                "invalid",
                f"has `{name}`, which a check of `type: {self.type}` has no use for: leave it out, or write "
                f"`type: {'grpc' if self.type == 'http' else 'http'}`",
            )
        return self


class ModelList(Document):
    """GET of the list of models, which says what is loaded. `required`: it is a check too.

    It passes if every model that the backend is configured for is listed, or any where none is.
    """

    path: _Path = "/v1/models"
    required: bool = False
    interval: _Interval = 5.0
    timeout: _Timeout = 2.0


class CompletionKind(StrEnum):
    """What a completion check asks a server to do."""

    AUTO = "auto"
    """A completion; of a server that has none, a chat; else an embedding."""
    COMPLETION = "completion"
    CHAT = "chat"
    EMBEDDING = "embedding"
    NONE = "none"
    """Nothing: it serves what no check asks for."""


PATHS: Mapping[CompletionKind, str] = MappingProxyType(
    {
        CompletionKind.COMPLETION: "/v1/completions",
        CompletionKind.CHAT: "/v1/chat/completions",
        CompletionKind.EMBEDDING: "/v1/embeddings",
    }
)
"""Where each kind is asked for, in the order in which they are tried."""


class CompletionCheck(Document):
    """POST of a completion of one token, or of what else makes a model work: what finds an engine that is dead behind a server that says 200.

    `path`: None: that of the kind; of one that is given, the end says the kind. `model`: None: the first one that the backend is configured
    for, else the first that it lists. One that failed is made again after `timeout`, not `interval`.
    """

    path: _Path | None = None
    kind: CompletionKind = CompletionKind.AUTO
    model: str | None = None
    interval: _Interval = 30.0
    timeout: _Timeout = 10.0


class MetricsScrape(Document):
    """GET of metrics. `type`: whose they are, where that cannot be told by their names. Where there are none, it looks again each half a minute."""

    path: _Path = "/metrics"
    port: _Port | None = None
    type: ServerType | None = None
    interval: _Interval = 1.0
    timeout: _Timeout = 0.8


class KeyReadError(Exception):
    """A key cannot be read; the message says why, and never what it is."""


class CheckKey(Document):
    """Where the key stands that checks show to servers which want one: in a file, which is read for each check so that a new one counts at once, or in a variable of the environment."""

    file: File | None = None
    """Relative to the balancer's file's own folder."""
    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise invalid("invalid", "must say where the key stands: `{file: PATH}` or `{env: NAME}`")
        return self

    def read(self) -> str:
        """The key.

        Raises:
            KeyReadError: there is none, or what is there cannot be a bearer token (RFC 6750 §2.1).
        """
        try:
            if self.file is not None:
                return read_file(self.file, "the file with the key of checks", KEY)
            return clean(os.environ.get(self.env or "", ""), f"the variable `{self.env}`", KEY)
        except SecretError as error:
            raise KeyReadError(f"there is no key for checks: {error}") from None


class OwnChecks(Document):
    """What checks of one backend have of their own; None: as those of all. `key`: what they show to it."""

    key: CheckKey | None = None
    kind: CompletionKind | None = None
    model: str | None = None


class CheckSettings(Document):
    """What is made of each backend; None: not made. See docs/backend-health.md."""

    health: HealthCheck | None = HealthCheck()
    models: ModelList | None = ModelList()
    completion: CompletionCheck | None = None
    scrape: MetricsScrape | None = MetricsScrape()
    orca: Literal["text", "json"] | None = None
    """The form in which each request asks for the backend's load in the answer's head; absent: only what backends say unasked is read."""
    warm_up: int = Field(default=0, ge=0, le=100)
    """Completions of one token that a backend gets that was down, before it counts as up."""
    key: CheckKey | None = None
    """What they show to servers that want a key; a backend's own goes before it."""

    def asks(self) -> bytes:
        """Header lines that ask for the load by `orca`."""
        if self.orca is None:
            return b""
        return b"%b: %b\r\n" % (FORMAT_HEADER.encode(), self.orca.upper().encode())

    def thresholds(self) -> Mapping[Check, Thresholds]:
        """The checks that a backend must pass, as `gtm.core.balance.health.settings.HealthSettings.checks`."""
        found: dict[Check, Thresholds] = {}
        if self.health is not None:
            found[Check.HEALTH] = Thresholds(self.health.up, self.health.down)
        if self.models is not None and self.models.required:
            found[Check.MODELS] = Thresholds(1, 2)
        if self.completion is not None:
            found[Check.COMPLETION] = Thresholds(1, 2)
        return found
