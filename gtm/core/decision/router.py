"""Decisions at the speed of a dictionary: rankings remembered for one Basis, choices for one View.

Law: a Router answers exactly what `decide` answers. It belongs to one View, and goes when the View goes; its Ranker
stays for as long as policy, rules in force and latency table do. Each memory computes from its key alone (`gtm.core.memory`).
"""

from __future__ import annotations

from functools import partial

from gtm.core.decision.choice import choice, pick
from gtm.core.decision.decide import Decision, Routing, explained
from gtm.core.decision.options import Option
from gtm.core.decision.ranking import Ranking, alike, classes_of, families, rank
from gtm.core.decision.view import Basis, View
from gtm.core.latency.estimator import Seen, location_of
from gtm.core.memory import Memory
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority

CANDIDATES = 1_000_000
"""How many ways from clients to regions, and rules that match, one memory of rankings or decisions holds: some 150 MB."""


Kind = tuple[str, Seen, str | None, str | None, str | None, Priority | None, AddressFamily | None]
"""All of a request that a ranking is made from: service, what is seen of the location, tenant, data class, model, priority, family."""


class Ranker:
    """The memory of rankings for one Basis.

    Args:
        basis: what to rank by.
        limit: how many kinds of request are remembered, fewer where services have many members or many rules match; past it the
            memory starts anew, so that hostile traffic cannot grow it.
    """

    __slots__ = ("_classes", "_families", "_rankings", "_served", "basis", "limit")

    def __init__(self, basis: Basis, limit: int = 65_536) -> None:
        self.basis = basis
        most = max((len(service.members) for service in basis.snapshot.services.values()), default=1)
        self.limit = max(1, min(limit, CANDIDATES // max(1, most)))
        least = CANDIDATES / self.limit

        def weigh(_: Kind, ranking: Ranking) -> float:
            return max(least, len(ranking.paths) + len(ranking.within.matched))

        self._families = families(basis)
        self._classes = classes_of(basis.snapshot, self.limit)
        # Of one service of each family, and of every service.
        self._rankings: Memory[Kind, Ranking] = Memory(self._rank, CANDIDATES, weigh)
        self._served: Memory[Kind, Ranking] = Memory(self._of_family, CANDIDATES, weigh)

    def seen(self, location: Location) -> Seen:
        """What rankings tell locations apart by (`Estimator.seen`)."""
        return self.basis.estimator.seen(location)

    def ranking(self, request: Request) -> Ranking:
        """The ranking of a request.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        service, location, tenant, data_class, model, _, priority, family = request
        seen = self.basis.estimator.seen(location)
        return self._served[service, seen, tenant, data_class, model, priority, family]

    def fresh(self, request: Request) -> Ranking:
        """As `ranking`, remembered for one service of each family only: for callers that remember by themselves.

        Raises:
            UnknownNameError: as there.
        """
        service, location, tenant, data_class, model, _, priority, family = request
        seen = self.basis.estimator.seen(location)
        return self._of_family((service, seen, tenant, data_class, model, priority, family))

    def _of_family(self, kind: Kind) -> Ranking:
        service, seen, tenant, data_class, model, priority, family = kind
        first = self._families.get(service, service)
        if first == service:
            return self._rankings[kind]
        known = self._rankings[first, seen, tenant, data_class, model, priority, family]
        return alike(known, service, self._classes)

    def _rank(self, kind: Kind) -> Ranking:
        service, seen, tenant, data_class, model, priority, family = kind
        request = Request(service, location_of(seen), tenant, data_class, model, None, priority, family)
        return rank(self.basis, request, self._classes)


class Router:
    """The cached form of `decide` for one View.

    Args:
        view: what to decide from.
        ranker: of the View's Basis; a new one if there is none yet.
    """

    __slots__ = ("_decisions", "choices", "ranker", "view")

    def __init__(self, view: View, ranker: Ranker | None = None) -> None:
        self.view = view
        self.ranker = Ranker(view.basis) if ranker is None else ranker
        limit = self.ranker.limit
        least = CANDIDATES / limit

        def weigh(_: tuple[Ranking, Option], decision: Decision) -> float:
            return max(least, len(decision.candidates) + len(decision.rules))

        self.choices = Memory(partial(choice, view), limit)
        """Each ranking class with its choice in the View."""
        self._decisions = Memory(self._decision, CANDIDATES, weigh)

    @property
    def in_dns(self) -> Router:
        """For DNS (`View.in_dns`): itself, unless an address is down."""
        view = self.view.in_dns
        return self if view is self.view else Router(view, self.ranker)

    def routing(self, request: Request, client: bytes = b"") -> Routing:
        """As `gtm.core.decision.decide.routed`, from memory where it can.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        ranking = self.ranker.ranking(request)
        # As `Routing(…)`, in half of the time.
        return tuple.__new__(Routing, (self.view, ranking, self.choices[ranking.group], request, client))

    def decide(self, request: Request, draw: float) -> Decision:
        """As `gtm.core.decision.decide.decide`, from memory where it can.

        Raises:
            UnknownNameError: the service, tenant, data class or model is not in the policy.
        """
        ranking = self.ranker.ranking(request)
        return self._decisions[ranking, pick(self.choices[ranking.group], request, draw)]

    def explained(self, ranking: Ranking, option: Option) -> Decision:
        """An option of a kind of request with everything that led to it, from memory where it can."""
        return self._decisions[ranking, option]

    def _decision(self, known: tuple[Ranking, Option]) -> Decision:
        ranking, option = known
        return explained(self.view, ranking, self.choices[ranking.group], option)
