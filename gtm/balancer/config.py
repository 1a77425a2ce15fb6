"""The file of one region's balancer: its backends, and how they are chosen and shared out (docs/balancer.md).

What all regions have in common (services, fences, quotas, priorities) is policy, and comes from control; this file is the region's
own, and a change of it needs nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    ValidationError,
)

from gtm.adapters.orca import FORMAT_HEADER
from gtm.adapters.servers import ServerType
from gtm.balancer.health.check_settings import (
    CheckSettings,
    CompletionCheck,
    GrpcHealthCheck,
    HealthCheck,
    MetricsScrape,
    ModelList,
)
from gtm.balancer.plane.access import Clients
from gtm.balancer.wire.facts import Cut
from gtm.balancer.wire.tls import BackendTls, Certificate, ClientCertificates, ServerTls
from gtm.core.balance import admission as core
from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.values import Pick, Prefix, Score, Settings
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.services import Priority
from gtm.documents.fields import invalid
from gtm.documents.folders import Place, read_yaml
from gtm.documents.structure import problems_of

HASHED = 1024
"""Bytes of a prompt's beginning: a system prompt of 250 tokens, or the first turn of a conversation."""
MAPPED = 512
"""Bytes of a block: some eight of vLLM's."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise invalid("invalid_format", f"is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise invalid(
            "invalid_format", "must be http:// or https:// with a host, as in `http://10.0.0.5:8000`"
        )
    if parts.username or parts.password:
        raise invalid("invalid_format", "must not hold credentials")
    del port
    return value.rstrip("/")


def _text(value: object) -> str:
    """A network as people write it: numbers and booleans would be taken for addresses."""
    if not isinstance(value, str):
        raise invalid("invalid_format", "must be a network as text, such as `10.0.0.0/8`")
    return value


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BackendDocument(_Document):
    """A model server."""

    url: Annotated[str, AfterValidator(_url)]
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Work it gets done in a second, relative to the others."""
    slots: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests it serves at once (vLLM: max_num_seqs). Absent: unknown, and nothing is queued for want of room."""
    models: tuple[str, ...] = ()
    """Those it serves; absent: any."""
    version: str = ""
    draining: bool = False
    """It finishes what it has, and takes nothing."""


class PrefixDocument(_Document):
    """Servers are chosen by how prompts begin."""

    by: Literal["hash", "map"]
    bytes: int | None = Field(default=None, ge=64, le=65_536)
    """Of the beginning (`hash`), or of a block (`map`). Absent: what was measured to do well."""

    def cut(self) -> Cut:
        """The same for who reads prompts."""
        return Cut(self.bytes or HASHED, 1) if self.by == "hash" else Cut(self.bytes or MAPPED)


def _by(value: object) -> object:
    return {"none": None}.get(value, {"by": value}) if isinstance(value, str) else value


class ChoosingDocument(_Document):
    """How a backend is chosen: see docs/choosing.md."""

    pick: Pick = Pick.P2C
    score: Score = Score.WORK
    latency: bool = False
    sessions: bool = True
    """Requests of one session (`prompt_cache_key`) go to one backend, within `bound`."""
    prefix: Annotated[PrefixDocument | None, BeforeValidator(_by)] = None
    """Requests whose prompts begin alike go to one backend, within `bound`; `map` is short for `{by: map}`."""
    panic: float = Field(default=0.3, ge=0, le=1)
    bound: float = Field(default=1.25, gt=1, le=1000)
    most_memory: float = Field(default=0.95, gt=0, le=1)
    versions: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    """Version → share of clients."""


class _Repeated(_Document):
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


class CompletionDocument(_Repeated):
    """A completion of one token: what finds an engine that is dead behind a server that says 200."""

    path: str = Field(default="/v1/completions", max_length=1000)
    model: str | None = None
    interval: float = Field(default=30.0, gt=0, le=3600)
    timeout: float = Field(default=10.0, gt=0, le=600)


class ScrapeDocument(_Repeated):
    """Metrics; `type` says whose they are, where that cannot be told by their names."""

    path: str = Field(default="/metrics", max_length=1000)
    port: int | None = Field(default=None, ge=1, le=65535)
    type: ServerType | None = None
    interval: float = Field(default=1.0, gt=0, le=3600)
    timeout: float = Field(default=0.8, gt=0, le=600)


class ChecksDocument(_Document):
    """What backends are asked, and how often: see docs/backend-health.md. `null`: that is not asked."""

    health: HealthDocument | None = HealthDocument()
    models: ModelsDocument | None = ModelsDocument()
    completion: CompletionDocument | None = None
    scrape: ScrapeDocument | None = ScrapeDocument()
    orca: Literal["text", "json"] | None = None
    """The form in which each request asks for the backend's load in the answer's head; absent: only what backends say unasked is read."""
    warm_up: int = Field(default=0, ge=0, le=100)

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
        )


class TenantDocument(_Document):
    """What one tenant may have: see docs/admission.md."""

    weight: float = Field(default=1.0, ge=1e-3, le=1e6)
    requests_per_second: float | None = Field(default=None, gt=0)
    burst: float | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    input_tokens_per_minute: float | None = Field(default=None, gt=0)
    output_tokens_per_minute: float | None = Field(default=None, gt=0)
    keys: tuple[str, ...] = ()
    """SHA-256, in hex, of the bearer tokens that show a request to be this tenant's."""

    def limits(self) -> core.TenantLimits:
        """The same for admission."""
        return core.TenantLimits(**self.model_dump(exclude={"keys"}))


class ModelDocument(_Document):
    """What one model may have."""

    concurrency: int | None = Field(default=None, ge=1)
    token_weight: float = Field(default=1.0, ge=0)
    fallback: str | None = None


class AdmissionDocument(_Document):
    """Who may begin when: see docs/admission.md. What is absent has its default."""

    reserves: dict[Priority, float] | None = None
    waits: dict[Priority, float] | None = None
    queue_length: int = Field(default=10_000, ge=0, le=1_000_000)
    queue_mib: int = Field(default=256, ge=0, le=65_536)
    tenants: dict[str, TenantDocument] = {}
    default_tenant: TenantDocument = TenantDocument()
    without_tenant: TenantDocument = TenantDocument()
    models: dict[str, ModelDocument] = {}

    def settings(self) -> core.Settings:
        """The same for admission."""
        default = core.Settings()
        return core.Settings(
            reserves={
                **default.reserves,
                **{str(tier): share for tier, share in (self.reserves or {}).items()},
            },
            waits={**default.waits, **{str(tier): wait for tier, wait in (self.waits or {}).items()}},
            queue_length=self.queue_length,
            queue_bytes=self.queue_mib << 20,
            tenants={name: one.limits() for name, one in self.tenants.items()},
            default_tenant=self.default_tenant.limits(),
            without_tenant=self.without_tenant.limits(),
            models={name: core.ModelLimits(**one.model_dump()) for name, one in self.models.items()},
        )


class CertificateDocument(_Document):
    """Files (PEM): a certificate with what leads to its authority, and its private key."""

    chain: Path
    key: Path

    def at(self, folder: Path) -> Certificate:
        """The same for who loads them; names are relative to the file's own folder."""
        return Certificate(folder / self.chain, folder / self.key)


class TlsDocument(_Document):
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


class BackendTlsDocument(_Document):
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


class TracingDocument(_Document):
    """Where traces go: an OTLP collector's HTTP address, as in `http://collector:4318`."""

    endpoint: Annotated[str, AfterValidator(_url)]
    sample: float = Field(default=0.01, ge=0, le=1)
    """The share of requests that are recorded of those whose client does not say."""
    follow: bool = True
    """A client's `traceparent` says whether its request is recorded."""


def _log_path(value: str) -> str:
    if not value or value.endswith("/") or "\0" in value:
        raise invalid("invalid_format", "must be a file's path, or `-` for standard output")
    return value


def _log(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


class AccessLogDocument(_Document):
    """A line of each request; a path alone is short for `{path: …}`."""

    path: Annotated[str, Field(max_length=4000), AfterValidator(_log_path)]
    """Relative to the file's own folder; `-`: standard output."""
    clients: Clients = Clients.NETWORK
    """How much of a client's address is in it."""


class BalancerDocument(_Document):
    """The whole file."""

    service: str | None = None
    """What requests are for whose host name is none of a service; absent: such requests are refused, unless a handoff says it."""
    backends: tuple[BackendDocument, ...] = Field(min_length=1, max_length=10_000)
    choosing: ChoosingDocument = ChoosingDocument()
    checks: ChecksDocument = ChecksDocument()
    admission: AdmissionDocument = AdmissionDocument()
    tracing: TracingDocument | None = None
    """Counts from the next start."""
    access_log: Annotated[AccessLogDocument | None, BeforeValidator(_log)] = None
    """Absent: there is none."""
    tls: TlsDocument | None = None
    """Clients speak TLS. A change of these settings counts from the next start; one of the files' contents at once."""
    backend_tls: BackendTlsDocument = BackendTlsDocument()
    proxy_protocol: tuple[Annotated[IPvAnyNetwork, BeforeValidator(_text)], ...] = ()
    """Networks of proxies that say by the PROXY protocol who their client is."""

    def servers(self) -> tuple[Backend, ...]:
        """The backends, each named by its URL."""
        return tuple(
            Backend(one.url, one.weight, one.slots, frozenset(one.models), one.version)
            for one in self.backends
        )

    def choice(self) -> Settings:
        """How they are chosen."""
        chosen = self.choosing.model_dump(exclude={"sessions", "versions", "prefix"})
        prefix = Prefix.NONE if self.choosing.prefix is None else Prefix(self.choosing.prefix.by)
        return Settings(**chosen, prefix=prefix, shares=tuple(self.choosing.versions.items()))

    def cut(self) -> Cut | None:
        """How prompts are cut; None: nobody looks at them."""
        return None if self.choosing.prefix is None else self.choosing.prefix.cut()

    def keys(self) -> dict[str, str]:
        """Hex SHA-256 of a bearer token → its tenant."""
        return {key: name for name, one in self.admission.tenants.items() for key in one.keys}


def of_urls(urls: Sequence[str], service: str | None = None) -> BalancerDocument:
    """The file that somebody would write who has only these backends.

    Raises:
        PolicyError: one of them cannot be.
    """
    return _checked({"service": service, "backends": [{"url": url} for url in urls]}, "--backend", None)


def load(path: Path) -> BalancerDocument:
    """Read a file.

    Raises:
        PolicyError: with every problem in it, by line.
    """
    documents, problems = read_yaml(path)
    if problems:
        raise PolicyError(problems)
    if len(documents) != 1 or not isinstance(documents[0][0], dict):
        text = "must be one mapping, with `backends` at the least"
        raise PolicyError([Problem(str(path), "wrong_type", text)])
    document, marks = documents[0]
    return _checked(document, str(path), Place(str(path), marks, ()))


def _checked(document: object, name: str, place: Place | None) -> BalancerDocument:
    def where(loc: Sequence[str | int]) -> str:
        return name if place is None else place.at(loc)

    try:
        found = BalancerDocument.model_validate(document)
    except ValidationError as error:
        raise PolicyError(
            problems_of(error, document, lambda loc: f"{where(loc)}: ", BalancerDocument)
        ) from error
    problems = [
        Problem(f"{where(('admission',))}: admission.{one.path}", one.code, one.message)
        for one in core.problems(found.admission.settings())
    ]
    problems += _twice(found, where)
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("choosing", found.choice),
        ("checks", found.checks.settings),
        ("tls", lambda: found.tls and found.tls.settings(Path())),
    )
    for name_of, made in parts:
        try:
            made()
        except ValueError as error:
            problems.append(Problem(f"{where((name_of,))}: {name_of}", "invalid", str(error)))
    if problems:
        raise PolicyError(problems)
    return found


def _twice(found: BalancerDocument, where: Callable[[Sequence[str | int]], str]) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[str] = set()
    for number, one in enumerate(found.backends):
        at = where(("backends", number, "url"))
        if one.url in seen:
            text = f"`{one.url}` is listed twice: name each backend once, and give it a weight"
            problems.append(Problem(f"{at}: backends[{number}].url", "overlap", text))
        seen.add(one.url)
    tenants: dict[str, str] = {}
    for name, tenant in found.admission.tenants.items():
        for key in tenant.keys:
            at = where(("admission", "tenants", name, "keys"))
            if not _SHA256.fullmatch(key):
                text = "must be the SHA-256 of a token, 64 hex digits: printf %s TOKEN | sha256sum"
                problems.append(Problem(f"{at}: admission.tenants.{name}.keys", "invalid_format", text))
            elif tenants.setdefault(key, name) != name:
                text = f"the same key is tenant `{tenants[key]}`'s: a key shows one tenant"
                problems.append(Problem(f"{at}: admission.tenants.{name}.keys", "overlap", text))
    return problems
