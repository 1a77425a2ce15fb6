"""Who counts as one with whom, and which approvals stand, as docs/operations.md and docs/simulate.md say it, and nothing else: written without a look at the code."""

from __future__ import annotations

from dataclasses import dataclass, field

NOBODY_KNOWS = None


@dataclass(eq=False)
class Credential:
    """A text of a token, or somebody's session without one.

    `owner` None: it is from before owners were written down. `made_with` None: beside the database, or by no token at all.
    """

    name: str
    owner: str | None
    made_with: Credential | None = None
    role: str = "admin"
    works: bool = True


@dataclass(eq=False)
class Consent:
    """An approval of the change that is tried now."""

    by: Credential
    round: int


@dataclass
class Model:
    """All that happened."""

    names: dict[str, set[str]] = field(default_factory=dict)
    """Name → the accounts that have come by it."""
    approvals: dict[str, Consent] = field(default_factory=dict)
    """By who gave them, as they are called: a later one takes the place of an earlier."""
    round: int = 0

    def signs_in(self, name: str, account: str) -> Credential:
        """Somebody comes by the provider."""
        self.names.setdefault(name.lower(), set()).add(account)
        return Credential(name, name)

    def people(self, name: str) -> set[str]:
        """Who a name is: every account that has come by it, or itself."""
        return self.names.get(name.lower(), {name.lower()})

    def hands(self, one: Credential) -> set[str] | None:
        """In whose hands a credential is; None: nobody knows."""
        if one.owner is None:
            return NOBODY_KNOWS
        mine = self.people(one.owner)
        if one.made_with is None:
            return mine
        makers = self.hands(one.made_with)
        return NOBODY_KNOWS if makers is None else mine | makers

    def one_hand(self, one: Credential, other: Credential) -> bool:
        """Whether they count as one."""
        first, second = self.hands(one), self.hands(other)
        return first is None or second is None or bool(first & second)

    def counts(self, author: Credential, consent: Consent) -> bool:
        """Whether an approval lets this author's change pass."""
        stands = consent.round == self.round and consent.by.works
        return stands and not self.one_hand(author, consent.by)

    def passes(self, author: Credential) -> bool:
        """Whether any does."""
        return any(self.counts(author, one) for one in self.approvals.values())

    def approve(self, by: Credential) -> None:
        """Somebody approves of the change that is tried now."""
        self.approvals[by.name] = Consent(by, self.round)
