"""Networks that are not where the location database says: who can raise a doubt, what it does, and how it ends.

`World` is the model, written from docs/latency.md: which networks are doubtful after what reporters said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.latency.aggregates import Aggregates
from gtm.core.latency.doubt import (
    Doubt,
    Doubts,
    DoubtSettings,
    Vote,
    Witness,
    check_witness,
    claim_of,
    tellable,
)
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Level, RoundTripSample, SampleAggregator, SampleMethod, SampleVerdict
from gtm.core.latency.squares import Source
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.geometry import great_circle_km
from gtm.core.model.requests import Location
from tests import worlds
from tests.core.strategies import quick

REGIONS = FRANKFURT, _, VIRGINIA = worlds.regions(worlds.THREE)
NAMES = [region.name for region in REGIONS]
NETWORK = "192.0.2.0/24"
NEW_YORK = Location("US", None, "NA", 40.71, -74.0, 3320, NETWORK, 24, "geoip", accuracy_km=50.0)
"""Where the database claims a network that really is in Frankfurt."""
TRUE_MS = {"eu-central": 3.0, "eu-west": 24.0, "us-east": 92.0}
CLAIM = "US|40,-74"
DAY = 86_400.0

BALANCER, BEACON, PROBE = SampleMethod


def said(
    samples: Iterable[RoundTripSample], doubts: dict[str, Doubt] | None = None
) -> tuple[list[Witness], set[tuple[Level, str]]]:
    """What an edge makes of samples: its witnesses, and the levels and keys that they teach."""
    aggregator = SampleAggregator(REGIONS, doubts=doubts or {})
    for sample in samples:
        aggregator.add(sample)
    deltas, witnesses = aggregator.take()
    return witnesses, {(delta.level, delta.key) for delta in deltas}


def honest(
    location: Location = NEW_YORK, regions: Sequence[str] = NAMES, count: int = 8
) -> list[RoundTripSample]:
    """What the regions' own balancers see of clients who really are in Frankfurt."""
    return [
        RoundTripSample(
            location, region, TRUE_MS[region], 0.0, f"source-{number}", BALANCER, f"balancer of {region}"
        )
        for region in regions
        for number in range(count)
    ]


def judged(
    witnesses: Iterable[Witness], now: float = 0.0, edge: str = "edge-1", measured: int = 1000
) -> list[str]:
    """The networks that are doubtful after some witnesses."""
    doubts = Doubts()
    doubts.merge(edge, witnesses, now)
    found = doubts.disputed({}, now, NAMES, dict.fromkeys(NAMES, measured))
    return [one.network for one in found if one.doubt.doubtful]


# --- what disputes a claim ---


@pytest.mark.parametrize(
    ("location", "rtt_ms", "against"),
    [
        # Frankfurt to New York is 6,202 km: light takes 62 ms there and back.
        (NEW_YORK, 58.5, 1),  # 250 km and 1 ms are allowed at least
        (NEW_YORK, 58.6, 0),
        (NEW_YORK._replace(accuracy_km=1000.0), 41.0, 1),  # twice the radius
        (NEW_YORK._replace(accuracy_km=1000.0), 41.1, 0),
        (NEW_YORK._replace(accuracy_km=None), 51.0, 1),  # 1,000 km where no radius is stated
        (NEW_YORK._replace(accuracy_km=None), 51.1, 0),
        (NEW_YORK._replace(central=True), 1.0, 1),  # a country's middle is 6,000 km from its ends
        (NEW_YORK._replace(central=True), 1.1, 0),
    ],
)
def test_light_disputes_a_claim_beyond_what_is_allowed(
    location: Location, rtt_ms: float, against: int
) -> None:
    """What is allowed: twice the accuracy radius, some distance at least, and a millisecond."""
    assert great_circle_km(50.11, 8.68, 40.71, -74.0) == pytest.approx(6202, abs=1)
    witnesses, _ = said([RoundTripSample(location, "eu-central", rtt_ms, 5.0, "a", BALANCER, "b")])
    assert [witness.against for witness in witnesses] == [1] * against
    for witness in witnesses:
        assert witness == Witness(NETWORK, CLAIM, "eu-central", "b", 1, 0, rtt_ms, 5.0)


def test_a_balancers_sample_counts_for_its_network_whatever_is_claimed() -> None:
    """What light contradicts teaches the network alone: no operator, country or place."""
    witnesses, levels = said(honest())
    assert levels == {
        (Level.NETWORK, NETWORK),
        (Level.ASN, "3320|US"),
        (Level.COUNTRY, "US"),
        (Level.PLACE, "40,-74"),
    }  # by Virginia's balancer, which sees nothing wrong
    assert {witness.region for witness in witnesses} == {"eu-central", "eu-west"}
    assert said(honest(regions=["eu-central", "eu-west"]))[1] == {(Level.NETWORK, NETWORK)}
    slow = [
        replace(sample, region=region, rtt_ms=90.0)
        for sample in honest(regions=["eu-central"])
        for region in NAMES[1:]
    ]
    assert said([*honest(regions=["eu-central"]), *slow])[1] == {(Level.NETWORK, NETWORK)}


def test_a_doubtful_network_teaches_nothing_coarser() -> None:
    """Once edges know, Virginia's samples count for the network alone too; of another claim they count for all."""
    doubt = {NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})}
    assert said(honest(regions=["us-east"]), doubt)[1] == {(Level.NETWORK, NETWORK)}
    moved = NEW_YORK._replace(lat=42.0)
    assert len(said(honest(moved, ["us-east"]), doubt)[1]) == 4
    only = {NETWORK: Doubt(CLAIM, False, {"eu-central": 3.0})}
    assert len(said(honest(regions=["us-east"]), only)[1]) == 4


def test_samples_that_fit_are_told_of_networks_in_dispute_only() -> None:
    """An edge tells what fits a claim where somebody disputed it, so that a doubt can end."""
    assert said(honest(regions=["us-east"]))[0] == []
    known = {NETWORK: Doubt(CLAIM, False, {"eu-central": 3.0})}
    (witness,) = said(honest(regions=["us-east"]), known)[0]
    assert (witness.against, witness.fits) == (0, 8)


@quick(200)
@given(
    st.lists(
        st.builds(
            RoundTripSample,
            st.sampled_from((NEW_YORK, NEW_YORK._replace(accuracy_km=None), NEW_YORK._replace(lat=0.0))),
            st.sampled_from((*NAMES, "gone")),
            st.floats(-1, 400),
            st.floats(0, 100),
            st.sampled_from(("a", "b", "c", *NAMES)),
            st.sampled_from((BEACON, PROBE)),
            st.sampled_from(("", "forged", "balancer")),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_nobody_without_a_token_disputes_anything(samples: list[RoundTripSample], known: bool) -> None:
    """Whatever browsers and probes say, no witness comes of it: neither against a claim, nor for it."""
    doubts = {NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})} if known else {}
    assert said(samples, doubts)[0] == []


def test_networks_of_one_person_are_not_named() -> None:
    """What balancers say of a network below a /24 or a /48 is told of the /24 or /48 around it."""
    assert tellable("192.0.2.0/24")
    assert tellable("2001:db8::/48")
    for network in ("192.0.2.0/25", "2001:db8::/49", None, "192.0.2.1/24", "all"):
        assert not tellable(network)
    narrow = NEW_YORK._replace(network="192.0.2.128/25", prefix_length=25)
    assert said(honest(narrow))[0] == said(honest())[0]
    only = {NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})}
    assert said(honest(narrow, ["us-east"]), only)[1] == {(Level.NETWORK, NETWORK)}


def test_narrow_networks_are_doubted_with_the_one_around_them() -> None:
    """Where the database cuts narrower than a doubt may be told, all parts with the disputed claim are in doubt."""
    table = LatencyTable(doubts={NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})})
    narrow = NEW_YORK._replace(network="192.0.2.128/25", prefix_length=25)
    assert table.dubious(narrow)
    assert not table.dubious(narrow._replace(lat=34.0, lon=-118.2)), "another part, of another claim"
    subnet = narrow._replace(
        subnet=NETWORK, parts=(("192.0.2.0/25", "US|34,-119"), (narrow.network or "", CLAIM))
    )
    assert table.dubious(subnet)
    assert not table.dubious(subnet._replace(parts=subnet.parts[:1]))


# --- whose word it takes ---


def test_two_reporters_make_a_doubt() -> None:
    """One token is not enough, whatever it says; the balancers of two regions are."""
    assert judged(said(honest())[0]) == [NETWORK]
    assert judged(said(honest(regions=["eu-central"]))[0]) == []
    alone = [replace(sample, reporter="one token") for sample in honest()]
    assert judged(said(alone)[0]) == []


witnesses_ = st.builds(
    Witness,
    st.sampled_from((NETWORK, "198.51.100.0/24", "203.0.113.0/24")),
    st.sampled_from((CLAIM, "DE|50,8")),
    st.sampled_from(NAMES),
    st.sampled_from(("a", "b", "c", "d")),
    st.integers(0, 20),
    st.integers(0, 20),
    st.floats(0.1, 50),
    st.just(0.0),
).filter(lambda witness: witness.against + witness.fits > 0)


@dataclass
class World:
    """Who disputes what, as docs/latency.md has it, for witnesses that all arrive at one moment.

    A reporter has a vote of a network's claim where, from some region and through some edge, at least four samples are
    against it, and more than fit it. The first word must be against it, else there is nothing to weigh.
    """

    said: dict[tuple[str, str, str, str, str], list[int]] = field(default_factory=dict)

    def hear(self, edge: str, witness: Witness) -> None:
        """Take in what an edge says."""
        key = (witness.network, witness.claim, witness.region, witness.reporter, edge)
        if witness.against or key in self.said:
            counts = self.said.setdefault(key, [0, 0])
            counts[0] += witness.against
            counts[1] += witness.fits

    def voters(self, network: str, claim: str) -> set[str]:
        """The reporters who dispute a claim."""
        return {
            key[3]
            for key, (against, fits) in self.said.items()
            if key[:2] == (network, claim) and against >= 4 and against > fits
        }


@quick(300)
@given(st.lists(st.tuples(st.sampled_from(("edge-1", "edge-2")), witnesses_), max_size=12))
def test_votes_are_counted_as_the_model_counts_them(heard: list[tuple[str, Witness]]) -> None:
    """A network is doubtful exactly if two reporters dispute the claim that weighs most."""
    world, doubts = World(), Doubts(settings=DoubtSettings(most_weight=1e9))
    for edge, witness in heard:
        world.hear(edge, witness)
        doubts.merge(edge, [witness], 0.0)
    found = {one.network: one for one in doubts.disputed({}, 0.0, NAMES, dict.fromkeys(NAMES, 10_000))}
    for network in {witness.network for _, witness in heard}:
        voters = {claim: world.voters(network, claim) for claim in (CLAIM, "DE|50,8")}
        assert (network in found) is any(voters.values())
        if network in found:
            one = found[network]
            assert one.reporters == voters[one.doubt.claim]
            assert one.doubt.doubtful is (len(one.reporters) >= 2)


@quick(200)
@given(
    st.lists(witnesses_.map(lambda witness: witness._replace(reporter="liar")), max_size=40),
    st.sampled_from(("edge-1", "edge-2")),
)
def test_one_liar_makes_nothing_doubtful(lies: list[Witness], edge: str) -> None:
    """However much one token says, of whatever regions, through whatever edges: beside the honest it is one vote."""
    doubts = Doubts()
    doubts.merge("edge-1", lies, 0.0)
    doubts.merge(edge, lies, 0.0)
    assert not any(one.doubt.doubtful for one in doubts.disputed({}, 0.0, NAMES, dict.fromkeys(NAMES, 10)))


def test_who_disputes_a_quarter_of_the_world_has_no_vote() -> None:
    """A region whose coordinates are wrong disputes most of its clients: its balancers' votes are set aside."""
    networks = [f"10.{number}.0.0/16" for number in range(40)]
    wrong = [
        Witness(network, CLAIM, "eu-central", reporter, 8, 0, 3.0, 0.0)
        for network in networks
        for reporter in ("one", "two")
    ]
    assert judged(wrong, measured=100) == []
    assert len(judged(wrong, measured=200)) == 40
    doubts = Doubts()
    doubts.merge("edge-1", wrong, 0.0)
    assert doubts.set_aside({"eu-central": 100}, 0.0) == {"one", "two"}
    few = [witness for witness in wrong if witness.network in networks[:8]]
    assert len(judged(few, measured=10)) == 8, "a small installation may dispute eight networks"


def test_one_edge_alone_makes_few_networks_doubtful() -> None:
    """Whoever holds an edge's token can make reporters up: what came through it alone is bounded."""
    networks = [f"10.{number}.0.0/16" for number in range(150)]
    made_up = [
        Witness(network, CLAIM, "eu-central", reporter, 8, 0, 3.0, 0.0)
        for network in networks
        for reporter in ("one", "two")
    ]
    assert len(judged(made_up, measured=10_000)) == 100
    doubts = Doubts()
    doubts.merge("edge-1", made_up, 0.0)
    doubts.merge("edge-2", made_up, 0.0)
    found = doubts.disputed({}, 0.0, NAMES, dict.fromkeys(NAMES, 10_000))
    assert sum(one.doubt.doubtful for one in found) == 150


def test_nobody_crowds_out_anothers_votes() -> None:
    """Past the bound of the memory, each reporter keeps as many votes as any other."""
    doubts = Doubts(settings=DoubtSettings(max_votes=100))
    doubts.merge("edge-1", said(honest())[0], 0.0)
    flood = [Witness(f"10.{n}.0.0/16", CLAIM, "us-east", "liar", 8, 0, 3.0, 0.0) for n in range(200)]
    doubts.merge("edge-1", flood, 0.0)
    kept = doubts.votes(0.0)
    assert len(kept) <= 100
    assert {vote.region for vote in kept if vote.network == NETWORK} == {"eu-central", "eu-west"}


HONEST = [
    (edge, Witness(NETWORK, CLAIM, "eu-central", reporter, 5, 0, 3.0, 0.0))
    for edge, reporter in (("edge-1", "a"), ("edge-2", "b"))
]
MANY = [f"{20 + number // 256}.{number % 256}.0.0/16" for number in range(1200)]


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param(
            [Witness(net, CLAIM, "eu-central", who, 50, 0, 3.0, 0.0) for net in MANY[:1100] for who in "xy"],
            id="more doubts than are told",
        ),
        pytest.param(
            [Witness(net, CLAIM, "eu-central", "a", 50, 0, 3.0, 0.0) for net in MANY],
            id="in the name of one who disputes, so that it disputes too much",
        ),
        pytest.param(
            [Witness(NETWORK, "DE|50,8", name, who, 100, 0, 3.0, 0.0) for name in NAMES for who in "xyz"],
            id="a heavier doubt of another claim of the network",
        ),
        pytest.param(
            [Witness(MANY[0], CLAIM, "eu-central", f"{n}", 100, 0, 3.0, 0.0) for n in range(6000)],
            id="more reporters than there is room for votes",
        ),
    ],
)
def test_one_edge_cannot_end_what_others_doubt(lies: list[Witness]) -> None:
    """Whatever an edge's token says, and in whose name: a doubt that two edges' reporters raised stays."""
    doubts = Doubts(settings=DoubtSettings(max_votes=5_000))
    for edge, witness in HONEST:
        doubts.merge(edge, [witness], 0.0)
    for lie in lies:
        doubts.merge("edge-3", [lie], 0.0)
    assert len(doubts.votes(0.0)) <= 5_000
    found = doubts.disputed({}, 0.0, NAMES, dict.fromkeys(NAMES, 4_500))
    assert [(one.doubt.claim, one.doubt.doubtful) for one in found if one.network == NETWORK] == [
        (CLAIM, True)
    ]
    assert len(found) <= 1_000


# --- how it ends ---


def test_a_doubt_ends_with_samples_that_fit() -> None:
    """The same reporters' samples outweigh what they disputed; others' do not."""
    doubts, table = Doubts(), {}
    doubts.merge("edge-1", said(honest())[0], 0.0)

    def told() -> dict[str, Doubt]:
        found = doubts.disputed(table, 0.0, NAMES, dict.fromkeys(NAMES, 1000))
        return {one.network: one.doubt for one in found}

    table = told()
    assert table[NETWORK].doubtful
    right = [replace(sample, rtt_ms=80.0) for sample in honest()]
    foreign = said([replace(sample, reporter="another") for sample in right], table)[0]
    for _ in range(50):
        doubts.merge("edge-1", foreign, 0.0)
    assert told()[NETWORK].doubtful
    turns = 0
    while table.get(NETWORK, Doubt("", False, {})).doubtful:
        doubts.merge("edge-1", said(right, table)[0], 0.0)
        table = told()
        turns += 1
    assert 1 < turns < 40


def test_a_doubt_ends_with_time() -> None:
    """Half of the weight is gone with each half-life; a published doubt stays down to half of what it took."""
    doubts = Doubts()
    doubts.merge("edge-1", said(honest())[0], 0.0)
    before = {NETWORK: Doubt(CLAIM, True, {})}
    for days, doubtful in ((0.0, True), (1.9, True), (2.1, False)):
        found = doubts.disputed(before, days * DAY, NAMES, {})
        assert [one.doubt.doubtful for one in found] == ([True] if doubtful else [])
    assert doubts.disputed({}, 1.1 * DAY, NAMES, {}) == []
    assert len(doubts.votes(6 * DAY)) == 2
    assert doubts.votes(7 * DAY) == []


def test_another_claim_ends_a_doubt() -> None:
    """When the database or an override says something else of the network, edges believe that at once."""
    table = LatencyTable(doubts={NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})})
    assert table.doubt(NEW_YORK) is not None
    assert table.doubt(NEW_YORK._replace(lat=50.1, lon=8.7, country="DE")) is None
    assert table.doubt(NEW_YORK._replace(country="CA")) is None
    assert table.doubt(NEW_YORK._replace(network="192.0.3.0/24")) is None
    assert LatencyTable(doubts={NETWORK: Doubt(CLAIM, False, {})}).doubt(NEW_YORK) is None
    assert claim_of(Location("US")) is None


def test_regions_that_move_or_go_lose_their_votes() -> None:
    """A vote is about where a region stands."""
    doubts = Doubts()
    doubts.merge("edge-1", said(honest())[0], 0.0)
    assert not any(one.doubt.doubtful for one in doubts.disputed({}, 0.0, ["eu-west", "us-east"], {}))
    doubts.forget(["eu-central"])
    assert {vote.region for vote in doubts.votes(0.0)} == {"eu-west"}


# --- what is estimated ---


def learned(doubts: dict[str, Doubt] | None, samples: Iterable[RoundTripSample]) -> LatencyTable:
    """The table after one interval."""
    aggregator, aggregates = SampleAggregator(REGIONS, doubts=doubts or {}), Aggregates()
    for sample in samples:
        aggregator.add(sample)
    aggregates.merge(aggregator.take().deltas, 0.0)
    return aggregates.table(EMPTY_TABLE, 0.0, NAMES, doubts=doubts)


@pytest.mark.parametrize("doubtful", [False, True])
def test_the_worst_estimates_learn(doubtful: bool) -> None:
    """A network that is not where it should be is estimated as it was measured, doubtful already or not."""
    doubts = {NETWORK: Doubt(CLAIM, doubtful, {"eu-central": 3.0, "eu-west": 24.0})}
    table = learned(doubts, honest(count=24))
    paths = Estimator(REGIONS, table).paths(NEW_YORK, range(3))
    for number, name in enumerate(NAMES):
        assert paths[number].source == Source.NETWORK
        assert paths[number].estimate_ms == pytest.approx(TRUE_MS[name], abs=6)
    assert paths[0].estimate_ms < paths[1].estimate_ms < paths[2].estimate_ms


def test_a_doubtful_network_without_samples_of_a_region_stands_near_those_who_have_some() -> None:
    """What the database claims is not looked at: neither the place nor what its neighbours measured."""
    far = {"us-east": (400.0, 400.0), "eu-west": (400.0, 400.0)}
    claimed = LatencyTable(countries={"US": far}, asns={"3320|US": far}, places={"40,-74": far})
    table = replace(claimed, doubts={NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0, "eu-west": 24.0})})
    found = Estimator(REGIONS, table).paths(NEW_YORK, range(3))
    there = NEW_YORK._replace(country=None, asn=None, network=None, lat=FRANKFURT.lat, lon=FRANKFURT.lon)
    assert {number: path.estimate_ms for number, path in found.items()} == {
        number: path.estimate_ms for number, path in Estimator(REGIONS, table).paths(there, range(3)).items()
    }
    nowhere = replace(table, doubts={NETWORK: Doubt(CLAIM, True, {"gone": 3.0})})
    assert Estimator(REGIONS, nowhere).paths(NEW_YORK, range(3)) == {}


def test_light_bounds_no_estimate_from_a_place_that_is_a_guess() -> None:
    """A doubtful network counts as standing at a region, and is not there: what was measured nearby may say less."""
    quick_places = {"50,8": {"us-east": (-80.0, 400.0)}}
    doubt = Doubt(CLAIM, True, {"eu-central": 3.0})
    light = great_circle_km(FRANKFURT.lat, FRANKFURT.lon, VIRGINIA.lat, VIRGINIA.lon) / 100
    there = NEW_YORK._replace(country=None, asn=None, network=None, lat=FRANKFURT.lat, lon=FRANKFURT.lon)
    doubted = LatencyTable(places=quick_places, doubts={NETWORK: doubt})
    assert Estimator(REGIONS, doubted).paths(there, range(3))[2].estimate_ms >= light - 0.1
    assert Estimator(REGIONS, doubted).paths(NEW_YORK, range(3))[2].estimate_ms < light - 1


def test_doubts_are_told_anew_only_when_they_change() -> None:
    """A millisecond more or less is no news; a verdict or another region is."""
    aggregates = Aggregates()
    doubt = Doubt(CLAIM, False, {"eu-central": 3.0})
    first = aggregates.table(EMPTY_TABLE, 0.0, NAMES, doubts={NETWORK: doubt})
    assert first.doubts == {NETWORK: doubt}
    near = doubt._replace(fastest={"eu-central": 4.0})
    assert aggregates.table(first, 0.0, NAMES, doubts={NETWORK: near}) is first
    assert aggregates.table(first, 0.0, NAMES) is first
    for other in (
        doubt._replace(doubtful=True),
        doubt._replace(fastest={"eu-central": 9.0}),
        doubt._replace(fastest={"eu-west": 3.0}),
        doubt._replace(claim="DE|50,8"),
    ):
        assert aggregates.table(first, 0.0, NAMES, doubts={NETWORK: other}).doubts == {NETWORK: other}
    assert aggregates.table(first, 0.0, NAMES, doubts={}).doubts == {}


# --- what comes from outside ---


@pytest.mark.parametrize(
    "wrong",
    [
        {"network": "192.0.2.0/25"},
        {"network": "anything"},
        {"claim": ""},
        {"region": "x" * 300},
        {"reporter": "a\nb"},
        {"against": -1},
        {"against": 0, "fits": 0},
        {"fits": 10**9},
        {"ms": -1.0},
        {"ms": float("nan")},
        {"at": float("inf")},
    ],
)
def test_an_impossible_witness_is_refused(wrong: dict[str, object]) -> None:
    """Control takes in nothing that an edge of this gtm could not have said."""
    sound = Witness(NETWORK, CLAIM, "eu-central", "b", 8, 0, 3.0, 0.0)
    check_witness(sound)
    with pytest.raises(ValueError, match=r"witness|network"):
        check_witness(sound._replace(**wrong))  # type: ignore[arg-type]


@quick(100)
@given(st.lists(witnesses_, max_size=9))
def test_votes_survive_storage_and_the_wire(heard: list[Witness]) -> None:
    """What is stored and loaded judges as before; a table with doubts is read by edges as it was sent."""
    doubts = Doubts()
    doubts.merge("edge-1", msgspec.json.decode(msgspec.json.encode(heard), type=list[Witness]), 0.0)
    stored = msgspec.json.decode(msgspec.json.encode(doubts.votes(0.0)), type=list[Vote])
    measured = dict.fromkeys(NAMES, 1000)
    found = doubts.disputed({}, 0.0, NAMES, measured)
    assert Doubts(stored).disputed({}, 0.0, NAMES, measured) == found
    table = LatencyTable(doubts={one.network: one.doubt for one in found})
    assert msgspec.json.decode(msgspec.json.encode(table), type=LatencyTable) == table


def test_a_wrong_clock_does_not_last() -> None:
    """A witness from the future counts as of now."""
    doubts = Doubts()
    doubts.merge("edge-1", [Witness(NETWORK, CLAIM, "eu-central", "b", 8, 0, 3.0, 1e12)], 100.0)
    (vote,) = doubts.votes(100.0)
    assert vote.updated == 100.0


def test_a_browser_is_refused_what_a_balancer_may_say() -> None:
    """Quicker than light is implausible from a browser, doubtful location or not."""
    aggregator = SampleAggregator(REGIONS, doubts={NETWORK: Doubt(CLAIM, True, {"eu-central": 3.0})})
    sample = RoundTripSample(NEW_YORK, "eu-central", 3.0, 0.0, "a", BEACON)
    assert aggregator.add(sample) is SampleVerdict.IMPLAUSIBLE
    assert aggregator.add(replace(sample, method=BALANCER)) is SampleVerdict.ACCEPTED
