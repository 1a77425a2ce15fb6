"""The queue of one tier: start-time fair queueing between tenants, turns between a tenant's clients, and who gives way when it is full.

Theory. Each tenant that waits has a *start tag*. The tenant with the least is served, the oldest request of its client whose turn it is; the *virtual time* v
becomes that tag, and the tenant's tag grows by cost / weight. A tenant that begins to wait starts at v, or where its last service
left it, if that is later: it has no credit for what it did not use before, and no way round what it owes.

  1. While two tenants f and m wait, what they are served differs by no more than one request of each:
     |W_f / w_f - W_m / w_m| ≤ c_f / w_f + c_m / w_m, with c the largest cost, whatever else happens (Goyal et al., theorem 1).
  2. So none starves: before a tenant's next request, any other is served at most (its weight) × (tag - v) and one request more.

Requests that need not wait are not counted: where a slot is free nobody is kept from anything. When nobody waits any more, all is
forgotten, so that tags stay small and a burst owes nothing once it is over.

A request that leaves the queue unserved moves no tag. What a served one cost more or less than expected is charged to the
tenant's next one, if it has any waiting then; of its own cost a sixteenth at least is charged, so that nobody is served for nothing.

Example: tenants A (weight 2) and B (weight 1) each have three requests of cost 1 waiting for the only slot. Tags: A 0, B 0; A is
served (½), B (1), A (1); of equals, B's tag is older (2), then A (1½). Two of A for each of B, while both wait.

>>> from gtm.core.balance.admission.admission import Admission
>>> from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
>>> from gtm.core.balance.admission.values import Arrival
>>> admission = Admission(AdmissionSettings(tenants={"A": TenantLimits(weight=2.0)}), limit=1)
>>> running = admission.offer(Arrival(tenant="C"), now=0.0)
>>> waiting = [admission.offer(Arrival(tenant=name), now=0.0) for name in "AAABBB"]
>>> order = []
>>> for _ in range(5):
...     admission.release(running, now=1.0)
...     (running,) = admission.due(now=1.0)
...     order.append(running.arrival.tenant)
>>> order
['A', 'B', 'A', 'B', 'A']

Of a tenant's clients (networks) each has a request served in its turn (round robin, Nagle 1987), so that who has a thousand waiting keeps
another of the same tenant from nothing but one request a turn.

When the queue is full, who takes most of it gives way: by the larger of its parts of the queue's length and bytes (dominant
share), divided by its weight; the newest request of its client that has most in it. Within a tenant, too, a client gives way to one that has less. A heap holds a value for each tenant that waits, which is its share or an
older, larger one, and is corrected when it comes to the top.

Sources: Goyal, Vin and Cheng 1996, "Start-time fair queueing"; Sheng et al. 2024, "Fairness in serving large language models"
(correction by what was used); Nagle 1987, RFC 970, "On packet switches with infinite storage" (turns); Ghodsi et al. 2011, "Dominant resource fairness"; McKenney 1990, "Stochastic fairness queueing"
(the longest queue gives way).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from gtm.core.balance.admission.tenants import TenantAccount
from gtm.core.balance.admission.values import Ticket
from gtm.core.shares import Shares

_LEAST_CHARGE = 1 / 16
"""Part of a request's expected cost that is charged at least, however much earlier ones were charged too much."""
_SPARE = 64


class ClientLine:
    """One client's requests that wait in a flow, oldest first."""

    __slots__ = ("cost", "deadlines", "queue")

    def __init__(self) -> None:
        self.queue: OrderedDict[int, Ticket] = OrderedDict()
        self.cost = 0.0
        self.deadlines: deque[tuple[float, int]] = deque()
        """Deadline and number of each that came with none after it that ends sooner: the first is the least of all that wait.
        One that was withdrawn counts until its turn, so that the least is never said to be later than it is."""

    def watch(self, ticket: Ticket) -> None:
        """Keep in mind the deadline of one that came."""
        while self.deadlines and self.deadlines[-1][0] >= ticket.deadline:
            self.deadlines.pop()
        self.deadlines.append((ticket.deadline, ticket.number))

    def earliest(self) -> float:
        """The least deadline of those that wait, or one before it; at least one must wait."""
        oldest = next(iter(self.queue))
        while self.deadlines[0][1] < oldest:
            self.deadlines.popleft()
        return self.deadlines[0][0]


@dataclass(slots=True, eq=False)
class Flow:
    """One tenant's requests that wait in one tier: a line for each client, in the order of their turns."""

    tenant: TenantAccount
    lines: OrderedDict[Hashable, ClientLine] = field(default_factory=OrderedDict)
    shares: Shares[Hashable] = field(default_factory=Shares)
    """What clients have in it, in units."""
    count: int = 0
    body_bytes: int = 0
    carried: float = 0.0
    """Cost that served requests had beyond what was expected of them."""
    ranked: float = 0.0
    """Its newest value among the shares of tenants."""

    def add(self, ticket: Ticket) -> None:
        """Let one wait, behind those of its client."""
        line = self.lines.get(ticket.client)
        if line is None:
            line = self.lines[ticket.client] = ClientLine()
        line.queue[ticket.number] = ticket
        line.watch(ticket)
        line.cost += ticket.arrival.cost
        self.count += 1
        self.body_bytes += ticket.arrival.body_bytes
        self.shares.add(ticket.client, ticket.units)

    def first(self) -> Ticket:
        """The oldest of the client whose turn it is."""
        return next(iter(next(iter(self.lines.values())).queue.values()))

    def pop(self) -> Ticket:
        """Take out the oldest of the client whose turn it is; that client comes last now."""
        client, line = next(iter(self.lines.items()))
        ticket = self.first()
        self.remove(ticket)
        if line.queue:
            self.lines.move_to_end(client)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Let one go."""
        line = self.lines[ticket.client]
        del line.queue[ticket.number]
        line.cost -= ticket.arrival.cost
        if not line.queue:
            del self.lines[ticket.client]
        self.count -= 1
        self.body_bytes -= ticket.arrival.body_bytes
        self.shares.add(ticket.client, -ticket.units)
        if not self.count:
            self.carried = 0.0

    def newest(self) -> Ticket:
        """The newest of the client that has most in it: who gives way. At least one must wait."""
        return next(reversed(self.lines[self.shares.largest()].queue.values()))


class FairQueue:
    """What waits in one tier, for one group of servers. All calls take O(log n) time, amortised, for n waiting requests."""

    __slots__ = ("_bytes", "_flows", "_length", "_made", "_shares", "_virtual", "body_bytes", "count")

    def __init__(self, length: int, body_bytes: int) -> None:
        self.count = 0
        self.body_bytes = 0
        self._virtual = 0.0
        self._made = 0
        self._flows: list[tuple[float, int, Flow]] = []  # each flow once: its tag, and an order among equals
        self._shares: list[tuple[float, int, Flow]] = []
        self.bound(length, body_bytes)

    def bound(self, length: int, body_bytes: int) -> None:
        """Measure shares by another length and number of bytes, and by the weights of now."""
        self._length = max(length, 1)
        self._bytes = max(body_bytes, 1)
        self._rank_anew()

    def add(self, ticket: Ticket) -> None:
        """Let a request wait."""
        tenant = ticket.account
        flow = tenant.flows.get(self)
        if flow is None:
            flow = tenant.flows[self] = Flow(tenant)
            self._made += 1
            heappush(self._flows, (self._virtual, self._made, flow))
        ticket.flow = flow
        ticket.units = self._units(ticket.arrival.body_bytes)
        flow.add(ticket)
        self.count += 1
        self.body_bytes += ticket.arrival.body_bytes
        share = self._share(flow)
        if share > flow.ranked:
            if len(self._shares) > 2 * len(self._flows) + _SPARE:
                self._rank_anew()
            else:
                self._rank(flow, share)

    def remove(self, ticket: Ticket) -> None:
        """Let a request that waits go unserved."""
        flow = ticket.flow
        if flow is None:
            raise ValueError("the request does not wait here")
        flow.remove(ticket)
        ticket.flow = None
        self._left(ticket)
        if not self.count:
            self._forget()

    def first(self) -> Ticket:
        """The request that is served next. Raises IndexError: none waits."""
        while True:
            flow = self._flows[0][2]
            if flow.count:
                return flow.first()
            heappop(self._flows)
            del flow.tenant.flows[self]

    def pop(self) -> Ticket:
        """The request that is served next, which then waits no more. Raises IndexError: none waits."""
        self.first()
        tag, _, flow = self._flows[0]
        carried, flow.carried = flow.carried, 0.0
        ticket = flow.pop()
        self._virtual = tag
        cost = ticket.arrival.cost
        charge = max(cost + carried, cost * _LEAST_CHARGE)
        self._left(ticket)
        self._made += 1
        heapreplace(self._flows, (tag + charge / flow.tenant.weight, self._made, flow))
        if not self.count:
            self._forget()
        return ticket

    def correct(self, ticket: Ticket, cost: float) -> None:
        """A request has cost so much in the end: if it had waited, and its tenant has others that wait, the next one settles it."""
        flow = ticket.account.flows.get(self)
        if ticket.flow is not None and flow is not None and flow.count:
            flow.carried += cost - ticket.arrival.cost

    def ahead(self, tenant: TenantAccount, client: Hashable, deadline: float) -> float:
        """Cost of a client's waiting requests that must all be served before one with this deadline can be, if it is ever.

        0 where one of them may reach its own deadline before: then the rest moves up.
        """
        flow = tenant.flows.get(self)
        line = None if flow is None else flow.lines.get(client)
        return line.cost if line is not None and line.earliest() >= deadline else 0.0

    def has_less(self, flow: Flow, client: Hashable, body_bytes: int) -> bool:
        """Whether a client, with one more request of so many bytes, has less in a tenant's flow than the client that has most."""
        shares = flow.shares
        return shares[client] + self._units(body_bytes) < shares[shares.largest()]

    def share_with(self, tenant: TenantAccount, body_bytes: int) -> float:
        """A tenant's share of the queue, by weight, if a request of so many bytes came to what it has here."""
        flow = tenant.flows.get(self)
        count, held = (0, 0) if flow is None else (flow.count, flow.body_bytes)
        return self._dominant(count + 1, held + body_bytes) / tenant.weight

    def largest(self) -> Flow | None:
        """Of all tenants the one with the largest share of the queue, by weight; None: nobody waits."""
        shares = self._shares
        while shares:
            ranked, made, flow = shares[0]
            if -ranked != flow.ranked:  # an older value of it
                heappop(shares)
                continue
            share = self._share(flow)
            if share == flow.ranked:
                return flow
            flow.ranked = share
            if share > 0.0:
                heapreplace(shares, (-share, made, flow))
            else:
                heappop(shares)
        return None

    def _units(self, body_bytes: int) -> int:
        """What a request takes of the queue, where 1 is a place and the bytes that there are for one."""
        return 1 + body_bytes * self._length // self._bytes

    def _left(self, ticket: Ticket) -> None:
        self.count -= 1
        self.body_bytes -= ticket.arrival.body_bytes

    def _forget(self) -> None:
        for _, _, flow in self._flows:
            del flow.tenant.flows[self]
        self._flows.clear()
        self._shares.clear()
        self._virtual = 0.0

    def _dominant(self, count: int, held: int) -> float:
        return max(count / self._length, held / self._bytes)

    def _share(self, flow: Flow) -> float:
        return self._dominant(flow.count, flow.body_bytes) / flow.tenant.weight if flow.count else 0.0

    def _rank(self, flow: Flow, share: float) -> None:
        flow.ranked = share
        self._made += 1
        heappush(self._shares, (-share, self._made, flow))

    def _rank_anew(self) -> None:
        """Write down the share of every flow, and no older one."""
        self._shares = []
        for _, _, flow in self._flows:
            flow.ranked = self._share(flow)
            if flow.ranked > 0.0:
                self._made += 1
                self._shares.append((-flow.ranked, self._made, flow))
        heapify(self._shares)


# --- When those who wait must have begun: a heap, from which who waits no more is dropped when it comes to the top or is the most. ---


_SPARE_ENTRIES = 64


class Deadlines:
    """The deadlines of all tickets that wait."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []

    def add(self, ticket: Ticket, waiting: int) -> None:
        """Watch a ticket, one of so many that wait."""
        if len(self._heap) > 2 * waiting + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[2].waiting]
            heapify(self._heap)
        heappush(self._heap, (ticket.deadline, ticket.number, ticket))

    def tickets(self) -> list[Ticket]:
        """All that wait, in the order in which they came."""
        return sorted((ticket for _, _, ticket in self._heap if ticket.waiting), key=lambda one: one.number)

    def first(self) -> Ticket | None:
        """The ticket that must begin first; None: none waits."""
        heap = self._heap
        while heap and not heap[0][2].waiting:
            heappop(heap)
        return heap[0][2] if heap else None
