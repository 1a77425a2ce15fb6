"""What every source is read into, before it becomes a policy."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

MAX_BYTES = 10 * 1024 * 1024
"""Of a file to import."""
MAX_RECORDS = 10_000
"""Sets of records in a file, as many as a zone of a policy holds."""


class ImportProblem(Exception):  # noqa: N818 - `ImportError` is Python's
    """A file that is not what it is said to be; the message says where, and why."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Records of a name and type that are the same for everyone. `data` in presentation form, names absolute."""

    name: str
    rdtype: str
    ttl: int | None
    data: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """What some clients are answered with: it becomes a region.

    `hints` are sentences of what the source says about it. `lat` and `lon` in degrees, where the source has them.
    """

    label: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    cnames: tuple[str, ...] = ()
    weight: float = 1.0
    lat: float | None = None
    lon: float | None = None
    hints: tuple[str, ...] = ()
    probe: Mapping[str, Any] | None = None


def joined(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Pools of one label become one, with the answers and hints of all; what else is known of it, the first says that knows it."""
    together: dict[str, list[Pool]] = {}
    for pool in pools:
        together.setdefault(pool.label, []).append(pool)
    return tuple(
        same[0]
        if len(same) == 1
        else replace(
            same[0],
            ipv4=tuple(chain.from_iterable(pool.ipv4 for pool in same)),
            ipv6=tuple(chain.from_iterable(pool.ipv6 for pool in same)),
            cnames=tuple(chain.from_iterable(pool.cnames for pool in same)),
            hints=tuple(dict.fromkeys(chain.from_iterable(pool.hints for pool in same))),
            probe=next((pool.probe for pool in same if pool.probe), None),
        )
        for same in together.values()
    )


def paired(pools: Sequence[Pool], *, ordered: bool) -> tuple[tuple[Pool, ...], bool]:
    """The pools of a name's A and AAAA records, each by itself in the source, as regions; and whether the two differ.

    A label that both types know, with one weight (and where order decides, in one order), is one region with addresses of both
    families; else each type keeps regions of its own. What answers with a name answers both types alike: it is joined by label.

    Args:
        pools: of both types, in the order of failover.
        ordered: their order decides (failover).
    """
    four = joined(pool for pool in pools if pool.ipv4)
    six = joined(pool for pool in pools if pool.ipv6)
    if not four or not six or any(pool.cnames for pool in pools):
        return joined(pools), False
    by_label = {pool.label: pool for pool in six}
    known = {pool.label: pool.weight for pool in six}
    shared = [pool.label for pool in four if known.get(pool.label) == pool.weight]
    if ordered and shared != [pool.label for pool in six if pool.label in shared]:
        shared = []
    if len(shared) == len(four) == len(six):
        return joined(pools), False
    labels = {pool.label for pool in four} & known.keys()
    both: list[Pool] = []
    rest = iter(six)
    for pool in four:
        if pool.label not in shared:
            both.append(_named(pool, "ipv4", labels))
            continue
        for other in rest:  # those of the other type that come before it
            if other.label == pool.label:
                break
            both.append(_named(other, "ipv6", labels))
        both += joined((pool, by_label[pool.label]))
    both += [_named(other, "ipv6", labels) for other in rest]
    return tuple(both), True


def _named(pool: Pool, family: str, taken: Container[str]) -> Pool:
    """A pool of one family by a label of its own."""
    return replace(pool, label=f"{pool.label}-{family}") if pool.label in taken else pool


@dataclass(frozen=True, slots=True)
class Steered:
    """A name whose answer depends on the client, on health, or on chance: it becomes a service.

    `pools` in the order of failover. `steering` as in the policy; `separate`: A and AAAA have pools of their own.
    """

    name: str
    ttl: int | None
    steering: str
    pools: tuple[Pool, ...]
    hints: tuple[str, ...] = ()
    separate: bool = False


@dataclass(slots=True)
class Source:
    """What a file holds. `soa`: fields of the zone that its SOA says; `notes`: what is not taken over, and why."""

    plains: list[Plain] = field(default_factory=list)
    steered: list[Steered] = field(default_factory=list)
    soa: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def bounded(text: str) -> str:
    """The text, if it is not too long.

    Raises:
        ImportProblem: it is.
    """
    if len(text) > MAX_BYTES:
        raise ImportProblem(f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    return text


def quoted(text: str) -> str:
    """A text of any length as the strings of a TXT record, in presentation form (RFC 1035 §3.3.14, §5.1)."""
    raw = text.encode("utf-8", "surrogateescape" if text.isascii() else "replace")
    pieces = [raw[start : start + 255] for start in range(0, len(raw), 255)] or [b""]
    return " ".join(f'"{"".join(map(_character, piece))}"' for piece in pieces)


def _character(octet: int) -> str:
    if octet in b'"\\':
        return f"\\{chr(octet)}"
    return chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"
