"""Who may take a request: filters and choices against a readable model of docs/choosing.md, in random worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import UNKNOWN, Backend, Condition
from gtm.core.balance.choosing.chooser import MOST_KINDS, choose, pool_of
from gtm.core.balance.choosing.filters import Kind, eligible, left_out
from gtm.core.balance.choosing.values import Candidate, Pick, Settings, Wanted, Why
from gtm.core.balance.choosing.versions import OTHERS
from gtm.core.balance.flights import Flights
from tests.core.balance.choosing import worlds
from tests.core.strategies import quick
from tests.memory import held

wanteds = st.builds(
    Wanted,
    model=st.none() | st.sampled_from((*worlds.MODELS, *worlds.ADAPTERS, "unheard-of")),
    adapter=st.none() | st.sampled_from(worlds.ADAPTERS),
    version=st.none() | st.sampled_from(worlds.VERSIONS),
    key=st.none() | st.sampled_from(("ann", "ben", "cas")),
    tried=st.frozensets(st.sampled_from(("http://b0", "http://b1"))),
)


def may_serve(
    backends: Sequence[Backend],
    known: Mapping[str, Condition],
    wanted: Wanted,
    version: str | None,
    settings: Settings,
    *,
    last: bool = False,
) -> set[str]:
    """The model: names, as the page says it, one sentence a line. `last`: those who are asked where the others were all tried, or there are none."""
    of = {one.name: known.get(one.name, UNKNOWN) for one in backends}
    rolled_out = {name for name, _ in settings.shares}
    listing = {one.name for one in backends if wanted.model in (of[one.name].adapters or ())}
    serving = listing | {
        one.name for one in backends if wanted.model is None or not one.models or wanted.model in one.models
    }
    staying = {name for name in serving if not of[name].draining}
    passing = {name for name in staying if of[name].healthy}
    well = {name for name in passing if not of[name].held and not of[name].ejected}
    panic = len(well) < settings.panic * len(staying)
    right = {
        one.name
        for one in backends
        if version is None or (one.version not in rolled_out if version == OTHERS else one.version == version)
    }
    may = (passing if panic else well) & right
    refusing = {name for name in may if of[name].refuses}
    willing = may - refusing
    if last:
        out = (passing - well) & right if settings.panic else set()
        may = out | (refusing if willing else set()) or may - out
    else:
        may = willing or may
    lacks_model = {
        n
        for n in may
        if wanted.model and of[n].models is not None and wanted.model not in (of[n].models or ())
    } - listing
    lacks_adapter = {n for n in may if wanted.adapter and wanted.adapter not in (of[n].adapters or ())}
    may = (may - lacks_model - lacks_adapter) or may
    roomy = {n for n in may if (of[n].memory or 0) <= settings.most_memory}
    return roomy or may


@quick(400)
@given(st.data(), worlds.shares, st.sampled_from((0.0, 0.3, 1.0)), wanteds, st.sampled_from(tuple(Pick)))
def test_who_is_chosen_may_serve(
    data: st.DataObject, shares: tuple[tuple[str, float], ...], panic: float, wanted: Wanted, pick: Pick
) -> None:
    """Whoever is picked is one of the model's; where nobody is, the model has nobody, in any version with a share."""
    backends = data.draw(worlds.servers())
    known = data.draw(worlds.known(backends))
    settings = Settings(pick=pick, panic=panic, shares=shares, scans=data.draw(st.sampled_from((0, 16))))
    pool = pool_of(backends, known, Flights(), settings)
    given_up = wanted.tried
    found = choose(pool, wanted, data.draw(st.floats(0, 1, exclude_max=True)))
    if wanted.version is not None or not shares:
        versions = [wanted.version]
    else:
        left = 1 - sum(share for _, share in shares)
        parts = [(OTHERS, left if left > 1e-9 else 0.0), *shares]
        versions = [name for name, share in parts if share > 0]
    options = [may_serve(backends, known, wanted, name, settings) for name in versions]
    lasts = [may_serve(backends, known, wanted, name, settings, last=True) for name in versions]
    if isinstance(found, Candidate):
        name = found.backend.name
        assert any(name in option for option in (*options, *lasts))
        if not any(name in option for option in options):
            assert not any(options) or any(option <= given_up for option in options)
        assert name not in given_up
        warmth = known.get(name, UNKNOWN).warmth
        assert found.weight in (found.backend.weight * warmth, found.backend.weight)
    elif found is Why.TRIED:
        assert any(option and option <= given_up for option in (*options, *lasts))
    else:
        assert not any(options)
        assert not all(lasts)


@quick(300)
@given(st.data(), wanteds, st.sampled_from((0.0, 0.3, 1.0)))
def test_eligible_sets_and_reasons(data: st.DataObject, wanted: Wanted, panic: float) -> None:
    """The set is the model's; everybody else has a reason that is true of it."""
    backends = data.draw(worlds.servers())
    known = data.draw(worlds.known(backends))
    settings = Settings(panic=panic)
    pool = pool_of(backends, known, Flights(), settings)
    kind = Kind(wanted.model, wanted.adapter, wanted.version)
    found = eligible(pool.candidates, kind, settings)
    expected = may_serve(backends, known, wanted, wanted.version, settings)
    assert {one.backend.name for one in found.candidates} == expected
    assert list(found.numbered) == [one.number for one in found.candidates]
    out = left_out(pool.candidates, kind, settings)
    assert set(out) == {one.name for one in backends} - expected
    for one in pool.candidates:
        told = out.get(one.backend.name)
        condition = one.condition
        assert told is not Why.DRAINING or condition.draining
        assert told is not Why.UNHEALTHY or not condition.healthy or condition.held or condition.ejected
        assert told is not Why.FULL or condition.refuses
        assert told is not Why.MEMORY or (condition.memory or 0) > settings.most_memory
        assert told is not Why.NO_MODEL or wanted.model not in one.backend.models
        assert told is not Why.NO_VERSION or wanted.version != one.backend.version


def test_both_names_of_a_request_have_to_be_loaded() -> None:
    """One whose model is an adapter's name and that names another adapter, too: who has the first alone is not preferred."""
    backends = (Backend("a"), Backend("b"))
    known = {
        "a": Condition(healthy=True),
        "b": Condition(healthy=True, models=frozenset(), adapters=frozenset({"law"})),
    }
    wanted, settings = Wanted(model="law", adapter="tax"), Settings()
    pool = pool_of(backends, known, Flights(), settings)
    found = eligible(pool.candidates, Kind("law", "tax", None), settings)
    assert {one.backend.name for one in found.candidates} == {"a", "b"}
    assert may_serve(backends, known, wanted, None, settings) == {"a", "b"}


def _why(backends: Sequence[Backend], condition: Condition, wanted: Wanted) -> Candidate | Why:
    known = {backend.name: condition for backend in backends}
    return choose(pool_of(backends, known, Flights(), Settings(panic=0.0)), wanted, 0.5)


def test_why_nobody_serves() -> None:
    """The first filter that leaves nobody is the reason."""
    llama = [Backend("a", models=frozenset({"llama"}), version="blue")]
    well = Condition(healthy=True)
    assert _why([], well, Wanted()) is Why.NO_BACKEND
    assert _why(llama, well, Wanted(model="qwen")) is Why.NO_MODEL
    assert _why(llama, well, Wanted(version="green")) is Why.NO_VERSION
    assert _why(llama, Condition(healthy=True, draining=True), Wanted()) is Why.DRAINING
    assert _why(llama, UNKNOWN, Wanted()) is Why.UNHEALTHY
    assert _why(llama, Condition(healthy=True, ejected=True), Wanted()) is Why.UNHEALTHY
    assert _why(llama, well, Wanted(tried=frozenset("a"))) is Why.TRIED


def test_panic_begins_below_the_threshold_and_spares_the_draining() -> None:
    """3 of 10 that are well are enough at 0.3, 2 are not; the one that drains is not counted and not brought back, the one that is down neither."""
    backends = [Backend(f"{number}") for number in range(11)]
    for healthy, expected in ((3, 3), (2, 9)):
        known = {f"{number}": Condition(healthy=True, held=number >= healthy) for number in range(9)}
        known["9"] = Condition(healthy=False)  # it fails a check: panic is no reason to ask it
        known["10"] = Condition(healthy=True, draining=True)
        found = pool_of(backends, known, Flights()).eligible(Kind(None, None, None))
        assert len(found.candidates) == expected
        assert found.panic is (expected == 9)
        assert "10" not in {one.backend.name for one in found.candidates}


def test_memory_is_short_above_the_threshold_not_at_it() -> None:
    """0.95 is still room; above, others come first; where all are above, all serve."""
    backends = [Backend(name) for name in "ab"]
    for first, second, expected in ((0.95, 0.96, "a"), (0.96, 0.97, "ab"), (None, 0.96, "a")):
        known = {"a": Condition(healthy=True, memory=first), "b": Condition(healthy=True, memory=second)}
        found = pool_of(backends, known, Flights()).eligible(Kind(None, None, None))
        assert "".join(one.backend.name for one in found.candidates) == expected


def test_a_canary_that_fails_is_no_panic() -> None:
    """Its clients get the others, not a server that is down."""
    backends = [Backend("canary", version="2"), *(Backend(f"{number}", version="1") for number in range(3))]
    known = {"canary": Condition(), **{f"{number}": Condition(healthy=True) for number in range(3)}}
    pool = pool_of(backends, known, Flights(), Settings(shares=(("2", 1 / 2),)))
    for draw in (0.1, 0.4, 0.6, 0.9):
        found = choose(pool, Wanted(), draw)
        assert isinstance(found, Candidate)
        assert found.backend.version == "1"
    assert choose(pool, Wanted(version="2"), 0.5) is Why.UNHEALTHY


def test_a_version_without_a_share_gets_nobody() -> None:
    """Not even when what replaced it is down."""
    backends = [
        Backend("old", version="blue"),
        Backend("new", version="green"),
        Backend("more", version="blue"),
    ]
    known = {"old": Condition(healthy=True), "new": Condition(), "more": Condition(healthy=True)}
    pool = pool_of(backends, known, Flights(), Settings(shares=(("blue", 0.0), ("green", 1.0))))
    assert choose(pool, Wanted(), 0.5) is Why.UNHEALTHY


def test_names_that_do_not_exist_fill_no_memory() -> None:
    """Clients may name any model."""
    pool = pool_of([Backend("a")], {"a": Condition(healthy=True)}, Flights())

    def ask(times: int) -> None:
        for number in range(times):
            choose(pool, Wanted(model=f"m{number}"), 0.5)

    most = held(lambda: ask(MOST_KINDS))
    assert held(lambda: ask(9 * MOST_KINDS)) < 2 * most


@quick(200)
@given(st.data())
def test_an_update_is_the_pool_made_anew(data: st.DataObject) -> None:
    """And itself where no choice changes: scrapes come ten times a second."""
    backends = data.draw(worlds.servers(least=1))
    before = data.draw(worlds.known(backends))
    after = {**before, **data.draw(worlds.known(backends))}
    flights = Flights()
    settings = Settings(shares=data.draw(worlds.shares))
    pool = pool_of(backends, before, flights, settings)
    wanted = data.draw(wanteds)
    choose(pool, wanted, 0.3)
    updated, anew = pool.updated(after), pool_of(backends, after, flights, settings)
    for draw in (0.0, 0.3, 0.8):
        one, other = choose(updated, wanted, draw), choose(anew, wanted, draw)
        assert (one.number if isinstance(one, Candidate) else one) == (
            other.number if isinstance(other, Candidate) else other
        )
    assert updated.updated(after) is updated


def test_what_cannot_be_is_refused() -> None:
    """With what, where, and what to do."""
    for bad in (
        {"weight": 0.0},
        {"weight": float("inf")},
        {"weight": float("nan")},
        {"slots": 0},
        {"max_loaded": 0},
    ):
        with pytest.raises(ValueError, match=r"backend http://a: .*; give"):
            Backend("http://a", **bad)
    for warmth in (0.0, 1.1):
        with pytest.raises(ValueError, match="warmth"):
            Condition(warmth=warmth)
    for settings, named in (
        ({"panic": 1.5}, "panic"),
        ({"bound": 1.0}, "bound"),
        ({"shares": (("a", 0.5), ("a", 0.1))}, "more than one"),
        ({"shares": (("a", 0.5), ("b", 0.6))}, "parts of 1"),
        ({"shares": (("a", -0.5),)}, "parts of 1"),
    ):
        with pytest.raises(ValueError, match=named):
            Settings(**settings)
    with pytest.raises(ValueError, match="listed twice: a;"):
        pool_of([Backend("a"), Backend("b"), Backend("a")], {}, Flights())
