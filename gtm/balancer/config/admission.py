"""Who may begin when."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gtm.balancer.config.document import Document, Networks
from gtm.balancer.wire.estimate import MEDIA, Media
from gtm.core.balance import admission as core
from gtm.core.model.services import Priority
from gtm.documents.fields import invalid


class LimitsDocument(Document):
    """What a tenant may have: see docs/admission.md."""

    weight: float = Field(default=1.0, ge=1e-3, le=1e6)
    requests_per_second: float | None = Field(default=None, gt=0)
    burst: float | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    input_tokens_per_minute: float | None = Field(default=None, gt=0)
    output_tokens_per_minute: float | None = Field(default=None, gt=0)
    priority: Priority | None = None
    """What its requests have, and the most that they may claim (`gtm.core.handoff.priority`); absent: the service's own."""

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
    """What one model may have."""

    concurrency: int | None = Field(default=None, ge=1)
    token_weight: float = Field(default=1.0, ge=0)
    fallback: str | None = None


class MediaDocument(Document):
    """What pictures, recordings and files are expected to be: see `gtm.balancer.wire.estimate.Media`."""

    image_tokens: int = Field(default=MEDIA.image_tokens, ge=1, le=1_000_000)
    file_tokens: int = Field(default=MEDIA.file_tokens, ge=1, le=10_000_000)
    audio_bytes_per_token: int = Field(default=MEDIA.audio_bytes_per_token, ge=1, le=1_000_000)

    def counts(self) -> Media:
        """The same for who reads requests."""
        return Media(**self.model_dump())


class AdmissionDocument(Document):
    """Who may begin when: see docs/admission.md. What is absent has its default."""

    reserves: dict[Priority, float] | None = None
    waits: dict[Priority, float] | None = None
    queue_length: int = Field(default=10_000, ge=0, le=1_000_000)
    queue_mib: int = Field(default=256, ge=0, le=65_536)
    tenants: dict[str, KeyedLimitsDocument] = Field(default_factory=dict)
    default_tenant: LimitsDocument = LimitsDocument()
    without_tenant: LimitsDocument = LimitsDocument()
    models: dict[str, ModelDocument] = Field(default_factory=dict)
    media: MediaDocument = MediaDocument()
    priority_from: Networks = ()
    """Networks whose clients may claim any priority."""

    def priorities(self) -> dict[str | None, Priority | None]:
        """Tenant → the priority that its requests have, of those that are named; None: those without one."""
        return {
            None: self.without_tenant.priority,
            **{name: one.priority for name, one in self.tenants.items()},
        }

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
