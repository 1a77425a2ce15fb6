"""Which pages of other origins may read what gtm itself answers for a service (Fetch standard §3.2, CORS).

Model servers say for their own answers what pages may read. gtm's refusals never reach them: without these fields a page sees "Failed to fetch"
where it should see 429 and `Retry-After`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ANY = "*"
MAX_AGE_S = 600
"""Seconds for which a browser may keep a preflight's answer."""
_EXPOSED = "retry-after, location, x-gtm-region, x-gtm-reason, x-gtm-revision"
"""What gtm's answers have beside what every page may read."""

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cors:
    """What pages may do. `origins`: theirs, or `*`. `methods` and `fields` of requests: empty, or with `*` among them, for whatever they ask for. `credentials`: with cookies."""

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    credentials: bool = False

    def allows(self, origin: str) -> bool:
        """Whether pages of an origin may read answers."""
        return ANY in self.origins or origin in self.origins


def answer_fields(cors: Cors, origin: str) -> Fields:
    """What lets a page of an origin read an answer of gtm's; of one that may not, that the answer depends on it."""
    vary: Fields = () if ANY in cors.origins else (("vary", "origin"),)
    return (
        (*_allowed(cors, origin), ("access-control-expose-headers", _EXPOSED), *vary)
        if cors.allows(origin)
        else vary
    )


def preflight_fields(cors: Cors, origin: str, method: str, fields: str) -> Fields:
    """What answers a preflight of an origin that is allowed (Fetch standard §4.8).

    Args:
        cors: of the service.
        origin: of the page.
        method: what it asks to do, `Access-Control-Request-Method`.
        fields: what it asks to send, `Access-Control-Request-Headers`; empty: nothing.
    """
    # Never `*`: browsers leave `Authorization` out of it, and with credentials take it for a name (Fetch standard §3.2.5).
    methods = method if ANY in cors.methods else ", ".join(cors.methods) or method
    wanted = fields if ANY in cors.fields else ", ".join(cors.fields) or fields
    return (
        *_allowed(cors, origin),
        ("access-control-allow-methods", methods),
        *((("access-control-allow-headers", wanted),) if wanted else ()),
        ("access-control-max-age", str(MAX_AGE_S)),
        ("vary", "origin, access-control-request-method, access-control-request-headers"),
    )


def _allowed(cors: Cors, origin: str) -> Sequence[tuple[str, str]]:
    said = ANY if ANY in cors.origins else origin
    more = (("access-control-allow-credentials", "true"),) if cors.credentials else ()
    return (("access-control-allow-origin", said), *more)
