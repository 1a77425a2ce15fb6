"""Who may take a request: filters and choices against a readable model of docs/choosing.md, in random worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import UNKNOWN, Backend, Condition
from gtm.core.balance.choosing.chooser import MOST_KINDS, pool_of
from gtm.core.balance.choosing.filters import Kind, eligible
from gtm.core.balance.choosing.values import Candidate, ChoosingSettings, Pick, WantedBackend, Why
from gtm.core.balance.choosing.versions import OTHERS
from gtm.core.balance.flights import Flights
from tests.core.balance.choosing import worlds
from tests.core.balance.choosing.worlds import choose
from tests.core.strategies import quick
from tests.memory import held

wanteds = st.builds(
    WantedBackend,
    model=st.none() | st.sampled_from((*worlds.MODELS, *worlds.ADAPTERS, "unheard-of")),
    key=st.none() | st.sampled_from(("ann", "ben", "cas")),
    tried=st.frozensets(st.sampled_from(("http://b0", "http://b1"))),
)


def may_serve(
    backends: Sequence[Backend],
    known: Mapping[str, Condition],
    wanted: WantedBackend,
    version: str | None,
    settings: ChoosingSettings,
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
    having = {
        one.name
        for one in backends
        if one.name in serving
        and (wanted.model in one.models or (wanted.model and wanted.model in (of[one.name].models or ())))
    }
    if having:
        serving -= (
            {one.name for one in backends if not one.models and of[one.name].models is not None}
            - having
            - listing
        )
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
    lacks = {
        n
        for n in of
        if wanted.model and of[n].models is not None and wanted.model not in (of[n].models or ())
    } - listing
    # Who says that it is full comes after others that have what is wanted, and before those that lack it.
    refusing = {name for name in may if of[name].refuses}
    able = (may - lacks) or may
    willing = may - refusing if able & refusing and able - refusing else set()
    if last:
        out = (passing - well) & right if settings.panic else set()
        may = out | (refusing if willing else set()) or may - out
    else:
        may = willing or may
    may = (may - lacks) or may
    roomy = {n for n in may if (of[n].memory or 0) <= settings.most_memory}
    return roomy or may


@quick(400)
@given(st.data(), worlds.shares, st.sampled_from((0.0, 0.3, 1.0)), wanteds, st.sampled_from(tuple(Pick)))
def test_who_is_chosen_may_serve(
    data: st.DataObject,
    shares: tuple[tuple[str, float], ...],
    panic: float,
    wanted: WantedBackend,
    pick: Pick,
) -> None:
    """Whoever is picked is one of the model's; where nobody is, the model has nobody, in any version with a share."""
    backends = data.draw(worlds.servers())
    known = data.draw(worlds.known(backends))
    settings = ChoosingSettings(
        pick=pick, panic=panic, shares=shares, scans=data.draw(st.sampled_from((0, 16)))
    )
    pool = pool_of(backends, known, Flights(), settings)
    given_up = wanted.tried
    found = choose(pool, wanted, data.draw(st.floats(0, 1, exclude_max=True)))
    versions: list[str | None] = [None]
    if shares:
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
@given(st.data(), wanteds, st.none() | st.sampled_from(worlds.VERSIONS), st.sampled_from((0.0, 0.3, 1.0)))
def test_eligible_sets(data: st.DataObject, wanted: WantedBackend, version: str | None, panic: float) -> None:
    """The set is the model's."""
    backends = data.draw(worlds.servers())
    known = data.draw(worlds.known(backends))
    settings = ChoosingSettings(panic=panic)
    pool = pool_of(backends, known, Flights(), settings)
    kind = Kind(wanted.model, version)
    found = eligible(pool.candidates, kind, settings)
    expected = may_serve(backends, known, wanted, version, settings)
    assert {one.backend.name for one in found.candidates} == expected
    assert list(found.numbered) == [one.number for one in found.candidates]


def _why(backends: Sequence[Backend], condition: Condition, wanted: WantedBackend) -> Candidate | Why:
    known = {backend.name: condition for backend in backends}
    return choose(pool_of(backends, known, Flights(), ChoosingSettings(panic=0.0)), wanted, 0.5)


def test_why_nobody_serves() -> None:
    """The first filter that leaves nobody is the reason."""
    llama = [Backend("a", models=frozenset({"llama"}), version="blue")]
    well = Condition(healthy=True)
    assert _why([], well, WantedBackend()) is Why.NO_BACKEND
    assert _why(llama, well, WantedBackend(model="qwen")) is Why.NO_MODEL
    assert pool_of(llama, {"a": well}, Flights()).eligible(Kind("llama", "green")).why is Why.NO_VERSION
    assert _why(llama, Condition(healthy=True, draining=True), WantedBackend()) is Why.DRAINING
    assert _why(llama, UNKNOWN, WantedBackend()) is Why.UNHEALTHY
    assert _why(llama, Condition(healthy=True, ejected=True), WantedBackend()) is Why.UNHEALTHY
    assert _why(llama, well, WantedBackend(tried=frozenset("a"))) is Why.TRIED


def test_panic_begins_below_the_threshold_and_spares_the_draining() -> None:
    """3 of 10 that are well are enough at 0.3, 2 are not; the one that drains is not counted and not brought back, the one that is down neither."""
    backends = [Backend(f"{number}") for number in range(11)]
    for healthy, expected in ((3, 3), (2, 9)):
        known = {f"{number}": Condition(healthy=True, held=number >= healthy) for number in range(9)}
        known["9"] = Condition(healthy=False)  # it fails a check: panic is no reason to ask it
        known["10"] = Condition(healthy=True, draining=True)
        found = pool_of(backends, known, Flights()).eligible(Kind(None, None))
        assert len(found.candidates) == expected
        assert "10" not in {one.backend.name for one in found.candidates}


def _well(*models: str, **more: bool) -> Condition:
    return Condition(
        healthy=more.pop("healthy", True), models=frozenset(models), adapters=frozenset(), **more
    )


def test_who_has_an_adapter_is_asked_though_it_says_that_it_is_full() -> None:
    """One that says "full" for seconds comes after others that have the adapter, and before one that lacks it and would say that there is none."""
    has = Condition(healthy=True, models=frozenset("m"), adapters=frozenset("x"))
    lacks = replace(has, adapters=frozenset())
    for known, expected in (
        ({"a": replace(has, refuses=True), "b": lacks}, "a"),
        ({"a": replace(has, refuses=True), "b": has}, "b"),
    ):
        found = choose(pool_of([Backend("a"), Backend("b")], known, Flights()), WantedBackend("x"), 0.5)
        assert isinstance(found, Candidate)
        assert found.backend.name == expected


@pytest.mark.parametrize(
    ("having", "why"),
    [
        (_well("whisper", healthy=False), Why.UNHEALTHY),
        (_well("whisper", draining=True), Why.DRAINING),
        (_well("whisper", ejected=True), None),
    ],
    ids=["down", "drains", "ejected"],
)
def test_who_is_known_to_lack_a_model_is_not_asked_for_it(having: Condition, why: Why | None) -> None:
    """While the only server that listed `whisper` was down, its requests went to one that lists `llama` alone, and got its 404. One whose list is unknown may have it."""
    known = {"a": _well("llama"), "b": having}
    pool = pool_of([Backend("a"), Backend("b")], known, Flights())
    found = choose(pool, WantedBackend("whisper"), 0.5)
    assert (found.backend.name if isinstance(found, Candidate) else found) == (why or "b")
    assert {one.backend.name for one in pool.usable} == ({"a"} if why else {"a", "b"})
    for model in ("llama", "unheard-of"):  # what nobody is known to have may be loaded anywhere
        found = choose(pool, WantedBackend(model), 0.5)
        assert isinstance(found, Candidate)
        assert found.backend.name == "a"
    pool = pool_of([Backend(name) for name in "abc"], {**known, "c": Condition(healthy=True)}, Flights())
    found = choose(pool, WantedBackend("whisper"), 0.5)
    assert isinstance(found, Candidate)
    assert found.backend.name == "c" if why else found.backend.name in "bc"


def test_who_is_for_a_model_by_the_file_or_may_load_an_adapter_is_asked() -> None:
    """The file's word stands beside lists; an adapter that one server had, which is down, is loaded by another."""
    down = Condition(models=frozenset({"llama"}), adapters=frozenset({"sql"}))
    for backends, wanted in (
        ([Backend(name, models=frozenset({"llama", "qwen"})) for name in "ab"], "llama"),
        ([Backend(name) for name in "ab"], "sql"),
    ):
        found = choose(
            pool_of(backends, {"a": _well("qwen"), "b": down}, Flights()), WantedBackend(wanted), 0.5
        )
        assert isinstance(found, Candidate)
        assert found.backend.name == "a"
    mixed = [Backend("a"), Backend("b", models=frozenset({"llama"}))]
    assert (
        choose(pool_of(mixed, {"a": _well("qwen")}, Flights()), WantedBackend("llama"), 0.5) is Why.UNHEALTHY
    )


@pytest.mark.parametrize("file", [(), ("llama3:latest",), ("llama3",)], ids=["none", "tag", "no tag"])
@pytest.mark.parametrize("model", ["llama3", "llama3:latest"])
def test_a_name_without_a_tag_is_the_latest(file: tuple[str, ...], model: str) -> None:
    """Ollama takes `llama3` for `llama3:latest`, which it lists: ten of twelve such requests went to the server that has `mistral:latest`, and where the file said the tag, gtm answered 404."""
    mistral = Backend("b", models=frozenset(("mistral:latest",) if file else ()))
    known = {"a": _well("llama3:latest"), "b": _well("mistral:latest"), "c": _well("llama3:8b")}
    pool = pool_of([Backend("a", models=frozenset(file)), mistral, Backend("c")], known, Flights())
    found = pool.eligible(Kind(model, None))
    assert [one.backend.name for one in found.candidates] == ["a"]
    known["a"] = replace(known["a"], healthy=False)
    assert choose(pool.updated(known), WantedBackend(model), 0.5) is Why.UNHEALTHY
    known["a"] = replace(known["a"], healthy=True, held=True)
    assert {one.backend.name for one in pool.updated(known).usable} == {"a", "b", "c"}
    assert choose(pool, WantedBackend("mistral"), 0.5) is pool.candidates[1]


def test_clients_of_a_version_that_lacks_a_model_get_another() -> None:
    """Blue alone lists it: green's clients got green's 404."""
    backends = [Backend("a", version="blue"), Backend("b", version="green")]
    known = {"a": _well("whisper"), "b": _well("llama")}
    pool = pool_of(backends, known, Flights(), ChoosingSettings(shares=(("blue", 0.1), ("green", 0.9))))
    for draw in (0.05, 0.95):
        found = choose(pool, WantedBackend("whisper"), draw)
        assert isinstance(found, Candidate)
        assert found.backend.name == "a"


def test_memory_is_short_above_the_threshold_not_at_it() -> None:
    """0.95 is still room; above, others come first; where all are above, all serve."""
    backends = [Backend(name) for name in "ab"]
    for first, second, expected in ((0.95, 0.96, "a"), (0.96, 0.97, "ab"), (None, 0.96, "a")):
        known = {"a": Condition(healthy=True, memory=first), "b": Condition(healthy=True, memory=second)}
        found = pool_of(backends, known, Flights()).eligible(Kind(None, None))
        assert "".join(one.backend.name for one in found.candidates) == expected


def test_a_canary_that_fails_is_no_panic() -> None:
    """Its clients get the others, not a server that is down."""
    backends = [Backend("canary", version="2"), *(Backend(f"{number}", version="1") for number in range(3))]
    known = {"canary": Condition(), **{f"{number}": Condition(healthy=True) for number in range(3)}}
    pool = pool_of(backends, known, Flights(), ChoosingSettings(shares=(("2", 1 / 2),)))
    for draw in (0.1, 0.4, 0.6, 0.9):
        found = choose(pool, WantedBackend(), draw)
        assert isinstance(found, Candidate)
        assert found.backend.version == "1"
    assert pool.eligible(Kind(None, "2")).why is Why.UNHEALTHY


def test_a_version_without_a_share_gets_nobody() -> None:
    """Not even when what replaced it is down."""
    backends = [
        Backend("old", version="blue"),
        Backend("new", version="green"),
        Backend("more", version="blue"),
    ]
    known = {"old": Condition(healthy=True), "new": Condition(), "more": Condition(healthy=True)}
    pool = pool_of(backends, known, Flights(), ChoosingSettings(shares=(("blue", 0.0), ("green", 1.0))))
    assert choose(pool, WantedBackend(), 0.5) is Why.UNHEALTHY


def test_names_that_do_not_exist_fill_no_memory() -> None:
    """Clients may name any model."""
    pool = pool_of([Backend("a")], {"a": Condition(healthy=True)}, Flights())

    def ask(times: int) -> None:
        for number in range(times):
            choose(pool, WantedBackend(model=f"m{number}"), 0.5)

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
    settings = ChoosingSettings(shares=data.draw(worlds.shares))
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
    with pytest.raises(ValueError, match="parts of 1"):
        ChoosingSettings(shares=(("a", 0.5), ("b", 0.6)))
    with pytest.raises(ValueError, match="listed twice: a;"):
        pool_of([Backend("a"), Backend("b"), Backend("a")], {}, Flights())
