"""What all documents of the file have in common."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, IPvAnyNetwork

from gtm.documents.fields import invalid

AT_START = "counts from the next start"
"""Marks a field of the file, as metadata of its type, whose change counts from the next start of the balancer; all others count at once."""


class Document(BaseModel):
    """A part of the file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
