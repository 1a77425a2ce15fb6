"""What one stolen balancer token can do to clients of other regions: a whole control process, honest balancers, and one that lies.

Every region has a balancer that says truly what arrives there and how many slots are free, and that wants some of the
quotas for pushes. The token of one of them was stolen: its balancer goes on, and beside it somebody says with the same token whatever
can be said. Clients come by HTTP, where edges correct by free slots, and by DNS, where control goes by what regions say that arrives.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import msgspec

from gtm.api.routes.balancers import report_problems
from gtm.control.errors import BadRequest, Conflict
from gtm.core.balance.spill.corrector import Corrector, SendingWorker
from gtm.core.decision.router import Router
from gtm.core.latency.samples import Delta, Level
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import Capacity, SpillIn
from gtm.core.model.requests import Request
from gtm.core.model.services import Push
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.leases import LeaseHolder, LeaseUse
from gtm.core.quota.names import QuotaName, QuotaText
from gtm.feed.reports import BalancerReport, EdgeReport
from gtm.feed.wire import RoomReport
from tests import worlds
from tests.drills.liars import edge
from tests.drills.liars.arena import Arena, Damage
from tests.drills.liars.edge import CLIENTS, DRAWS, EEA, REGIONS

CAN_SERVE = 100.0
"""Requests per second that each region really serves, of `SERVICE_S` seconds each."""
SERVICE_S = 0.5
SLOTS = int(CAN_SERVE * SERVICE_S)
AN_ANSWER = 10.0
"""Requests that a DNS answer stands for."""
MOST_INTO = 30.0
"""What a region takes of other regions' demand, in requests per second."""
LASTS = 40
"""Seconds that a lie lasts: estimates of DNS's clients are smoothed, and a lease that is not proven ends after nine."""
NUMBERS = (0.0, -1.0, 1e-9, 1.0, 49.0, 50.0, 1e3, 1e6, 1e9, 1e12, 1e308, float("inf"), float("nan"))
SIGNALS = ("outstanding", "queue", "limit", "service_time_ms", "queue_wait_ms", "requests_per_second")
QUOTAS: tuple[QuotaText, ...] = (
    QuotaName("us-out").text,
    *(QuotaName(region, into=True).text for region in REGIONS),
)
"""All that are divided among balancers."""
DECLARED = {
    "rate": Capacity(requests_per_second=CAN_SERVE),
    "slots": Capacity(outstanding=SLOTS),
    "nothing": Capacity(),
}


@dataclass(frozen=True)
class Setting(edge.Setting):
    """An edge's world, in which some clients come by DNS; what the policy declares of regions, and whose token was stolen."""

    by_dns: frozenset[str]
    declared: str
    liar: str
    wants: Mapping[str, float]
    """By region: requests per second that find no slot there, and are pushed."""
    into: float | None
    """What a region takes of other regions' demand, in requests per second."""
    busy: frozenset[str]
    """Regions that have no free slot at the moment that is looked at, for a burst of which no plan knows."""


@dataclass(frozen=True)
class Lie:
    """All that a balancer's token can claim. What is left empty is said truly."""

    loads: tuple[Mapping[str, Any], ...] = ()
    """Load reports as JSON objects, every second."""
    pushes: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 1.0
    denied: int = 0
    """Requests that found no token of any quota, a second and name."""
    names: int = 1
    proves: bool = False
    lives: int = 1_000
    """Seconds after which each name is another instance."""
    rooms: tuple[Mapping[str, Any], ...] = ()
    """Reports of free slots, each on a line of its own."""
    latency: tuple[tuple[str, str, float], ...] = ()
    """Country, region, ms beside geography."""


def _signals(rng: random.Random) -> dict[str, Any]:
    return {name: rng.choice(NUMBERS) for name in SIGNALS if rng.random() < 0.6}


def draw_lie(rng: random.Random, setting: Setting, kinds: str) -> Lie:
    """A lie with these kinds in it: l(oad), p(ushes), q(uotas), s(lots), r(ound trips)."""
    own = setting.liar
    loads = tuple(
        {
            "region": region,
            # Under the name that the region's own balancer has, or beside it.
            "source": rng.choice((f"bal-{region}", f"s{rng.randint(0, 3)}")),
            **({"service": "chat"} if rng.random() < 0.7 else {}),
            **_signals(rng),
        }
        for region in (rng.choice((own, own, own, *REGIONS)) for _ in range(rng.randint(1, 4)))
    )
    whys = ("moved", "failed", "redirected", "came", "no_quota")
    pushes = {
        f"chat\t{rng.choice((*REGIONS, ''))}\t{rng.choice(whys)}": rng.choice(
            (50.0, 1e3, 1e9, 1e9, rng.choice(NUMBERS))
        )
        for _ in range(rng.randint(1, 6))
    }
    rooms = tuple(
        {
            "source": "x",
            "started": rng.choice((0.0, 1e11, 5.0)),
            "sequence": rng.choice((1, 2**53 - 1, 2**70)),
            "age": rng.choice((0.0, 0.0, -5.0, 1e9)),
            "whole": rng.choice(
                ({"free": 1e6, "limit": 1e6, "waiting": 0}, {"free": 0, "limit": 1e6, "waiting": 1e6}, wild)
            ),
        }
        for wild in ({name: rng.choice(NUMBERS) for name in ("free", "limit", "waiting")},)
        for _ in range(rng.choice((1, 3, 40)))
    )
    latency = tuple(
        (location.country or "", rng.choice((own, own, *REGIONS)), rng.choice((-2900.0, -60.0, 60.0, 2900.0)))
        for location in CLIENTS.values()
    )
    return Lie(
        loads if "l" in kinds else (),
        pushes if "p" in kinds else {},
        rng.choice((1.0, 1.0, 1.0, 0.0, 1e-9, 3600.0)) if "p" in kinds else 1.0,
        rng.choice((10**3, 10**9)) if "q" in kinds else 0,
        rng.choice((1, 8, 80)) if "q" in kinds else 1,
        rng.random() < 0.5,
        rng.choice((1, 4, 1_000)) if "q" in kinds else 1_000,
        rooms if "s" in kinds else (),
        latency if "r" in kinds else (),
    )


@cache
def snapshot(declared: str, into: float | None) -> Snapshot:
    """Five regions that take so much of each other's demand (None: all that they can), and the fence of the EEA."""
    return compile_policy(
        worlds.policy(
            *worlds.regions(
                " ".join(REGIONS), capacity=DECLARED[declared], spill_in=SpillIn(max_requests_per_second=into)
            ),
            worlds.service("chat", " ".join(REGIONS), push=Push.CARRY),
            worlds.rule("gdpr", "EEA", services="chat", client_jurisdictions="EEA"),
            SpilloverRule("us-out", "us", ("jp", "ie"), max_requests_per_second=20.0),
        ),
        worlds.SHIPPED,
    )


@dataclass(frozen=True)
class Outcome:
    """What others get: by client how many of `DRAWS` get which region (empty: refused), and the leases that regions' balancers hold.

    `planned` are the answers before edges corrected them. `leasable` is what is divided of each quota. `full`: of the requests that a region is sent, the share that finds no slot.
    """

    answers: Mapping[str, Counter[str]]
    planned: Mapping[str, Counter[str]]
    leases: Mapping[tuple[str, QuotaText], float]
    leasable: Mapping[QuotaText, float]
    full: Mapping[str, float]


class World(edge.World):
    """One run of a setting."""

    setting: Setting

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, snapshot(setting.declared, setting.into))
        self.holders = {region: LeaseHolder(region, 1) for region in REGIONS}
        self.lines: set[str] = set()
        self.reports = Counter[str]()
        self.sequence = 0

    @property
    def bound(self) -> dict[str, str]:
        """The balancers' tokens, each for its region."""
        return {f"bal-{region}": region for region in REGIONS}

    def second(self, lie: Any) -> None:
        """Edges and balancers report, then control decides."""
        self.now += 1.0
        self.sequence += 1
        router = self.router()
        shares = {client: self.shares(router, client) for client in CLIENTS}
        for name, rates in self.setting.rates.items():
            demand: dict[str, float] = defaultdict(float)
            for client, rate in rates.items():
                if client in self.setting.by_dns:
                    for region, count in shares[client].items():
                        row = self.row(router, client, region).replace("lookup", "dns")
                        demand[row] += rate / AN_ANSWER * count / len(DRAWS)
                else:
                    demand[self.row(router, client)] += rate
            self.active.reports.take(name, "192.0.2.1", EdgeReport("1", 1, 1, self.truth, demand, 1.0), name)
        arrivals = self.arrivals(shares)
        for region in REGIONS:
            self.honest(region, arrivals[region])
        if lie is not None:
            self.lie(lie)
        self.decide(self.bound)

    def shares(self, router: Router, client: str) -> Counter[str]:
        """How many of `DRAWS` get which region by the plan; DNS refuses nobody."""
        routing = router.routing(Request("chat", CLIENTS[client]))
        sheds = client not in self.setting.by_dns
        return Counter(routing.pick(draw, sheds=sheds).region or "" for draw in DRAWS)

    def arrivals(self, answers: Mapping[str, Counter[str]]) -> dict[str, float]:
        """Requests per second that come to each region."""
        found: dict[str, float] = dict.fromkeys(REGIONS, 0.0)
        for rates in self.setting.rates.values():
            for client, rate in rates.items():
                for region, count in answers[client].items():
                    if region:
                        found[region] += rate * count / len(DRAWS)
        return found

    def honest(self, region: str, arriving: float) -> None:
        """A region's balancer says what is true."""
        serving = min(arriving, CAN_SERVE)
        running = serving * SERVICE_S
        token = f"bal-{region}"
        load = {
            "region": region,
            "service": "chat",
            "outstanding": running,
            "queue": 0 if arriving <= CAN_SERVE else 5,
            "limit": SLOTS,
            "service_time_ms": SERVICE_S * 1000,
            "requests_per_second": serving,
        }
        self.active.loads.take(self.snapshot.policy, load, token, region)
        holder = self.holders[region]
        wanted = int(self.setting.wants[region])
        holder.count(dict.fromkeys(QUOTAS, wanted // 2), dict.fromkeys(QUOTAS, wanted - wanted // 2))
        report = BalancerReport(holder.use(self.now), region=region, seconds=1.0)
        reply = self.active.balancers.take(token, token, "b", report, token)
        if reply.leases is not None and holder.take(reply.leases):
            holder.taken(0, reply.leases.sequence)
        free = 0.0 if region in self.setting.busy else max(0.0, SLOTS - running)
        self.say(region, "b", {"free": free, "limit": SLOTS, "waiting": 0})

    def say(self, region: str, name: str, whole: Mapping[str, Any], **more: Any) -> None:
        """A line of a balancer, in the bytes that it sends: read as control's API reads it."""
        source = f"bal-{region}/{name}"
        rooms = self.active.rooms
        if source not in self.lines:
            try:
                rooms.opened(region, source)
            except Conflict:
                return
            self.lines.add(source)
        told = {"source": "x", "started": 1.0, "sequence": self.sequence, "age": 0.0, "whole": whole, **more}
        try:
            report = msgspec.json.decode(json.dumps(told).encode(), type=RoomReport)
            if rooms.reads(region, source):
                rooms.heard(region, replace(report, source=source))
        except (ValueError, BadRequest):
            rooms.closed(region, source, said=False)
            self.lines.discard(source)

    def lie(self, lie: Lie) -> None:
        """All that is said with the stolen token."""
        region = self.setting.liar
        token = f"bal-{region}"
        for load in lie.loads:
            self.active.loads.take(self.snapshot.policy, dict(load), token, region)
        for number, room in enumerate(lie.rooms):
            self.say(region, f"x{number}", room["whole"], started=room["started"], age=room["age"])
        deltas = tuple(
            Delta(Level.COUNTRY, country, told, True, 10**6, (1 << 62) - 1, ms, 1.0, edge.NOW + self.now)
            for country, told, ms in lie.latency
        )
        # What every name says alike is checked once.
        alike = [
            told
            for told in (
                BalancerReport(region=region, pushes=dict(lie.pushes), seconds=lie.seconds),
                *(BalancerReport(region=region, latency=(delta,)) for delta in deltas),
            )
            if not report_problems(told, region)
        ]
        for number in range(lie.names):
            name = f"x{number}"
            self.reports[name] += 1
            denied = dict.fromkeys(QUOTAS, lie.denied * self.reports[name])
            life, report = divmod(self.reports[name], lie.lives)
            known = 2**53 - 1 if lie.proves else 0
            use = LeaseUse(f"i{life}", report + 1, known, denied=denied) if lie.denied else None
            own = BalancerReport(use, region=region)
            for told in ([] if report_problems(own, region) else [own]) + alike:
                try:
                    self.active.balancers.take(token, token, name, told, token)
                except Conflict:
                    return

    def outcome(self) -> Outcome:
        """What everybody gets now; over HTTP as edges correct it by free slots."""
        router = self.router()
        message = self.active.rooms.message()
        rooms = {
            region: [report.held(self.now) for report in reports] for region, reports in message.rooms.items()
        }
        tokens = len(self.setting.rates) + len(REGIONS)
        worker = SendingWorker("edge", 1, lambda _: True, self.now - 10.0)
        worker.number(self.snapshot.regions, self.now)
        worker.hear(rooms, tokens, self.now)
        corrector = Corrector(router.view, worker)
        answers = {}
        for client, location in CLIENTS.items():
            routing = router.routing(Request("chat", location))
            group = routing.ranking.group
            found = answers[client] = Counter[str]()
            for draw in DRAWS:
                sheds = client not in self.setting.by_dns
                option = routing.pick(draw, sheds=sheds)
                if sheds:
                    correction = corrector.ask(group, None, option, self.now)
                    if correction is not None and correction.way is not None:
                        option = corrector.option(group, correction.way)
                found[option.region or ""] += 1
        arrivals = self.arrivals(answers)
        leases = {
            (region, lease.quota): lease.rate
            for region, holder in self.holders.items()
            if region != self.setting.liar
            for lease in holder.use(self.now).held
        }
        full = {
            region: 1.0 if region in self.setting.busy else max(0.0, 1 - CAN_SERVE / rate) if rate else 0.0
            for region, rate in arrivals.items()
        }
        planned = {client: self.shares(router, client) for client in CLIENTS}
        return Outcome(answers, planned, leases, dict(self.active.planning.latest.leasable), full)


class BalancerArena(Arena[Setting, Lie, Outcome]):
    """One stolen balancer token against the clients and balancers of other regions.

    Args:
        sheltered: whether the policy declares how many requests a second each region can serve, all clients come by HTTP, where edges
            count them, and no region is taken by surprise.
    """

    principal = "balancer's token"
    kinds: ClassVar[Mapping[str, str]] = {
        "l": "load",
        "p": "pushes",
        "q": "quotas",
        "s": "free slots",
        "r": "round trips",
    }

    def __init__(self, *, sheltered: bool = True) -> None:
        self.sheltered = sheltered
        if not sheltered:
            self.principal = "the same, with DNS, bursts, and rates that nobody declares"

    def setting(self, rng: random.Random) -> Setting:
        """Clients' rates as in an edge's world, without a liar among edges."""
        drawn = edge.Setting.drawn(rng)
        rates = {name: one for name, one in drawn.rates.items() if name != "liar"}
        by_dns = frozenset(client for client in CLIENTS if rng.random() < 0.5)
        wants = {region: rng.uniform(0, 40) for region in REGIONS}
        busy = frozenset(region for region in REGIONS if rng.random() < 0.4)
        if self.sheltered:
            by_dns = busy = frozenset()
        return Setting(
            rates,
            drawn.down,
            by_dns,
            "rate" if self.sheltered else rng.choice([*DECLARED]),
            rng.choice(REGIONS),
            wants,
            rng.choice((None, MOST_INTO)),
            busy,
        )

    def lie(self, rng: random.Random, setting: Setting, kinds: str) -> Lie:
        """A lie with these kinds in it."""
        return draw_lie(rng, setting, kinds)

    def run(self, setting: Setting, lie: Lie | None) -> Outcome:
        """What others get after a while of lies, from the first second on."""
        world = World(setting)
        with edge.quick():
            for _ in range(LASTS):
                world.second(lie)
        return world.outcome()

    def damage(self, setting: Setting, honest: Outcome, lied: Outcome) -> Damage:
        """Of clients whose nearest region is another than the liar's, and of other regions' balancers."""
        rates = {client: rate for one in setting.rates.values() for client, rate in one.items()}
        whole = changed = refused = 0.0
        outside = 0
        for client, before in honest.answers.items():
            after = lied.answers[client]
            if CLIENTS[client].country in ("DE", "FR"):
                outside += sum(after[region] for region in after if region and region not in EEA)
            if before.most_common(1)[0][0] == setting.liar:
                continue
            rate = rates[client]
            whole += rate
            changed += rate * sum((before - after).values()) / len(DRAWS)
            refused += rate * max(0.0, _refused(after, lied) - _refused(before, honest)) / len(DRAWS)
        # An equal part is the liar's, if it wants it: the stolen token's region may be as busy as that.
        owners = Counter(quota for _, quota in honest.leases)
        lost = [
            (min(rate, honest.leasable[quota] / (owners[quota] + 1)) - lied.leases.get((region, quota), 0.0))
            / MOST_INTO
            for (region, quota), rate in honest.leases.items()
        ]
        taken = max([0.0, *lost])
        if not whole:
            return Damage(outside, 0.0, taken)
        return Damage(outside, refused / whole, taken, changed / whole)


def _refused(answers: Counter[str], outcome: Outcome) -> float:
    """How many of these answers are refusals, or lead to a region that has no slot left."""
    return sum(count * (outcome.full[region] if region else 1.0) for region, count in answers.items())
