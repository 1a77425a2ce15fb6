"""A request resolved: decided for all that are alike but for the draw, and what is told of how one ends.

Law: what is kept of it is the choice, never the pick. Each request is picked for anew, by its affinity or a fresh draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import random
from typing import Any, NamedTuple

from gtm.core.decision.choice import pick
from gtm.core.decision.decide import Routing
from gtm.core.decision.explain import answer
from gtm.core.decision.options import Afford, Option
from gtm.core.decision.router import Router
from gtm.core.model.cors import Cors
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.references import some
from gtm.core.model.regions import Endpoint
from gtm.core.quota.earned import Earn
from gtm.geoip.client import ClientAddress
from gtm.http.answers.corrections import RouterCorrections
from gtm.http.answers.handoffs import Handoffs
from gtm.http.problems import problem
from gtm.telemetry import decision_key

RETRY_AFTER = 10
"""Seconds after which a refused client may try again: about what a region takes to come back by its probes."""
RETRY_AFTER_OVERLOAD = 2
"""The same where capacity is short: the plan is made anew each second."""

_DETAILS = {
    Reason.FENCE_EMPTY: "residency rules forbid every region of service `{}` for this request",
    Reason.FENCE_UNUSABLE: "no region in which this request to service `{}` may be served is usable now, and residency "
    "rules forbid the others",
    Reason.NONE_USABLE: "no region of service `{}` is usable now",
    Reason.SHED: "the regions of service `{}` have no capacity left for requests of this priority now",
    Reason.OVER_FAIR_SHARE: "capacity of service `{}` is short, and this tenant is beyond its fair share of it",
}


CLOSE = (b"connection", b"close")
"""Sent to clients that are to come by another edge: what they still have to send is not read (RFC 9112 §9.6)."""


def misdirected(edge: Mapping[str, Any]) -> str:
    """What to do about a request that this edge may not handle; `edge` is what its answer says of that."""
    where = f"in {edge['country']}" if edge["country"] else "in a country that nobody stated"
    others = [f"{server['name']} ({server['country']})" for server in edge["inside"]]
    known = f", such as {some(others, 'edges')}" if others else ""
    return (
        f"this edge stands {where}, outside of residency rules that bind edges ({', '.join(edge['rules'])}); send the "
        f"request to an edge inside{known}"
    )


class ResolvedRequest(NamedTuple):  # made for each client that is new
    """All requests that are alike but for the draw.

    `client` is None where its address is unknown. `handoffs` signs what is answered, of a service that asks for it.
    `corrections` are those by free slots. `earn` keeps what requests earn of quotas that are shares, and returns what it cannot.
    `draw` is uniform in [0, 1).
    """

    router: Router
    routing: Routing
    client: ClientAddress | None
    instance: str
    full: bool
    afford: Afford | None
    handoffs: Handoffs | None = None
    corrections: RouterCorrections | None = None
    earn: Earn | None = None
    draw: Callable[[], float] = random

    @property
    def cors(self) -> Cors | None:
        """What pages of other origins may read of the answers; None: nothing."""
        return self.routing.ranking.group.service.service.cors

    def pick(self) -> Option:
        """Draw how one request of this kind ends."""
        corrections = self.corrections
        option = self._drawn()
        if corrections is None or not corrections.current.rooms:
            return option
        return corrections.corrected(self.routing, option)

    def _drawn(self) -> Option:
        """The plan's choice; first the request earns what its home's rules let it, which it may need at once."""
        routing = self.routing
        over = self.earn(routing.choice.earns) if routing.choice.earns and self.earn is not None else ()
        if self.handoffs is not None:
            self.handoffs.credit = over
        return pick(routing.choice, routing.request, self.draw(), self.afford)

    def answered(self) -> tuple[Option, int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """How one such request ends, as `told`; where it is to be explained in full, with what is known of free slots."""
        corrections = self.corrections
        if not self.full or corrections is None or not corrections.current.rooms:
            option = self.pick()
            return option, *self.told(option)
        option, said = corrections.said(self.routing, self._drawn())
        status, document, headers = self.told(option)
        return option, status, {**document, "free_slots": said}, headers

    def counted_as(self, option: Option, via: str) -> str:
        """The key that an answer is counted under."""
        return decision_key(self.routing.ranking.group, self.routing.ranking.cell, option, via)

    def handoff(self, option: Option, *, once: bool) -> bytes | None:
        """A handoff of one such request; None where none is to be."""
        return None if self.handoffs is None else self.handoffs.signed(self.routing, option, once=once)

    def told(self, option: Option) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """As `rendered`, with the handoff that goes with it."""
        status, document, headers = self.rendered(option)
        token = self.handoff(option, once=False)
        if token is not None:
            document["handoff"] = token.decode()
        return status, document, headers

    def rendered(self, option: Option) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """Status, JSON document and headers that state a decision: the answer, or a problem that contains it."""
        return self.ended(option, self.routing.endpoint(option))

    def ended(
        self, option: Option, endpoint: Endpoint | None
    ) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
        """Say how the request ends by this option, if the client is handed this ingress: status, JSON document and headers."""
        routing = self.routing
        decision = self.router.explained(routing.ranking, option)
        document = answer(
            routing.view,
            routing.request,
            decision,
            client=None if self.client is None else self.client.text,
            endpoint=endpoint,
            full=self.full,
        )
        if option.outcome is Outcome.SERVED:
            return 200, document, []
        if option.outcome is Outcome.REFUSED_EDGE:
            refusal = problem(option.outcome.value, misdirected(document["edge"]), self.instance, document)
            return refusal["status"], refusal, [CLOSE]
        detail = _DETAILS[option.reason].format(decision.service)
        beyond = option.reason is Reason.OVER_FAIR_SHARE
        code = option.reason.value if beyond else option.outcome.value
        refusal = problem(code, detail, self.instance, document)
        headers: list[tuple[bytes, bytes]] = []
        if option.reason is not Reason.FENCE_EMPTY:
            overload = option.outcome is Outcome.REFUSED_OVERLOAD
            seconds = RETRY_AFTER_OVERLOAD if overload else RETRY_AFTER
            headers.append((b"retry-after", str(seconds).encode()))
        return refusal["status"], refusal, headers
