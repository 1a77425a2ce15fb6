"""Admission: decides for each request of a region whether it begins now, waits, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf

from gtm.core.balance.admission import refusals
from gtm.core.balance.admission.fair import Deadlines, FairQueue
from gtm.core.balance.admission.settings import AdmissionSettings, checked
from gtm.core.balance.admission.slots import Pace, TierSlots
from gtm.core.balance.admission.tenants import TenantAccount, TenantAccounts
from gtm.core.balance.admission.values import (
    TIERS,
    AdmissionRefusal,
    AdmissionSnapshot,
    Arrival,
    TenantCounts,
    Ticket,
    TicketState,
    TierCounts,
    TierTotals,
    Used,
    check,
    tier_of,
)
from gtm.core.model.services import Priority

_WAITING, _ADMITTED = TicketState.WAITING, TicketState.ADMITTED
_REFUSED, _WITHDRAWN, _RELEASED = TicketState.REFUSED, TicketState.WITHDRAWN, TicketState.RELEASED


class Admission:
    """One process's admission to its region. For one thread; `now` is monotonic seconds, and an earlier one counts as the latest.

    After every other call, `due` says which waiting requests were decided meanwhile. Settings that mean nothing raise ValueError
    with every problem.
    """

    def __init__(self, settings: AdmissionSettings | None = None, limit: int | None = None) -> None:
        self._settings = checked(settings or AdmissionSettings())
        self._now = -inf
        self._number = 0
        self._slots = TierSlots(_by_tier(self._settings.reserves))
        self._slots.resize(limit)
        self._usable = limit != 0
        self._tenants = TenantAccounts(self._settings)
        length, held = self._settings.queue_length, self._settings.queue_bytes
        self._queues = tuple(FairQueue(tier, length, held) for tier in range(len(TIERS)))
        self._waits = _by_tier(self._settings.waits)
        self._waiting = 0
        self._deadlines = Deadlines()
        self._pace = Pace()
        self._models: dict[str, int] = {}
        self._totals = tuple(TierTotals() for _ in TIERS)
        self.changed: list[Ticket] = []
        """Tickets that were decided since `due` was last asked; to be read as whether there are any."""
        self.spared_tokens = 0.0
        """Tokens that requests used and no budget was charged, since one request is charged no more than some minutes of it."""

    @property
    def settings(self) -> AdmissionSettings:
        """Those in force."""
        return self._settings

    # What the data plane asks

    def offer(
        self, arrival: Arrival, now: float, client: Callable[[], Hashable] | None = None
    ) -> Ticket | AdmissionRefusal:
        """Take a request in, to begin at once (`ADMITTED`) or when `due` says so (`WAITING`), or refuse it.

        `client` says whose it is, by whom a tenant's requests take turns; asked only if there is no slot. None: all of a tenant's are one's.

        Raises ValueError: a cost, a token count or a size that is not one.
        """
        now = self._pass(now)
        check(arrival)
        tier = tier_of(arrival.priority)
        deadline = now + self._waits[tier] if arrival.deadline is None else arrival.deadline
        tenant = self._tenants.get(arrival.tenant, now)
        refusal = None
        counts = tenant.limited or arrival.model in self._settings.models
        if counts or deadline <= now or not self._usable:
            refusal = self._forbidden(arrival, tenant, deadline, now)
        room = self._slots.room(tier)
        whose: Hashable = None
        if refusal is None and not room:
            whose = None if client is None else client()
            refusal = self._no_place(arrival, tier, tenant, whose, deadline, now)
        if refusal is not None:
            self._totals[tier].refused[refusal.code] += 1
            return refusal
        if arrival.model is not None:
            self._models[arrival.model] = self._models.get(arrival.model, 0) + 1
        self._number += 1
        ticket = Ticket(self._number, arrival, tenant, tier, now, deadline)
        if counts:  # where limits come while it runs, its end corrects them by what it was charged
            self._charge(ticket)
        if room:
            self._begin(ticket, now)
        else:
            ticket.client = whose
            self._queue(ticket)
        return ticket

    def release(self, ticket: Ticket, now: float, used: Used | None = None) -> None:
        """The request has ended, however it ended: its slot is free. One that still waits is withdrawn; a second time does nothing.

        `used` corrects what was expected of it: tokens in its tenant's budgets, cost in its tenant's turn.
        """
        if ticket.state is not _ADMITTED:
            self.withdraw(ticket, now)
            return
        now = self._pass(now)
        self._end(ticket, _RELEASED)
        self._pace.ended(ticket.arrival.cost, now - (ticket.admitted or 0.0))
        if used is not None:
            self._correct(ticket, used, now)
        if self._waiting:
            self._serve(now)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """The request will not begin: its client is gone. Tokens reserved for it are given back. A second time does nothing."""
        if ticket.state is _WAITING:
            now = self._pass(now)
            if ticket.state is _WAITING:
                self._leave(ticket, _WITHDRAWN, now)
                self._totals[ticket.tier].withdrawn += 1
        elif ticket.state is _ADMITTED:
            now = self._pass(now)
            self._end(ticket, _WITHDRAWN)
            self._give_back(ticket, now)
            self._serve(now)

    def resize(self, limit: int | None, now: float, *, usable: bool | None = None) -> None:
        """There are so many slots from now on; None: unknown, which is no limit. What has begun goes on.

        Args:
            limit: slots that requests may begin in here: the region's, or of these those that others do not fill.
            now: the time.
            usable: whether the region has any; None: if the limit is not 0. Where it has, and others fill them, requests wait.
        """
        now = self._pass(now)
        if limit is not None and limit < 0:
            raise ValueError(f"the limit is {limit}; a region has 0 slots or more, or None if nobody knows")
        self._usable = limit != 0 if usable is None else usable
        self._slots.resize(limit)
        self._serve(now)

    def configure(self, settings: AdmissionSettings, now: float) -> None:
        """Go on under other settings. What was taken in stays, even beyond new bounds. Raises ValueError: they mean nothing."""
        now = self._pass(now)
        self._settings = checked(settings)
        self._slots.reserve(_by_tier(settings.reserves))
        self._waits = _by_tier(settings.waits)
        self._tenants.set(settings, now)
        for queue in self._queues:
            queue.bound(settings.queue_length, settings.queue_bytes)
        self._serve(now)

    def due(self, now: float) -> Sequence[Ticket]:
        """Tickets that waited and were admitted or refused since the last call, in the order in which that happened.

        Each once; not those that were withdrawn or released before anybody asked.
        """
        self._pass(now)
        if not self.changed:
            return ()
        changed, self.changed = self.changed, []
        return [ticket for ticket in changed if ticket.state is _ADMITTED or ticket.state is _REFUSED]

    def next_deadline(self) -> float | None:
        """When `due` must be called at the latest; None: nobody waits."""
        first = self._deadlines.first()
        return None if first is None else first.deadline

    def has_room(self, priority: Priority) -> bool:
        """Whether a request of this tier would find a slot at once."""
        return self._slots.room(tier_of(priority))

    @property
    def limit(self) -> int | None:
        """The region's slots; None: unknown."""
        return self._slots.limit

    @property
    def running(self) -> int:
        """Requests that have begun and not ended."""
        return sum(self._slots.running)

    @property
    def waiting(self) -> int:
        """Requests in the queue, of all tiers."""
        return self._waiting

    def snapshot(self) -> AdmissionSnapshot:
        """What is held now, for metrics."""
        tiers = {}
        for tier, priority in enumerate(TIERS):
            queue, totals = self._queues[tier], self._totals[tier]
            tiers[priority] = TierCounts(
                self._slots.running[tier],
                queue.count,
                queue.body_bytes,
                totals.admitted,
                totals.queued,
                totals.withdrawn,
                totals.waited,
                dict(totals.refused),
            )
        tenants = {
            name: TenantCounts(tenant.running, tenant.waiting)
            for name, tenant in self._tenants.known.items()
            if tenant.running or tenant.waiting
        }
        return AdmissionSnapshot(self._slots.limit, tiers, tenants, dict(self._models))

    # Why not

    def _forbidden(
        self, arrival: Arrival, tenant: TenantAccount, deadline: float, now: float
    ) -> AdmissionRefusal | None:
        """Why a request may neither begin nor wait."""
        if deadline <= now:
            return refusals.deadline(0.0)
        if not self._usable:
            return refusals.no_backend()
        fallback = None
        weight = 1.0
        if arrival.model is not None and arrival.model in self._settings.models:
            limits = self._settings.models[arrival.model]
            fallback, weight = limits.fallback, limits.token_weight
            held = self._models.get(arrival.model, 0)
            if limits.concurrency is not None and held >= limits.concurrency:
                return refusals.model_concurrency(
                    arrival.model, limits.concurrency, self._pace.turn(1, held), fallback
                )
        if not tenant.limited:
            return None
        most, has = tenant.concurrency, tenant.running + tenant.waiting
        if most is not None and has >= most:
            return refusals.tenant_concurrency(tenant, self._pace.turn(1, has))
        return refusals.over_budget(arrival, tenant, weight, fallback, now)

    def _no_place(  # noqa: PLR0917 - a request, and what was found out of it
        self,
        arrival: Arrival,
        tier: int,
        tenant: TenantAccount,
        client: Hashable,
        deadline: float,
        now: float,
    ) -> AdmissionRefusal | None:
        """Why a request for which there is no slot may not wait; None: it may, and others may have given way to it."""
        least = self._pace.least_wait(self._queues[tier].ahead(tenant, client, deadline), self._slots.limit)
        if now + least > deadline:
            return refusals.wait_too_long(least, deadline - now)
        if self._make_place(arrival, tier, tenant, client, now):
            return None
        return refusals.queue_full(self._drained())

    def _drained(self) -> float | None:
        return self._pace.turn(self._waiting, self._slots.limit)

    def _make_place(
        self, arrival: Arrival, tier: int, tenant: TenantAccount, client: Hashable, now: float
    ) -> bool:
        """See to it that a request has a place in the queue, if need be by others giving way. False: it cannot have one."""
        length, held = self._waiting, sum(queue.body_bytes for queue in self._queues)
        beyond = length + 1 - self._settings.queue_length
        beyond_bytes = held + arrival.body_bytes - self._settings.queue_bytes
        if beyond <= 0 and beyond_bytes <= 0:
            return True
        lower = self._queues[tier + 1 :]
        if sum(queue.count for queue in lower) >= beyond and sum(q.body_bytes for q in lower) >= beyond_bytes:
            lowest = len(self._queues) - 1
            while beyond > 0 or beyond_bytes > 0:
                while not self._queues[lowest].count:
                    lowest -= 1
                gone = self._give_way(self._newest_of_largest(lowest), arrival, now)
                beyond, beyond_bytes = beyond - 1, beyond_bytes - gone
            return True
        queue, own = self._queues[tier], tenant.flows[tier]
        largest = queue.largest()
        if largest is None or beyond > 1:
            return False
        if queue.share_with(tenant, arrival.body_bytes) < largest.ranked:
            newest = largest.newest()
        elif own is not None and own.count and queue.has_less(own, client, arrival.body_bytes):
            newest = own.newest()
        else:
            return False
        if newest.arrival.body_bytes < beyond_bytes:
            return False
        self._give_way(newest, arrival, now)
        return True

    def _newest_of_largest(self, tier: int) -> Ticket:
        flow = self._queues[tier].largest()
        if flow is None:
            raise AssertionError("a queue that holds requests has a largest tenant")
        return flow.newest()

    def _give_way(self, ticket: Ticket, arrival: Arrival, now: float) -> int:
        """Refuse a waiting request for the sake of one that came; says how many bytes that frees."""
        self._refuse(ticket, refusals.preempted(arrival.priority, self._drained()), now)
        return ticket.arrival.body_bytes

    # What happens to tickets

    def _pass(self, now: float) -> float:
        """Let time go on: what has reached its deadline is refused, before anything else happens."""
        if now <= self._now:
            return self._now
        self._now = now
        if self._waiting:
            while (ticket := self._deadlines.first()) is not None and ticket.deadline <= now:
                self._refuse(ticket, refusals.deadline(now - ticket.offered), now)
        return now

    def _queue(self, ticket: Ticket) -> None:
        self._queues[ticket.tier].add(ticket)
        self._waiting += 1
        self._deadlines.add(ticket, self._waiting)
        ticket.account.waiting += 1
        self._totals[ticket.tier].queued += 1

    def _begin(self, ticket: Ticket, now: float) -> None:
        ticket.state = _ADMITTED
        ticket.admitted = now
        ticket.account.running += 1
        self._slots.running[ticket.tier] += 1
        self._totals[ticket.tier].admitted += 1

    def _serve(self, now: float) -> None:
        """Let those begin for whom there is room."""
        while self._waiting:
            tier = self._slots.following([queue.count for queue in self._queues])
            if tier is None:
                return
            ticket = self._queues[tier].pop()
            self._waiting -= 1
            ticket.account.waiting -= 1
            self._begin(ticket, now)
            self._totals[tier].waited += now - ticket.offered
            self.changed.append(ticket)

    def _refuse(self, ticket: Ticket, refusal: AdmissionRefusal, now: float) -> None:
        ticket.refusal = refusal
        self._leave(ticket, _REFUSED, now)
        self._totals[ticket.tier].refused[refusal.code] += 1
        self.changed.append(ticket)

    def _leave(self, ticket: Ticket, state: TicketState, now: float) -> None:
        """A waiting request leaves the queue unserved."""
        self._queues[ticket.tier].remove(ticket)
        self._waiting -= 1
        ticket.account.waiting -= 1
        ticket.state = state
        self._uncount_model(ticket)
        self._give_back(ticket, now)

    def _end(self, ticket: Ticket, state: TicketState) -> None:
        """A request that had begun holds its slot no more."""
        self._slots.running[ticket.tier] -= 1
        ticket.account.running -= 1
        ticket.state = state
        self._uncount_model(ticket)

    def _uncount_model(self, ticket: Ticket) -> None:
        model = ticket.arrival.model
        if model is not None:
            left = self._models[model] - 1
            if left:
                self._models[model] = left
            else:
                del self._models[model]

    # Budgets

    def _charge(self, ticket: Ticket) -> None:
        """Take what is expected of a request out of its tenant's budgets."""
        arrival = ticket.arrival
        model = None if arrival.model is None else self._settings.models.get(arrival.model)
        weight = ticket.token_weight = 1.0 if model is None else model.token_weight
        ticket.account.charge(arrival.input_tokens * weight, arrival.output_tokens * weight)

    def _give_back(self, ticket: Ticket, now: float) -> None:
        """A request that will not begin uses no tokens."""
        ticket.account.settle(_expected(ticket), (0.0, 0.0), now)

    def _correct(self, ticket: Ticket, used: Used, now: float) -> None:
        """Settle what was expected of a request with what it has used."""
        if used.cost is not None:
            self._queues[ticket.tier].correct(ticket, used.cost)
        expected, weight = _expected(ticket), ticket.token_weight
        inputs = expected[0] if used.input_tokens is None else used.input_tokens * weight
        outputs = expected[1] if used.output_tokens is None else used.output_tokens * weight
        self.spared_tokens += ticket.account.settle(expected, (inputs, outputs), now)


def _expected(ticket: Ticket) -> tuple[float, float]:
    """The input and output tokens that a request was expected to use, as its tenant's budgets count them."""
    arrival, weight = ticket.arrival, ticket.token_weight
    return arrival.input_tokens * weight, arrival.output_tokens * weight


def _by_tier(values: Mapping[str, float]) -> tuple[float, float, float]:
    first, second, third = (values[tier] for tier in TIERS)
    return first, second, third
