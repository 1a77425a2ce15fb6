"""Demand as the edges report it: smoothed rates by ranking class and demand cell, and what became of it.

Laws:
  1. Silence is not zero: an edge that stops reporting keeps its last rates for `KEPT` seconds (its clients are still
     there, on it or on its way to others), and is forgotten after.
  2. DNS answers are not requests. How many requests one stands for follows from what the regions report; without
     reports it counts as one.
  3. An edge is believed as far as its token's history and others' words make likely (`gtm.core.demand.belief`).

`RateBook` smooths what edges and balancers count by pairs of words: what free slots moved (docs/spill-back.md), what DNS did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, expm1
from operator import itemgetter

from gtm.core.demand.belief import UNKNOWN, Evidence, limits
from gtm.core.demand.rows import TIERS, Row

TIME_CONSTANT = 3.0
"""Seconds over which rates are smoothed: a burst shows within a few plans, and no plan chases single requests."""
DNS_TIME_CONSTANT = 30.0
"""The same for DNS answers: requests come from those of the last TTL, not from those of the last second."""
KEPT = 30.0
"""Seconds for which an edge's last rates count when it stops reporting."""
FORGET_BELOW = 0.01
"""Requests per second under which a rate is dropped, once nothing was counted."""
MAX_ROWS = 50_000
"""Rows that are kept of one edge: the largest."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of all rows that are kept of one edge."""


_FEW = 1_000
"""Rows that are kept however many of them nobody reports any more."""
_TIMES = {"dns": DNS_TIME_CONSTANT, "http": TIME_CONSTANT}


def _tier(row: Row) -> str:
    return "dns" if row.via == "dns" else "http"


@dataclass(slots=True)
class _Edge:
    """One edge's smoothed rates, that began at 0 when it was first heard; `seconds` is the time its reports are of."""

    heard: float
    token: str
    seconds: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)

    def corrections(self) -> dict[str, float]:
        """By what rates are too low since smoothing began at 0: an edge heard of for a second counts in full."""
        seconds = max(
            self.seconds, 1.0
        )  # a request in a first report of milliseconds makes no thousand a second
        return {via: 1 / -expm1(-seconds / time) for via, time in _TIMES.items()}


@dataclass(frozen=True, slots=True)
class Reported:
    """The rates of all edges at a moment, to be added up on any thread: what the book replaces, this keeps.

    With 10,000 rows that takes 7 ms for one edge and 29 ms for 16, which the event loop has not.
    """

    edges: tuple[tuple[Mapping[str, float], Mapping[str, float]], ...]
    """Of each edge the rates by row, and by what to multiply those of a tier."""
    rows: Mapping[str, Row]
    names: tuple[str, ...] = ()
    """Of the edges, as the book was told them."""
    tokens: tuple[str, ...] = ()
    """These are the tokens whose edges they are."""
    evidence: Evidence = UNKNOWN
    """Their tokens are judged by this."""

    def claims(self) -> dict[str, float]:
        """What the edges of each token say that is asked of them, per second."""
        found: dict[str, float] = {}
        for token, (rates, corrections) in zip(self.tokens, self.edges, strict=True):
            said = sum(rate * corrections[_tier(self.rows[text])] for text, rate in rates.items())
            found[token] = found.get(token, 0.0) + said
        return found

    def excess(self) -> dict[str, tuple[float, float]]:
        """The tokens that say more than they are believed: what they say, and what of that counts, per second."""
        claims = self.claims()
        most = limits(claims, self.evidence)
        return {token: (claim, most[token]) for token, claim in claims.items() if claim > most[token]}

    def decisions(self) -> dict[str, dict[str, float]]:
        """Decisions per second of each edge, by the tier that they were asked by."""
        found: dict[str, dict[str, float]] = {}
        for name, (rates, corrections) in zip(self.names, self.edges, strict=True):
            tiers = found[name] = dict.fromkeys(TIERS, 0.0)
            for text, rate in rates.items():
                row = self.rows[text]
                tiers[row.via] = tiers.get(row.via, 0.0) + rate * corrections[_tier(row)]
        return found

    def rates(self, excess: Mapping[str, tuple[float, float]] | None = None) -> dict[Row, float]:
        """Requests (or DNS answers) per second of every row, over all edges, as far as they are believed.

        Args:
            excess: what `excess` said, if it was asked already.
        """
        total: dict[str, float] = defaultdict(float)
        excess = self.excess() if excess is None else excess
        parts = {token: counts / claim for token, (claim, counts) in excess.items()}
        for token, (rates, corrections) in zip(self.tokens, self.edges, strict=True):
            part = parts.get(token, 1.0)
            for text, rate in rates.items():
                total[text] += part * rate * corrections[_tier(self.rows[text])]
        return {self.rows[text]: rate for text, rate in total.items() if rate > 0}


class DemandBook:
    """The rates of all edges. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edge] = {}
        self._rows: dict[str, Row] = {}
        self._room = _FEW

    def take(
        self,
        edge: str,
        counts: Mapping[str, float],
        seconds: float,
        now: float,
        wanted: Callable[[Row], bool] = lambda _: True,
        *,
        token: str = "",
    ) -> float:
        """Take in what an edge counted in the last seconds; how much of it is kept.

        Args:
            edge: which, by a name that no other has.
            counts: by row. Those that cannot be read, or are beyond the bounds, are left out.
            seconds: that were counted.
            now: monotonic seconds.
            wanted: asked of each row when it is first seen, whether to count it.
            token: whose edge it is; empty: its own.
        """
        known = self._edges.setdefault(edge, _Edge(now, token or edge))
        counted = 0.0
        known.heard, known.token = now, token or edge  # a rotated token has another id
        known.seconds += max(seconds, 0.0)
        kept = {via: exp(-max(seconds, 0.0) / time) for via, time in _TIMES.items()}
        rates = {
            text: rate * kept[_tier(self._rows[text])]
            for text, rate in known.rates.items()
            if rate * kept[_tier(self._rows[text])] > FORGET_BELOW
        }
        for text, count in _largest(counts).items():
            if text not in self._rows:
                try:
                    row = Row.parse(text)
                except ValueError:
                    continue
                if not wanted(row):
                    continue
                self._rows[text] = row
            gained = (1 - kept[_tier(self._rows[text])]) / max(seconds, 1e-3)
            rates[text] = rates.get(text, 0.0) + count * gained
            counted += count
        known.rates = dict(_largest(rates))
        if len(self._rows) > self._room:
            used = frozenset().union(*(one.rates for one in self._edges.values()))
            self._rows = {text: row for text, row in self._rows.items() if text in used}
            self._room = 2 * max(_FEW, len(self._rows))
        return counted

    def forget(self, edge: str) -> None:
        """Drop what an edge counted."""
        self._edges.pop(edge, None)

    def reported(self, now: float, evidence: Evidence = UNKNOWN) -> Reported:
        """What the edges that count have reported, with what their tokens are judged by."""
        self._edges = {name: edge for name, edge in self._edges.items() if now - edge.heard <= KEPT}
        # An edge's rates are replaced whole, and rows only added to what is handed out.
        edges = tuple((edge.rates, edge.corrections()) for edge in self._edges.values())
        tokens = tuple(edge.token for edge in self._edges.values())
        return Reported(edges, self._rows, tuple(self._edges), tokens, evidence)


def _largest(numbers: Mapping[str, float]) -> Mapping[str, float]:
    """The largest numbers by text, within `MAX_ROWS` and `MAX_TEXT`."""
    room = MAX_TEXT
    if len(numbers) <= MAX_ROWS and sum(map(len, numbers)) <= room:
        return numbers
    kept: dict[str, float] = {}
    for text, number in nlargest(MAX_ROWS, numbers.items(), key=itemgetter(1)):
        room -= len(text)
        if room < 0:
            break
        kept[text] = number
    return kept


Place = tuple[str, str]
"""A service's and a region's name."""


PerAnswer = Mapping[Place, float]
"""How many requests one DNS answer stands for; one, where it is left out."""


def requests_of(row: Row, rate: float, per_answer: PerAnswer) -> float:
    """The requests per second that a row's rate stands for."""
    return rate * per_answer.get((row.service, row.region), 1.0) if row.via == "dns" else rate


def requests_per_answer(
    rates: Mapping[Row, float], served: Mapping[Place, float], before: PerAnswer
) -> dict[Place, float]:
    """How many requests one DNS answer stands for, by service and the region answered, smoothed from tick to tick.

    By region, because clients of one resolver share an answer for its TTL: where demand rises, answers do not, but what
    the region serves does. So what a region serves beyond HTTP is apportioned to those who got its address lately.

    Args:
        rates: of the rows.
        served: the requests per second that regions report to serve, where they do.
        before: the result of the last tick.

    Returns:
        For every service and region that was answered; where the region reports nothing, as the service's other
        regions have it, and 1 if none does.
    """
    http: dict[Place, float] = defaultdict(float)
    dns: dict[Place, float] = defaultdict(float)
    for row, rate in rates.items():
        if row.region:
            (dns if row.via == "dns" else http)[row.service, row.region] += rate
    found: dict[Place, float] = {}
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, answers in dns.items():
        if place in served and answers > FORGET_BELOW:
            requests = max(served[place] - http[place], 0.0)
            now = min(max(requests / answers, 0.01), 1e4)
            old = before.get(place, now)
            found[place] = old + 0.3 * (now - old)
            totals[place[0]][0] += found[place] * answers
            totals[place[0]][1] += answers
    for place in dns.keys() - found.keys():
        requests, answers = totals[place[0]]
        found[place] = requests / answers if answers > 0 else before.get(place, 1.0)
    return found


MAX_PAIRS = 10_000
"""Pairs that are kept of one source: those with the highest rates."""


@dataclass(slots=True)
class _Source:
    heard: float
    rates: dict[str, float] = field(default_factory=dict)


class RateBook:
    """The rates of all sources. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def take(self, source: str, counts: Mapping[str, float], seconds: float, now: float) -> None:
        """Take in what a source counted in the last seconds.

        Args:
            source: which, by a name that no other has.
            counts: by two words with a tab between, as the region that the plan chose (empty: none) and the one that took the request.
            seconds: that were counted.
            now: monotonic seconds.
        """
        known = self._sources.setdefault(source, _Source(now))
        known.heard = now
        kept = exp(-max(seconds, 0.0) / TIME_CONSTANT)
        rates = {pair: rate * kept for pair, rate in known.rates.items() if rate * kept > FORGET_BELOW}
        for pair, count in counts.items():
            rates[pair] = rates.get(pair, 0.0) + count * (1 - kept) / max(seconds, 1e-3)
        known.rates = dict(nlargest(MAX_PAIRS, rates.items(), key=itemgetter(1)))

    def rates(self, now: float) -> dict[tuple[str, str], float]:
        """How many a second of each pair, over all sources."""
        self._forget(now)
        found: dict[tuple[str, str], float] = defaultdict(float)
        for source in self._sources.values():
            for pair, rate in source.rates.items():
                first, _, second = pair.partition("\t")
                found[first, second] += rate
        return dict(found)

    def of(self, source: str, now: float) -> dict[str, float]:
        """The same of one source alone, by pairs as it told them."""
        self._forget(now)
        known = self._sources.get(source)
        return {} if known is None else dict(known.rates)

    def forget(self, source: str) -> None:
        """Drop what a source counted."""
        self._sources.pop(source, None)

    def _forget(self, now: float) -> None:
        self._sources = {name: one for name, one in self._sources.items() if now - one.heard <= KEPT}
