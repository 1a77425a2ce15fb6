"""What every source is read into, before it becomes a policy."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

MAX_BYTES = 10 * 1024 * 1024
"""The most bytes of a file to import."""
MAX_TTL = 86_400
"""Seconds, as policies have it."""
MAX_RECORDS = 10_000
"""Sets of records in a file, as many as a zone of a policy holds."""


class ImportProblem(Exception):  # noqa: N818 - `ImportError` is Python's
    """A file that is not what it is said to be; the message says where, and why."""


@dataclass(frozen=True, slots=True)
class Note:
    """A value of the source that is not in the policy as it was.

    `line` from 1, 0: of the file as a whole. `what`: the record, set or pool, with what is its own. `why` is the same for all
    of a kind, so that a hundred of them are one line of a report. `lost`: the policy has nothing of it; else it says it in
    other words.
    """

    line: int
    what: str
    why: str
    lost: bool

    def place(self, file: str) -> str:
        """The file with its line, and the record, as a report names them."""
        return f"{file}:{self.line}: {self.what}" if self.line else f"{file}: {self.what}"

    def said(self, file: str) -> str:
        """All of it in one line, of a file with this name."""
        return f"{self.place(file)}: {self.why}"


class Notes(list[Note]):
    """What a reader has to say, in its order. `line` is that of the value which is being read."""

    line = 0

    def lost(self, what: str, why: str) -> None:
        """Say that the policy has nothing of a value."""
        self.append(Note(self.line, what, why, lost=True))

    def reworded(self, what: str, why: str) -> None:
        """Say that the policy has a value in other words, or near to it."""
        self.append(Note(self.line, what, why, lost=False))

    def unknown(self, what: str, value: Mapping[str, Any], known: Container[str]) -> None:
        """Say of each member of a mapping that is none of those which are read, that it is lost."""
        for key in value:
            if key not in known:
                self.lost(f"{what} `{key}`", "not taken over: nothing here has this setting")

    def several_ttls(self, name: str, ttls: Collection[int], whose: str) -> None:
        """Note that a name's types, or its sets, have several TTLs, if they do."""
        if len(ttls) > 1:
            seconds = ", ".join(map(str, sorted(ttls)))
            why = f"its {whose} have several TTLs: the shortest holds for all"
            self.reworded(f"{name} ({seconds} s)", why)

    def nearest(self, name: str, what: str) -> None:
        """Note that the places of clients for which something was answered became the nearest region."""
        why = (
            f"which clients get which {what} is not taken over: it became `steering: geo`, the nearest region. Where law or contract "
            "says it, write residency_rules"
        )
        self.lost(name, why)


_FIRST = 3


def report(notes: Iterable[Note], file: str) -> tuple[str, ...]:
    """Notes on a file for people: one line a kind, with how many there are and the first places."""
    kinds: dict[str, dict[str, None]] = {}
    for note in notes:
        kinds.setdefault(note.why, {})[note.place(file)] = None
    return tuple(_reported(why, list(places)) for why, places in kinds.items())


def _reported(why: str, places: list[str]) -> str:
    if len(places) == 1:
        return f"{places[0]}: {why}"
    rest = f"; and {len(places) - _FIRST} more" if len(places) > _FIRST else ""
    return f"{len(places)} times: {why} ({'; '.join(places[:_FIRST])}{rest})"


@dataclass(frozen=True, slots=True)
class Plain:
    """Records of a name and type that are the same for everyone. `data` in presentation form, names absolute."""

    name: str
    rdtype: str
    ttl: int | None
    data: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class ImportedPool:
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


def _alias(name: str) -> str:
    """A name as it is compared: A and AAAA aliases of one target are one."""
    return name.lower().removesuffix(".")


def joined(pools: Iterable[ImportedPool]) -> tuple[ImportedPool, ...]:
    """Pools of one label become one, with the answers and hints of all; what else is known of it, the first says that knows it."""
    together: dict[str, list[ImportedPool]] = {}
    for pool in pools:
        together.setdefault(pool.label, []).append(pool)
    return tuple(
        same[0]
        if len(same) == 1
        else replace(
            same[0],
            ipv4=tuple(chain.from_iterable(pool.ipv4 for pool in same)),
            ipv6=tuple(chain.from_iterable(pool.ipv6 for pool in same)),
            cnames=tuple({_alias(name): name for pool in same for name in pool.cnames}),
            hints=tuple(dict.fromkeys(chain.from_iterable(pool.hints for pool in same))),
            probe=next((pool.probe for pool in same if pool.probe), None),
        )
        for same in together.values()
    )


def paired(pools: Sequence[ImportedPool], *, ordered: bool) -> tuple[tuple[ImportedPool, ...], bool]:
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
    if not ordered:  # what is shared is met in one order below
        six = (*(by_label[label] for label in shared), *(pool for pool in six if pool.label not in shared))
    if len(shared) == len(four) == len(six):
        return joined(pools), False
    labels = {pool.label for pool in four} & known.keys()
    both: list[ImportedPool] = []
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


def _named(pool: ImportedPool, family: str, taken: Container[str]) -> ImportedPool:
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
    pools: tuple[ImportedPool, ...]
    hints: tuple[str, ...] = ()
    line: int = 0
    separate: bool = False


@dataclass(slots=True)
class ImportedZone:
    """What a file holds. `soa`: fields of the zone that its SOA says, with its own TTL as `ttl`; `notes`: what is not as it was."""

    plains: list[Plain] = field(default_factory=list)
    steered: list[Steered] = field(default_factory=list)
    soa: dict[str, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)

    def take_soa(self, ttl: int | None, primary: str, mailbox: str, numbers: Sequence[int]) -> None:
        """Take over an SOA, within what a policy allows.

        Args:
            ttl: its own, in seconds; None: unknown.
            primary: its MNAME.
            mailbox: its RNAME.
            numbers: SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM, in seconds but for the first.
        """
        serial, *times, minimum = numbers
        kept = minimum if ttl is None else min(ttl, minimum)
        if kept != minimum:
            why = "resolvers keep negative answers for the lesser of its TTL and its MINIMUM (RFC 2308 §5), which became `minimum`"
            self.notes.reworded(f"SOA (TTL {ttl} s, MINIMUM {minimum} s)", why)
        self.notes.reworded(f"SOA (serial {serial})", "gtm counts serials itself")
        self.soa = {
            "primary_ns": primary.removesuffix(".").lower(),
            "hostmaster": mailbox.removesuffix(".").lower(),
        }
        bounds = {
            "refresh": 2**31 - 1,
            "retry": 2**31 - 1,
            "expire": 2**31 - 1,
            "minimum": MAX_TTL,
            "ttl": MAX_TTL,
        }
        values = zip(bounds, (*times, kept, *([] if ttl is None else [ttl])), strict=False)
        for key, value in values:
            self.soa[key] = min(max(value, 1), bounds[key])
            if self.soa[key] != value:
                self.notes.reworded(
                    f"SOA ({key} {value} s)", f"its {key} is 1 to {bounds[key]} s in a policy"
                )


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
