"""Decisions at the speed of a dictionary: rankings remembered for one Basis, choices for one View.

Law: a Router answers exactly what `decide` answers. It belongs to one View, and goes when the View goes; its Ranker
stays for as long as policy, rules in force and latency table do.
"""

from __future__ import annotations

from gtm.core.decision.choice import Choice, choice, pick
from gtm.core.decision.decide import Decision, Routing
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import Classes, Ranking, RankingClass, alike, families, rank
from gtm.core.decision.view import Basis, View
from gtm.core.model.requests import Location, Request, location_facts

CANDIDATES = 1_000_000
"""How many ways from clients to regions all remembered rankings may hold together: some 150 MB."""


class Ranker:
    """The memory of rankings for one Basis.

    Args:
        basis: what to rank by.
        limit: how many kinds of request are remembered, fewer where services have many members; past it the memory
            starts anew, so that hostile traffic cannot grow it.
    """

    __slots__ = ("_classes", "_families", "_rankings", "_served", "basis", "limit")

    def __init__(self, basis: Basis, limit: int = 65_536) -> None:
        self.basis = basis
        most = max((len(service.members) for service in basis.snapshot.services.values()), default=1)
        self.limit = max(1, min(limit, CANDIDATES // max(1, most)))
        self._families = families(basis)
        self._rankings: dict[object, Ranking] = {}  # of one service of each family
        self._served: dict[object, Ranking] = {}  # of every service
        self._classes: Classes = {}

    def location_key(self, location: Location) -> object:
        """What rankings tell locations apart by: equal for two locations, they are ranked alike."""
        estimator = self.basis.estimator
        if estimator.by_place:  # then nothing is in doubt either
            return location.lat, location.lon, location_facts(location)
        placed = estimator.placed(location) if estimator.table.doubts else location
        return estimator.key(location), location_facts(placed)

    def ranking(self, request: Request) -> Ranking:
        """The ranking of a request.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        key = (
            request.service,
            self.location_key(request.location),
            request.tenant,
            request.data_class,
            request.model,
            request.priority,
        )
        found = self._served.get(key)
        if found is None:
            if len(self._served) >= self.limit:
                self._served = {}
            found = self._served[key] = self.fresh(request)
        return found

    def fresh(self, request: Request) -> Ranking:
        """As `ranking`, remembered for one service of each family only: for callers that remember by themselves.

        Raises:
            UnknownNameError: as there.
        """
        key = (
            self._families.get(request.service),
            self.location_key(request.location),
            request.tenant,
            request.data_class,
            request.model,
            request.priority,
        )
        if len(self._rankings) >= self.limit or len(self._classes) >= self.limit:
            self._rankings = {}
            self._classes = {}
        found = self._rankings.get(key)
        if found is None:
            found = self._rankings[key] = rank(self.basis, request, self._classes)
        if found.group.service.service.name == request.service:
            return found
        return alike(self.basis, found, request.service, self._classes)


class Router:
    """The cached form of `decide` for one View.

    Args:
        view: what to decide from.
        ranker: of the View's Basis; a new one if there is none yet.
    """

    __slots__ = ("_choices", "_decisions", "ranker", "view")

    def __init__(self, view: View, ranker: Ranker | None = None) -> None:
        self.view = view
        self.ranker = Ranker(view.basis) if ranker is None else ranker
        self._choices: dict[RankingClass, Choice] = {}
        self._decisions: dict[tuple[Ranking, Option], Decision] = {}

    def choice(self, group: RankingClass) -> Choice:
        """The choice of one of the Ranker's classes."""
        found = self._choices.get(group)
        if found is None:
            if len(self._choices) >= self.ranker.limit:
                self._choices = {}
            found = self._choices[group] = choice(self.view, group)
        return found

    def routing(self, request: Request, client: bytes = b"") -> Routing:
        """As `gtm.core.decision.decide.routed`, from memory where it can.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        ranking = self.ranker.ranking(request)
        chosen = self._choices.get(ranking.group) or self.choice(ranking.group)
        # As `Routing(…)`, in half of the time.
        return tuple.__new__(Routing, (self.view, ranking, chosen, request, client))

    def decide(self, request: Request, draw: float) -> Decision:
        """As `gtm.core.decision.decide.decide`, from memory where it can.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        ranking = self.ranker.ranking(request)
        chosen = self._choices.get(ranking.group) or self.choice(ranking.group)
        option = pick(chosen, request, draw)
        known = self._decisions.get((ranking, option))  # before a Routing is made, which takes longer
        return known or self.explained(Routing(self.view, ranking, chosen, request), option)

    def explained(self, routing: Routing, option: Option) -> Decision:
        """As `routing.explained`, from memory where it can."""
        known = routing.ranking, option
        found = self._decisions.get(known)
        if found is None:
            if len(self._decisions) >= self.ranker.limit:
                self._decisions = {}
            found = self._decisions[known] = routing.explained(option)
        return found
