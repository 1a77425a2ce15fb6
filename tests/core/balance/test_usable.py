"""The whole chain of a region, held to the pages in random worlds: checks, ejections, panic, admission, and what the region says of itself.

The model is written from docs/backend-health.md (`health.model`) and docs/choosing.md (`_takers`, below), and shares no code with what it is held to:

    while some server that may serve a request passes its checks and does not drain, the request is not refused for want of servers;
    what admission has is what choosing would use; where no server passes, the region says so, and has nothing free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.admission import settings as limits
from gtm.core.balance.admission import values
from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.choosing.chooser import ANY_KIND, BackendPool, pool_of
from gtm.core.balance.choosing.filters import takers
from gtm.core.balance.choosing.values import Candidate, WantedBackend
from gtm.core.balance.choosing.values import ChoosingSettings as Choosing
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings, Thresholds
from gtm.core.balance.health.values import BackendState, Check, Failure
from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.services import Priority
from tests.core.balance.choosing.worlds import choose
from tests.core.balance.health.model import Page
from tests.core.strategies import quick

NAMES = "abcdef"
MODELS = (None, "chat", "embed", "unheard-of")
GOOD, BAD = ProbeResult(True, 0.0), ProbeResult(False, 0.0, "no answer within 0.8 s")
SETTINGS = HealthSettings(
    checks=MappingProxyType({Check.HEALTH: Thresholds(1, 1)}), consecutive=2, base=5.0, requests=4
)

servers = st.lists(
    st.tuples(
        st.sampled_from(((), ("chat",), ("embed",), ("chat", "embed"))),
        st.integers(1, 4),
        st.sampled_from(("", "", "blue", "green")),
    ),
    min_size=1,
    max_size=len(NAMES),
)
events = st.lists(
    st.tuples(
        st.sampled_from(("pass", "fail", "fail", "good", "bad", "bad", "bad", "drain", "back", "wait")),
        st.integers(0, len(NAMES) - 1),
        st.sampled_from((0.0, 0.1, 1.0, 4.0, 12.0)),
    ),
    max_size=60,
)


def _serves(backend: Backend, model: str | None) -> bool:
    return model is None or not backend.models or model in backend.models


def _takers(
    backends: Iterable[Backend], known: Mapping[str, Condition], model: str | None, settings: Choosing
) -> set[str]:
    """Names of those who would take a request of a model that names no version: docs/choosing.md, "Who may"."""
    able = [one for one in backends if _serves(one, model)]
    staying = [one for one in able if not known[one.name].draining]
    passing = [one for one in staying if known[one.name].healthy]
    well = [one for one in passing if not known[one.name].held and not known[one.name].ejected]
    panic = len(well) < settings.panic * len(staying)
    open_to = {name for name, share in settings.shares if share > 0}
    named = {name for name, _ in settings.shares}
    if sum(share for _, share in settings.shares) < 1:
        open_to |= {one.version for one in able} - named
    asked = [one for one in (passing if panic else well) if one.version in open_to]
    last = [one for one in passing if one.version in open_to and settings.panic > 0]
    return {one.name for one in asked or last}


class Region:
    """One, and the page of its health."""

    def __init__(self, backends: list[Backend], choosing: Choosing) -> None:
        self.now = 0.0
        self.backends, self.choosing = backends, choosing
        self.health = BackendHealth(SETTINGS, backends, self.now)
        self.page = Page(SETTINGS, [one.name for one in backends], self.now)
        self.flights = Flights()
        self.pool: BackendPool = pool_of(backends, {}, self.flights, choosing)
        self.admission = Admission(limits.AdmissionSettings())
        for one in backends:
            self.check(one.name, ok=True)
        self.told()

    def check(self, name: str, *, ok: bool) -> None:
        self.health.checked(name, Check.HEALTH, GOOD if ok else BAD, self.now)
        self.page.checked(name, Check.HEALTH, ok, self.now)

    def serve(self, name: str, *, ok: bool) -> None:
        sending, sent = self.health.begun(name, self.now), self.page.begun(name, self.now)
        if ok:
            self.health.answered(sending, 200, 0.1, self.now)
        else:
            self.health.failed(sending, Failure.RESET, self.now)
        self.page.ended(sent, "good" if ok else "reset", 0.1 if ok else None, self.now)

    def happens(self, what: str, name: str, later: float) -> None:
        if what in ("pass", "fail"):
            self.check(name, ok=what == "pass")
        elif what in ("good", "bad"):
            self.serve(name, ok=what == "good")
        elif what == "drain":
            self.health.drain(name, self.now)
            self.page.servers[name].drained_by = self.now
        elif what == "back":
            self.health.undrain(name)
            self.page.servers[name].drained_by = None
        self.now += later
        self.told()

    def told(self) -> None:
        self.pool = self.pool.updated(self.health.tick(self.now))
        self.page.tick(self.now)
        self.admission.resize(self.slots, self.now)

    @property
    def slots(self) -> int:
        return sum(one.slots for one in self.pool.usable)

    def holds(self) -> None:
        known = {one.name: self.page.condition(one.name, self.now) for one in self.backends}
        taking = {model: _takers(self.backends, known, model, self.choosing) for model in MODELS}
        usable = {name for names in taking.values() for name in names}
        assert {one.backend.name for one in self.pool.usable} == usable
        assert self.admission.snapshot().limit == sum(
            one.slots or 0 for one in self.backends if one.name in usable
        )
        offered = self.admission.offer(values.Arrival(Priority.REAL_TIME), self.now)
        if isinstance(offered, values.AdmissionRefusal):
            assert offered.code == "no_backend"
        else:
            self.admission.release(offered, self.now)
        assert isinstance(offered, values.AdmissionRefusal) is not bool(usable)
        passing = {name for name, one in known.items() if one.healthy and not one.draining}
        assert usable <= passing
        for model, names in taking.items():
            found = {choose(self.pool, WantedBackend(model), number / 16) for number in range(16)}
            chosen = {one.backend.name for one in found if isinstance(one, Candidate)}
            assert chosen <= names
            assert bool(chosen) is bool(names)
            if self.choosing.panic and not self.choosing.shares:
                could = {one.name for one in self.backends if _serves(one, model)} & passing
                assert bool(could) is bool(names)


@quick(150)
@given(
    servers,
    events,
    st.sampled_from((0.0, 0.3, 0.3, 0.3, 1.0)),
    st.sampled_from(((), (), (("green", 0.5),), (("blue", 0.0), ("green", 1.0)))),
)
def test_while_a_server_would_answer_the_region_does_not_refuse(
    made: list[tuple[tuple[str, ...], int, str]],
    happen: list[tuple[str, int, float]],
    panic: float,
    shares: tuple[tuple[str, float], ...],
) -> None:
    """Whatever happens, in whatever order; and what is admitted is what choosing uses."""
    backends = [
        Backend(name, slots=slots, models=frozenset(models), version=version)
        for name, (models, slots, version) in zip(NAMES, made, strict=False)
    ]
    region = Region(backends, Choosing(panic=panic, shares=shares))
    region.holds()
    for what, number, later in happen:
        region.happens(what, backends[number % len(backends)].name, later)
        region.holds()


def _region(count: int, **more: float) -> Region:
    return Region([Backend(name, slots=32) for name in NAMES[:count]], Choosing(**more))


def _blip(region: Region, names: str) -> None:
    """Event loops stand still for some seconds, and go on."""
    for ok in (False, True):
        for name in names:
            region.check(name, ok=ok)
        region.now += 3.0
        region.told()


def test_servers_that_fell_too_often_serve_while_nobody_else_does() -> None:
    """Checks that fail while a server reads a large prompt: vllm-project/vllm#24910, ray-project/ray#54070. A third time, and both are held."""
    region = _region(2)
    for _ in range(3):
        _blip(region, "ab")
    assert {one.state for one in region.health.snapshot(region.now)} == {BackendState.HELD}
    assert region.slots == 64
    assert isinstance(choose(region.pool, WantedBackend(), 0.5), Candidate)
    region.holds()


def test_where_no_server_passes_its_checks_the_region_says_so() -> None:
    """Also of those that are held: a failed check is never lifted."""
    region = _region(2)
    for _ in range(3):
        _blip(region, "ab")
    for name in "ab":
        region.check(name, ok=False)
    region.told()
    assert region.slots == 0
    assert not region.pool.usable
    region.holds()


def test_all_ejected_at_once_is_no_outage() -> None:
    """All circuits open, and nobody closes them, for nothing is sent (afreidah/s3-orchestrator#270, SemiAnalysisAI/InferenceX#2255).

    Of two models with a server each both are out for a time: one by requests, one as it fell too often.
    """
    backends = [
        Backend("a", slots=4, models=frozenset({"chat"})),
        Backend("b", slots=4, models=frozenset({"embed"})),
    ]
    region = Region(backends, Choosing())
    for _ in range(2):
        region.serve("a", ok=False)
    region.told()
    for _ in range(3):
        _blip(region, "b")
    for model, name in (("chat", "a"), ("embed", "b")):
        found = choose(region.pool, WantedBackend(model), 0.5)
        assert isinstance(found, Candidate)
        assert found.backend.name == name
    region.holds()


def test_all_in_cooldown_waits_for_nobody() -> None:
    """A deployment that is the last is asked, though it cools down (BerriAI/litellm#3646): where the other one refused the connection as well."""
    region = _region(2)
    for _ in range(2):
        region.serve("a", ok=False)
    region.told()
    assert region.slots == 32
    found = choose(region.pool, WantedBackend(tried=frozenset("b")), 0.5)
    assert isinstance(found, Candidate)
    assert found.backend.name == "a"


def test_one_of_four_that_is_well_is_no_capacity_of_eight() -> None:
    """Below `panic`, admission has the slots of all over which choosing spreads: all of their weight."""
    region = _region(4)
    for _ in range(3):
        _blip(region, "abc")
    assert region.slots == 128
    assert {one.weight for one in region.pool.usable} == {1.0}
    chosen = {choose(region.pool, WantedBackend(), number / 8) for number in range(8)}
    assert {one.backend.name for one in chosen if isinstance(one, Candidate)} == set("abcd")


def test_who_serves_any_model_serves_those_that_nobody_names() -> None:
    """The only one that does is held: for most models others are well, for such it is a panic, so its slots count."""
    named = [Backend(name, slots=4, models=frozenset({"chat"})) for name in "bc"]
    known = {"a": Condition(healthy=True, held=True), **{name: Condition(healthy=True) for name in "bc"}}
    pool = pool_of([Backend("a", slots=4), *named], known, Flights())
    found = choose(pool, WantedBackend("unheard-of"), 0.5)
    assert isinstance(found, Candidate)
    assert found.backend.name == "a"
    assert {one.backend.name for one in pool.usable} == {"a", "b", "c"}


def test_slow_start_counts_for_nothing_in_a_panic() -> None:
    """One that has just come back, beside those that are held, gets its share, not a tenth of it."""
    settings = Choosing(panic=1.0)
    backends = [Backend(name) for name in "ab"]
    known = {"a": Condition(healthy=True, warmth=0.1), "b": Condition(healthy=True, held=True)}
    pool = pool_of(backends, known, Flights(), settings)
    assert [one.weight for one in pool.eligible(ANY_KIND).candidates] == [1.0, 1.0]


@pytest.mark.parametrize("count", range(1, 9))
def test_ejections_are_bounded_in_number_and_time(count: int) -> None:
    """As Envoy's outlier detection bounds them (`max_ejection_percent`, `max_ejection_time`): half of all at most, 300 s at most."""
    settings = replace(HealthSettings(), consecutive=1)
    names = [f"s{number}" for number in range(count)]
    health = BackendHealth(settings, [Backend(name) for name in names], 0.0)
    now = 0.0
    for name in names:
        for _ in range(2):
            health.checked(name, Check.HEALTH, GOOD, now)
    while now < 2000:
        health.tick(now)
        for name in names:
            health.failed(health.begun(name, now), Failure.RESET, now)
        out = [one for one in health.snapshot(now) if one.state in (BackendState.EJECTED, BackendState.TRIAL)]
        assert len(out) <= count // 2
        assert all((one.until or now) - one.since <= settings.longest for one in out)
        now += 2.5


def test_many_models_cost_no_more_than_their_servers() -> None:
    """That panic is asked of sets of servers, not of each name that they have: ten thousand names on all are one set."""
    many = frozenset(f"m{number}" for number in range(10_000))
    backends = [Backend(name, models=many) for name in NAMES]
    known = {name: Condition(healthy=True, held=name < "c") for name in NAMES}
    pool = pool_of(backends, known, Flights())
    assert len(pool.usable) == 4
    assert len(takers(pool.candidates, ANY_KIND, pool.settings).last) == 2
