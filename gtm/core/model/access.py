"""Who may do what: roles, what a token is bound to, in whose hands it is, and tokens as edges know them (by hash only)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a bearer token may do. Viewer < operator < fence-admin < admin; `edge`, `balancer`, `reporter` and `acme` have a work of their own."""

    VIEWER = "viewer"
    """Read everything, and look up routes for any client."""
    OPERATOR = "operator"
    """Also change policy."""
    FENCE_ADMIN = "fence-admin"
    """Also force changes that open a fence or delete much, and approve those of others."""
    ADMIN = "admin"
    """Also manage tokens."""
    EDGE = "edge"
    """Follow the feed, and report what the edge itself sees: its clients, its probes, its round trips. Nothing else."""
    REPORTER = "reporter"
    """Send load reports and latency samples: of any region, or of those that the token is bound to. Nothing else."""
    BALANCER = "balancer"
    """Follow the feed without zone-signing keys, and send what a reporter may, of the regions that the token is bound to.
    Nothing else: a balancer has no vote on health."""
    ACME = "acme"
    """Write the answers to certificate authorities' challenges at the names that the token is bound to. Nothing else."""


_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.FENCE_ADMIN: 3, Role.ADMIN: 4}
_REPORTING = (Role.REPORTER, Role.BALANCER)


def permits(held: Role, needed: Role) -> bool:
    """Whether a role includes another. `balancer` includes `reporter`, `operator` and those above it `acme`; else these and `edge` have to do with no others."""
    if needed is Role.REPORTER:
        return held in _REPORTING
    if needed is Role.ACME and held in _RANK:
        needed = Role.OPERATOR
    if held in _RANK and needed in _RANK:
        return _RANK[held] >= _RANK[needed]
    return held is needed


def matches(names: str, name: str) -> bool:
    """Whether a name is the one, or fits the pattern (in which `*` stands for any characters), that a token is bound to."""
    parts = names.split("*")
    if len(parts) == 1:
        return names == name
    if not (name.startswith(parts[0]) and name[len(parts[0]) :].endswith(parts[-1])):
        return False
    at, end = len(parts[0]), len(name) - len(parts[-1])
    for part in parts[1:-1]:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A live token as edges know it: the SHA-256 of its text in hex, and when it ends (POSIX seconds, None: never).

    `regions` is what it may send samples of, if it is bound to regions: a name, or a pattern of names; None: any.
    """

    sha256: str
    role: Role
    expires: float | None = None
    regions: str | None = None


REPORTER_LENGTH = 16
"""How many hexadecimal digits of its token's SHA-256 name who measured round trips."""


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens that an edge accepts for look-ups on behalf of others."""

    grants: tuple[TokenGrant, ...] = ()

    def grant(self, sha256: str, now: float) -> TokenGrant | None:
        """What is known of a token by its hash at a POSIX time, None if it is unknown or expired."""
        for grant in self.grants:
            if grant.sha256 == sha256:
                return grant if grant.expires is None or now < grant.expires else None
        return None


STARTED_IT = "local-admin"
"""Whoever started control, or administers its database: who comes by the link that `gtm serve` prints, and the owner of what was made beside the database."""
ANYBODY = "*"
"""Of hands: somebody whom nobody wrote down."""
OWNER_PATTERN = r"[!-)+-~][!-~]{0,399}"
"""An owner: printable ASCII without spaces, and not `ANYBODY`."""
OWNER_WORDS = "must be printable ASCII without spaces, not beginning with `*` (at most 400 characters): `ann@example.com`, `ci`"

Accounts = Mapping[str, frozenset[str]]
"""Names in lower case → the accounts at identity providers that have come by them."""


@dataclass(frozen=True, slots=True)
class Hands:
    """In whose hands a credential is: its owner's (None: nobody wrote down whose), and those in which was what it was made with.

    Law: hands are written down when a credential is made. To state an owner adds one; nothing takes any away.
    """

    owner: str | None
    makers: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """All of them, the owner first."""
        return tuple(dict.fromkeys((self.owner or ANYBODY, *self.makers)))


UNKNOWN_HANDS = Hands(None)
"""Of a credential of which nobody knows whose it is."""


class HandsReason(StrEnum):
    """Why two credentials count as one."""

    UNKNOWN_FIRST = "unknown first"
    """Nobody knows in whose hands the first is."""
    UNKNOWN_SECOND = "unknown second"
    OWNER = "owner"
    """Both tokens have one owner."""
    FIRST_MADE_SECOND = "first made second"
    """The owner of the first made the second, or what it was made with."""
    SECOND_MADE_FIRST = "second made first"
    MAKER = "maker"
    """Somebody else made both, or what they were made with."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Why two credentials count as one, and who has both, as the hands of the second call them."""

    why: HandsReason
    who: str


def in_one_hand(first: Hands, second: Hands, accounts: Accounts) -> Shared | None:
    """Whether somebody has two credentials in hand, and why that is so; None: nobody has.

    A name is the accounts that have come by it; one that no account has had is itself.
    """
    for hands, why in ((first, HandsReason.UNKNOWN_FIRST), (second, HandsReason.UNKNOWN_SECOND)):
        if ANYBODY in hands.every:
            return Shared(why, ANYBODY)
    of_first, owns_first = _people(first.every, accounts), _people(first.every[:1], accounts)
    for name in second.every:
        people = _people([name], accounts)
        if people & of_first:
            is_owner = name == second.owner
            if people & owns_first:
                return Shared(HandsReason.OWNER if is_owner else HandsReason.FIRST_MADE_SECOND, name)
            return Shared(HandsReason.SECOND_MADE_FIRST if is_owner else HandsReason.MAKER, name)
    return None


def _people(names: Iterable[str], accounts: Accounts) -> frozenset[str]:
    lower = [name.lower() for name in names]
    return frozenset().union(*(accounts.get(name, frozenset((name,))) for name in lower))
