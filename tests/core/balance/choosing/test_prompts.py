"""Requests whose prompts begin alike: docs/choosing.md as a model, in random worlds."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.chooser import BackendChoice, BackendPool, begin, choice, pool_of
from gtm.core.balance.choosing.prefixes import LONGEST, PrefixMap, blocks
from gtm.core.balance.choosing.values import By, ChoosingSettings, Pick, Prefix, WantedBackend
from gtm.core.balance.flights import Flights
from tests.core.strategies import quick

NAMES = ("a", "b", "c", "d")
MAP = ChoosingSettings(prefix=Prefix.MAP)
HASH = ChoosingSettings(prefix=Prefix.HASH)

prompts = st.text("xy", min_size=1, max_size=6)
"""Of blocks of one letter: many begin alike."""


def cut(prompt: str) -> tuple[int, ...]:
    """Its blocks."""
    return blocks(prompt.encode(), 1)


class Remembered:
    """The page's map: of each server, the beginnings of what was sent there, the least recently used first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.known: list[str] = []
        self.had: dict[str, list[str]] = {}
        self.fits: dict[str, int | None] = {}

    def of(self, server: str) -> list[str]:
        if server not in self.known:
            self.known.append(server)
        return self.had.setdefault(server, [])

    def trim(self) -> None:
        for name in self.known:
            most = self.most // len(self.known)
            fits = self.fits.get(name)
            while len(self.had[name]) > (most if fits is None else min(most, fits)):
                self.had[name].pop(0)

    def sent(self, server: str, prompt: str) -> None:
        had = self.of(server)
        for length in range(len(prompt), 0, -1):
            if prompt[:length] in had:
                had.remove(prompt[:length])
            had.append(prompt[:length])
        self.trim()

    def depth(self, server: str, prompt: str) -> int:
        had = self.had.get(server, [])
        return max((n for n in range(1, len(prompt) + 1) if prompt[:n] in had), default=0)


deeds = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.sampled_from(NAMES), prompts),
        st.tuples(st.just("sent"), st.sampled_from(NAMES), prompts),
        st.tuples(st.just("holds"), st.sampled_from(NAMES), st.none() | st.integers(0, 8)),
        st.tuples(st.just("keep"), st.frozensets(st.sampled_from(NAMES), min_size=1), st.none()),
    ),
    max_size=20,
)


@quick(400)
@given(deeds, st.sampled_from((3, 12, 1000)), st.lists(prompts, max_size=4))
def test_the_map_is_what_was_sent(
    told: list[tuple[str, object, object]], most: int, asked: list[str]
) -> None:
    """In any order of events: what each has, its bounds, and that nobody has a block without those before it."""
    found, page = PrefixMap(most), Remembered(most)
    for what, whom, how in told:
        if what == "sent":
            assert isinstance(whom, str)
            assert isinstance(how, str)
            found.sent(whom, cut(how))
            page.sent(whom, how)
        elif what == "holds":
            assert isinstance(whom, str)
            assert how is None or isinstance(how, int)
            found.holds(whom, how)
            page.of(whom)
            page.fits[whom] = how
            page.trim()
        else:
            assert isinstance(whom, frozenset)
            found.keep(whom)
            for name in set(page.known) - whom:
                page.known.remove(name)
                del page.had[name]
                page.fits.pop(name, None)
        assert len(found) == sum(map(len, page.had.values())) <= most
        for had in page.had.values():
            assert all(one[:-1] in had for one in had if len(one) > 1)
    for prompt in [*asked, *(str(how) for what, _, how in told if what == "sent")]:
        depths = {name: page.depth(name, prompt) for name in NAMES}
        told_of = found.holders(cut(prompt))
        assert {name: depth for depth, names in told_of for name in names} == {
            name: depth for name, depth in depths.items() if depth
        }
        assert [depth for depth, _ in told_of] == sorted({depth for depth, _ in told_of}, reverse=True)


def test_servers_that_come_and_go_are_not_mixed_up() -> None:
    """One leaves, another comes: each has what it was sent."""
    found = PrefixMap()
    for name, prompt in (("a", "x"), ("b", "xy"), ("c", "y")):
        found.sent(name, cut(prompt))
    found.keep(frozenset("bc"))
    found.sent("d", cut("xx"))
    found.sent("e", cut("yy"))
    assert found.holders(cut("xy")) == [(2, ["b"]), (1, ["d"])]
    assert found.holders(cut("xx")) == [(2, ["d"]), (1, ["b"])]
    assert found.holders(cut("yy")) == [(2, ["e"]), (1, ["c"])]


@quick(100)
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(1, 9))
def test_equal_blocks_are_equal_beginnings(one: bytes, other: bytes, size: int) -> None:
    """Block by block: hashes agree exactly as far as whole blocks from the first on do."""
    these, those = blocks(one, size), blocks(other, size)
    assert len(these) == len(one) // size
    for place, (left, right) in enumerate(zip(these, those, strict=False), start=1):
        assert (left == right) == (one[: place * size] == other[: place * size])
    assert not set(blocks(one, size, b"other model")) & set(these)
    assert len(blocks(bytes(10_000), 1)) == LONGEST
    assert blocks(one, size, most=1) == these[:1]


def world(
    loads: list[int], weights: list[float], well: list[bool], settings: ChoosingSettings
) -> BackendPool:
    """Servers with so many requests in flight."""
    backends = [Backend(name, weight) for name, weight in zip(NAMES, weights, strict=False)]
    flights = Flights(backends)
    for backend, count in zip(backends, loads, strict=False):
        for _ in range(count):
            flights.of(backend.name).begin(1.0)
    conditions = {
        one.name: Condition(healthy=good, draining=not good)
        for one, good in zip(backends, well, strict=False)
    }
    return pool_of(backends, conditions, flights, settings)


four = st.lists(st.integers(0, 9), min_size=4, max_size=4)
weighted = st.lists(st.sampled_from((0.5, 1.0, 3.0)), min_size=4, max_size=4)
some_well = st.lists(st.booleans(), min_size=4, max_size=4).filter(any)


@quick(400)
@given(
    st.tuples(four, weighted, some_well),
    st.sampled_from((1.01, 1.25, 2.0)),
    st.lists(st.tuples(st.sampled_from(NAMES), prompts), max_size=6),
    prompts,
    st.floats(0, 1, exclude_max=True),
)
def test_a_prompt_goes_where_most_of_it_was_sent(
    servers: tuple[list[int], list[float], list[bool]],
    bound: float,
    before: list[tuple[str, str]],
    prompt: str,
    draw: float,
) -> None:
    """The longest beginning; of those the least loaded; none with more than its share; else as if nobody had looked. Never who is left out."""
    loads, weights, well = servers
    pool = world(loads, weights, well, ChoosingSettings(prefix=Prefix.MAP, bound=bound))
    page = Remembered(1000)
    for name, one in before:
        pool.prefixes.sent(name, cut(one))
        page.sent(name, one)
    number = {name: place for place, name in enumerate(NAMES)}
    able = [name for name in NAMES if well[number[name]]]
    plain = choice(pool, WantedBackend(), draw)
    assert isinstance(plain, BackendChoice)
    flying, mass = sum(loads[number[one]] for one in able) + 1, sum(weights[number[one]] for one in able)
    expected = {plain.candidate.backend.name}
    by, moved, alike = By.LOAD, False, False
    starving = loads[plain.candidate.number] < floor(0.25 * flying / mass * weights[plain.candidate.number])
    for depth in () if starving else sorted({page.depth(name, prompt) for name in able} - {0}, reverse=True):
        having = [name for name in able if page.depth(name, prompt) == depth]
        if having == able:
            by = By.CACHE
            break
        score = {name: (loads[number[name]] + 1) / weights[number[name]] for name in having}
        room = [
            name
            for name in having
            if loads[number[name]] < ceil(bound * flying / mass * weights[number[name]])
        ]
        moved = moved or min(score, key=lambda one: score[one]) not in room
        alike = alike or len(set(score.values())) < len(score)
        by = By.CACHE
        if room:
            least = min(score[name] for name in room)
            expected = {name for name in room if score[name] == pytest.approx(least)}
            break
    found = choice(pool, WantedBackend(prefix=cut(prompt)), draw)
    assert isinstance(found, BackendChoice)
    assert found.candidate.backend.name in expected
    assert found.candidate.backend.name in able
    assert found.by is by
    if not alike:
        assert found.moved is moved


@quick(200)
@given(four, weighted, some_well, prompts, st.floats(0, 1, exclude_max=True))
def test_hashed_prompts_are_on_the_ring(
    loads: list[int], weights: list[float], well: list[bool], prompt: str, draw: float
) -> None:
    """As sessions: the first on the ring of those who may, with less than its capacity. Only the first block counts."""
    pool = world(loads, weights, well, HASH)
    wanted = WantedBackend(prefix=cut(prompt))
    found = choice(pool, wanted, draw)
    assert isinstance(found, BackendChoice)
    assert found == choice(pool, WantedBackend(prefix=(*wanted.prefix[:1], 7)), 1 - draw or 0.5)
    flying = sum(load for load, good in zip(loads, well, strict=True) if good) + 1
    mass = sum(weight for weight, good in zip(weights, well, strict=True) if good)
    order = [number for number in pool.ring.after(f"{wanted.prefix[0]:x}") if well[number]]
    room = [number for number in order if loads[number] < ceil(1.25 * flying / mass * weights[number])]
    assert (found.candidate.number, found.by, found.moved) == (room[0], By.PREFIX, room[0] != order[0])


@pytest.mark.parametrize("settings", [HASH, MAP])
def test_a_session_goes_first(settings: ChoosingSettings) -> None:
    """Whatever its prompts are: it stays, and is counted as a session; without the setting prompts mean nothing."""
    pool = world([0] * 4, [1.0] * 4, [True] * 4, settings)
    ways = {choice(pool, WantedBackend(key="alice", prefix=cut("x" * n)), 0.3) for n in range(1, 7)}
    assert len(ways) == 1
    assert {way.by for way in ways if isinstance(way, BackendChoice)} == {By.SESSION}
    plain = world([0] * 4, [1.0] * 4, [True] * 4, ChoosingSettings())
    assert choice(plain, WantedBackend(prefix=cut("x")), 0.3) == choice(plain, WantedBackend(), 0.3)


def _spread(pool: BackendPool, wanted: WantedBackend, count: int) -> Counter[str]:
    won: Counter[str] = Counter()
    for number in range(count):
        found = choice(pool, wanted, (number * 0.618) % 1)
        assert isinstance(found, BackendChoice)
        begin(pool, found.candidate, wanted)
        won[found.candidate.backend.name] += 1
    return won


@pytest.mark.parametrize("settings", [HASH, MAP])
def test_a_prompt_that_all_share_is_spread(settings: ChoosingSettings) -> None:
    """A thousand at once: nobody has more than 1.25 times its share; with the map everybody has it in the end, and load decides.

    Of eight servers seven could carry all of it within the bound: the eighth is not left out.
    """
    backends = [Backend(f"{number}") for number in range(8)]
    well = {one.name: Condition(healthy=True) for one in backends}
    pool = pool_of(backends, well, Flights(backends), settings)
    won = _spread(pool, WantedBackend(prefix=cut("x")), 1000)
    assert max(won.values()) <= ceil(1.25 * 1000 / 8)
    if settings is MAP:
        assert len(won) == 8
        assert max(won.values()) - min(won.values()) <= 1


@pytest.mark.parametrize("settings", [HASH, MAP])
def test_a_server_that_leaves_moves_its_own_alone(settings: ChoosingSettings) -> None:
    """However it leaves: filtered out, or taken out of the configuration; when it comes back, nobody else's have moved."""
    pool = world([0] * 4, [1.0] * 4, [True] * 4, settings)
    some = [WantedBackend(prefix=cut(f"{number:012b}")) for number in range(0, 4096, 41)]
    some = [WantedBackend(prefix=one.prefix[-1:]) for one in some]

    def where(pool: BackendPool) -> list[str]:
        found = [choice(pool, wanted, (place * 0.618) % 1) for place, wanted in enumerate(some)]
        return [one.candidate.backend.name for one in found if isinstance(one, BackendChoice)]

    for wanted, found in zip(some, where(pool), strict=True):
        pool.prefixes.sent(found, wanted.prefix) if settings is MAP else None
    before = where(pool)
    assert len(set(before)) == 4
    fewer = pool_of(
        [one.backend for one in pool.candidates if one.backend.name != "b"],
        {one.backend.name: one.condition for one in pool.candidates},
        pool.flights,
        settings,
        prefixes=PrefixMap() if settings is HASH else pool.prefixes,
    )
    for gone in (pool.updated({"b": Condition()}), fewer):
        after = where(gone)
        assert "b" not in after
        assert all(new == old for new, old in zip(after, before, strict=True) if old != "b")
    if settings is HASH:
        assert where(pool) == before
    else:
        assert "b" not in {
            name for wanted in some for _, names in pool.prefixes.holders(wanted.prefix) for name in names
        }


def test_what_was_begun_is_remembered_only_where_prompts_count() -> None:
    """`begin` tells the map; with another setting nothing is kept."""
    for settings, kept in ((MAP, 3), (HASH, 0), (ChoosingSettings(), 0)):
        pool = world([0] * 4, [1.0] * 4, [True] * 4, settings)
        _spread(pool, WantedBackend(key="k", prefix=cut("xyx")), 1)
        assert len(pool.prefixes) == kept


def test_where_all_have_a_prompt_the_pick_decides() -> None:
    """Whichever it is: with a pick by chance, as if nobody had looked."""
    pool = world([0] * 4, [1.0] * 4, [True] * 4, ChoosingSettings(prefix=Prefix.MAP, pick=Pick.RANDOM))
    for name in NAMES:
        pool.prefixes.sent(name, cut("xy"))
    for draw in (0.1, 0.3, 0.6, 0.9):
        found, plain = (
            choice(pool, WantedBackend(prefix=cut("xyx")), draw),
            choice(pool, WantedBackend(), draw),
        )
        assert isinstance(found, BackendChoice)
        assert isinstance(plain, BackendChoice)
        assert (found.candidate, found.by) == (plain.candidate, By.CACHE)


def test_a_map_outlives_its_pool() -> None:
    """What was sent is remembered in the next pool, whether the map was empty when the first was made or not."""
    empty = PrefixMap()
    pool = pool_of([Backend("a")], {"a": Condition(healthy=True)}, Flights(), MAP, prefixes=empty)
    _spread(pool, WantedBackend(prefix=cut("xy")), 1)
    again = pool_of([Backend("a"), Backend("b")], {}, pool.flights, MAP, prefixes=empty)
    assert again.prefixes.holders(cut("xyx")) == [(2, ["a"])]


def test_shares_of_versions_do_not_depend_on_prompts() -> None:
    """A prompt that all share does not put all clients into one version."""
    settings = ChoosingSettings(prefix=Prefix.MAP, shares=(("green", 0.5),))
    backends = [Backend("a", version="green"), Backend("b", version="blue")]
    for prefix in (Prefix.MAP, Prefix.HASH):
        pool = pool_of(
            backends,
            {one.name: Condition(healthy=True) for one in backends},
            Flights(backends),
            ChoosingSettings(prefix=prefix, shares=settings.shares),
        )
        won = _spread(pool, WantedBackend(prefix=cut("x")), 1000)
        assert won["a"] == pytest.approx(500, abs=10)
