"""Control's memory of what is gone, as it is carried from change to change (docs/simulate.md, "What is gone")."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.change.leads import Former, moves
from gtm.core.change.openings import Openings, openings
from gtm.core.model.regions import Region
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.zone.leads import leads_of
from tests.dns.change.answered import NOW


@dataclass
class Control:
    """A policy in force that takes changes which open nothing, and remembers what they take away."""

    snapshot: Snapshot
    names: dict[str, Snapshot] = field(default_factory=dict)
    services: dict[str, Snapshot] = field(default_factory=dict)
    targets: dict[str, tuple[Region, ...]] = field(default_factory=dict)
    had: dict[str, Snapshot] = field(default_factory=dict)
    """The policies that were the last to have targets."""

    def judged(self, after: Snapshot) -> Openings:
        """What a change opens, by the policy in force and by what is gone."""
        revisions = {
            id(one): one for one in (*self.names.values(), *self.services.values(), *self.had.values())
        }
        former = Former(
            tuple(
                (
                    one,
                    frozenset(name for name, of in self.names.items() if of is one),
                    frozenset(name for name, of in self.services.items() if of is one),
                    frozenset(name for name, of in self.had.items() if of is one),
                )
                for one in revisions.values()
            ),
            self.targets,
        )
        return openings(self.snapshot, after, NOW, leads=leads_of, former=former)

    def takes(self, after: Snapshot, *, released: bool = False) -> None:
        """The change is made."""
        before = self.snapshot
        made = moves(before, after, leads_of, frozenset(self.names), released=released)
        self.names = {name: of for name, of in self.names.items() if name not in made.names_back}
        self.services = {name: of for name, of in self.services.items() if name not in made.services_back}
        self.targets = {name: of for name, of in self.targets.items() if name not in made.targets_back}
        self.names |= dict.fromkeys(made.names, before)
        self.services |= dict.fromkeys(made.services, before)
        self.had = {name: of for name, of in self.had.items() if name not in made.targets_back}
        for target, region in made.targets:
            self.had[target] = before
            bare = Region(region.name, 0.0, 0.0, region.country, (), operator_country=region.operator_country)
            self.targets[target] = (*self.targets.get(target, ()), bare)
        self.snapshot = after
