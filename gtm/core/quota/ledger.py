"""Control's books of the quotas' leases: what every edge may have in force, and what it gets next.

Theory. A lease (Gray and Cheriton 1989) is a right that ends by itself, so that who granted it need not reach its holder to have
it back. The ledger never knows what edges hold; it knows what they cannot exceed, and counts that:

  in force(quota) = Σ over holders of max(proven, offered) + Σ of what rests  ≤  quota

  - *proven* is the lease that all of an edge's workers were last known to follow, *offered* the one that is on its way. From the
    offer until the proof either may be in force, so the larger counts. An offer that is unproven is repeated unchanged: if it
    changed, a third lease could be in force.
  - A proof is a report with a sequence number not below the grant that first made the offer. Edges report the least that any
    worker has taken.
  - What a holder gave up, or lost by vanishing, *rests*: its buckets may have saved up to `depth` requests, which are paid for by
    leaving that rate unused for depth / rate seconds, `WINDOW` at the most.

Crashes. An edge that dies or is cut off stops reporting: its leases end `DURATION` after it *sent* its last report, and in the
books `DURATION` and a margin after control *answered* it, which is later. So no clock is shared, only the rates of clocks matter,
and `MARGIN` covers these. An edge that starts again is another holder (its instance is drawn anew), for the one before may
still run. Control that starts again knows nothing: it repeats what edges say they hold, and grants nobody more until every lease
of the ledger before has ended and rested (`_alone`). A lost, late or repeated message changes nothing that is counted, since
every report carries totals and every grant carries all that is held.

Liars. Whoever reports may say what it wants, and prove nothing. What that can take from others is bounded by its token, which is one
owner whatever names and instances it has: an owner's leases, with what rests of them, grow to its max-min fair part of the quota or to
an equal part, whichever is more. An offer that is not proven within `PROOF` is withdrawn with all that its holder has: it is offered
nothing more, so that its leases end and rest as those of one that fell silent. It may begin anew then.

Sharing. Rates are `shares` of demand, an exponential moving average that a change beyond chance
(`_SIGMAS`, arrivals being Poisson) overrules. Giving up costs what must rest, so small changes wait.

Laws:
  1. What all edges may have in force of a quota, whatever messages were lost, plus what rests, is at most the quota.
     Where a quota itself falls, that holds once the leases of before have ended or shrunk.
  2. An edge's part changes in two steps: the new lease is offered, and the old one counts until the edge proves that
     all its workers have taken the new. Meanwhile the offer stays as it is.
  3. What an edge gave up rests until what its buckets may have saved is paid for (docs/decisions/0007-quota-leases.md).
  4. A holder that has not proven an offer after `PROOF` seconds holds nothing `DURATION` and a margin later.
  5. Nobody holds a quota that does not concern it, and no owner is leased more than its part while others want theirs.
  6. A ledger that knows nothing (control has just started) gives nobody more than it says it holds, until every lease
     of another ledger has ended and rested.

Example. Edge A alone holds a quota of 100 requests/s; then B comes, which wants 40/s.

>>> ledger = LeaseLedger(now=0.0)  # another ledger may have granted until now: nothing new before 13.13
>>> def report(edge, number, sequence, used, now):
...     ledger.apportion({"q": 100.0}, now)
...     grant = ledger.answer(edge, LeaseUse(edge, number, sequence, used={"q": used}), now)
...     rates = [round(lease.rate, 1) for lease in grant.leases]
...     return grant.sequence, rates, round(ledger.in_force("q", now), 1)
>>> report("A", 1, 0, 0, 20.0), report("A", 2, 1, 0, 21.0)  # the first is not known yet; then A is offered half
((1, [], 0), (2, [50.0], 50.0))
>>> report("A", 3, 2, 60, 22.0), report("A", 4, 3, 120, 23.0)  # proven: it uses 60/s, and is offered all
((3, [50.0], 50.0), (4, [100.0], 100.0))
>>> report("B", 1, 0, 0, 23.1), report("B", 2, 5, 40, 24.1)  # nothing is free
((5, [], 100.0), (6, [], 100.0))
>>> report("A", 5, 4, 180, 24.2)  # A is offered less; until it has proven that, 100 are in force
(7, [59.8], 100.0)
>>> report("A", 6, 7, 240, 25.2)  # proven: 40.2 rest, for (1 + 0.1 × 100 + 2 × √100) / 40.2 s and 1 %, which is 0.78 s
(8, [59.8], 100.0)
>>> report("B", 3, 6, 80, 25.3), report("B", 4, 9, 120, 26.3)
((9, [], 100.0), (10, [39.8], 99.6))
>>> ledger.in_force("q", 31.0)  # both were silent: their leases have ended and rested
0

Sources: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache consistency" (SOSP 1989);
docs/decisions/0007-quota-leases.md, the proof that what is admitted in ten seconds is at most what is in force.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import exp, inf, sqrt

from gtm.core.model.units import MOST_RATE
from gtm.core.quota.buckets import WINDOW, depth
from gtm.core.quota.leases import DURATION, Lease, LeaseGrant, LeaseUse
from gtm.core.quota.names import QuotaText

MARGIN = 0.01
"""Part of a duration by which control's books outlast it: clocks that differ by this much in rate do no harm."""
PROOF = 5.0
"""Seconds within which a holder must prove an offer: it reports once a second, and its workers take what is new at once."""
MOST_INSTANCES = 8
"""Instances of one name at a time: one that is replaced again and again leaves its leases behind for seconds."""
_DEMAND_TIME = 3.0
"""Time constant, in seconds, of the moving average of demand."""
_LEARN_EVERY = 0.5
"""Shortest time, in seconds, over which demand is estimated: a report may follow another at once."""
_SIGMAS = 4.0
"""A change of demand this many standard deviations of random arrivals wide is none of chance, and counts at once."""
_AMPLE = 2.0
"""Times its demand that an edge keeps while others wait."""
_NOISE = 0.1
_STEP = 0.02
"""Parts of an edge's rate by which it must be too high, or too low, before it is changed."""

Holder = tuple[str, str]
"""An edge's name, and its instance."""


@dataclass(slots=True)
class _Share:
    """What one holder may have in force of one quota: the lease it has proven, and the one offered since a grant, and when (seconds)."""

    proven: Lease | None
    offered: Lease | None
    since: int
    at: float
    rate: float = field(init=False)
    """The most that may be in force, in requests per second."""

    def __post_init__(self) -> None:
        self.rate = max(_rate(self.proven), _rate(self.offered))

    def rest(self, left: float) -> float:
        """Seconds that what is given up must rest, when only `left` requests per second of it stay."""
        saved = max(depth(lease.rate, lease.parts) for lease in (self.proven, self.offered) if lease)
        return min(WINDOW, saved / (self.rate - left)) * (1 + MARGIN)


@dataclass(slots=True)
class _Book:
    """What is known of one holder. Times are of control's own clock, in seconds."""

    owner: str
    concerned: Collection[QuotaText] | None
    report: int
    heard: float
    workers: int
    withdrawn: bool = False
    ends: float = float("-inf")
    counts: dict[QuotaText, int] = field(default_factory=dict)
    demand: dict[QuotaText, float] = field(default_factory=dict)
    shares: dict[QuotaText, _Share] = field(default_factory=dict)


class LeaseLedger:
    """The books. Only one ledger may grant at a time; times are seconds of a clock that never steps back.

    Args:
        now: when no other ledger granted any more.
        first_sequence: above every sequence number that another ledger granted (POSIX milliseconds, say).
    """

    def __init__(self, now: float, first_sequence: int = 0) -> None:
        self.horizon = inf
        """When it was last sure that no other ledger grants. The lease of an edge that fell silent ends no sooner in the books:
        another ledger may have heard the edge since, and gone on with its lease (`_adopt`)."""
        self.withdrawn: Counter[str] = Counter()
        """Holders that did not prove an offer in time, by owner."""
        self._sequence = first_sequence
        self._alone = now + (DURATION + WINDOW) * (1 + MARGIN)
        self._quotas: dict[QuotaText, float] = {}
        self._books: dict[Holder, _Book] = {}
        self._targets: dict[QuotaText, dict[Holder, float]] = {}
        self._short: set[QuotaText] = set()  # quotas of which some edges wait for what others hold
        self._over: set[QuotaText] = set()  # quotas that fell below what is held
        self._resting: dict[QuotaText, list[tuple[float, float, str]]] = {}  # until when, how much, whose
        self._parts: dict[QuotaText, dict[str, float]] = {}  # what an owner may grow to

    def apportion(self, quotas: Mapping[QuotaText, float], now: float) -> None:
        """Share the quotas anew, as every second: quota → requests per second. It takes effect with the next grants."""
        self._end(now)
        self._quotas = {quota: min(rate, MOST_RATE) for quota, rate in quotas.items()}
        self._targets, self._parts = {}, {}
        self._short, self._over = set(), set()
        owners = {_name(holder): book.owner for holder, book in self._books.items()}
        for quota, total in self._quotas.items():
            demand = {
                holder: book.demand.get(quota, 0.0)
                for holder, book in self._books.items()
                if book.concerned is None or quota in book.concerned
            }
            held = {
                holder: share.rate
                for holder, book in self._books.items()
                if (share := book.shares.get(quota))
            }
            # Shares are by edge and instance; the two are joined only to have one name to sort by.
            targets = shares(
                {_name(holder): rate for holder, rate in demand.items()}, total, set(map(_name, held)), owners
            )
            self._targets[quota] = {holder: targets.get(_name(holder), 0.0) for holder in demand}
            self._parts[quota] = self._owners_parts(self._targets[quota], total)
            missing = sum(
                max(0.0, target - held.get(holder, 0.0)) for holder, target in self._targets[quota].items()
            )
            free = total - sum(held.values())
            if free < 0:
                self._over.add(quota)
            if missing > free:
                self._short.add(quota)

    def answer(
        self,
        edge: str,
        use: LeaseUse,
        now: float,
        *,
        owner: str = "",
        concerned: Collection[QuotaText] | None = None,
    ) -> LeaseGrant:
        """Take a report into the books, and grant what the edge may hold next.

        Args:
            edge: its name, which no other has.
            use: what it reports.
            now: when.
            owner: the token that it reports with; empty: it has one of its own.
            concerned: the quotas that it may hold; None: all.
        """
        self._end(now)
        holder = (edge, use.instance)
        book = self._books.get(holder)
        self._sequence += 1
        if book is None:
            if sum(name == edge for name, _ in self._books) >= MOST_INSTANCES:
                return LeaseGrant(use.report, self._sequence, DURATION)
            book = _Book(owner or edge, concerned, use.report, now, use.workers, counts=_counts(use))
            self._books[holder] = book
            if now < self._alone:
                self._adopt(book, use, now)
        elif use.report > book.report and not book.withdrawn:
            book.concerned = concerned
            self._learn(book, use, now)
            self._prove(book, use.sequence, now)
            self._withdraw(book, now)
        if book.withdrawn:
            return LeaseGrant(use.report, self._sequence, DURATION)
        for quota in self._quotas.keys() | book.shares.keys():
            self._offer(holder, book, quota, now)
        book.ends = now + DURATION * (1 + MARGIN)
        leases = tuple(share.offered for _, share in sorted(book.shares.items()) if share.offered)
        return LeaseGrant(use.report, self._sequence, DURATION, leases)

    def in_force(self, quota: QuotaText, now: float) -> float:
        """The most that all edges together may spend of a quota, in requests per second, with what rests of it."""
        self._end(now)
        return self._taken(quota, "")[0]

    def _taken(self, quota: QuotaText, owner: str) -> tuple[float, float]:
        """The same, and an owner's part of it."""
        every: float = 0
        own: float = 0
        for _, rate, whose in self._resting.get(quota, ()):
            every += rate
            if whose == owner:
                own += rate
        for book in self._books.values():
            share = book.shares.get(quota)
            if share is not None:
                every += share.rate
                if book.owner == owner:
                    own += share.rate
        return every, own

    def _owners_parts(self, targets: Mapping[Holder, float], total: float) -> dict[str, float]:
        """What each owner's leases of a quota may grow to: what its holders should have, or an equal part."""
        found: dict[str, float] = defaultdict(float)
        for holder, target in targets.items():
            found[self._books[holder].owner] += target
        return {owner: max(part, total / len(found)) for owner, part in found.items()}

    def _end(self, now: float) -> None:
        """Close the books of holders whose leases have all ended, and let go what has rested, both as of `horizon`."""
        now = min(now, self.horizon)
        for holder, book in [item for item in self._books.items() if item[1].ends <= now]:
            for quota, share in book.shares.items():
                self._rest(quota, share.rate, book.ends + share.rest(0.0), book.owner)
            del self._books[holder]
        for quota, resting in list(self._resting.items()):
            left = [entry for entry in resting if entry[0] > now]
            if left:
                self._resting[quota] = left
            else:
                del self._resting[quota]

    def _rest(self, quota: QuotaText, rate: float, until: float, owner: str) -> None:
        self._resting.setdefault(quota, []).append((until, rate, owner))

    def _adopt(self, book: _Book, use: LeaseUse, now: float) -> None:
        """Go on with what another ledger granted."""
        for lease in use.held:
            if book.concerned is None or lease.quota in book.concerned:
                book.shares[lease.quota] = _Share(lease, lease, 0, now)
                book.demand[lease.quota] = lease.rate

    def _withdraw(self, book: _Book, now: float) -> None:
        """Offer a holder nothing more, if it has not proven an offer in time."""
        pending = (share.at for share in book.shares.values() if share.proven is not share.offered)
        if now - min(pending, default=now) > PROOF:
            book.withdrawn = True
            self.withdrawn[book.owner] += 1

    def _learn(self, book: _Book, use: LeaseUse, now: float) -> None:
        """Follow the edge's demand: what it used, and what it would have used."""
        book.report, book.workers = use.report, use.workers
        counts, seconds = _counts(use), now - book.heard
        if seconds < _LEARN_EVERY:
            return
        weight = 1 - exp(-seconds / _DEMAND_TIME)
        # What is no quota any more is forgotten; before it is known which are, those of this report count.
        known = set(self._quotas or counts)
        if book.concerned is not None:
            known &= set(book.concerned)
        book.demand = {quota: rate for quota, rate in book.demand.items() if quota in known}
        for quota in (counts.keys() & known) | book.demand.keys():
            wanted = max(0, counts.get(quota, 0) - book.counts.get(quota, 0)) / seconds
            before = book.demand.get(quota, 0.0)
            noise = _SIGMAS * sqrt(max(wanted, before, 1.0) / seconds)
            step = wanted - before
            book.demand[quota] = before + (step if abs(step) > noise else weight * step)
        book.heard, book.counts = now, counts

    def _prove(self, book: _Book, sequence: int, now: float) -> None:
        """The edge holds what was granted by this number: what it held before is over."""
        for quota, share in list(book.shares.items()):
            if sequence < share.since:
                continue
            left = _rate(share.offered)
            if share.rate > left:
                self._rest(quota, share.rate - left, now + share.rest(left), book.owner)
            if share.offered is None:
                del book.shares[quota]
            else:
                book.shares[quota] = _Share(share.offered, share.offered, share.since, share.at)

    def _offer(self, holder: Holder, book: _Book, quota: QuotaText, now: float) -> None:
        """Change what is offered of a quota, if nothing is unproven."""
        share = book.shares.get(quota)
        # By identity: a proven lease and an equal new one are two grants.
        if share is not None and share.proven is not share.offered:
            return
        held = share.proven if share else None
        rate = self._next_rate(holder, book, quota, _rate(held), now)
        if rate == _rate(held):
            return
        offered = None
        if rate > 0:
            offered = Lease(quota, rate, parts_of(rate, book.workers, _rate(held), held.parts if held else 1))
        book.shares[quota] = _Share(held, offered, self._sequence, now)

    def _next_rate(self, holder: Holder, book: _Book, quota: QuotaText, held: float, now: float) -> float:
        """What a holder should get of a quota now, as far as others' parts leave room."""
        total = self._quotas.get(quota, 0.0)
        target = self._targets.get(quota, {}).get(holder, 0.0 if self._targets else held)
        if book.concerned is not None and quota not in book.concerned:
            target = 0.0
        if quota in self._short:
            target = min(target, max(_AMPLE * book.demand.get(quota, 0.0), LEAST))
        if target <= held:
            # Giving up costs what must rest: not for the noise of demand, nor where nobody waits for it.
            noise = _NOISE * held + 2 * sqrt(held / _DEMAND_TIME)
            wanted = quota in self._short and held - target > noise
            foreign = book.concerned is not None and quota not in book.concerned
            return target if wanted or foreign or quota not in self._quotas or quota in self._over else held
        if now < self._alone or target < held * (1 + _STEP):
            return held
        every, own = self._taken(quota, book.owner)
        part = self._parts.get(quota, {}).get(book.owner, 0.0)
        free = min(total - every, part - own)
        rate = min(target, held + free)
        return rate if rate >= max(min(LEAST, total), held * (1 + _STEP)) else held


def _rate(lease: Lease | None) -> float:
    return lease.rate if lease else 0.0


def _name(holder: Holder) -> str:
    return "\n".join(holder)


def _counts(use: LeaseUse) -> dict[QuotaText, int]:
    """All requests that asked for a quota, by quota."""
    return {
        quota: use.used.get(quota, 0) + use.denied.get(quota, 0)
        for quota in use.used.keys() | use.denied.keys()
    }


# --- How a quota is shared between edges and balancers: by max-min fairness among tokens, in parts that are worth having.
#
# Theory. Who holds a token says how much it wants, and may lie. So nobody gets more than it asks for before all have what they ask for, or
# as much as any (max-min fair rates): a lie gains what others leave, and costs none of them its equal part. A token is one, whatever number
# of edges, balancers and instances it speaks for; these divide its part by the same rule.
#
# Source: Bertsekas and Gallager, "Data Networks" (1992), §6.5.2, max-min fair rates by water filling.


LEAST = 0.3
"""The smallest rate that an edge or a worker is leased, in requests per second, unless the whole quota is smaller: three
requests per window. Below, most of it would be lost to rounding to whole requests."""

_HEADROOM = 2.0
"""An edge gets at most this many times its demand; what nobody needs stays free for who needs it next."""
_FLOOR = 0.02
"""Part of a quota that is spread over all edges in any case, so that new demand need not wait for its first lease."""
_TRACE = 0.03
"""Demand below this, in requests per second, is the trace of a request long ago."""
_STICKY = 1.5
"""Where there are fewer parts than edges, one that holds a part keeps it against this many times its demand."""


NOTHING = 1e-9
"""Requests per second of which no part is worth having: one in thirty years. Of numbers near the least that there are, parts are 0."""


def shares(
    demand: Mapping[str, float],
    total: float,
    holding: Collection[str] = (),
    owners: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """What each edge should hold of a quota; the sum is at most `total`.

    Args:
        demand: of every edge, in requests per second.
        total: the quota, in requests per second.
        holding: the edges that hold a part now, which matters only where not all can.
        owners: the token of each edge; None: each has its own.
    """
    if not demand or total < NOTHING:
        return {}
    owned = _owned(demand, owners)
    fair = _fair(demand, total, owned)
    wanted = sum(demand.values())
    spread = max(_FLOOR * total, (total - _HEADROOM * wanted) / 2) / len(owned)
    floors = {
        edge: floor for edges in owned.values() for edge in edges if (floor := spread / len(edges)) >= LEAST
    }
    pool = total - sum(floors.values())
    served = _served(demand, fair, pool, holding)
    wanted = sum(fair[edge] for edge in served)
    parts = dict(floors)
    for edge in served:
        proportional = pool * (fair[edge] / wanted) if wanted > 0 else 0.0
        generous = max(_HEADROOM * fair[edge], LEAST)
        parts[edge] = floors.get(edge, 0.0) + min(proportional, generous)
    return parts


def _owned(demand: Mapping[str, float], owners: Mapping[str, str] | None) -> Mapping[str, list[str]]:
    """The edges of each token."""
    if owners is None:
        return {edge: [edge] for edge in demand}
    found: dict[str, list[str]] = defaultdict(list)
    for edge in demand:
        found[owners[edge]].append(edge)
    return found


def _fair(demand: Mapping[str, float], total: float, owned: Mapping[str, list[str]]) -> Mapping[str, float]:
    """What of each edge's demand counts: all of it where the quota suffices, else what it is left by max-min fairness."""
    sums = {owner: sum(demand[edge] for edge in edges) for owner, edges in owned.items()}
    if sum(sums.values()) <= total:
        return demand
    found: dict[str, float] = {}
    for owner, part in max_min(sums, total).items():
        found |= max_min({edge: demand[edge] for edge in owned[owner]}, part)
    return found


def max_min(wants: Mapping[str, float], total: float) -> dict[str, float]:
    """Parts of a total by max-min fairness: nobody has more than it wants, nor more than another that wants more than it has."""
    parts: dict[str, float] = {}
    left = total
    for number, name in enumerate(sorted(wants, key=lambda one: (wants[one], one))):
        parts[name] = min(wants[name], max(0.0, left) / (len(wants) - number))
        left -= parts[name]
    return parts


def _served(
    demand: Mapping[str, float], fair: Mapping[str, float], pool: float, holding: Collection[str]
) -> list[str]:
    """The edges whose proportional part of the pool is worth having; the one that may want most, if none is."""

    def standing(edge: str) -> tuple[float, float, str]:
        sticks = _STICKY if edge in holding else 1.0
        return (
            round(-fair[edge] * sticks, 9),
            -demand[edge] * sticks,
            edge,
        )  # rounded: equal parts differ by less

    ranked = sorted((edge for edge in demand if demand[edge] >= _TRACE), key=standing)
    del ranked[max(1, int(pool / LEAST)) :]
    wanted = sum(fair[edge] for edge in ranked)
    while len(ranked) > 1 and pool * min(fair[edge] for edge in ranked) < LEAST * wanted:
        wanted -= fair[ranked.pop()]
    return ranked


def parts_of(rate: float, workers: int, held_rate: float = 0.0, held_parts: int = 1) -> int:
    """How many workers a lease of `rate` requests per second is split between.

    As many as get `LEAST` each. But when an edge's rate grows, no worker's part may fall, and when it falls, none may
    grow: control's books know edges, and a rate that moved between two workers would escape them.
    """
    wanted = max(1, min(workers, int(rate / LEAST)))
    if held_rate <= 0:
        return wanted
    each = held_rate / held_parts
    if rate >= held_rate:
        return max(held_parts, min(wanted, int(rate / each * (1 + 1e-12))))
    return next((parts for parts in range(wanted, held_parts) if rate / parts <= each), held_parts)
