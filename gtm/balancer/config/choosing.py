"""Backends, and how they are chosen."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)

from gtm.balancer.config.document import Document, server_url
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
