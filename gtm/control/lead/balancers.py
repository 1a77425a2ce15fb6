"""Balancers' reports, taken in: the keys that they sign pushes with, and what they did with the quotas' leases.

Laws:
  1. A balancer's keys count for the name of the token that they were told with, and for no other: whoever reads the feed knows it.
  2. They live in memory only. A control that becomes active hears each of them again within a second, and while it has not, nothing is pushed.
  3. What is learned of round trips is of the regions that the token speaks for (the caller sees to it), counts as what came with that token,
     and disputes in its name alone.
  4. What a report counts (pushes, times) is counted once, however often the report comes (`BalancerReport.number`).
  5. Leases are of the same books as edges': no quota is spent twice because of who spends it. A balancer is leased quotas that pushes
     from its own region may owe, and no others; its token is one owner, whatever balancers it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from gtm.control.errors import Conflict
from gtm.control.lead.demand import RateBook
from gtm.control.lead.latency import LatencyBook
from gtm.control.lead.leases import Leases
from gtm.core.model.policy import Policy
from gtm.core.quota.leases import LeaseUse
from gtm.core.quota.names import QuotaText, concerning
from gtm.feed.reports import BalancerReply, BalancerReport, RegionShown, ServerShown, TenantShown

MOST = 64
"""Balancers of one token whose keys are kept."""
MOST_RUNS = 4
"""Runs of a balancer whose reports' numbers are kept."""
SHOWN_FOR = 30.0
"""Seconds for which what a balancer showed of the inside of its region is now."""
MOST_SHOWN = 2000
"""Model servers that one answer shows, and tenants."""
KNOWN_FOR = 3600.0
"""Seconds after its last report for which a balancer's keys stay published: what it signed is over after one minute."""


@dataclass(frozen=True, slots=True)
class ToldKeys:
    """The keys that a balancer told last: under which name, with which token (its id), when (monotonic seconds); and what else it told."""

    issuer: str
    token_id: str
    keys: tuple[str, ...]
    at: float
    name: str = ""
    report: BalancerReport | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A balancer that was heard of lately: its own name and its token's, and `age` seconds ago what it said."""

    name: str
    region: str
    """Empty: it is older than gtm's balancers that say so."""
    token: str
    """The name of the token that it reports with."""
    version: str
    age: float
    """Seconds since its last report."""
    tiers: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class HeardInside:
    """The inside of a region as a balancer showed it `age` seconds ago."""

    name: str
    region: str
    token: str
    """The name of the token that it reports with."""
    age: float
    """Seconds since it showed it."""
    servers: tuple[ServerShown, ...]
    tenants: tuple[TenantShown, ...]
    servers_left_out: int
    """More that its report, or this answer, had no place for."""
    tenants_left_out: int


@dataclass(slots=True, eq=False)
class Balancers:
    """See above.

    Args:
        leases: the books of quotas.
        latency: what is known of round trips.
        monotonic: seconds that never step back.
        pushes: takes what they found no slot for.
        policy: the one in force.
        record: takes what requests took and what was pushed, once.
    """

    leases: Leases
    latency: LatencyBook
    monotonic: Callable[[], float]
    pushes: RateBook = field(default_factory=RateBook)
    policy: Callable[[], Policy] = Policy
    record: Callable[[BalancerReport], None] = lambda _: None
    dropped: Counter[str] = field(init=False, default_factory=Counter)
    """Items that were left out of reports, by part of the report."""
    _concerns: tuple[Policy | None, dict[str, frozenset[QuotaText]]] = field(init=False, default=(None, {}))
    _told: dict[tuple[str, str], ToldKeys] = field(init=False, default_factory=dict)
    _numbers: dict[tuple[str, str], dict[str, int]] = field(init=False, default_factory=dict)
    """The last report's number of each run, the newest runs last."""
    _inside: dict[tuple[str, str], tuple[RegionShown, float]] = field(init=False, default_factory=dict)
    """What each showed last, and when."""

    def take(
        self, token: str, token_id: str, name: str, report: BalancerReport, reporter: str
    ) -> BalancerReply:
        """Take in what a balancer reports; the reply leases it its part of the quotas.

        Args:
            token: its token's name.
            token_id: the token's id.
            name: the balancer's, which tells it from others of that token.
            report: what was read of it, within bounds.
            reporter: the token's name among those whose samples dispute locations.

        Raises:
            Conflict: the token has as many balancers as are kept.
        """
        now = self.monotonic()
        self._forget(now)
        known = token_id, name
        if known not in self._told and sum(one == token_id for one, _ in self._told) >= MOST:
            raise Conflict(
                f"the token `{token}` has {MOST} balancers already: make others a token of their own"
            )
        kept = replace(report, leases=None, latency=(), witnesses=(), pushes={}, inside=None, times=())
        self._told[known] = ToldKeys(token, token_id, report.handoff_keys, now, name, kept)
        if report.inside is not None:
            self._inside[known] = report.inside, now
        own = [witness._replace(reporter=reporter) for witness in report.witnesses]
        self.latency.take(report.latency, token_id or token, own)
        if report.region and self._is_new(known, report):
            self.record(report)
            counts = {f"{report.region}\t{told}": count for told, count in report.pushes.items()}
            self.pushes.take(f"{token_id}/{name}", counts, report.seconds, now)
        # No edge has such a name: two that share one are told apart by their tokens.
        concerned = self._concerned(report.region)
        use = report.leases
        if use is not None:
            theirs = use.of(concerned)
            self.dropped["leases"] += _quotas(use) - _quotas(theirs)
            use = theirs
        return BalancerReply(
            self.leases.answer(f"{token}/{name}", use, now, owner=token, concerned=concerned)
        )

    def _is_new(self, known: tuple[str, str], report: BalancerReport) -> bool:
        """Whether what a report counts was not taken before. A balancer that replaces another has a run of its own beside it."""
        if not report.number:
            return True
        runs = self._numbers.setdefault(known, {})
        last = runs.pop(report.run, 0)
        runs[report.run] = max(last, report.number)
        for run in list(runs)[:-MOST_RUNS]:
            del runs[run]
        return report.number > last

    def _concerned(self, region: str) -> frozenset[QuotaText]:
        """The quotas that balancers of a region may hold."""
        policy = self.policy()
        if self._concerns[0] is not policy:
            self._concerns = policy, {}
        found = self._concerns[1].get(region)
        if found is None:
            found = self._concerns[1][region] = concerning(policy, region)
        return found

    def told(self) -> Iterable[ToldKeys]:
        """The keys of all that were heard of lately."""
        self._forget(self.monotonic())
        return tuple(self._told.values())

    def heard(self) -> list[Heard]:
        """All that were heard of lately, by region and name."""
        now = self.monotonic()
        self._forget(now)
        found = [
            Heard(
                one.name,
                one.report.region,
                one.issuer,
                one.report.version,
                max(0.0, now - one.at),
                one.report.tiers,
            )
            for one in self._told.values()
            if one.report is not None
        ]
        return sorted(found, key=lambda one: (one.region, one.name, one.token))

    def inside(self, region: str | None = None) -> list[HeardInside]:
        """What balancers showed lately of the inside of a region, or of all, by region and name; an answer's rows are bounded."""
        now = self.monotonic()
        self._forget(now)
        found = []
        for known, (shown, at) in self._inside.items():
            one = self._told[known]
            where = "" if one.report is None else one.report.region
            if now - at <= SHOWN_FOR and region in (None, where):
                found.append((where, one.name, one.issuer, now - at, shown))
        servers_left = tenants_left = MOST_SHOWN
        heard = []
        for where, name, token, age, shown in sorted(found, key=itemgetter(0, 1, 2)):
            servers, tenants = shown.servers[:servers_left], shown.tenants[:tenants_left]
            servers_left -= len(servers)
            tenants_left -= len(tenants)
            more_servers = shown.servers_left_out + len(shown.servers) - len(servers)
            more_tenants = shown.tenants_left_out + len(shown.tenants) - len(tenants)
            heard.append(HeardInside(name, where, token, age, servers, tenants, more_servers, more_tenants))
        return heard

    def _forget(self, now: float) -> None:
        for known in [known for known, one in self._told.items() if now - one.at > KNOWN_FOR]:
            del self._told[known]
            self._inside.pop(known, None)
            self._numbers.pop(known, None)


def _quotas(use: LeaseUse) -> int:
    """How many quotas a report tells of."""
    return len(use.used.keys() | use.denied.keys() | {lease.quota for lease in use.held})
