"""What one edge's token can teach the others of round trips: from docs/latency.md#whose-word-it-is."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead.latency import NOT_KNOWN, LatencyBook, Teachers
from gtm.core.capacity.supply import NO_ASSESSMENT
from gtm.core.latency.aggregates import Aggregates, AggregateSettings, Authors
from gtm.core.latency.doubt import Witness, claim_of
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Delta, Level, source_bit
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.access import Role
from gtm.core.model.policy import Policy
from gtm.core.model.requests import Location
from gtm.storage.session import Database
from gtm.storage.tokens import Token
from tests import worlds
from tests.core.strategies import quick

REGIONS = worlds.regions("eu-central us-east jp")
NAMES = [region.name for region in REGIONS]
BERLIN = Location("DE", None, "EU", 52.52, 13.4, 3320, "192.0.2.0/24", 24, "geoip")
KEYS = {
    Level.COUNTRY: "DE",
    Level.ASN: "3320|DE",
    Level.NETWORK: "192.0.2.0/24",
    Level.PLACE: "52,13",
}
THREE = source_bit("a") | source_bit("b") | source_bit("c")
NOW = 1_700_000_000.0
ALONE = AggregateSettings().alone_ms


def say(
    region: str, centre: float, level: Level = Level.COUNTRY, samples: int = 50, *, key: str = ""
) -> Delta:
    """What an edge measured of clients in Berlin."""
    return Delta(level, key or KEYS.get(level, "eu-central"), region, True, samples, THREE, centre, 1.0, NOW)


def far(_one: str, _other: str) -> float:
    """What geography says of two regions."""
    return 90.0


def taught(**said: list[Delta]) -> Aggregates:
    """What control knows, by author."""
    found = Aggregates()
    for author, deltas in said.items():
        found.merge(deltas, NOW, author)
    return found


def estimates(aggregates: Aggregates) -> dict[str, float]:
    """Of a client in Berlin."""
    table = aggregates.table(EMPTY_TABLE, NOW, NAMES)
    paths = Estimator(REGIONS, table).paths(BERLIN, range(len(REGIONS)))
    return {NAMES[number]: path.estimate_ms for number, path in paths.items()}


LIES = st.lists(
    st.builds(
        say,
        st.sampled_from(NAMES),
        st.floats(-3000, 3000),
        st.sampled_from(sorted(KEYS)),
        st.integers(1, 1_000_000),
    ),
    max_size=30,
)


@quick(200)
@given(LIES, st.lists(st.tuples(st.sampled_from(NAMES), st.floats(-40, 40)), max_size=6), st.integers(2, 4))
def test_one_liar_moves_no_estimate_far(
    lies: list[Delta], honest: list[tuple[str, float]], edges: int
) -> None:
    """Where honest edges measured, nothing leaves what they and geography say; where none did, it stays within `alone_ms`.

    Each of the four levels may add its part, of which an offset is taken for all regions: hence the factors.
    """
    truths = {f"edge-{number}": [say(region, ms) for region, ms in honest] for number in range(edges)}
    truths = truths or {"edge-0": []}
    # An edge that measured something else: the liar is not the only author.
    for deltas in truths.values():
        deltas.append(say("eu-central", 0.0, key="FR"))
    before, after = estimates(taught(**truths)), estimates(taught(**truths, liar=lies))
    for region, ms in after.items():
        assert abs(ms - before[region]) <= 4 * (2 * 40 + ALONE)


_Lies = dict[tuple[Level, str, str], float]
"""What is said in ms, by level, key and region."""
_CELLS = [
    *((Level.REGION, one, other) for one in NAMES for other in NAMES if one != other),
    *((level, key, region) for level, key in KEYS.items() for region in NAMES),
    *((Level.PLACE, f"{lat},{lon}", region) for lat in (50, 53) for lon in (8, 14) for region in NAMES),
]
"""All that an estimate of a client in Berlin goes by: four levels, places near it, and regions' mutual round trips."""


def _worst(rng: random.Random, agreed: _Lies, alone: _Lies, cells: list[tuple[Level, str, str]]) -> float:
    """By how many ms the worst lie moves two regions against each other from what two authors agree on: drawn, then climbed to.

    `alone` is what a third says alone, and `cells` what the liar may speak of.
    """

    def found(**further: _Lies) -> dict[str, float]:
        said = {"a": agreed, "b": agreed} | further
        deltas = {
            who: [say(region, ms, level, key=key) for (level, key, region), ms in of.items()]
            for who, of in said.items()
        }
        apart = {who: [say("eu-central", 0.0, key="FR")] for who in ("one", "other")}
        table = taught(**deltas, **apart).table(EMPTY_TABLE, NOW, NAMES, expected=far)
        paths = Estimator(REGIONS, table).paths(BERLIN, range(len(REGIONS)))
        return {NAMES[number]: path.estimate_ms for number, path in paths.items()}

    def drawn(cell: tuple[Level, str, str]) -> float:
        low = 0.5 if cell[0] is Level.REGION else -2900.0
        return rng.choice((low, low, 2900.0, 2900.0, rng.uniform(-60.0, 160.0)))

    def harm(lies: _Lies) -> float:
        moved = [ms - before[region] for region, ms in found(third=alone, liar=lies).items()]
        return max(moved) - min(moved)

    before, best, lies = found(), 0.0, dict[tuple[Level, str, str], float]()
    for turn in range(40):
        fresh = turn % 20 == 0
        changed = {} if fresh else dict(lies)
        for cell in cells if fresh else rng.sample(cells, min(len(cells), 4)):
            changed.pop(cell, None)
            if rng.random() < 0.7:
                changed[cell] = drawn(cell)
        reached = harm(changed)
        if fresh or reached >= harm(lies):
            lies = changed
        best = max(best, reached)
    return best


@pytest.mark.parametrize("third", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_one_author_moves_two_regions_by_no_more_at_all_levels_together(seed: int, third: float) -> None:
    """50 ms from what two others agree on, at whichever levels one lies, and whatever a third says alone."""
    rng = random.Random(seed)
    shares = {cell: rng.random() for cell in _CELLS}
    model = {cell: rng.uniform(-40.0, 40.0) + 90.0 * (cell[0] is Level.REGION) for cell in _CELLS}
    agreed = {cell: model[cell] for cell in _CELLS if shares[cell] < seed / 24}
    alone = {cell: model[cell] for cell in _CELLS if seed / 24 <= shares[cell] < seed / 24 + third}
    cells = [cell for cell in _CELLS if cell not in agreed and cell not in alone]
    assert _worst(rng, agreed, alone, cells) <= 50.01


def test_one_author_s_places_crowd_out_no_place_that_others_agree_on() -> None:
    """An estimate goes by the eight nearest measured places; of these one alone may have made up all."""
    agreed = [say("us-east", 100.0, Level.PLACE, key="48,2")]
    before = estimates(taught(a=agreed, b=agreed))["us-east"]
    made_up = [
        say("us-east", 0.0, Level.PLACE, key=f"{lat},{lon}") for lat in range(50, 55) for lon in (12, 14)
    ]
    after = estimates(taught(a=agreed, b=agreed, liar=made_up))["us-east"]
    assert before - ALONE == pytest.approx(after, abs=0.01)


@quick(200)
@given(
    st.lists(st.floats(-3000, 3000), min_size=3, max_size=3),
    st.floats(-3000, 3000),
    st.integers(1, 1_000_000),
)
def test_several_say_their_median(honest: list[float], lie: float, samples: int) -> None:
    """However many samples one claims, the result lies between what the others say."""
    truths = {f"edge-{number}": [say("us-east", ms)] for number, ms in enumerate(honest)}
    rows = (
        taught(**truths, liar=[say("us-east", lie, samples=samples)]).table(EMPTY_TABLE, NOW, NAMES).countries
    )
    low, high = min(*honest, 0.0), max(*honest, 0.0)
    assert low - 0.1 <= rows["DE"]["us-east"][0] <= high + 0.1


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ({"a": 12.0}, 12.0),
        ({"a": 500.0}, 500.0),
        ({"a": 12.0, "b": 15.0}, 12.0),
        ({"a": 12.0, "b": -900.0}, 0.0),
        ({"a": 12.0, "b": 900.0}, 12.0),
        ({"a": 12.0, "b": 15.0, "c": -2900.0}, 12.0),
        ({"a": 12.0, "b": 15.0, "c": 16.0, "d": 2900.0}, 15.0),
    ],
)
def test_what_authors_agree_on(said: dict[str, float], agreed: float) -> None:
    """A lone edge's word counts in full; of an even number, geography (0) is one more voice."""
    rows = taught(**{author: [say("us-east", ms)] for author, ms in said.items()}).table(
        EMPTY_TABLE, NOW, NAMES
    )
    assert rows.countries["DE"]["us-east"][0] == agreed


def test_one_author_of_several_moves_little_alone() -> None:
    """What only one edge measured counts, within bounds; a few samples of another change nothing of that."""
    apart = {"other": [say("us-east", 3.0, key="FR")]}
    for few in ([], [say("us-east", 80.0, samples=2)]):
        found = taught(a=[say("us-east", 500.0), say("jp", -7.0)], b=few, **apart)
        rows = found.table(EMPTY_TABLE, NOW, NAMES).countries
        assert rows["DE"] == {"us-east": (ALONE, 32.0), "jp": (-7.0, 32.0)}
        known = found.known(Level.COUNTRY, "DE", "us-east", NOW)
        assert known is not None
        assert known.mean == ALONE


def test_a_regions_balancers_know_its_round_trips() -> None:
    """A token that is bound to a region is heard in full of it, and no more than others of another; so is the only edge."""
    authors = Authors({"balancer": "us-*", "other": "jp"})
    said = [say("us-east", 90.0), say("eu-central", 90.0)]
    found = taught(balancer=said, other=[say("jp", 80.0)])
    rows = found.table(EMPTY_TABLE, NOW, NAMES, authors=authors).countries["DE"]
    assert {region: row[0] for region, row in rows.items()} == {
        "us-east": 90.0,
        "eu-central": ALONE,
        "jp": 80.0,
    }
    found.merge([say("eu-central", 70.0, key="FR")], NOW, "edge")
    assert found.table(EMPTY_TABLE, NOW, NAMES, authors=authors).countries["FR"]["eu-central"][0] == 70.0
    found.merge([say("jp", 0.0, key="FR")], NOW, "second")
    assert found.table(EMPTY_TABLE, NOW, NAMES, authors=authors).countries["FR"]["eu-central"][0] == ALONE


def test_regions_round_trips_are_bounded_alike() -> None:
    """What one edge alone says of two regions stays near what geography says of them."""
    apart = {"other": [say("us-east", 3.0, key="FR")]}
    found = taught(liar=[say("us-east", 1.0, Level.REGION)], **apart)
    table = found.table(EMPTY_TABLE, NOW, NAMES, expected=far)
    assert table.mutual == {"eu-central": {"us-east": 90.0 - ALONE}}
    alone = taught(edge=[say("us-east", 1.0, Level.REGION)])
    assert alone.table(EMPTY_TABLE, NOW, NAMES, expected=far).mutual == {"eu-central": {"us-east": 1.0}}


def test_authors_share_the_table_and_the_memory() -> None:
    """An edge that makes up networks takes no row and no memory from others, whatever weight it claims."""
    few = AggregateSettings(max_rows=20, max_sums=200)
    found = Aggregates(settings=few)
    honest = [say("us-east", 9.0, key=f"A{letter}", samples=5) for letter in "ABCDEFGH"]
    found.merge(honest, NOW, "honest")
    for number in range(300):
        lie = say("us-east", 9.0, Level.NETWORK, 1_000_000, key=f"198.51.{number % 250}.0/24")
        found.merge(
            [lie, say("jp", 9.0, Level.PLACE, 1_000_000, key=f"{number % 80},{number % 90}")], NOW, "liar"
        )
    table = found.table(EMPTY_TABLE, NOW, NAMES)
    assert len(table.countries) == len(honest)
    assert sum(map(len, (table.countries, table.networks, table.places, table.asns))) == 20
    assert {one.key for one in found.sums(NOW) if one.author == "honest"} == {one.key for one in honest}


def token(name: str, number: int, ends: float | None = None) -> Token:
    """One of an edge, made in the order of its number."""
    made = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=number)
    revoked = None if ends is None else datetime.fromtimestamp(ends, UTC)
    return Token(f"{name}-{number}", name, Role.EDGE, made, None, revoked)


class World:
    """Control's book, without a database."""

    def __init__(self) -> None:
        self.now = NOW
        self.book = LatencyBook(Database("postgresql://nobody@127.0.0.1:1/none"), lambda: self.now)
        self.book.start()
        self.table = LatencyTable()
        self.running: list[str] = []

    def turn(self, *tokens: Token) -> dict[str, float]:
        """What is published of clients in Berlin, by region."""
        teachers = Teachers.of(tokens, self.running, self.now)
        self.table = self.book.turn(Policy(regions=REGIONS), NO_ASSESSMENT, teachers) or self.table
        return {region: row[0] for region, row in self.table.countries.get("DE", {}).items()}


def test_a_revoked_token_takes_with_it_what_it_taught() -> None:
    """At the next table, whatever it claimed; what others taught stays, and so do doubts that came through their edges."""
    world = World()
    good, bad = token("good", 1), token("bad", 2)
    witness = Witness("192.0.2.0/24", "DE", "us-east", "reporter", 5, 0, 3.0, NOW)
    world.book.take([say("us-east", 9.0)], good.id, [witness])
    world.book.take([say("us-east", 20.0), say("jp", -2000.0)], bad.id, [witness])
    assert world.turn(good, bad) == {"us-east": 9.0, "jp": -ALONE}
    assert world.turn(good) == {"us-east": 9.0}
    assert {vote.edge for vote in world.book._doubts.votes(NOW)} == {good.id}  # noqa: SLF001
    anew = token("bad", 3)
    assert world.turn(good, anew) == {"us-east": 9.0}, "another of its name knows nothing"


def test_what_one_token_taught_can_be_forgotten_while_it_goes_on() -> None:
    """What waits for the next table, too; what others taught stays, and what it teaches from then on counts."""
    world = World()
    good, bad = token("good", 1), token("bad", 2)
    witness = Witness("192.0.2.0/24", "DE", "us-east", "reporter", 5, 0, 3.0, NOW)
    for one in (good, bad):
        world.book.take([say("us-east", 9.0)], one.id, [witness])
    world.book.take([say("jp", 9.0)], bad.id)
    assert set(world.turn(good, bad)) == {"us-east", "jp"}
    world.book.take([say("eu-central", 9.0)], bad.id, [witness])
    asyncio.run(world.book.forget({bad.id}))
    assert set(world.turn(good, bad)) == {"us-east"}
    assert {vote.edge for vote in world.book._doubts.votes(NOW)} == {good.id}  # noqa: SLF001
    world.book.take([say("jp", 3.0)], bad.id)
    assert world.turn(good, bad) == {"us-east": 9.0, "jp": 3.0}


def test_a_rotated_token_keeps_what_it_taught() -> None:
    """While both count, the new one takes it over; when the old one has ended, nothing is lost."""
    world = World()
    old, new = token("fra", 1, ends=NOW + 60), token("fra", 2)
    world.book.take([say("us-east", 99.0)], old.id)
    assert world.turn(token("fra", 1)) == {"us-east": 99.0}
    assert world.turn(old, new) == {"us-east": 99.0}
    world.now += 61
    assert world.turn(old, new) == world.turn(new) == {"us-east": 99.0}


def test_an_edge_is_not_alone_because_others_have_taught_nothing_yet() -> None:
    """What counts is which edges run: the first to speak of round trips is not the only one."""
    world = World()
    old, new, other = token("fra", 1), token("fra", 2), token("dub", 3)
    world.book.take([say("us-east", 99.0)], old.id)
    world.running = [old.id, new.id]
    assert world.turn(old, new, other) == {"us-east": 99.0}, "one edge, whose token was rotated"
    world.running = [new.id, other.id]
    assert world.turn(old, new, other) == {"us-east": ALONE}


def test_an_edge_alone_of_several_puts_no_network_in_doubt() -> None:
    """Who holds an edge's token can make reporters up: Berlin went to Tokyo, 136 ms farther. With another token's word it is in doubt."""
    world = World()
    good, bad = token("good", 1), token("bad", 2)
    claim = claim_of(BERLIN) or ""
    said = [Witness("192.0.2.0/24", claim, "jp", who, 9, 0, 0.5, NOW) for who in ("x", "y")]

    def nearest() -> str:
        world.turn(good, bad)
        paths = Estimator(REGIONS, world.table).paths(BERLIN, range(len(REGIONS)))
        return NAMES[min(paths, key=lambda number: paths[number].estimate_ms)]

    world.running = [good.id, bad.id]
    world.book.take([], bad.id, said)
    assert nearest() == "eu-central"
    world.running = [bad.id]
    assert nearest() == "jp", "it is the only one"
    world.running = [good.id, bad.id]
    assert nearest() == "eu-central"
    world.book.take([], good.id, said[:1])
    assert nearest() == "jp"


def test_nothing_is_forgotten_before_tokens_are_read() -> None:
    """A control that has just started, or whose database is away, does not know which tokens count."""
    world = World()
    world.book.take([say("us-east", 9.0)], "fra-1")
    assert Teachers.of([], (), NOW) is NOT_KNOWN
    assert world.turn() == {"us-east": 9.0}


def test_what_is_from_before_belongs_to_the_only_author() -> None:
    """Sums that were kept without an author are the lone edge's; beside several, they are one more voice."""
    older = Aggregates()
    older.merge([say("us-east", 60.0)], NOW)
    kept = older.sums(NOW)
    alone = Aggregates(kept)
    alone.merge([say("jp", 3.0)], NOW, "edge")
    assert {one.author for one in alone.sums(NOW)} == {"edge"}
    assert alone.table(EMPTY_TABLE, NOW, NAMES).countries["DE"]["us-east"][0] == 60.0
    several = Aggregates(kept)
    for author in ("b", "c"):
        several.merge([say("us-east", 10.0)], NOW, author)
    assert several.table(EMPTY_TABLE, NOW, NAMES).countries["DE"]["us-east"][0] == 10.0
