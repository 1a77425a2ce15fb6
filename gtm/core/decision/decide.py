"""Which region should serve this request?

Law: every decision carries its reasons: the rank, estimate and share of each candidate, a code for each exclusion, the
rules that matched, the policy revision and the epoch.

The work is in three parts, by how long each holds. `ranking.rank` holds for a kind of request until policy, rules in
force or latency table change; `choice.choice` for a ranking class until anything changes; `choice.pick` is made for each
request. A `Routing` holds the three together, and its `explained` tells all of it as one value: whoever decides something
goes through one, so that what explains a decision cannot drift from what made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gtm.core.decision.candidates import Candidate, candidates
from gtm.core.decision.choice import Choice, choice, pick
from gtm.core.decision.endpoints import endpoint_for
from gtm.core.decision.fence import Fence
from gtm.core.decision.options import Afford, Option
from gtm.core.decision.ranking import Ranking, RankingClass, classes_of, rank
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import Request
from gtm.core.model.services import Affinity


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A residency rule that matched, and why."""

    name: str
    mode: str
    legal_basis: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `number` is the region's place in `Snapshot.regions`, -1 for a refusal.

    `ranking_class` names the requests that are planned together with this one; `shed` is the share of them that is
    refused for want of capacity.
    """

    service: str
    outcome: Outcome
    reason: Reason
    region: str | None
    number: int
    ttl: int
    revision: int
    epoch: int
    candidates: tuple[Candidate, ...]
    rules: tuple[RuleTrace, ...]
    ranking_class: str = ""
    shed: float = 0.0


class Routing(NamedTuple):  # a frozen dataclass takes about twice as long to make
    """One kind of request on its way to an answer, the same for whoever asks: DNS, look-up, redirect, `check`, `explain`.

    `choice` is that of the ranking's class in `view`. `client` is the client's address in network order, empty where it is
    unknown.
    """

    view: View
    ranking: Ranking
    choice: Choice
    request: Request
    client: bytes = b""

    @property
    def key(self) -> str:
        """What ties the client to one endpoint of its region: its affinity key, or its /24 or /48.

        Not the network of its location: that may be as wide as a country's provider, and would not spread load.
        """
        if self.choice.affinity is Affinity.KEY and self.request.affinity is not None:
            return self.request.affinity
        return self.client[: 3 if len(self.client) == 4 else 6].hex()

    def pick(self, draw: float, afford: Afford | None = None, *, sheds: bool = True) -> Option:
        """How one such request ends: `gtm.core.decision.choice.pick`."""
        return pick(self.choice, self.request, draw, afford, sheds=sheds)

    def endpoint(self, option: Option) -> Endpoint | None:
        """The ingress that the client is handed, None for a refusal."""
        return endpoint_for(self.view, option, self.key)

    def explained(self, option: Option) -> Decision:
        """An option with everything that led to it."""
        return explained(self.view, self.ranking, self.choice, option)


def explained(view: View, ranking: Ranking, chosen: Choice, option: Option) -> Decision:
    """An option of a kind of request, with everything that led to it."""
    group = ranking.group
    # A refusal because of where the edge stands was made without a look at health: the regions' own state is told.
    eligible = group.usable(view.up_for(group.family)) if group.outside else chosen.eligible
    return Decision(
        service=group.service.service.name,
        outcome=option.outcome,
        reason=option.reason,
        region=option.region,
        number=option.number,
        ttl=_ttl(view, group, option),
        revision=view.snapshot.revision,
        epoch=view.state.epoch,
        candidates=candidates(view, ranking, chosen.shares, eligible),
        rules=_traces(ranking.within),
        ranking_class=group.key,
        shed=chosen.shed_share(ranking.request.tenant),
    )


def _ttl(view: View, group: RankingClass, option: Option) -> int:
    """How long an answer may be kept, in seconds: by free slots no longer than traffic that moves."""
    found = view.ttl_of(group.service)
    return min(found, group.service.service.min_ttl) if option.reason is Reason.FREE_SLOTS else found


def routed(view: View, request: Request, client: bytes = b"") -> Routing:
    """Find a request's way, without a memory (`gtm.core.decision.router` has one).

    Args:
        view: the policy and the state of the world.
        request: what is known of the request.
        client: the client's address in network order, empty where it is unknown.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    ranking = rank(view.basis, request, classes_of(view.snapshot))
    return Routing(view, ranking, choice(view, ranking.group), request, client)


def decide(view: View, request: Request, draw: float) -> Decision:
    """Decide one request.

    Args:
        view: the policy and the state of the world.
        request: what is known of the request.
        draw: uniform in [0, 1); used where several regions share such clients and no affinity ties them.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    routing = routed(view, request)
    return routing.explained(routing.pick(draw))


def _traces(within: Fence) -> tuple[RuleTrace, ...]:
    return tuple(
        RuleTrace(
            match.compiled.rule.name,
            match.compiled.rule.mode.value,
            match.compiled.rule.legal_basis,
            match.because,
        )
        for match in within.matched
    )
