"""Counters that cross processes, and the metrics they become.

Workers count into a plain dictionary (an increment must cost next to nothing on the answer path), hand the increments
to their agent every second, and the agent keeps the totals of the whole edge in a Prometheus registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gtm.core.decision.options import Option
from gtm.core.decision.ranking import RankingClass
from gtm.core.demand.rows import row_text
from gtm.core.model.outcomes import Outcome

METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gtm_decisions_total": (
        "Decisions, by service, region chosen (empty: refused), outcome and tier (dns, lookup, redirect, carry, authorize).",
        ("service", "region", "outcome", "via"),
    ),
    "gtm_dns_queries_total": (
        "DNS answers sent, by name (of a host or zone of the policy, or none), type, response code and transport.",
        ("name", "type", "rcode", "transport"),
    ),
    "gtm_dns_full_way_total": ("DNS packets that no prepared answer fits, by transport.", ("transport",)),
    "gtm_dns_dropped_total": ("DNS packets dropped, by reason.", ("reason",)),
    "gtm_dns_limited_total": (
        "DNS replies over UDP beyond a client prefix's budget, by what became of them (slipped, dropped).",
        ("action",),
    ),
    "gtm_latency_samples_total": (
        "Round trips posted, by who measured (beacon, balancer) and what became of them.",
        ("kind", "verdict"),
    ),
    "gtm_edge_corrections_total": (
        "HTTP requests by the region that the plan chose (empty: refused), the one that took it instead (empty: none), and why.",
        ("from", "to", "why"),
    ),
    "gtm_edge_carried_total": (
        "Requests carried to a region, and how they ended there (answered, broken, cancelled, failed, full, refused).",
        ("region", "ended"),
    ),
    "gtm_edge_carried_elsewhere_total": (
        "Carried requests that another region took, since the one that was asked first did not.",
        ("from", "to"),
    ),
    "gtm_http_requests_total": ("HTTP requests to the edge, by route and status.", ("route", "status")),
}
"""Metric name → help and label names. Labels only ever take values from the policy or from closed sets."""


EDGE_GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gtm_edge_control_connected": ("1 while the edge follows control's feed.", ()),
    "gtm_edge_control_heard_timestamp_seconds": (
        "When control was last heard, before a restart too; 0: never.",
        (),
    ),
    "gtm_edge_clock_spread_seconds": (
        "By how much the highest reading ever of a clock is beyond what this machine's and control's show now.",
        (),
    ),
    "gtm_edge_policy_unsaved_seconds": (
        "For how long the disk has refused the policy that the edge follows: a restart without control would follow an older one; 0: it is there.",
        (),
    ),
    "gtm_edge_revision": ("The policy revision that the edge holds; 0: none.", ()),
    "gtm_edge_policy_timestamp_seconds": ("When that policy was written; 0: there is none.", ()),
    "gtm_edge_plan_timestamp_seconds": (
        "When the plan that the edge follows was made; 0: it follows none.",
        (),
    ),
    "gtm_edge_geoip_timestamp_seconds": ("When the oldest GeoIP database in use was built.", ()),
    "gtm_edge_alone_seconds": (
        "For how long the process asked has answered without its agent; 0: with it.",
        (),
    ),
    "gtm_edge_workers": ("Workers that answer, by kind (dns, http).", ("kind",)),
    "gtm_edge_endpoint_health": (
        "1 for what the edge's own probes say of an endpoint (up, down, unknown), 0 for the others.",
        ("region", "endpoint", "status"),
    ),
    "gtm_edge_address_health": (
        "1 for what the edge's own probes say of an address that DNS gives out (up, down, unknown), 0 for the others.",
        ("region", "endpoint", "address", "status"),
    ),
    "gtm_edge_probe_timestamp_seconds": ("When an endpoint was last probed.", ("region", "endpoint")),
    "gtm_edge_probe_seconds": ("What the last probe of an endpoint took.", ("region", "endpoint")),
    "gtm_edge_certificate_expiry_timestamp_seconds": (
        "When the TLS certificate ends that an endpoint showed to the last probe.",
        ("region", "endpoint"),
    ),
}
"""An edge's gauges: name → help and label names."""

GaugeValue = tuple[str, tuple[str, ...], float]
"""Name, label values, value."""


KEPT_KEYS = 20_000
"""Counters that one worker keeps although they stand still."""


class Tally:
    """A count that the answer path keeps where it is needed anyway; `Counts.take` adds it to that of its key.

    Several keys, joined by `joint_key`, are counted as one.
    """

    __slots__ = ("key", "n", "round", "told")

    def __init__(self, key: str) -> None:
        self.key = key
        self.n = 0
        self.told = 0
        self.round: list[Tally] | None = None


class Counts(dict[str, float]):
    """What one worker has counted: a metric's name and its label values, joined by tabs → sum since it began.

    The sums only grow, and `take` tells by how much: to set them back would fight with an answering thread that has
    read a sum and not written the next one yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.round: list[Tally] = []
        """The tallies that count since the last `take`. Whoever counts in one that is not in it puts it in."""
        self._told: dict[str, float] = {}
        self._taking = Lock()  # never held while counting

    def tally(self, tally: Tally) -> None:
        """Count in a tally."""
        if tally.round is not self.round:
            tally.round = self.round
            self.round.append(tally)
        tally.n += 1

    def add(self, key: str, increment: float = 1) -> None:
        """Count something."""
        self[key] = self.get(key, 0) + increment

    def take(self) -> dict[str, float]:
        """The increments since the last time, while one other thread may count."""
        with self._taking:
            now, told = self.copy(), self._told
            gained = {key: total - told.get(key, 0) for key, total in now.items() if total != told.get(key)}
            if len(now) > KEPT_KEYS:  # hostile traffic must not grow this
                for key in now.keys() - gained.keys():
                    del self[key], now[key]
            self._told = now
            for key, increment in self._tallied():
                gained[key] = gained.get(key, 0) + increment
            return gained

    def _tallied(self) -> Iterator[tuple[str, int]]:
        ended, self.round = self.round, []
        for tally in ended:
            # Another thread may still count in it; what it adds after this look is found the next time.
            total = tally.n
            for key in tally.key.split("\n"):
                yield key, total - tally.told
            tally.told = total


def joint_key(*keys: str) -> str:
    """The key of a tally that counts for several."""
    return "\n".join(keys)


MAX_DEMAND_ROWS = 50_000
"""Rows of demand kept until the next report; what is beyond them is counted in the metrics only."""
MAX_CLIENTS = 5_000
"""Client prefixes kept until the metrics are next written: a DNS worker without its agent never writes them."""

_DECISIONS = "gtm_decisions_total"
_TOP_CLIENTS = "gtm_dns_top_clients"
_TOP = 10
_DEMAND = "demand"
_DNS = {
    "gtm_dns_queries_total": "answered",
    "gtm_dns_limited_total": "limited",
    "gtm_dns_dropped_total": "dropped",
}
_CORRECTIONS = "gtm_edge_corrections_total"


def decision_key(group: RankingClass, cell: str, option: Option, via: str) -> str:
    """The key under which a decision is counted; `via` is the tier that answered (`dns`, `lookup`, `redirect`, `carry`, `authorize`).

    It says what the metrics say, and the request's ranking class and demand cell for the planner. What only another edge
    may answer is no demand here: the client brings it there.
    """
    if option.outcome is Outcome.REFUSED_EDGE:
        return f"{_DECISIONS}\t{group.service.service.name}\t\t{option.outcome.value}\t{via}"
    row = row_text(
        group.service.service.name, option.region or "", option.outcome.value, via, group.key, cell
    )
    return f"{_DEMAND}\t{row}"


def correction_key(drawn: Option, moved: Option | None, why: str) -> str:
    """The key under which what became of the plan's choice is counted; `moved` is None where it stands."""
    taken = "" if moved is None else moved.region
    return f"{_CORRECTIONS}\t{drawn.region or ''}\t{taken}\t{why}"


def dns_part(name: str, labels: Sequence[str]) -> str | None:
    """What control is told of a counter of DNS, tabs between; None for any other counter.

    `answered`, type, rcode and transport; `limited` and what became of the reply; `dropped` and why.
    """
    part = _DNS.get(name)
    if part is None:
        return None
    return "\t".join(
        (part, *(labels[1:] if part == "answered" else labels))
    )  # without the name that was asked for


def metric_key(key: str) -> str:
    """The key of the metric that a key counts towards: a decision's without its ranking class and demand cell."""
    name, *labels = key.split("\t")
    return "\t".join((_DECISIONS, *labels[:4])) if name == _DEMAND else key


def demand_row(key: str) -> str | None:
    """What control is told of a decision's key; None for the key of anything else."""
    name, _, row = key.partition("\t")
    return row if name == _DEMAND else None


def top_client_key(prefix: str) -> str:
    """The key under which the replies to one of the busiest client prefixes are counted."""
    return f"{_TOP_CLIENTS}\t{prefix}"


class _Gauges(Collector):
    """Gauges that are looked up when the metrics are written."""

    def __init__(self, read: Callable[[], Iterable[GaugeValue]]) -> None:
        self._read = read

    def describe(self) -> Iterator[GaugeMetricFamily]:
        for name, (text, labels) in EDGE_GAUGES.items():
            yield GaugeMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = {family.name: family for family in self.describe()}
        for name, labels, value in self._read():
            families[name].add_metric(list(labels), value)
        yield from families.values()


class EdgeMetrics:
    """The totals of one edge, across its workers, and the demand not yet reported.

    Args:
        gauges: how the edge stands, asked each time the metrics are written.
    """

    def __init__(self, gauges: Callable[[], Iterable[GaugeValue]] = tuple) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(gauges))
        self._demand: dict[str, float] = {}
        self._corrections: dict[str, float] = {}
        self._dns: dict[str, float] = {}
        self._counters = {
            name: Counter(name, text, labels, registry=self.registry)
            for name, (text, labels) in METRICS.items()
        }
        self._overruled = Gauge(
            "gtm_edge_overruled_regions",
            "Regions for which this edge goes by its own probes against the verdict of most edges.",
            registry=self.registry,
        )
        self._skipped = Counter(
            "gtm_feed_skipped_total",
            "Messages of control's feed that were too long or could not be read, and were left out.",
            registry=self.registry,
        )
        self._clients: dict[str, float] = {}
        self._top_clients = Gauge(
            _TOP_CLIENTS,
            "DNS replies over UDP in about the last second to the client prefixes that get the most.",
            ("prefix",),
            registry=self.registry,
        )

    def add(self, counts: Mapping[str, float]) -> None:
        """Take in a worker's increments. Keys of unknown metrics or with the wrong number of labels are ignored."""
        for key, increment in counts.items():
            row = demand_row(key)
            if row is not None and (row in self._demand or len(self._demand) < MAX_DEMAND_ROWS):
                self._demand[row] = self._demand.get(row, 0) + increment
            name, *labels = metric_key(key).split("\t")
            if name == _CORRECTIONS and len(labels) == 3 and labels[1]:
                way = "\t".join(labels[:2])
                self._corrections[way] = self._corrections.get(way, 0) + increment
            if name == _TOP_CLIENTS and len(labels) == 1:
                (prefix,) = labels
                if prefix in self._clients or len(self._clients) < MAX_CLIENTS:
                    self._clients[prefix] = self._clients.get(prefix, 0) + increment
            if name in METRICS and len(labels) == len(METRICS[name][1]):
                self._counters[name].labels(*labels).inc(increment)
                part = dns_part(name, labels)
                if part is not None:
                    self._dns[part] = self._dns.get(part, 0) + increment

    def overruled(self, regions: int) -> None:
        """For how many regions the edge goes by its own probes against the common verdict."""
        self._overruled.set(regions)

    def skipped(self) -> None:
        """Count a message of the feed that was left out."""
        self._skipped.inc()

    def take_demand(self) -> dict[str, float]:
        """Hand over the demand gathered since the last time."""
        demand, self._demand = self._demand, {}
        return demand

    def take_corrections(self) -> dict[str, float]:
        """Hand over the requests moved since the last time: by the region that the plan chose and the one that took them, a tab between."""
        corrections, self._corrections = self._corrections, {}
        return corrections

    def take_dns(self) -> dict[str, float]:
        """Hand over what DNS did since the last time (`dns_part`)."""
        dns, self._dns = self._dns, {}
        return dns

    def text(self) -> str:
        """The metrics in Prometheus's text format; the top clients are those since the last time."""
        clients, self._clients = self._clients, {}
        self._top_clients.clear()
        for prefix, replies in nlargest(_TOP, clients.items(), key=itemgetter(1)):
            self._top_clients.labels(prefix).set(replies)
        return generate_latest(self.registry).decode()
