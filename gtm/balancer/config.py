"""The file of one region's balancer: its backends, and how they are chosen and shared out (docs/balancer.md).

What all regions have in common (services, fences, quotas, priorities) is policy, and comes from control; this file is the region's
own, and a change of it needs nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, ValidationError, model_validator

from gtm.balancer.decide.gate import Says
from gtm.balancer.health.check_settings import CheckSettings, OwnChecks
from gtm.balancer.plane.access import ClientDetail
from gtm.balancer.plane.backend.backends import is_srv
from gtm.balancer.plane.timeouts import TimeoutRule, TimeoutRules, Timeouts
from gtm.balancer.wire.bodies import MAX_READ, BodyRules
from gtm.balancer.wire.endpoints import INFERENCE, TOKENIZE, Paths
from gtm.balancer.wire.estimate import MEDIA, Media
from gtm.balancer.wire.facts import PromptCut
from gtm.balancer.wire.heads import is_host
from gtm.balancer.wire.tls import BackendTls, ServerTls
from gtm.core.balance.admission import settings as core
from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.values import ChoosingSettings, Pick, Prefix, Score
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.services import Priority
from gtm.documents.fields import Number, invalid
from gtm.documents.folders import FilePlace, read_yaml
from gtm.documents.resources import Document
from gtm.documents.structure import problems_of

# --- What all documents of the file have in common. ---


AT_START = "counts from the next start"
"""Marks a field of the file, as metadata of its type, whose change counts from the next start of the balancer; all others count at once."""


def _text(value: object) -> str:
    """A network as people write it: numbers and booleans would be taken for addresses."""
    if not isinstance(value, str):
        raise invalid("invalid_format", "must be a network as text, such as `10.0.0.0/8`")
    return value


Networks = tuple[Annotated[IPvAnyNetwork, BeforeValidator(_text)], ...]
"""Of clients or proxies, in CIDR notation."""


def server_url(value: str) -> str:
    """A server's URL, without a slash at its end.

    Raises:
        PydanticCustomError: it is none, or holds what it must not.
    """
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


# --- What connections speak, and what is told of requests: TLS, traces, the access log. ---


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
    clients: ClientDetail = ClientDetail.NETWORK
    """How much of a client's address is in it."""


# --- How long what model servers do may take. ---


_WEEK = 7 * 86400.0
Seconds = Annotated[float, Field(gt=0, le=_WEEK)]


class TimesDocument(Document):
    """Times in seconds. Of the last three `null`: no bound; what is not said is as it would be."""

    connect: Annotated[float, Field(gt=0, le=600)] | None = None
    failing: Seconds | None = None
    first_byte: Seconds | None = None
    between: Seconds | None = None
    whole: Seconds | None = None

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        for name in ("connect", "failing"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise invalid("invalid", f"`{name}` has always a bound: give seconds, or leave it out")
        return self

    def over(self, times: Timeouts) -> Timeouts:
        """These, and of what is not said the given ones."""
        said = self.model_fields_set & set(TimesDocument.model_fields)
        return replace(times, **{name: getattr(self, name) for name in said})


class TimeoutRuleDocument(TimesDocument):
    """Times of requests for a service, and for paths."""

    service: str | None = None
    paths: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...] | None, BeforeValidator(paths_of)] = (
        None
    )

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if self.service is None and self.paths is None:
            raise invalid(
                "invalid", "a rule needs `service` or `paths`: what holds for all stands in `timeouts` itself"
            )
        if not self.model_fields_set & set(TimesDocument.model_fields):
            raise invalid("invalid", "a rule needs a time, such as `whole: 30`")
        return self


class TimeoutsDocument(TimesDocument):
    """Times of all requests, and rules that say others (docs/balancer.md, "Timeouts")."""

    rules: tuple[TimeoutRuleDocument, ...] = Field(default=(), max_length=1000)
    """The first that a request meets counts; what it does not say is as it would be without."""

    def settings(self) -> TimeoutRules:
        """The same for the data plane."""
        default = TimeoutRules()
        inference, others = self.over(default.inference), self.over(default.others)
        rules = []
        for one in self.rules:
            paths = None if one.paths is None else Paths(one.paths)
            rules.append(TimeoutRule(one.service, paths, one.over(inference), one.over(others)))
        return TimeoutRules(inference, others, tuple(rules))


# --- Backends, and how they are chosen. ---


HASHED = 1024
"""Bytes of a prompt's beginning: a system prompt of 250 tokens, or the first turn of a conversation."""
MAX_HOST = 260
"""Characters of a host's name with its port (RFC 1035 §2.3.4)."""
MAPPED = 512
"""Bytes of a block: some eight of vLLM's."""


def _host(value: str) -> str:
    if len(value) > MAX_HOST or not is_host(value.encode()):
        raise invalid(
            "invalid_format",
            "must be a host name with an optional port, as in `llama-predictor.models.example.com`",
        )
    return value


class BackendDocument(Document):
    """A model server."""

    url: Annotated[str, AfterValidator(server_url)]
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Work it gets done in a second, relative to the others."""
    slots: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests it serves at once (vLLM: max_num_seqs). Absent: unknown, and nothing is queued for want of room."""
    models: tuple[str, ...] = ()
    """Those it serves; absent: any."""
    version: str = ""
    host: Annotated[str, AfterValidator(_host)] | None = None
    """What requests and checks say there in Host, as KServe and Knative route by it; absent: what the client says, and of checks the URL's."""
    draining: bool = False
    """It finishes what it has, and takes nothing."""
    resolve: Literal["all", "one"] = "all"
    """Each address of a host name is a server of its own; or all are one."""
    checks: OwnChecks = OwnChecks()
    """What checks of it have of their own."""

    @cached_property  # it is asked for at each look at the names
    def name(self) -> str | None:
        """The host whose addresses are servers of their own; None: the URL is one server's."""
        host = urlsplit(self.url).hostname or ""
        own = self.resolve == "one" or host == "localhost" or host.endswith(".localhost")
        return None if own or _is_address(host) else host

    @model_validator(mode="after")
    def _fits(self) -> Self:
        parts = urlsplit(self.url)
        if is_srv(parts.hostname or ""):
            if self.resolve == "one":
                raise invalid(
                    "invalid",
                    "`resolve: one` has no use for SRV records, which name several servers: leave it out",
                )
            if parts.port is not None:
                raise invalid(
                    "invalid",
                    f"`{parts.hostname}` is a name of SRV records, which say the port: leave `:{parts.port}` out",
                )
        return self


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class PrefixDocument(Document):
    """Servers are chosen by how prompts begin."""

    by: Literal["hash", "map"]
    bytes: int | None = Field(default=None, ge=64, le=65_536)
    """Of the beginning (`hash`), or of a block (`map`). Absent: what was measured to do well."""

    def cut(self) -> PromptCut:
        """The same for who reads prompts."""
        return PromptCut(self.bytes or HASHED, 1) if self.by == "hash" else PromptCut(self.bytes or MAPPED)


def _by(value: object) -> object:
    return {"none": None}.get(value, {"by": value}) if isinstance(value, str) else value


class ChoosingDocument(Document):
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
    versions: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Version → share of clients."""


class EjectionDocument(Document):
    """What live requests may have a backend ejected for: see docs/backend-health.md."""

    latency: bool = True
    """Answers that take several times as long as those of others that do the same work."""


class HedgeDocument(Document):
    """How many requests that are late are asked of a second server, too: see docs/balancer.md, "Hedging"."""

    percent: Number = Field(default=5.0, gt=0, le=50)
    """Of each service's requests, at the most."""


# --- Who may begin when. ---


class LimitsDocument(Document):
    """What a tenant may have: see docs/admission.md."""

    weight: Number = Field(default=1.0, ge=1e-3, le=1e6)
    requests_per_second: Number | None = Field(default=None, gt=0)
    burst: Number | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    input_tokens_per_minute: Number | None = Field(default=None, gt=0)
    output_tokens_per_minute: Number | None = Field(default=None, gt=0)
    priority: Priority | None = None
    """What its requests have, and the most that they may claim (`gtm.core.handoff.verdict`); absent: the service's own."""

    def limits(self) -> core.TenantLimits:
        """The same for admission."""
        return core.TenantLimits(**self.model_dump(exclude={"priority", "keys"}))


_SHA256 = re.compile(r"[0-9a-f]{64}")


def _digests(given: Any) -> Any:
    """What is none may be the key itself, which no message repeats."""
    listed = isinstance(given, list | tuple)
    if not listed or not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in given):
        raise invalid(
            "invalid_format",
            "must be a list of the SHA-256 of tokens, 64 hex digits: printf %s TOKEN | sha256sum",
        )
    return given


class KeyedLimitsDocument(LimitsDocument):
    """What one tenant may have, and how it is known."""

    keys: Annotated[tuple[str, ...], BeforeValidator(_digests)] = ()
    """SHA-256, in hex, of the keys (bearer tokens, `x-api-key`, `api-key`) that show a request to be this tenant's."""


class ModelDocument(Document):
    """The limits of one model in this region."""

    concurrency: int | None = Field(default=None, ge=1)
    token_weight: Number = Field(default=1.0, ge=0)
    fallback: str | None = None


class AdmissionDocument(Document):
    """Who may begin when: see docs/admission.md. What is absent has its default."""

    reserves: dict[Priority, Annotated[float, Field(ge=0, le=1)]] | None = None
    waits: dict[Priority, Annotated[float, Field(ge=0, le=86_400)]] | None = None
    queue_length: int = Field(default=10_000, ge=0, le=1_000_000)
    queue_mib: int = Field(default=256, ge=0, le=65_536)
    tenants: dict[str, KeyedLimitsDocument] = Field(default_factory=dict)
    default_tenant: LimitsDocument = LimitsDocument()
    without_tenant: LimitsDocument = LimitsDocument()
    models: dict[str, ModelDocument] = Field(default_factory=dict)
    media: Media = MEDIA
    priority_from: Networks = ()
    """Networks whose clients may claim any priority."""

    def priorities(self) -> dict[str | None, Priority | None]:
        """Tenant → the priority that its requests have, of those that are named; None: those without one."""
        return {
            None: self.without_tenant.priority,
            **{name: one.priority for name, one in self.tenants.items()},
        }

    def settings(self) -> core.AdmissionSettings:
        """The same for admission."""
        default = core.AdmissionSettings()
        return core.AdmissionSettings(
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


class BalancerDocument(Document):
    """The whole file."""

    service: str | None = None
    """What requests are for whose host name is none of a service; absent: such requests are refused, unless a handoff says it."""
    paths: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...] | None, BeforeValidator(paths_of)] = (
        INFERENCE,
        TOKENIZE,
    )
    """What is carried, by method and path (`gtm.balancer.wire.paths`); None, in the file `any`: everything."""
    backends: tuple[BackendDocument, ...] = Field(min_length=1, max_length=10_000)
    choosing: ChoosingDocument = ChoosingDocument()
    checks: CheckSettings = CheckSettings()
    ejection: EjectionDocument = EjectionDocument()
    admission: AdmissionDocument = AdmissionDocument()
    timeouts: TimeoutsDocument = TimeoutsDocument()
    repeats: bool = True
    """What only runs a model may be asked of another server although one may have begun it: it may be computed, and billed, twice."""
    hedge: HedgeDocument | None = None
    """Absent: none is."""
    read_mib: int = Field(default=MAX_READ >> 20, ge=2, le=1024)
    """MiB of a body that are read, or held back until its model is known."""
    tracing: Annotated[TracingDocument | None, AT_START] = None
    access_log: Annotated[AccessLogDocument | None, BeforeValidator(log_of)] = None
    """Absent: there is none."""
    tls: Annotated[ServerTls | None, AT_START] = None
    """Clients speak TLS. A change of the files' contents counts at once."""
    backend_tls: Annotated[BackendTls, AT_START] = BackendTls()
    proxy_protocol: Annotated[Networks, AT_START] = ()
    """Networks of proxies that say by the PROXY protocol who their client is."""

    def servers(self) -> tuple[Backend, ...]:
        """The backends, each named by its URL."""
        return tuple(
            Backend(one.url, one.weight, one.slots, frozenset(one.models), one.version)
            for one in self.backends
        )

    def hosts(self) -> dict[str, bytes]:
        """What is said in Host to backends for which the file says it, by URL."""
        return {one.url: one.host.encode() for one in self.backends if one.host is not None}

    def own_checks(self) -> dict[str, OwnChecks]:
        """What checks of each backend have of their own, by URL."""
        return {one.url: one.checks for one in self.backends}

    def choice(self) -> ChoosingSettings:
        """The settings by which one of the backends is chosen."""
        chosen = self.choosing.model_dump(exclude={"sessions", "versions", "prefix"})
        prefix = Prefix.NONE if self.choosing.prefix is None else Prefix(self.choosing.prefix.by)
        return ChoosingSettings(**chosen, prefix=prefix, shares=tuple(self.choosing.versions.items()))

    def carried(self) -> Paths | None:
        """The methods and paths that the balancer carries; None: it carries everything."""
        return None if self.paths is None else Paths(self.paths)

    def body_rules(self) -> BodyRules | None:
        """What goes by requests' bodies; None: nothing."""
        tenants = (
            *self.admission.tenants.values(),
            self.admission.default_tenant,
            self.admission.without_tenant,
        )
        budgets = any(one.input_tokens_per_minute or one.output_tokens_per_minute for one in tenants)
        models = any(one.models for one in self.backends)
        limits = bool(self.admission.models)
        return BodyRules(limits, budgets) if limits or models or budgets else None

    def later_than(self, started: BalancerDocument) -> tuple[str, ...]:
        """The fields in which it differs from the file that a balancer was started with, and which count from the next start."""
        return tuple(
            name
            for name, field in type(self).model_fields.items()
            if AT_START in field.metadata and getattr(self, name) != getattr(started, name)
        )

    def cut(self) -> PromptCut | None:
        """How prompts are cut; None: nobody looks at them."""
        return None if self.choosing.prefix is None else self.choosing.prefix.cut()

    def keys(self) -> dict[str, str]:
        """Hex SHA-256 of a key → its tenant."""
        return {key: name for name, one in self.admission.tenants.items() for key in one.keys}

    def says(self, service: str | None = None) -> Says:
        """What it says of who asks; `service` counts where it names none."""
        admission = self.admission
        return Says(
            self.service or service,
            self.keys(),
            admission.priorities(),
            admission.default_tenant.priority,
            admission.priority_from,
        )


def of_urls(urls: Sequence[str], service: str | None = None) -> BalancerDocument:
    """The file that somebody would write who has only these backends.

    Raises:
        PolicyError: one of them cannot be.
    """
    return checked({"service": service, "backends": [{"url": url} for url in urls]}, "--backend", None)


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
    return checked(document, str(path), FilePlace(str(path), marks, ()), path.parent)


def checked(document: object, name: str, place: FilePlace | None, folder: Path = Path()) -> BalancerDocument:
    """A document as it stands in a file, if it is one.

    Args:
        document: whatever was read.
        name: what problems are said to be in.
        place: finds lines in the file; None: there is no file.
        folder: where it is, to which the names of files in it are relative.

    Raises:
        PolicyError: with every problem in it.
    """

    def where(loc: Sequence[str | int]) -> str:
        return name if place is None else place.at(loc)

    try:
        found = BalancerDocument.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        raise PolicyError(
            problems_of(error, document, lambda loc: f"{where(loc)}: ", BalancerDocument)
        ) from error
    problems = [
        Problem(f"{where(('admission',))}: admission.{one.path}", one.code, one.message)
        for one in core.problems(found.admission.settings())
    ]
    problems += _twice(found, where)
    if found.hedge is not None and not found.repeats:
        text = "asks two servers to do what `repeats: false` says may not be done twice: leave one of the two out"
        problems.append(Problem(f"{where(('hedge',))}: hedge", "contradiction", text))
    try:
        found.choice()
    except ValueError as error:
        problems.append(Problem(f"{where(('choosing',))}: choosing", "invalid", str(error)))
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
            if tenants.setdefault(key, name) != name:
                text = f"the same key is tenant `{tenants[key]}`'s: a key shows one tenant"
                problems.append(Problem(f"{at}: admission.tenants.{name}.keys", "overlap", text))
    return problems
