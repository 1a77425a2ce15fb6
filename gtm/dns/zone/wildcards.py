"""Names that a wildcard no longer answers for, because something stands at them or below (RFC 4592 §2.2.1, §2.2.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gtm.core.model.names import WILDCARD, absolute, ancestors, closest
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.policy.snapshot import Snapshot

ADDRESSES = "addresses"
"""What A, AAAA and CNAME records give, and a service: whoever has one of them at a name means that name to be another."""

_GIVEN = dict.fromkeys(("A", "AAAA", "CNAME"), ADDRESSES)


def blocked(snapshot: Snapshot) -> Iterator[Problem]:
    """A finding `wildcard_blocked` for each wildcard that gave names something which they have no more, nor of their own.

    What has addresses of its own, is delegated, or is no name of a host (an underscore begins one of its labels) is meant so.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, wildcard, lost in blocked_names(snapshot):
        found.setdefault((wildcard, lost), []).append(f"`{name}`")
    for (wildcard, lost), names in found.items():
        text = (
            f"`{wildcard}` gives no {' and no '.join(lost)} to {some(names, 'names')}, nor to what lies below: a name that has records, or "
            "others below it, is answered by what it has itself, or with nothing (NODATA; RFC 4592 §2.2.1). Write what it shall "
            f"have there, or {_moved(snapshot, wildcard)}"
        )
        yield Problem(_path(snapshot, wildcard), "wildcard_blocked", text)


def blocked_names(snapshot: Snapshot) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each such name, the wildcard that would answer if nothing stood at the name or below, and what it would give, sorted."""
    here = _Written(snapshot)
    if not here.wildcards:
        return
    for name in sorted(snapshot.existing):
        encloser = here.encloser(name)
        wildcard = f"{WILDCARD}{encloser}"
        if encloser is None or wildcard not in here.wildcards or closest(here.cuts, name) is not None:
            continue
        below = name.removesuffix(f".{encloser}").split(".")
        if any(label.startswith(("*", "_")) for label in below):
            continue
        lost = here.given.get(wildcard, set()) - here.given.get(name, set())
        if lost and name not in here.aliases:
            yield name, wildcard, tuple(sorted(lost))


class _Written:
    """What is written at names: what each gives, and how many written names lie at or below each that exists."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._zones = snapshot.zones
        self.given: dict[str, set[str]] = {name: {ADDRESSES} for name in snapshot.hostnames}
        self.aliases: set[str] = set()
        self.cuts: set[str] = set()
        written = {*snapshot.hostnames, *snapshot.zones}
        for zone in snapshot.policy.zones:
            # What is right above a zone exists in the zone around it, if there is one.
            written.add(zone.name.partition(".")[2])
            written.update(server.name for server in zone.name_servers)
            if not zone.name_servers:
                written.add(zone.primary_ns)
            for server in zone.name_servers:
                self.given.setdefault(server.name, set()).add(ADDRESSES)
            for record in zone.records:
                name = absolute(record.name, zone.name)
                written.add(name)
                self.given.setdefault(name, set()).add(_GIVEN.get(record.type, record.type))
                if record.type == "CNAME":
                    self.aliases.add(name)
                elif record.type == "NS":
                    self.cuts.add(name)
        self.wildcards = {name for name in written if name.startswith(WILDCARD)}
        self._written = written
        self._within = (
            Counter(above for name in written for above in ancestors(name)) if self.wildcards else Counter()
        )

    def encloser(self, name: str) -> str | None:
        """The closest name above one of a zone that exists whatever stands at it or below; None for a zone's own name."""
        if name in self._zones:
            return None
        _, *above = ancestors(name)
        return next(
            (one for one in above if one in self._zones or self._within[one] > self._within[name]), None
        )


def _path(snapshot: Snapshot, wildcard: str) -> str:
    service = snapshot.hostnames.get(wildcard)
    if service is not None:
        return f"services.{service}.hostnames"
    zone = snapshot.zones[closest(snapshot.zones, wildcard) or ""]
    index = next(at for at, one in enumerate(zone.records) if absolute(one.name, zone.name) == wildcard)
    return f"zones.{zone.name}.records[{index}]"


def _moved(snapshot: Snapshot, wildcard: str) -> str:
    service = snapshot.hostnames.get(wildcard)
    return (
        "move what stands there" if service is None else f"list it in the `hostnames` of service `{service}`"
    )
