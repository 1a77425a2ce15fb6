"""Who may do what: roles, and tokens as edges know them (by hash only)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a bearer token may do. Viewer < operator < fence-admin < admin; `edge` and `reporter` have a work of their own."""

    VIEWER = "viewer"
    """Read everything, and look up routes for any client."""
    OPERATOR = "operator"
    """Also change policy."""
    FENCE_ADMIN = "fence-admin"
    """Also force changes that open a fence or delete much, and approve those of others."""
    ADMIN = "admin"
    """Also manage tokens."""
    EDGE = "edge"
    """Follow the feed, report what it sees, and send what a reporter may. Nothing else."""
    REPORTER = "reporter"
    """Send load reports and latency samples. Nothing else."""


_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.FENCE_ADMIN: 3, Role.ADMIN: 4}


def permits(held: Role, needed: Role) -> bool:
    """Whether a role includes another. `edge` includes `reporter`; neither has to do with the others."""
    if needed is Role.REPORTER:
        return held in (Role.REPORTER, Role.EDGE)
    if held in _RANK and needed in _RANK:
        return _RANK[held] >= _RANK[needed]
    return held is needed


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A live token as edges know it: the SHA-256 of its text in hex, and when it ends (POSIX seconds, None: never)."""

    sha256: str
    role: Role
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens that an edge accepts for look-ups on behalf of others."""

    grants: tuple[TokenGrant, ...] = ()

    def role(self, sha256: str, now: float) -> Role | None:
        """The role behind a token's hash at a POSIX time, None if it is unknown or expired."""
        for grant in self.grants:
            if grant.sha256 == sha256:
                return grant.role if grant.expires is None or now < grant.expires else None
        return None
