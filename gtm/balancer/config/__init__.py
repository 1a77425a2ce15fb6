"""The file of one region's balancer: its backends, and how they are chosen and shared out (docs/balancer.md).

What all regions have in common (services, fences, quotas, priorities) is policy, and comes from control; this file is the region's
own, and a change of it needs nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from gtm.balancer.config.admission import AdmissionDocument
from gtm.balancer.config.checks import ChecksDocument
from gtm.balancer.config.choosing import BackendDocument, ChoosingDocument, EjectionDocument
from gtm.balancer.config.connections import (
    AccessLogDocument,
    BackendTlsDocument,
    TlsDocument,
    TracingDocument,
    log_of,
    paths_of,
)
from gtm.balancer.config.document import AT_START, Document, Networks
from gtm.balancer.config.timeouts import TimeoutsDocument
from gtm.balancer.decide.gate import Says
from gtm.balancer.health.check_settings import OwnChecks
from gtm.balancer.wire.bodies import BodyRules
from gtm.balancer.wire.endpoints import INFERENCE, TOKENIZE
from gtm.balancer.wire.facts import Cut
from gtm.balancer.wire.paths import Paths
from gtm.core.balance import admission as core
from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.values import Prefix, Settings
from gtm.core.model.problems import PolicyError, Problem
from gtm.documents.folders import Place, read_yaml
from gtm.documents.structure import problems_of


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
    checks: ChecksDocument = ChecksDocument()
    ejection: EjectionDocument = EjectionDocument()
    admission: AdmissionDocument = AdmissionDocument()
    timeouts: TimeoutsDocument = TimeoutsDocument()
    tracing: Annotated[TracingDocument | None, AT_START] = None
    access_log: Annotated[AccessLogDocument | None, BeforeValidator(log_of)] = None
    """Absent: there is none."""
    tls: Annotated[TlsDocument | None, AT_START] = None
    """Clients speak TLS. A change of the files' contents counts at once."""
    backend_tls: Annotated[BackendTlsDocument, AT_START] = BackendTlsDocument()
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
        return {one.url: one.checks.settings() for one in self.backends}

    def choice(self) -> Settings:
        """How they are chosen."""
        chosen = self.choosing.model_dump(exclude={"sessions", "versions", "prefix"})
        prefix = Prefix.NONE if self.choosing.prefix is None else Prefix(self.choosing.prefix.by)
        return Settings(**chosen, prefix=prefix, shares=tuple(self.choosing.versions.items()))

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

    def cut(self) -> Cut | None:
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
    return checked(document, str(path), Place(str(path), marks, ()), path.parent)


def checked(document: object, name: str, place: Place | None, folder: Path = Path()) -> BalancerDocument:
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
            if tenants.setdefault(key, name) != name:
                text = f"the same key is tenant `{tenants[key]}`'s: a key shows one tenant"
                problems.append(Problem(f"{at}: admission.tenants.{name}.keys", "overlap", text))
    return problems
