"""Measured round trips, as one control process knows them: learned from reports, told to edges, kept in Postgres.

Laws:
  1. Losing the database costs what would have been kept, never what is known: learning and telling go on from memory.
  2. Nothing is told before what was kept is loaded, and nothing written: a start must not look like forgetting.
  3. What is kept are sums (`gtm.core.latency.aggregates.Sum`): no client, no address.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import islice
from typing import TypeVar

from gtm.core.capacity.supply import Assessment
from gtm.core.latency.aggregates import (
    LEVEL_FIELDS,
    NO_AUTHORS,
    Aggregates,
    AggregateSettings,
    Authors,
    Sum,
    check_delta,
)
from gtm.core.latency.doubt import Disputed, Doubts, DoubtSettings, Vote, Witness, check_witness
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.geographic import model_ms, point_at, terminal_at
from gtm.core.latency.samples import Delta, Level, keys_of
from gtm.core.latency.table import LatencyTable, Row
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location
from gtm.settings import DEFAULT_HALF_LIFE
from gtm.storage.errors import StorageUnavailable
from gtm.storage.latency import SumKey, VoteKey
from gtm.storage.session import Database
from gtm.storage.tokens import Token

logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between tables."""
SAVE_EVERY = 60.0
"""Seconds between saves."""
MAX_WAITING = 200_000
"""Deltas that wait for the next table, and as many witnesses; what is beyond them is dropped."""
MAX_SHARE = 50_000
"""Of either, what the edges of one token may have."""
_MAX_KEY = 253
_MAX_SAMPLES = 1_000_000
_LAST_SAVE = 5.0
"""Longest time that the save at the end may take, in seconds."""
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one region at one level of a client's location. `published`: it is in the edges' table."""

    sum: Sum
    published: bool


@dataclass(frozen=True, slots=True)
class RegionEstimate:
    """The round trip between a location and a region.

    `rtt_ms` with its `source`, `model_ms` from geography alone and `distance_km` are None where the location has no
    coordinates.
    """

    region: str
    rtt_ms: float | None
    source: str | None
    model_ms: float | None
    """The estimate that geography alone gives, in ms."""
    distance_km: float | None
    measured: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Teachers:
    """Whose word on round trips counts.

    `successors` maps each live token's id to that of the newest live token of its name, which a rotation put in its place;
    `authors` says what each may say, by id.
    """

    successors: Mapping[str, str]
    authors: Authors

    @classmethod
    def of(cls, tokens: Iterable[Token], edges: Iterable[str], now: float) -> Teachers:
        """From tokens and the ids of those of running edges, at a POSIX time; `NOT_KNOWN` where no tokens were read yet."""
        known = list(tokens)
        heirs = successors(known, now)
        if not heirs:
            return NOT_KNOWN
        live = [token for token in known if token.id in heirs]
        bound = {token.id: token.regions for token in live if token.regions is not None}
        running = frozenset(heirs[token] for token in edges if token in heirs)
        return cls(heirs, Authors(bound, running))


NOT_KNOWN = Teachers({}, NO_AUTHORS)


class LatencyBook:
    """What is known of round trips.

    Args:
        database: where sums are kept.
        clock: POSIX seconds.
        half_life: seconds after which a sample counts half.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], half_life: float = DEFAULT_HALF_LIFE
    ) -> None:
        self.settings = AggregateSettings(half_life=half_life)
        self.doubt_settings = DoubtSettings(half_life=half_life)
        self.disputed: tuple[Disputed, ...] = ()
        """The networks whose locations measurements dispute, as of the last table."""
        self.set_aside: frozenset[str] = frozenset()
        """The reporters that dispute too much to have a vote."""
        self._database = database
        self._clock = clock
        self.waiting: dict[str, list[Delta]] = {}
        """What the next table takes in, by author."""
        self._authors = NO_AUTHORS
        self._witnesses_of: Counter[str] = Counter()
        self._witnesses: list[tuple[str, Witness]] = []
        self._aggregates: Aggregates | None = None
        self._doubts = Doubts(settings=self.doubt_settings)
        self._using = threading.Lock()
        self._saved: dict[SumKey, Sum] = {}
        self._saved_votes: dict[VoteKey, Vote] = {}
        self._places: dict[str, tuple[float, float]] = {}
        # Versions go on from the clock (as epochs do), so that a restarted control's tables are newer than those before.
        self._table = LatencyTable(version=int(clock() * 1000))

    def take(
        self,
        deltas: Iterable[Delta],
        author: str = "",
        witnesses: Iterable[Witness] = (),
    ) -> None:
        """Take in what an edge of a token learned; `delta_problem` and `witness_problem` find nothing wrong.

        Args:
            deltas: of round trips.
            author: the token's id, which no other ever has.
            witnesses: of where networks are.
        """
        told = list(deltas)
        waiting = self.waiting.get(author, [])
        room = min(MAX_SHARE - len(waiting), MAX_WAITING - sum(map(len, self.waiting.values())))
        if len(told) > max(room, 0):
            logger.warning("dropped %d deltas of round trips: too many at once", len(told) - max(room, 0))
        if room > 0 and told:
            self.waiting[author] = waiting + told[:room]
        room = MAX_SHARE - self._witnesses_of[author]
        said = [(author, witness) for witness in islice(witnesses, max(room, 0))]
        self._witnesses_of[author] += len(said)
        self._witnesses.extend(said)
        del self._witnesses[MAX_WAITING:]

    async def run(
        self,
        world: Callable[[], tuple[Policy, Assessment, Teachers] | None],
        publish: Callable[[LatencyTable], None],
    ) -> None:
        """Load, then make tables and save until cancelled; save once more at the end.

        Args:
            world: the policy in force, the last assessment of its regions' capacity, and whose word counts; None before
                the first policy.
            publish: called with each table that differs from the one before.
        """
        await self.load()
        turns = 0
        try:
            while True:
                found = world()
                if found is not None:
                    try:
                        # Beside the event loop: hundreds of thousands of sums take a while.
                        table = await asyncio.to_thread(self.turn, *found)
                    except Exception:
                        logger.exception("no new latency table, the last one stays")
                    else:
                        if table is not None:
                            publish(table)
                turns += 1
                if turns % round(SAVE_EVERY / EVERY) == 0:
                    await self._save()
                await asyncio.sleep(EVERY)
        finally:
            try:
                async with asyncio.timeout(_LAST_SAVE):
                    await self._save()
            except TimeoutError:
                logger.warning(
                    "what was last learned of round trips is not saved: the database takes too long"
                )

    def turn(
        self, policy: Policy, assessment: Assessment, teachers: Teachers = NOT_KNOWN
    ) -> LatencyTable | None:
        """Merge what waits, and make the table of now; None if the edges have it already.

        Args:
            policy: in force.
            assessment: of its regions' capacity.
            teachers: whose word counts. What others taught is taken out.
        """
        waiting, self.waiting = self.waiting, {}
        self._witnesses_of.clear()
        witnesses, self._witnesses = self._witnesses, []
        names = frozenset(region.name for region in policy.regions)
        with self._using:
            aggregates, now = self._settled(policy.regions), self._clock()
            for author, deltas in waiting.items():
                aggregates.merge([delta for delta in deltas if delta.region in names], now, author)
            self._authors = teachers.authors
            for author, witness in witnesses:
                if witness.region in names:
                    self._doubts.merge(author, (witness,), now)
            self._forget_others(aggregates, teachers)
            measured = aggregates.measured()
            self._set_aside(self._doubts.set_aside(measured, now))
            lone = aggregates.lone(teachers.authors)
            self.disputed = tuple(self._doubts.disputed(self._table.doubts, now, names, measured, lone=lone))
            doubts = {one.network: one.doubt for one in self.disputed}
            table = aggregates.table(
                self._table,
                now,
                names,
                _processing(policy, assessment),
                doubts,
                expected=_expected(policy.regions),
                authors=teachers.authors,
            )
        if table is self._table:
            return None
        self._table = table
        return table

    def estimates(
        self, regions: Sequence[Region], table: LatencyTable, location: Location
    ) -> list[RegionEstimate]:
        """The round trip between a location and each region, and what it rests on.

        Args:
            regions: of the policy in force.
            table: the one that edges have.
            location: of a client.
        """
        numbers = range(len(regions))
        paths = Estimator(regions, table).paths(location, numbers)
        models = Estimator(regions).paths(location, numbers)
        found = []
        for number, region in enumerate(regions):
            path, model = paths.get(number), models.get(number)
            found.append(
                RegionEstimate(
                    region.name,
                    None if path is None else round(path.estimate_ms, 1),
                    None if path is None else path.source,
                    None if model is None else round(model.estimate_ms, 1),
                    None if path is None else round(path.distance_km, 1),
                    self._measured(table, location, region.name),
                )
            )
        return found

    def _measured(self, table: LatencyTable, location: Location, region: str) -> tuple[Measured, ...]:
        if self._aggregates is None:
            return ()
        found = []
        for level, key in keys_of(location):
            kept = self._aggregates.known(level, key, region, self._clock(), self._authors)
            if kept is not None:
                rows: Mapping[str, Row] = getattr(table, LEVEL_FIELDS[level])
                found.append(Measured(kept, published=region in rows.get(key, {})))
        return tuple(found)

    async def forget(self, ids: Collection[str]) -> None:
        """Take out what the edges or balancers of a token taught; the next table is without it.

        Args:
            ids: the token's, and those of the tokens that it was rotated from.
        """
        for one in ids:
            self.waiting.pop(one, None)
        self._witnesses = [(author, witness) for author, witness in self._witnesses if author not in ids]
        await asyncio.to_thread(self._forget, ids)  # a table may be in the making

    def _forget(self, ids: Collection[str]) -> None:
        with self._using:
            if self._aggregates is not None:
                self._aggregates.forget(ids)
            self._doubts.retain(lambda author: author not in ids)

    def _forget_others(self, aggregates: Aggregates, teachers: Teachers) -> None:
        """Take out what was taught with tokens that count no more; what a rotated token taught is its successor's."""
        if teachers is NOT_KNOWN:
            return
        for one, successor in teachers.successors.items():
            aggregates.hand_on(one, successor)
            self._doubts.hand_on(one, successor)
        gone = aggregates.authors - teachers.successors.keys()
        if gone:
            aggregates.forget(gone)
            logger.warning("forgot what %d revoked or ended tokens taught of round trips", len(gone))
        self._doubts.retain(teachers.successors.__contains__)

    def _set_aside(self, reporters: frozenset[str]) -> None:
        for reporter in sorted(reporters - self.set_aside):
            logger.warning(
                "the reporter with token %s… disputes the locations of too many networks to have a vote: its region's "
                "coordinates are wrong, or its samples are, or an edge speaks in its name",
                reporter,
            )
        self.set_aside = reporters

    def _settled(self, regions: Sequence[Region]) -> Aggregates:
        """The sums, without those of regions that have moved: residuals are against a region's place."""
        assert self._aggregates is not None  # noqa: S101 - run() has loaded it
        places = {region.name: (region.lat, region.lon) for region in regions}
        moved = {name for name, place in places.items() if self._places.get(name, place) != place}
        self._places |= places
        if moved:
            logger.info("forgot what was measured of regions that moved: %s", ", ".join(sorted(moved)))
            self._doubts.forget(moved)
            kept = self._aggregates.sums(self._clock())
            self._aggregates = Aggregates(
                [one for one in kept if one.region not in moved and one.key not in moved], self.settings
            )
        return self._aggregates

    async def load(self) -> None:
        """Read what was kept; for as long as the database is away, wait for it."""
        while self._aggregates is None:
            try:
                async with self._database.transaction() as transaction:
                    kept = await transaction.latency.load()
                    votes = await transaction.latency.load_votes()
            except StorageUnavailable:
                await asyncio.sleep(1.0)
            else:
                self.start(kept, votes)

    def start(self, kept: Sequence[Sum] = (), votes: Sequence[Vote] = ()) -> None:
        """Begin with what was kept."""
        self._saved = {_key(one): one for one in kept}
        self._saved_votes = {vote[:5]: vote for vote in votes}
        self._doubts = Doubts(votes, self.doubt_settings)
        self._aggregates = Aggregates(kept, self.settings)

    async def _save(self) -> None:
        """Write what has changed since the last save; what cannot be written now is written the next time."""
        sums, votes = await asyncio.to_thread(self._current)
        changed, gone = _changes(self._saved, sums)
        changed_votes, gone_votes = _changes(self._saved_votes, votes)
        if not (changed or gone or changed_votes or gone_votes):
            return
        try:
            async with self._database.transaction() as transaction:
                await transaction.latency.save(changed, gone)
                await transaction.latency.save_votes(changed_votes, gone_votes)
        except StorageUnavailable as error:
            logger.debug("round trips wait for the database: %s", error)
        else:
            self._saved, self._saved_votes = sums, votes

    def _current(self) -> tuple[dict[SumKey, Sum], dict[VoteKey, Vote]]:
        """All sums and votes that are to be stored."""
        assert self._aggregates is not None  # noqa: S101 - run() has loaded it
        with self._using:
            now = self._clock()
            sums = {_key(one): one for one in self._aggregates.sums(now)}
            return sums, {vote[:5]: vote for vote in self._doubts.votes(now)}


def delta_problem(delta: Delta) -> str | None:
    """What is wrong with a delta that an edge sent, if anything."""
    try:
        check_delta(delta)
    except ValueError as error:
        return str(error)
    if delta.level is Level.NETWORK:
        try:
            network = ip_network(delta.key) if "/" in delta.key else None
        except ValueError:
            network = None
        if network is None:
            return f"`{delta.key[:64]}` is not a network in CIDR notation"
    names = (delta.key, delta.region)
    if not all(0 < len(name) <= _MAX_KEY and name.isascii() and name.isprintable() for name in names):
        return f"keys and regions are 1 to {_MAX_KEY} printable ASCII characters"
    if delta.samples > _MAX_SAMPLES:
        return f"a delta has at most {_MAX_SAMPLES} samples"
    return None


def witness_problem(witness: Witness) -> str | None:
    """What is wrong with a witness that an edge sent, if anything."""
    try:
        check_witness(witness)
    except ValueError as error:
        return str(error)
    return None


def _changes(saved: Mapping[K, V], current: Mapping[K, V]) -> tuple[list[V], set[K]]:
    """What changed since the last save, and which are gone since."""
    return [one for key, one in current.items() if saved.get(key) != one], saved.keys() - current.keys()


def _processing(policy: Policy, assessment: Assessment) -> Mapping[str, Mapping[str, float]]:
    """What regions take themselves, by region and service; nothing where that is no more than the fastest takes."""
    found: dict[str, dict[str, float]] = {}
    for service in policy.services:
        for member in service.members:
            ms = assessment.processing_ms(member.region, service.name)
            if ms > 0:
                found.setdefault(member.region, {})[service.name] = ms
    return found


def _expected(regions: Iterable[Region]) -> Callable[[str, str], float]:
    """What geography says of the round trip between two of these regions, in ms."""
    places = {region.name: (region.lat, region.lon) for region in regions}

    def expected(one: str, other: str) -> float:
        if one not in places or other not in places:
            return 0.0
        return model_ms(point_at(*places[one]), terminal_at(*places[other]))

    return expected


def _key(kept: Sum) -> SumKey:
    return kept.level, kept.key, kept.region, kept.author


def successors(tokens: Iterable[Token], now: float) -> dict[str, str]:
    """The id of each live token, and that of the newest live one of its name: after a rotation both work for a while.

    Args:
        tokens: all that are known.
        now: POSIX seconds.
    """
    live = [token for token in tokens if token.works(now)]
    newest = {token.name: token.id for token in sorted(live, key=lambda token: (token.created_at, token.id))}
    return {token.id: newest[token.name] for token in live}
