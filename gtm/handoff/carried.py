"""Where a request carries its handoff: header `gtm-handoff`, or query parameter `gtm_handoff`. Whoever reads it takes it out."""

from __future__ import annotations

from collections.abc import Sequence

from gtm.core.handoff.verdict import Flaw

HEADER = b"gtm-handoff"
PARAMETER = b"gtm_handoff"
_NAMED = PARAMETER + b"="


def without(query: bytes) -> bytes:
    """A query without the parameter, all else byte for byte."""
    return split(query)[0] if PARAMETER in query else query


def split(query: bytes) -> tuple[bytes, list[bytes]]:
    """A query without the parameter, all else byte for byte, and the parameter's values."""
    if PARAMETER not in query:
        return query, []
    rest: list[bytes] = []
    values: list[bytes] = []
    for pair in query.split(b"&"):
        if pair == PARAMETER or pair.startswith(_NAMED):
            values.append(pair[len(_NAMED) :])
        else:
            rest.append(pair)
    return b"&".join(rest), values


def added(query: bytes, token: bytes) -> bytes:
    """A query with a handoff at its end."""
    return b"%b&%b%b" % (query, _NAMED, token) if query else _NAMED + token


def one_of(values: Sequence[bytes]) -> bytes | Flaw | None:
    """The handoff among all that a request carries, in headers and parameters: none, one, or several, which cannot be right."""
    if len(values) > 1:
        return Flaw.MALFORMED
    return values[0] if values else None
