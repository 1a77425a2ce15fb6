"""Which tokens count, and which of them a rotation put in another's place."""

from __future__ import annotations

from collections.abc import Iterable

from gtm.storage.tokens import Token


def successors(tokens: Iterable[Token], now: float) -> dict[str, str]:
    """The id of each live token, and that of the newest live one of its name: after a rotation both work for a while.

    Args:
        tokens: all that are known.
        now: POSIX seconds.
    """
    live = [token for token in tokens if token.works(now)]
    newest = {token.name: token.id for token in sorted(live, key=lambda token: (token.created_at, token.id))}
    return {token.id: newest[token.name] for token in live}
