"""Backends, and how they are chosen."""

from __future__ import annotations

from functools import cached_property
from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from gtm.balancer.config.checks import OwnChecksDocument
from gtm.balancer.config.document import Document, server_url
from gtm.balancer.plane.backend.backends import is_srv
from gtm.balancer.wire.facts import Cut
from gtm.balancer.wire.heads import is_host
from gtm.core.balance.choosing.values import Pick, Score
from gtm.documents.fields import invalid

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
    checks: OwnChecksDocument = OwnChecksDocument()
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

    def cut(self) -> Cut:
        """The same for who reads prompts."""
        return Cut(self.bytes or HASHED, 1) if self.by == "hash" else Cut(self.bytes or MAPPED)


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
