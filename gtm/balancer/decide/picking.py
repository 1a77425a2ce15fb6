"""Which backend takes a request: `gtm.core.balance.choosing` over the connections of this process.

Counts are this process's own (`Flights`); ten times a second they are settled with what servers and other balancers of the region
say, and what is expected of long requests is corrected by how long they run already.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from math import inf
from typing import TYPE_CHECKING

from gtm.adapters.fullness import MOST_BYTES, says_full
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import Looks, SentRequest
from gtm.balancer.wire.estimate import BYTES_A_TOKEN
from gtm.balancer.wire.facts import PromptCut
from gtm.balancer.wire.refusals import Refusal, no_model
from gtm.balancer.wire.responses import status_said
from gtm.core.balance.backends import Backend, Condition, Scraped
from gtm.core.balance.choosing.chooser import BackendChoice, BackendPool, begin, choice, pool_of
from gtm.core.balance.choosing.filters import well
from gtm.core.balance.choosing.placement import Placements
from gtm.core.balance.choosing.prefixes import PrefixMap
from gtm.core.balance.choosing.values import By, Candidate, ChoosingSettings, Prefix, WantedBackend, Why
from gtm.core.balance.flights import US, Flights, FlightTicket
from gtm.core.balance.groups import ONE_GROUP, ServerGroups, groups_of
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.values import SERVER_FAILURES, BackendLoad, CallKind, Sending
from gtm.core.balance.serving import declares, loaded
from gtm.core.balance.work import AskedWork, Costs
from gtm.core.handoff.verdict import Verdict

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange

SETTLE_EVERY = 0.1
"""Seconds between two times that counts are settled."""
LOADS_EVERY = 0.1
"""Least seconds between two times that what one server says of its load is read from its answers' heads."""
_REVISE_EVERY = 5
"""Settlings between two times that what is left of running requests is estimated anew."""

LOOSE_S = 10.0
"""Seconds for which a session, or a client's prompts that begin alike, go by load after one of them failed."""
_MOST_LOOSENED = 4096
BACKGROUND_S = 600.0
"""Seconds for which a request that was answered at once counts as work at its server, at the most."""
_FAILED = ("failed", "broken")
_NONE: frozenset[str] = frozenset()
_LOAD = By.LOAD
_WORDS = {
    Why.NO_BACKEND: "the region has no backend",
    Why.NO_VERSION: "no backend here is of this version",
    Why.DRAINING: "all backends that could serve it are being drained",
    Why.UNHEALTHY: "all backends that could serve it fail their checks, or are out (`/state` says why)",
    Why.TRIED: "all backends that could serve it were tried",
}


def _mark(exchange: Exchange, session: str | None, prefix: tuple[int, ...]) -> int:
    """What tells those apart who choose their backend: the client, with the session or the beginning of its prompt."""
    verdict = exchange.verdict
    routing = verdict.routing if isinstance(verdict, Verdict) else None
    client = exchange.client.peer if routing is None else routing.client
    return hash((client, prefix[0] if session is None else session))


def _whose(exchange: Exchange) -> Hashable:
    """Who has a request: its tenant, or the client if it has none."""
    verdict = exchange.verdict
    if not isinstance(verdict, Verdict) or verdict.routing is None:
        return exchange.client.peer
    return verdict.payer or verdict.routing.client


def looks_at(pool: BackendPool, *, sticks: bool) -> Looks:
    """What of a body choosing in a pool may go by. `sticks`: sessions or prompts lead to servers."""
    declared = {one.backend.models for one in pool.candidates}
    says = [
        names for one in pool.candidates if (names := _names_of(one)) is not None or one.condition.healthy
    ]
    served = frozenset().union(*(names for names in says if names is not None))
    unlike = (
        len(set(says)) > 1
    )  # one that says nothing is unlike one that does: what this lacks, that may have
    return Looks(
        hints=sticks and len(pool.candidates) > 1,
        models=len(declared) > 1 or unlike,
        declared=len(declared) > 1,
        served=served or None,
        unsaid=None in says,
        closed=frozenset() not in declared and bool(declared),
        lists=any(declared) or unlike,
        several=len(pool.candidates) > 1,
    )


def _names_of(one: Candidate) -> frozenset[str] | None:
    """The names that a server serves: those that it is for, or else says that it has; and the adapters that it lists. None: nobody says."""
    names = one.backend.models or one.condition.models
    return None if names is None else names | (one.condition.adapters or frozenset())


@dataclass(slots=True, eq=False, repr=False)
class _Flying:
    """A request at a backend."""

    picker: PoolPicker
    asked: AskedWork
    ticket: FlightTicket
    sending: Sending
    began: float

    def end(self, exchange: Exchange, how: str) -> None:
        """Count the request no more at its backend."""
        if not self.ticket.ended:
            self.picker.landed(self, exchange, how)


@dataclass(eq=False, repr=False)
class PoolPicker:
    """See above.

    Args:
        backends: the region's servers; each one's name is its URL.
        settings: how they are chosen.
        loop: the event loop.
        route: makes the way to one.
        health: told how live requests end, and tells conditions.
        affinity: whether requests of a session, by what they say, go to one server.
        cut: how prompts are cut, where `settings` go by their beginnings.
        read_load: reads what a server says of its load in an answer's head; None: nobody does.
        corrects: whether that corrects counts, as scrapes do; not beside them: a server is asked one question at a time.
    """

    backends: InitVar[Sequence[Backend]]
    settings: InitVar[ChoosingSettings]
    health: BackendHealth
    _: KW_ONLY
    loop: asyncio.AbstractEventLoop
    route: InitVar[Callable[[str], Route]] = Route
    affinity: bool = True
    cut: PromptCut | None = None
    draw: Callable[[], float] = random.random
    read_load: Callable[[bytes], BackendLoad | None] | None = None
    corrects: bool = False
    lost: Callable[[Route], None] | None = None
    """Told of each server that is judged down, when its slots count no more."""

    def __post_init__(
        self, backends: Sequence[Backend], settings: ChoosingSettings, route: Callable[[str], Route]
    ) -> None:
        self._loaded: dict[str, float] = {}
        self._losing: dict[str, Route] = {}
        self._learned: set[str] = set()
        """Servers whose slots are learned now."""
        self._loosened: dict[int, float] = {}
        """Who is not led to a backend by its session or prompt, and until when."""
        self.flights = Flights()
        self.holders = Holders()
        self.prefixes = PrefixMap()
        self.choices: Counter[tuple[By, bool]] = Counter()
        """Requests by what their server was chosen by, and whether the bound moved them from where that led."""
        self.costs = Costs()
        self._make_route = route
        self._placements = Placements()
        self._conditions: dict[str, Condition] = {}
        self._routes: dict[str, Route] = {}
        self._flying: dict[_Flying, None] = {}
        self._begun = 0.0
        """The sum of the times at which requests in flight began."""
        self._settled = 0
        self._timer: asyncio.TimerHandle | None = None
        self.pool: BackendPool = self._pooled(backends, settings)
        self._named: BackendPool | None = None
        self._grouped: BackendPool | None = None
        self._groups = ONE_GROUP
        self._names_of: Sequence[object] = ()
        """The groups go by this of each server."""
        self._looked: tuple[BackendPool, bool] | None = None
        self._looks = Looks()
        self._names: frozenset[str] = frozenset()
        """The names that the pool `_named` has."""

    # --- changes ---

    def configure(
        self,
        backends: Sequence[Backend],
        settings: ChoosingSettings,
        *,
        affinity: bool = True,
        cut: PromptCut | None = None,
        corrects: bool = False,
    ) -> None:
        """Go on with these servers: requests in flight at others end where they are."""
        if cut != self.cut:
            self.prefixes = PrefixMap()
        self.affinity, self.cut, self.corrects = affinity, cut, corrects
        self.pool = self._pooled(backends, settings)

    def conditions(self, conditions: Mapping[str, Condition]) -> None:
        """What is known of servers now."""
        for name, condition in conditions.items():
            before = self._conditions.get(name)
            if before is not None and before.healthy and not condition.healthy:
                self._fell(name)
        self._conditions.update(conditions)
        for name, condition in conditions.items():
            if condition.slots is not None:
                self._learned.add(name)
            else:
                self._learned.discard(name)
        self.pool = self.pool.updated(conditions)

    def _fell(self, name: str) -> None:
        """A server is not healthy any more: where it leaves a check without an answer, and neither where it says why, nor where a check is to be made first."""
        if self.lost is not None and name in self._routes and self.health.is_silent(name):
            self._lose(self._routes[name])

    def _lose(self, route: Route) -> None:
        """Tell once of a server that is judged down, however many requests found that in this turn: all that wait there are looked at."""
        if not self._losing:
            self.loop.call_soon(self._tell_lost)
        self._losing[route.url] = route

    def _tell_lost(self) -> None:
        losing, self._losing = self._losing, {}
        for route in losing.values():
            if self.lost is not None:
                self.lost(route)

    def cached(self, name: str, tokens: float) -> None:
        """A server's cache holds so many tokens."""
        if self.cut is not None and self.pool.settings.prefix is Prefix.MAP and tokens > 0:
            self.prefixes.holds(name, int(tokens * BYTES_A_TOKEN / self.cut.size))

    def _look(self, now: float) -> None:
        """Take in what live requests have changed."""
        self.conditions(self.health.changes(now))

    def start(self) -> None:
        """Begin to settle counts."""
        self._timer = self.loop.call_later(SETTLE_EVERY, self._settle)

    def stop(self) -> None:
        """End that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pooled(self, backends: Sequence[Backend], settings: ChoosingSettings) -> BackendPool:
        names = {backend.name for backend in backends}
        for name in [name for name in self._routes if name not in names]:
            self._routes.pop(name).close()
            self._loaded.pop(name, None)
        for name in names.difference(self._routes):
            self._routes[name] = self._make_route(name)
        self._conditions = {name: one for name, one in self._conditions.items() if name in names}
        self._learned &= names
        return pool_of(
            backends,
            self._conditions,
            self.flights,
            settings,
            prefixes=self.prefixes,
            placements=self._placements,
        )

    def _settle(self) -> None:
        now = self.loop.time()
        self._timer = self.loop.call_later(SETTLE_EVERY, self._settle)
        self.flights.settle(now)
        self._settled += 1
        if self._settled % _REVISE_EVERY == 0:
            for flying in self._flying:
                flying.ticket.revise(self.costs.left(flying.asked, now - flying.began))

    # --- for the proxy ---

    def cost(self, exchange: Exchange) -> float:
        """Seconds of work that a request is expected to be."""
        facts = exchange.facts
        # As `AskedWork(…)`, in half of the time.
        asked: AskedWork = tuple.__new__(AskedWork, (facts.model or "", facts.input_tokens, facts.max_tokens))
        cost = self.costs.expected(asked)
        exchange.asked = asked, cost
        return cost

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:
        """Choose a backend for an admitted request, not one of those that were tried (by URL)."""
        facts = exchange.facts
        model = facts.model
        if exchange.asked is None:
            self.cost(exchange)
        assert exchange.asked is not None  # noqa: S101 - see there
        asked, cost = exchange.asked
        session, prefix, mark = facts.session if self.affinity else None, facts.prefix, None
        if session is not None or prefix:
            mark = _mark(exchange, session, prefix)
            if self._loosened.get(mark, -inf) > now:
                session, prefix = None, ()
        # As `WantedBackend(…)`, in half of the time.
        wanted: WantedBackend = tuple.__new__(
            WantedBackend, (model, session, prefix, cost, frozenset(tried) if tried else _NONE)
        )
        thing = facts.state or exchange.target.names
        held = None if thing is None else self._held(exchange, thing)
        if isinstance(held, Refusal):
            return held
        found = held or choice(self.pool, wanted, self.draw())
        if isinstance(found, Why):
            if found is Why.NO_MODEL:
                return no_model(model)
            return Refusal(503, f"backends_{found.value}", _WORDS[found], 1.0)
        chosen, by, moved = found
        self.choices[by, moved] += 1
        exchange.chosen = found
        name = chosen.backend.name
        sending = self.health.begun(name, now, self.health.asker(model, None if by is _LOAD else mark))
        flying = _Flying(self, asked, begin(self.pool, chosen, wanted), sending, now)
        if self.health.pending:
            self._look(now)
        self._flying[flying] = None
        self._begun += now
        return SentRequest(self._routes[name], flying)

    def second(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | None:
        """Choose another backend for a request that one has, not one of those that were tried: one that is well, has the model loaded, and at which nobody waits. None: there is none."""
        facts = exchange.facts
        if exchange.asked is None:
            return None
        asked, cost = exchange.asked
        session, out = facts.session if self.affinity else None, frozenset(tried)
        while True:
            wanted = WantedBackend(facts.model, session, facts.prefix, cost, out)
            found = choice(self.pool, wanted, self.draw())
            if isinstance(found, Why):
                return None
            one = found.candidate
            name = one.backend.name
            if (
                well(one.condition)
                and not one.condition.refuses
                and loaded(one.condition, facts.model)
                and not one.full
                and not one.flight.queues(now)
            ):
                break
            out |= {name}
        exchange.chosen = found
        sending = self.health.begun(name, now, self.health.asker(facts.model, None))
        flying = _Flying(self, asked, begin(self.pool, one, wanted), sending, now)
        if self.health.pending:
            self._look(now)
        self._flying[flying] = None
        self._begun += now
        return SentRequest(self._routes[name], flying)

    def _held(self, exchange: Exchange, thing: str) -> BackendChoice | Refusal | None:
        """The server that has what a request goes on with; None: any will do, or nobody knows which it is."""
        if len(self._routes) < 2:
            return None
        name = self.holders.of(thing)
        if name is None:
            exchange.seeks = True
            return None
        number = self.pool.numbers.get(name)
        if number is None:
            words = f"the server that has `{thing}` is gone from this region, and what it kept with it: begin anew"
            return Refusal(404, "state_gone", words)
        found = self.pool.candidates[number]
        if not found.condition.healthy:
            words = f"the server that has `{thing}` fails its checks: try again later, or begin anew"
            return Refusal(503, "state_unreachable", words, 5.0)
        return BackendChoice(found, By.SESSION, moved=False)

    def landed(self, flying: _Flying, exchange: Exchange, how: str) -> None:
        """A request has ended at its backend."""
        now = self.loop.time()
        if self._flying.pop(flying, self) is None:
            self._begun -= flying.began
        if exchange.finds is not None or exchange.seeks:
            self._learn(flying, exchange)
        status = exchange.status
        if how == "answered" and exchange.answer.events and exchange.answer.size <= MOST_BYTES:
            said = status_said(exchange.answer.first)
            if said is not None:
                status = said
                exchange.full = says_full(503, exchange.answer.first, retry_after=False)
        if how == "answered" and not exchange.full:
            self._answered(flying, exchange, status, now)
        else:
            self._unanswered(flying, exchange, how, now)
        if self.health.pending:
            self._look(now)

    def _answered(self, flying: _Flying, exchange: Exchange, status: int, now: float) -> None:
        sending, took = flying.sending, now - flying.began
        begins = False
        if status >= 400:
            flying.ticket.end(None, now)
            if status in SERVER_FAILURES:
                self._loosen(sending, now)
            elif status < 500 and not exchange.complete:
                # By its head alone: what a client wants to send says nothing of who refuses it.
                self.health.cancelled(sending)
                return
        elif begins := exchange.facts.background and exchange.target.makes_state:
            self._works_on(flying)
        else:
            flying.ticket.end(took, now)
            if not exchange.tunnelled:
                self.costs.learn(flying.asked, took)
        if exchange.tunnelled or begins:
            self.health.answered(sending, status, None, now)
            return
        latency, streams = exchange.first_byte - flying.began, exchange.answer.events
        # As `CallKind(…)`, in half of the time.
        call: CallKind = tuple.__new__(CallKind, (flying.asked[0], exchange.target.path, streams, False))
        tokens = None if streams or exchange.meter is None else exchange.tokens
        beside = who = None
        if self._learned and sending.name in self._learned:
            beside = min(flying.ticket.met, self.flights.of(sending.name).outstanding)
            who = _whose(exchange)
        self.health.answered(sending, status, latency, now, call, tokens=tokens, beside=beside, who=who)

    def _works_on(self, flying: _Flying) -> None:
        """A server has answered, and begins: its work counts there for as long as such a request is expected to take, and what the answer took says nothing of that."""
        ticket = self.flights.of(flying.sending.name).begin(flying.ticket.work_us / US)
        flying.ticket.end()
        self.loop.call_later(min(ticket.cost_us / US, BACKGROUND_S), ticket.end)

    def _unanswered(self, flying: _Flying, exchange: Exchange, how: str, now: float) -> None:
        flying.ticket.end(None, now)
        if how in _FAILED:
            self._loosen(flying.sending, now)
        if how in ("answered", "full"):  # by a server that is full
            self.health.full(flying.sending, flying.ticket.met, now, _whose(exchange))
        elif how in ("cancelled", "refused"):
            self.health.cancelled(flying.sending)
        else:
            self.health.failed(flying.sending, exchange.failure, now)

    def _learn(self, flying: _Flying, exchange: Exchange) -> None:
        """Remember who has what was made, or found."""
        if exchange.finds is not None and exchange.finds.id and 0 < exchange.status < 300:
            self.holders.learn(exchange.finds.id, flying.sending.name)
        if exchange.seeks and 0 < exchange.status < 400 and (thing := exchange.goes_on_with) is not None:
            self.holders.learn(thing, flying.sending.name)

    def _loosen(self, sending: Sending, now: float) -> None:
        """Who was led to a backend and failed there goes by load for a while: where it was led, it would fail again, and say nothing new."""
        mark = None if sending.asker is None else sending.asker.mark
        if mark is None:
            return
        if len(self._loosened) >= _MOST_LOOSENED:
            self._loosened = {one: until for one, until in self._loosened.items() if until > now}
            if len(self._loosened) >= _MOST_LOOSENED:
                return
        self._loosened[mark] = now + LOOSE_S

    def failed(self, sent: SentRequest, detail: str, now: float) -> None:
        """Do nothing: the end of the request's place in the counts says that the backend failed."""

    def failing_since(self, sent: SentRequest) -> float | None:
        """Since when a check of a request's backend fails; None: none does."""
        return self.health.failing_since(sent.route.url)

    def is_down(self, sent: SentRequest) -> bool:
        """Whether a request's backend is judged down: it fails a check, is out, or is gone from the file."""
        name = sent.route.url
        condition = self._conditions.get(name)
        return condition is None or condition.ejected or self.health.failing_since(name) is not None

    def has_room(self, exchange: Exchange, tried: tuple[str, ...]) -> bool:
        """Whether a backend that was not tried has a free slot for a request; one whose slots nobody knows has."""
        model = exchange.facts.model
        return any(
            not (one.slots and one.flight.known >= one.slots)
            and one.backend.name not in tried
            and declares(one, model)
            and loaded(one.condition, model)
            for one in self._willing()
        )

    def silent(self, sent: SentRequest, since: float, now: float) -> None:
        """A request waits at a backend that has said nothing to anybody since then: a stall. It goes on, unless the backend is judged down by now."""
        if isinstance(sent.flight, _Flying):
            self.health.stalled(sent.flight.sending, now, since)
            if self.health.pending:
                self._look(now)
            if self.lost is not None and self.is_down(sent):
                self._lose(sent.route)

    @property
    def names(self) -> frozenset[str]:
        """The models and adapters that backends are for, or say that they have loaded."""
        if self._named is not self.pool:
            self._named = self.pool
            self._names = frozenset().union(
                *(
                    names
                    for one in self.pool.candidates
                    for names in (one.backend.models, one.condition.models, one.condition.adapters)
                    if names is not None
                )
            )
        return self._names

    @property
    def looks_at(self) -> Looks:
        """What of a request's body choosing may go by: worked out once for each pool."""
        looked = self._looked
        if looked is None or looked[0] is not self.pool or looked[1] is not self.affinity:
            self._looked = self.pool, self.affinity
            self._looks = looks_at(self.pool, sticks=self.affinity or self.cut is not None)
        return self._looks

    def service_s(self) -> float:
        """Seconds that a request holds a slot, in the mean: of those that ended; or, if that is longer, of those in flight so far.

        Those that ended are the short ones first. Those in flight have as long before them, in the mean, as they have behind them
        (in a renewal process age and residual life are distributed alike: Cox, "Renewal Theory", 1962, §5).
        """
        count = len(self._flying)
        age = self.loop.time() - self._begun / count if count else 0.0
        return max(self.costs.mean, age)

    def loaded(self, sent: SentRequest, said: bytes, now: float) -> None:
        """Take in what an answer's head says of its backend's load. Of a server that says it with each answer not each is read."""
        name = sent.route.url
        if self.read_load is None or now - self._loaded.get(name, -inf) < LOADS_EVERY:
            return
        if name not in self._routes:
            return
        self._loaded[name] = now  # damaged ones cost as much to read
        load = self.read_load(said)
        if load is not None:
            self.health.reported(name, load, now)
            if self.corrects and load.running is not None and load.waiting is not None:
                self.flights.asking(name)
                self.flights.scraped(name, Scraped(load.running, load.waiting, now))

    def usable(self) -> int:
        """How many backends may be chosen now."""
        return len(self.pool.usable)

    def groups(self) -> ServerGroups:
        """The groups of servers that requests may wait for: worked out anew where servers have other names than before."""
        if self._grouped is not self.pool:
            self._grouped = self.pool
            names = [
                (one.backend, one.condition.models, one.condition.adapters, one.condition.healthy)
                for one in self.pool.candidates
            ]
            if names != self._names_of:
                self._names_of, found = names, groups_of(self.pool.candidates)
                if found != self._groups:
                    self._groups = found
        return self._groups

    def slots(self, group: frozenset[str] | None = None) -> int | None:
        """How many requests the usable backends serve at once, without those that refuse while others do not; None where one does not say.

        `group`: the names of those of a group; None: all.
        """
        total = 0
        for one in self._willing(group):
            if not one.slots:
                return None
            total += one.slots
        return total

    def free_slots(self) -> float:
        """How many of the usable backends' slots are free, of those who say how many they have. None that is over-full takes another's."""
        return sum(max(0.0, one.slots - one.flight.known) for one in self._willing())

    def _willing(self, group: frozenset[str] | None = None) -> Sequence[Candidate]:
        usable = self.pool.usable
        if group is not None:
            usable = tuple(one for one in usable if one.backend.name in group)
        return [one for one in usable if not one.condition.refuses] or usable

    def routes(self) -> tuple[Route, ...]:
        """The ways to all backends."""
        return tuple(self._routes.values())


# --- Which server has what clients go on with (`gtm.balancer.wire.endpoints`), as far as this process has seen it.
#
# Laws:
#   1. What is kept is bounded; what was not asked for the longest goes first. What is not known is looked for (`gtm.balancer.plane.exchange`).
#   2. Who has something has it until that server is gone: another that says the same id takes nothing away from it.


MOST_HELD = 65_536
"""Things of which is remembered who has them: some 10 MiB."""


class Holders:
    """What is remembered of who has what, by ids."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def of(self, thing: str) -> str | None:
        """The server that has it; None: nobody knows."""
        holder = self._holders.pop(thing, None)
        if holder is not None:
            self._holders[thing] = holder  # as the newest
        return holder

    def learn(self, thing: str, server: str) -> None:
        """A server has made it, or has shown to have it."""
        if thing in self._holders:
            return
        if len(self._holders) >= MOST_HELD:
            del self._holders[next(iter(self._holders))]
        self._holders[thing] = server
