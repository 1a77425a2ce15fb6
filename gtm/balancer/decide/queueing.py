"""When a request begins: `gtm.core.balance.admission` on this process's event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from gtm.balancer.plane.timeouts import FIELD, wish
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.usage import Meter, Usage, bounds_of
from gtm.core.balance.admission import values as core
from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.rooms import GroupLimits
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.admission.tenants import TenantAccount
from gtm.core.balance.serving import known_as
from gtm.core.capacity.durations import OTHER
from gtm.core.handoff.verdict import Verdict
from gtm.core.model.services import Priority
from gtm.core.shares import client_prefix

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange

_log = logging.getLogger(__name__)

_FALLBACKS = 4
"""Models that a request is offered for instead of its own, one after the other."""
_ADMITTED = core.TicketState.ADMITTED
_OUTPUT_TOKENS = 256
"""What a request that does not bound its output is expected to make."""


MOST_TOTALS = 500
"""Pairs of tenant and model that are counted apart."""
OTHERS = (OTHER, OTHER)


class RequestTotals:
    """Requests that ended, those of them that were answered with a failure (5xx), and seconds from their coming to their end; and those that were refused."""

    __slots__ = ("errors", "refused", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = self.errors = self.refused = 0
        self.seconds = 0.0


@dataclass(eq=False, repr=False)
class QueueAdmission:
    """See above.

    Args:
        settings: who may have what.
        loop: the event loop.
        cost: expected seconds of a request's work.
        priority: of requests about which the policy says nothing.
        declared: whether a model's name is one that policy, file or backends declare.
    """

    settings: InitVar[AdmissionSettings]
    _: KW_ONLY
    loop: asyncio.AbstractEventLoop
    cost: Callable[[Exchange], float]
    priority: Priority = Priority.REAL_TIME
    declared: Callable[[str], bool] = lambda _: True

    def __post_init__(self, settings: AdmissionSettings) -> None:
        self.admission = Admission(settings)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.totals: dict[tuple[str | None, str | None], RequestTotals] = {}
        """Of requests that were taken in and have ended, by tenant and model; what nobody declares under `OTHER`, beyond `MOST_TOTALS` under `OTHERS`."""
        self.cut: Counter[tuple[str, str]] = Counter()
        """Tokens that answers said and that cannot be, by backend and kind (`input`, `output`)."""

    def offer(self, exchange: Exchange, now: float) -> Refusal | None:
        """Take a request in, to begin now or later; or refuse it."""
        admission = self.admission
        if isinstance(
            exchange.admission, TenantAccount
        ):  # the request was taken in before, and is offered again
            exchange.admission.uncharge(now)
            exchange.admission = None
        arrival = self._arrival(exchange, now)
        found = admission.offer(arrival, now, partial(_network, exchange))
        if isinstance(found, core.AdmissionRefusal):
            for _ in range(_FALLBACKS):
                if found.fallback is None or not exchange.use_model(found.fallback):
                    break
                arrival = self._arrival(exchange, now)
                found = admission.offer(arrival, now, partial(_network, exchange))
                if not isinstance(found, core.AdmissionRefusal):
                    break
        if isinstance(found, core.AdmissionRefusal):
            self._totals(arrival).refused += 1
            self.tick(now)
            return _refusal(found)
        exchange.admission = found
        found.context = exchange
        if found.budgeted:
            target = exchange.target
            exchange.meter = Meter(
                bounds_of(target.path, exchange.json_body(), exchange.facts.most_output),
                makes_text=target.makes_text,
            )
        if found.state is _ADMITTED:
            exchange.admitted()
        else:
            self._watch(now)
        if admission.changed:  # others have given way to it
            self.tick(now)
        return None

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for a slot."""
        return self.admission.waiting > 0

    def ended(self, exchange: Exchange, now: float) -> None:
        """Give back the slot of a request that has ended, and count what it used."""
        ticket = exchange.admission
        if isinstance(ticket, core.Ticket):
            exchange.admission = None
            self._count(ticket, exchange.status, now)
            self.admission.release(ticket, now, self._used(exchange, ticket, now))
            if self.admission.changed:
                self.tick(now)

    def _count(self, ticket: core.Ticket, status: int, now: float) -> None:
        totals = self._totals(ticket.arrival)
        totals.requests += 1
        totals.seconds += now - ticket.offered
        if status >= 500:  # 0: its client left before it was answered
            totals.errors += 1

    def _totals(self, arrival: core.Arrival) -> RequestTotals:
        """The totals of a request's tenant and model; names that strangers make up share one."""
        model = arrival.model
        totals = self.totals.get((arrival.tenant, model))
        if totals is None:
            if model is not None and not (model.isprintable() and self.declared(model)):
                model = OTHER
            key = arrival.tenant, model
            if key not in self.totals and len(self.totals) >= MOST_TOTALS:
                key = OTHERS
            totals = self.totals.setdefault(key, RequestTotals())
        return totals

    def by_tenant(self) -> dict[str | None, dict[str, float]]:
        """What it has of each tenant now, and had so far."""
        settings, now = self.admission.settings, self.admission.snapshot().tenants
        found: dict[str | None, dict[str, float]] = {}
        for name in dict.fromkeys([*now, *(tenant for tenant, _ in self.totals)]):
            limits = (
                settings.without_tenant
                if name is None
                else settings.tenants.get(name, settings.default_tenant)
            )
            running, waiting = now.get(name, (0, 0))
            found[name] = {
                "weight": limits.weight,
                "running": running,
                "waiting": waiting,
                "requests": 0,
                "errors": 0,
                "refused": 0,
            }
        for (name, _), totals in self.totals.items():
            for of in ("requests", "errors", "refused"):
                found[name][of] += getattr(totals, of)
        return found

    def withdraw(self, exchange: Exchange, now: float) -> None:
        """Give back the slot or the place of a request that goes elsewhere. Whose rate it has paid is kept: it may come again."""
        ticket = exchange.admission
        if isinstance(ticket, core.Ticket):
            exchange.admission = ticket.account
            self.admission.withdraw(ticket, now)
            self.tick(now)

    def tick(self, now: float) -> None:
        """Let pass what time has made due: deadlines, and slots that are free."""
        changed = self.admission.due(now)
        if changed:
            # Not at once: each that begins, and fails, would lead to the next from within.
            self.loop.call_soon(self._tell, changed)

    def resize(self, slots: int | None, usable: bool | None = None, parts: GroupLimits | None = None) -> None:
        """So many may be served at once; None: unknown. `usable`, `parts`: see `gtm.core.balance.admission.Admission.resize`."""
        now = self.loop.time()
        self.admission.resize(slots, now, usable=usable, parts=parts)
        self.tick(now)

    def _arrival(self, exchange: Exchange, now: float) -> core.Arrival:
        facts, verdict = exchange.facts, exchange.verdict
        priority, tenant = self.priority, None
        if isinstance(verdict, Verdict) and verdict.routing is not None:
            priority = verdict.routing.ranking.group.priority
            tenant = verdict.payer
        model, limits = facts.model, self.admission.settings.models
        if limits and model:  # no name of a model passes its limit
            model = known_as(model, limits)
        # As `core.Arrival(…)`, in half of the time.
        arrival = (
            priority,
            tenant,
            max(self.cost(exchange), 1e-6),
            self._deadline(exchange, now) if FIELD in exchange.head.seen else None,
            exchange.come,
            facts.input_tokens,
            # The output tokens that it is expected to use.
            float(_OUTPUT_TOKENS if facts.max_tokens is None else facts.max_tokens)
            if facts.model and exchange.target.makes_text
            else 0.0,
            model,
        )
        return tuple.__new__(core.Arrival, arrival)

    def _deadline(self, exchange: Exchange, now: float) -> float | None:
        """When the request wants to have begun, by its `gtm-timeout`; None: it does not say. Nobody waits longer than any tier."""
        wanted = wish(exchange.head.seen[FIELD])
        if wanted is None:
            return None
        return now + min(wanted, max(self.admission.settings.waits.values()))

    def _used(self, exchange: Exchange, ticket: core.Ticket, now: float) -> core.Used | None:
        """What a request has used, as far as that is known and anybody asks."""
        if not ticket.admitted:
            return None
        # Of one that did not wait there is no turn to correct.
        cost = None if ticket.flow is None else now - ticket.admitted
        meter = exchange.meter
        if meter is None:
            return None if cost is None else core.Used(cost=cost)
        if exchange.status >= 400 or not exchange.begun:
            return core.Used(0.0, 0.0, cost)  # an error makes no tokens, nor what no backend got
        if (
            not exchange.status
        ):  # its client left before it was answered: its prompt was read, as far as anybody knows
            return core.Used(None, 0.0, cost)
        used = meter.used(exchange.returned, events=exchange.answer.events)
        if used.input_cut or used.output_cut:
            self._cut(exchange, used)
        return core.Used(used.inputs, used.outputs, cost)

    def forget(self, backends: Container[str]) -> None:
        """Forget what backends were counted for that are gone."""
        for key in [key for key in self.cut if key[0] in backends]:
            del self.cut[key]

    def _cut(self, exchange: Exchange, used: Usage) -> None:
        """Count what a backend's answer said beyond what can be; of each backend, the first is logged."""
        backend = "" if exchange.chosen is None else exchange.chosen.candidate.backend.name
        if not any(name == backend for name, _ in self.cut):
            _log.warning(
                "backend %s: an answer says that it used %d input and %d output tokens more than its request and answer can be: they are not "
                "charged, and counted in gtm_balancer_usage_cut_tokens_total",
                backend or "(none)",
                used.input_cut,
                used.output_cut,
            )
        self.cut[backend, "input"] += used.input_cut
        self.cut[backend, "output"] += used.output_cut

    def _watch(self, now: float) -> None:
        """Be there when the next deadline passes."""
        first = self.admission.next_deadline()
        if first is not None and (self._timer is None or first < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = first
            self._timer = self.loop.call_later(max(0.0, first - now) + 0.001, self._late)

    def _late(self) -> None:
        self._timer = None
        now = self.loop.time()
        self.tick(now)
        self._watch(now)

    def _tell(self, changed: Sequence[core.Ticket]) -> None:
        for ticket in changed:
            exchange = cast("Exchange", ticket.context)
            if ticket.state is _ADMITTED:
                exchange.admitted()
            elif ticket.refusal is not None:
                self._totals(ticket.arrival).refused += 1
                exchange.refuse(_refusal(ticket.refusal))


def _network(exchange: Exchange) -> Hashable:
    """The network that a request comes from: of one that was pushed, as the balancer says that has pushed it."""
    verdict = exchange.verdict
    if isinstance(verdict, Verdict) and verdict.believed is not None and verdict.believed.carried:
        return verdict.believed.pushed
    address = exchange.proxy.gate.client(exchange)
    return client_prefix(address) if address else b""


def _refusal(found: core.AdmissionRefusal) -> Refusal:
    return Refusal(found.status, found.code, found.detail, found.retry_after)
