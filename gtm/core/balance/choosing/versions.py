"""Which version a client gets: canaries and blue-green deployments, by shares.

A client of known key always gets the same version while shares stand, and where they move, only as many clients change as the shares
do, by weighted rendezvous hashing (`gtm.core.model.affinity`): from blue to green, each client moves once.
"""

from __future__ import annotations

from gtm.core.model.affinity import key_hash, rendezvous

OTHERS = "\0others"
"""Stands for all versions that have no share of their own."""


def assigned(shares: tuple[tuple[str, float], ...], key: str | None, draw: float) -> tuple[str, float]:
    """A request's version, or `OTHERS`, and a draw that is uniform once more.

    Args:
        shares: of versions; what is left of 1 is the others'.
        key: whose request it is; None: the draw decides.
        draw: uniform in [0, 1).
    """
    parts = [(name, share) for name, share in with_others(shares) if share > 0]
    if key is not None:
        names = [key_hash(f"version {name}") for name, _ in parts]
        return parts[rendezvous(key_hash(key), names, [share for _, share in parts])][0], draw
    low = 0.0
    for name, share in parts:
        if draw < low + share:
            return name, min((draw - low) / share, _BELOW_1)
        low += share
    return parts[-1][0], draw


def with_others(shares: tuple[tuple[str, float], ...]) -> list[tuple[str, float]]:
    """The shares, with what is left for other versions first."""
    left = 1.0 - sum(share for _, share in shares)
    return [(OTHERS, left if left > _ROUNDING else 0.0), *shares]


def otherwise(shares: tuple[tuple[str, float], ...], version: str) -> list[str]:
    """The versions that stand in, in order, where none of a version's servers is usable: never one without a share."""
    parts = [(name, share) for name, share in with_others(shares) if share > 0 and name != version]
    return [name for name, _ in sorted(parts, key=lambda part: -part[1])]


_ROUNDING = 1e-9
_BELOW_1 = 1.0 - 2.0**-53
