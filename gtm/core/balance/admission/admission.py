"""Admission: decides for each request of a region whether it begins now, waits, or is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import inf

from gtm.core.balance.admission import refusals
from gtm.core.balance.admission.fair import Deadlines, FairQueue, Flow
from gtm.core.balance.admission.rooms import GroupLimits, GroupRoom, by_tier
from gtm.core.balance.admission.settings import AdmissionSettings, checked
from gtm.core.balance.admission.slots import Pace
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
from gtm.core.balance.groups import ONE_GROUP, ServerGroups

_WAITING, _ADMITTED = TicketState.WAITING, TicketState.ADMITTED
_REFUSED, _WITHDRAWN, _RELEASED = TicketState.REFUSED, TicketState.WITHDRAWN, TicketState.RELEASED


class Admission:
    """One process's admission to its region. For one thread; `now` is monotonic seconds, and an earlier one counts as the latest.

    After every other call, `due` says which waiting requests were decided meanwhile. Settings that mean nothing raise ValueError
    with every problem.
    """

    def __init__(self, settings: AdmissionSettings | None = None, limit: int | None = None) -> None:
        self.settings = checked(settings or AdmissionSettings())
        """Those in force; `configure` changes them."""
        self._now = -inf
        self._number = 0
        self._limit = limit
        self._servers = ONE_GROUP
        only = GroupRoom(self.settings)
        only.slots.resize(limit)
        self._rooms: tuple[GroupRoom, ...] = (only,)
        self._only: GroupRoom | None = only
        """The only group, where there is one."""
        self._usable = limit != 0
        self._tenants = TenantAccounts(self.settings)
        self._waits = by_tier(self.settings.waits)
        self._waiting = 0
        self._running: set[Ticket] = set()
        """Those that have begun: where servers are told apart anew, each counts in another group."""
        self._deadlines = Deadlines()
        self._models: dict[str, int] = {}
        self._totals = tuple(TierTotals() for _ in TIERS)
        self.changed: list[Ticket] = []
        """Tickets that were decided since `due` was last asked; to be read as whether there are any."""
        self.spared_tokens = 0.0
        """Tokens that requests used and no budget was charged, since one request is charged no more than some minutes of it."""

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
        priority, name, _, wanted, _, _, _, model = arrival
        tier = tier_of(priority)
        deadline = now + self._waits[tier] if wanted is None else wanted
        tenant = self._tenants.get(name, now)
        group = self._only or self._group(model, tier)
        refusal = None
        counts = tenant.limited or model in self.settings.models
        if counts or deadline <= now or not self._usable:
            refusal = self._forbidden(arrival, tenant, deadline, now, group.pace)
        room = group.room(tier) or group.closed
        whose: Hashable = None
        if refusal is None and not room:
            whose = None if client is None else client()
            refusal = self._no_place(arrival, tier, tenant, whose, deadline, now, group)
        if refusal is not None:
            self._totals[tier].refused[refusal.code] += 1
            return refusal
        if model is not None:
            self._models[model] = self._models.get(model, 0) + 1
        self._number += 1
        ticket = Ticket(self._number, arrival, tenant, tier, now, deadline, group)
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
        ticket.group.pace.ended(ticket.arrival.cost, now - (ticket.admitted or 0.0))
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

    def resize(
        self, limit: int | None, now: float, *, usable: bool | None = None, parts: GroupLimits | None = None
    ) -> None:
        """There are so many slots from now on; None: unknown, which is no limit. What has begun goes on.

        Args:
            limit: slots that requests may begin in here: the region's, or of these those that others do not fill.
            now: the time.
            usable: whether the region has any; None: if the limit is not 0. Where it has, and others fill them, requests wait.
            parts: the same of each group of servers; None: all are alike.
        """
        now = self._pass(now)
        if limit is not None and limit < 0:
            raise ValueError(f"the limit is {limit}; a region has 0 slots or more, or None if nobody knows")
        self._usable = limit != 0 if usable is None else usable
        self._limit = limit
        if parts is None:
            parts = GroupLimits(slots=(limit,))
        if parts.groups is not self._servers:
            self._regroup(parts.groups)
        for room, slots, open_ in zip(self._rooms, parts.slots, parts.usable, strict=True):
            room.slots.resize(slots)
            room.closed = not open_
        self._serve(now)

    def configure(self, settings: AdmissionSettings, now: float) -> None:
        """Go on under other settings. What was taken in stays, even beyond new bounds. Raises ValueError: they mean nothing."""
        now = self._pass(now)
        self.settings = checked(settings)
        self._waits = by_tier(settings.waits)
        self._tenants.set(settings, now)
        for room in self._rooms:
            room.configure(settings)
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

    @property
    def running(self) -> int:
        """Requests that have begun and not ended."""
        return len(self._running)

    @property
    def uses(self) -> dict[str, tuple[int, int]]:
        """Requests that hold slots of each group, and that wait for them, by the group's name; nothing where all servers are alike."""
        if self._only is not None:
            return {}
        waiting = [
            sum(
                room.waiting
                for room, counts in zip(self._rooms, self._servers.within, strict=True)
                if number in counts
            )
            for number in range(len(self._rooms))
        ]
        return {
            name: (sum(room.slots.running), wait)
            for name, room, wait in zip(self._servers.names, self._rooms, waiting, strict=True)
        }

    @property
    def waiting(self) -> int:
        """Requests in the queue, of all tiers."""
        return self._waiting

    def snapshot(self) -> AdmissionSnapshot:
        """What is held now, for metrics."""
        tiers = {}
        running = Counter(ticket.tier for ticket in self._running)
        for tier, priority in enumerate(TIERS):
            queues, totals = self._queues(tier), self._totals[tier]
            tiers[priority] = TierCounts(
                running[tier],
                sum(queue.count for queue in queues),
                sum(queue.body_bytes for queue in queues),
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
        return AdmissionSnapshot(self._limit, tiers, tenants, dict(self._models))

    # Why not

    def _forbidden(
        self, arrival: Arrival, tenant: TenantAccount, deadline: float, now: float, pace: Pace
    ) -> AdmissionRefusal | None:
        """Why a request may neither begin nor wait."""
        if deadline <= now:
            return refusals.deadline(0.0)
        if not self._usable:
            return refusals.no_backend()
        fallback = None
        weight = 1.0
        if arrival.model is not None and arrival.model in self.settings.models:
            limits = self.settings.models[arrival.model]
            fallback, weight = limits.fallback, limits.token_weight
            held = self._models.get(arrival.model, 0)
            if limits.concurrency is not None and held >= limits.concurrency:
                return refusals.model_concurrency(
                    arrival.model, limits.concurrency, pace.turn(1, held), fallback
                )
        if not tenant.limited:
            return None
        most, has = tenant.concurrency, tenant.running + tenant.waiting
        if most is not None and has >= most:
            return refusals.tenant_concurrency(tenant, pace.turn(1, has))
        return refusals.over_budget(arrival, tenant, weight, fallback, now)

    def _no_place(  # noqa: PLR0917 - a request, and what was found out of it
        self,
        arrival: Arrival,
        tier: int,
        tenant: TenantAccount,
        client: Hashable,
        deadline: float,
        now: float,
        group: GroupRoom,
    ) -> AdmissionRefusal | None:
        """Why a request for which there is no slot may not wait; None: it may, and others may have given way to it."""
        queue = group.queues[tier]
        least = group.pace.least_wait(queue.ahead(tenant, client, deadline), group.slots.limit)
        if now + least > deadline:
            return refusals.wait_too_long(least, deadline - now)
        if self._make_place(arrival, tier, tenant, client, now, queue):
            return None
        return refusals.queue_full(_drained(group))

    def _queues(self, *tiers: int) -> list[FairQueue]:
        """The queues of these tiers, of all groups."""
        return [room.queues[tier] for room in self._rooms for tier in tiers]

    def _make_place(  # noqa: PLR0917 - a request, and what was found out of it
        self,
        arrival: Arrival,
        tier: int,
        tenant: TenantAccount,
        client: Hashable,
        now: float,
        queue: FairQueue,
    ) -> bool:
        """Make a place in its queue for a request, if need be by letting others give way; whether it has one."""
        length, held = self._waiting, sum(one.body_bytes for one in self._queues(*range(len(TIERS))))
        beyond = length + 1 - self.settings.queue_length
        beyond_bytes = held + arrival.body_bytes - self.settings.queue_bytes
        if beyond <= 0 and beyond_bytes <= 0:
            return True
        lower = self._queues(*range(tier + 1, len(TIERS)))
        if sum(one.count for one in lower) >= beyond and sum(one.body_bytes for one in lower) >= beyond_bytes:
            lowest = len(TIERS) - 1
            while beyond > 0 or beyond_bytes > 0:
                while (largest := self._largest(lowest)) is None:
                    lowest -= 1
                gone = self._give_way(largest.newest(), arrival, now)
                beyond, beyond_bytes = beyond - 1, beyond_bytes - gone
            return True
        own, largest = tenant.flows.get(queue), self._largest(tier)
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

    def _largest(self, tier: int) -> Flow | None:
        """Of all that wait in a tier, what a tenant has in one queue: that with the largest share. None: nobody waits."""
        found = [flow for queue in self._queues(tier) if (flow := queue.largest()) is not None]
        return max(found, key=lambda flow: flow.ranked, default=None)

    def _give_way(self, ticket: Ticket, arrival: Arrival, now: float) -> int:
        """Refuse a waiting request for the sake of one that came; says how many bytes that frees."""
        self._refuse(ticket, refusals.preempted(arrival.priority, _drained(ticket.group)), now)
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
        ticket.group.queues[ticket.tier].add(ticket)
        ticket.group.waiting += 1
        self._waiting += 1
        self._deadlines.add(ticket, self._waiting)
        ticket.account.waiting += 1
        self._totals[ticket.tier].queued += 1

    def _begin(self, ticket: Ticket, now: float) -> None:
        ticket.state = _ADMITTED
        ticket.admitted = now
        ticket.account.running += 1
        self._running.add(ticket)
        group = ticket.group
        if group.around:
            group.count(ticket.tier, 1)
        else:  # as above, at a third of the cost: nearly always
            group.slots.running[ticket.tier] += 1
        self._totals[ticket.tier].admitted += 1

    def _serve(self, now: float) -> None:
        """Let those begin for whom there is room."""
        while self._waiting:
            group = self._only or self._next_group()
            tier = None if group is None else group.following()
            if group is None or tier is None:
                return
            ticket = group.queues[tier].pop()
            group.waiting -= 1
            self._waiting -= 1
            ticket.account.waiting -= 1
            self._begin(ticket, now)
            self._totals[tier].waited += now - ticket.offered
            self.changed.append(ticket)

    def _next_group(self) -> GroupRoom | None:
        """The group of whose queue the next begins: one that gets back what it reserves before others, then the highest tier, then who came first."""
        best: tuple[bool, int, int] | None = None
        found = None
        for room in self._rooms:
            tier = room.following() if room.waiting else None
            if tier is not None:
                rank = not room.below_reserve(tier), tier, room.queues[tier].first().number
                if best is None or rank < best:
                    best, found = rank, room
        return found

    def _refuse(self, ticket: Ticket, refusal: AdmissionRefusal, now: float) -> None:
        ticket.refusal = refusal
        self._leave(ticket, _REFUSED, now)
        self._totals[ticket.tier].refused[refusal.code] += 1
        self.changed.append(ticket)

    def _leave(self, ticket: Ticket, state: TicketState, now: float) -> None:
        """A waiting request leaves the queue unserved."""
        ticket.group.queues[ticket.tier].remove(ticket)
        ticket.group.waiting -= 1
        self._waiting -= 1
        ticket.account.waiting -= 1
        ticket.state = state
        self._uncount_model(ticket)
        self._give_back(ticket, now)

    def _end(self, ticket: Ticket, state: TicketState) -> None:
        """A request that had begun holds its slot no more."""
        self._running.remove(ticket)
        group = ticket.group
        if group.around:
            group.count(ticket.tier, -1)
        else:
            group.slots.running[ticket.tier] -= 1
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

    # Groups of servers

    def _group(self, model: str | None, tier: int) -> GroupRoom:
        """Where a request counts that names this model: of several groups one that has room for it, or else where fewest wait."""
        rooms = [self._rooms[number] for number in self._servers.groups(model)]
        return next((room for room in reversed(rooms) if room.room(tier)), None) or min(
            rooms, key=lambda room: (room.closed, room.waiting)
        )

    def _regroup(self, servers: ServerGroups) -> None:
        """Go on with these groups. What runs and waits counts in the groups of now."""
        before, self._servers = self._servers, servers
        if servers.servers == before.servers or len(servers.servers) == len(before.servers) == 1:
            return
        known = dict(zip(before.servers, self._rooms, strict=True))
        waiting = self._deadlines.tickets()
        for ticket in waiting:
            ticket.group.queues[ticket.tier].remove(ticket)
        self._rooms = tuple(GroupRoom(self.settings) for _ in servers.servers)
        self._only = self._rooms[0] if len(self._rooms) == 1 else None
        for room, within, names in zip(self._rooms, servers.within, servers.servers, strict=True):
            room.stands_in([self._rooms[number] for number in within[1:]])
            if names in known:
                room.pace = known[names].pace
        for ticket in self._running:
            ticket.group = self._only or self._group(ticket.arrival.model, ticket.tier)
            ticket.group.count(ticket.tier, 1)
        for ticket in waiting:
            ticket.group = self._only or self._group(ticket.arrival.model, ticket.tier)
            ticket.group.queues[ticket.tier].add(ticket)
            ticket.group.waiting += 1

    # Budgets

    def _charge(self, ticket: Ticket) -> None:
        """Take what is expected of a request out of its tenant's budgets."""
        arrival = ticket.arrival
        model = None if arrival.model is None else self.settings.models.get(arrival.model)
        weight = ticket.token_weight = 1.0 if model is None else model.token_weight
        ticket.account.charge(arrival.input_tokens * weight, arrival.output_tokens * weight)

    def _give_back(self, ticket: Ticket, now: float) -> None:
        """A request that will not begin uses no tokens."""
        ticket.account.settle(_expected(ticket), (0.0, 0.0), now)

    def _correct(self, ticket: Ticket, used: Used, now: float) -> None:
        """Settle what was expected of a request with what it has used."""
        if used.cost is not None:
            ticket.group.queues[ticket.tier].correct(ticket, used.cost)
        expected, weight = _expected(ticket), ticket.token_weight
        inputs = expected[0] if used.input_tokens is None else used.input_tokens * weight
        outputs = expected[1] if used.output_tokens is None else used.output_tokens * weight
        self.spared_tokens += ticket.account.settle(expected, (inputs, outputs), now)


def _expected(ticket: Ticket) -> tuple[float, float]:
    """The input and output tokens that a request was expected to use, as its tenant's budgets count them."""
    arrival, weight = ticket.arrival, ticket.token_weight
    return arrival.input_tokens * weight, arrival.output_tokens * weight


def _drained(group: GroupRoom) -> float | None:
    """Seconds in which about all begin that wait in a group."""
    return group.pace.turn(group.waiting, group.slots.limit)
