"""Who somebody is by what an identity provider claims: what they are called here, and what they may do. Pure.

Law: a person's name holds an `@`, and so is never a token's. It is an address of mail that the provider has verified, or else what the provider never
gives to anybody else (`sub`): names that people can change themselves would let one speak as another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from gtm.core.model.access import Role, permits
from gtm.dashboard.sign_in.oidc import Provider

Grant = tuple[str, str, str]
"""A role, and the claim and value that give it."""
_NAME = re.compile(r"[!-~]{1,200}@[!-~]{1,50}")
_MISFITS = frozenset("/:?#%")
"""What cannot stand in a segment of a path."""
_SHORT = {"group": "groups", "role": "roles"}
"""How a claim may be called in settings, for one value of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who says who people are, and which of its claims gives which role."""

    provider: Provider
    grants: tuple[Grant, ...]

    @property
    def host(self) -> str:
        """What people are shown of it."""
        return urlsplit(self.provider.issuer).hostname or self.provider.issuer


def role_of(claims: Mapping[str, Any], grants: Iterable[Grant]) -> Role | None:
    """The highest role that claims give; None: none.

    >>> role_of({"groups": ["ops", "all"]}, [("viewer", "group", "all"), ("operator", "groups", "ops")])
    <Role.OPERATOR: 'operator'>
    """
    found: Role | None = None
    for role, claim, value in grants:
        given = Role(role)
        if value in _values(claims, claim) and (found is None or permits(given, found)):
            found = given
    return found


def _values(claims: Mapping[str, Any], claim: str) -> list[str]:
    """The texts of a claim, which may stand in others (`realm_access.roles`)."""
    names = dict.fromkeys((claim, _SHORT.get(claim, claim)))
    return [text for name in names for text in _texts(_at(claims, name))]


def _at(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> list[str]:
    several = value if isinstance(value, list) else [value]
    return [one for one in several if isinstance(one, str)]


def name_of(claims: Mapping[str, Any], issuer: str) -> str:
    """What somebody is called here: a verified address of mail, or their `sub` at the provider's host.

    >>> name_of({"sub": "7", "email": "Ann@example.com", "email_verified": True}, "https://login.example.com")
    'ann@example.com'
    >>> name_of({"sub": "7", "email": "ann@example.com"}, "https://login.example.com")
    '7@login.example.com'
    """
    email = claims.get("email")
    if claims.get("email_verified") is True and isinstance(email, str) and _fits(email):
        return email.lower()
    host = (urlsplit(issuer).hostname or "provider").replace(":", "-")
    subject = str(claims["sub"])
    name = f"{subject}@{host[-50:]}"
    return (
        name if _fits(name) else f"{sha256(subject.encode(errors='replace')).hexdigest()[:32]}@{host[-50:]}"
    )


def account_of(claims: Mapping[str, Any], issuer: str) -> str:
    """What somebody is at a provider, whatever they are called: no two accounts are written alike.

    >>> account_of({"sub": "a b"}, "https://login.example.com/realms/ops")
    'https://login.example.com/realms/ops#a%20b'
    """
    return f"{issuer}#{quote(claims['sub'], safe='', errors='surrogatepass')}"


def _fits(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and _MISFITS.isdisjoint(name)
