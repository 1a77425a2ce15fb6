"""What is legal in a zone's records and host names, and yet probably not meant."""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.model.names import WILDCARD, absolute, ancestors, closest
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.services import Zone
from gtm.core.policy.snapshot import Snapshot

_ADDRESSES = frozenset({"A", "AAAA"})


def zone_findings(snapshot: Snapshot) -> Iterator[Problem]:
    """Everything about zones that their authors may want to look at again.

    Yields:
        `wildcard_blocked`: names below a service's wildcard that exist only because others lie below them, so that
        neither they nor what is below them is the service's. `no_glue`: a delegation to servers inside it without any
        address. `dangling`: an alias or a delegation to a name of ours that does not exist. `alias_loop`: aliases that
        lead to each other.
    """
    given = _Given(snapshot)
    yield from _blocked(snapshot, given)
    for zone in snapshot.policy.zones:
        yield from _delegations(zone, given)
        yield from _aliases(zone, given)


class _Given:
    """What is written of names: which have records of their own, which addresses, and where aliases lead."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.written: set[str] = {*snapshot.hostnames, *snapshot.zones}
        self.addressed: set[str] = set(snapshot.hostnames)
        self.aliases: dict[str, str] = {}
        self.cuts: set[str] = set()
        for zone in snapshot.policy.zones:
            for server in zone.name_servers:
                self.written.add(server.name)
                self.addressed.add(server.name)
            for record in zone.sets:
                name = absolute(record.name, zone.name)
                self.written.add(name)
                if record.type in _ADDRESSES:
                    self.addressed.add(name)
                elif record.type == "CNAME":
                    self.aliases[name] = absolute(record.data[0], zone.name)
                elif record.type == "NS":
                    self.cuts.add(name)

    def missing(self, name: str) -> bool:
        """Whether a name is ours to answer for, and does not exist."""
        existing = self.snapshot.existing
        if closest(self.snapshot.zones, name) is None or name in existing or closest(self.cuts, name):
            return False
        return f"{WILDCARD}{closest(existing, name)}" not in existing

    def alias_of(self, name: str) -> str | None:
        """Where a name's alias leads, be it by a wildcard."""
        existing = self.snapshot.existing
        return self.aliases.get(name if name in existing else f"{WILDCARD}{closest(existing, name)}")


def _blocked(snapshot: Snapshot, given: _Given) -> Iterator[Problem]:
    blocked: dict[str, list[str]] = {}
    for name in sorted(snapshot.existing - given.written) if snapshot.wildcards else ():
        _, *above = ancestors(name)
        for wildcard in [f"{WILDCARD}{each}" for each in above]:
            if wildcard in snapshot.hostnames:
                blocked.setdefault(wildcard, []).append(f"`{name}`")
    for wildcard, names in blocked.items():
        text = (
            f"`{wildcard}` covers neither {some(names, 'names')} nor what lies below: a name exists once others are "
            "below it (RFC 4592 §2.2.2)"
        )
        yield Problem(f"services.{snapshot.hostnames[wildcard]}.hostnames", "wildcard_blocked", text)


def _delegations(zone: Zone, given: _Given) -> Iterator[Problem]:
    for index, record in enumerate(zone.records):
        if record.type != "NS":
            continue
        path, cut = f"zones.{zone.name}.records[{index}]", absolute(record.name, zone.name)
        servers = [absolute(server, zone.name) for server in record.data]
        bare = [
            server
            for server in servers
            if (server == cut or server.endswith(f".{cut}")) and server not in given.addressed
        ]
        if bare:
            text = f"nobody can find {some([f'`{name}`' for name in bare], 'servers')}: give their addresses (glue) here"
            yield Problem(path, "no_glue", text)
        yield from _dangling(path, record.data, zone, given)


def _aliases(zone: Zone, given: _Given) -> Iterator[Problem]:
    for index, record in enumerate(zone.records):
        if record.type != "CNAME":
            continue
        path, name = f"zones.{zone.name}.records[{index}]", absolute(record.name, zone.name)
        if _loops(name, given):
            yield Problem(path, "alias_loop", "the alias leads into a loop, and is answered by SERVFAIL")
        yield from _dangling(path, record.data, zone, given)


def _dangling(path: str, targets: tuple[str, ...], zone: Zone, given: _Given) -> Iterator[Problem]:
    for text in targets:
        target = absolute(text, zone.name)
        if given.missing(target):
            hint = "" if text.endswith(".") else " (a dot at the end makes a name absolute)"
            yield Problem(path, "dangling", f"`{target}` does not exist{hint}")


def _loops(name: str, given: _Given) -> bool:
    """Whether the aliases from a name on lead to one of them again."""
    seen = {name}
    following = given.alias_of(name)
    while following is not None and following not in seen:
        seen.add(following)
        following = given.alias_of(following)
    return following is not None
