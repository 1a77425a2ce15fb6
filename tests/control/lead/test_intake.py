"""What is left of a report: only what the policy names, within bounds, whatever was sent."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead.demand import MAX_ROWS, DemandBook
from gtm.control.lead.latency import MAX_SHARE, LatencyBook, Teachers
from gtm.control.lead.reports import MAX_DETAIL, MAX_LEASES, ReportIntake
from gtm.control.lead.takeover import MAX_AHEAD, MAX_CLASSES, plan_problem
from gtm.core.capacity.supply import NO_ASSESSMENT
from gtm.core.demand.rows import Row
from gtm.core.latency.aggregates import NO_AUTHORS
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta, Level
from gtm.core.model.certificates import Certificate, ShownCertificate
from gtm.core.model.regions import Endpoint
from gtm.core.model.state import ClassPlan, EndpointHealth, HealthStatus, Plan
from gtm.core.policy.compile import compile_policy
from gtm.core.quota.leases import Lease, LeaseUse
from gtm.feed.reports import EdgeReport
from gtm.storage.session import Database
from tests import worlds
from tests.core.strategies import quick

NOW = 1_700_000_000.0
URL = "http://192.0.2.1/"
REGIONS = (worlds.region(name, Endpoint(URL, ("192.0.2.1",)), at="de") for name in "ab")
SNAPSHOT = compile_policy(worlds.policy(*REGIONS, worlds.service("chat", "a b")), (), revision=1)

words = st.one_of(st.sampled_from(["a", "b", "chat", URL, "", "spill_in:a"]), st.text(max_size=8))
numbers = st.one_of(st.floats(), st.integers(), st.none())
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=8,
)
verdicts = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["up", "down", "unknown"]),
        "since": st.floats(),
        "detail": st.text(max_size=3 * MAX_DETAIL),
        "latency_ms": st.one_of(st.none(), st.floats()),
    },
)
plans = st.fixed_dictionaries(
    {},
    optional={
        "made": st.floats(),
        "classes": st.dictionaries(
            words,
            st.fixed_dictionaries({"weights": st.dictionaries(words, st.floats(), max_size=3)}),
            max_size=3,
        ),
        "prices": st.dictionaries(words, st.floats(), max_size=3),
        "moving": st.dictionaries(words, st.floats(), max_size=3),
    },
)
leases = st.fixed_dictionaries(
    {"instance": st.just("i"), "report": st.integers(0, 5)},
    optional={
        "used": st.dictionaries(words, st.integers(0, 9), max_size=3),
        "held": st.lists(st.fixed_dictionaries({"quota": words, "rate": st.floats(0.1, 9.0)}), max_size=3),
    },
)
reports = st.fixed_dictionaries(
    {
        "version": st.just("1"),
        "revision": st.just(1),
        "epoch": st.just(1),
        "health": st.one_of(
            st.dictionaries(words, st.dictionaries(words, verdicts, max_size=3), max_size=3), anything
        ),
    },
    optional={
        "demand": st.one_of(st.dictionaries(words, st.floats(), max_size=3), anything),
        "plan": st.one_of(plans, anything),
        "leases": st.one_of(leases, anything),
        "overruled": st.one_of(st.lists(words, max_size=3), anything),
    },
)


@quick(500)
@given(reports)
def test_whatever_is_reported_only_known_names_and_sane_numbers_remain(report: dict[str, Any]) -> None:
    """A report is refused as a whole when it cannot be read; what is read is cut down to what the policy names."""
    try:
        found = msgspec.json.decode(msgspec.json.encode(report), type=EdgeReport)
    except (msgspec.MsgspecError, ValueError):
        return
    dropped: Counter[str] = Counter()
    kept = ReportIntake(SNAPSHOT, dropped).read(found, NOW)
    assert kept.health.keys() <= {"a", "b"}
    assert set(kept.overruled) <= {"a", "b"}
    for endpoints in kept.health.values():
        assert endpoints.keys() == {URL}
        for one in endpoints.values():
            assert 0 <= one.since <= NOW
            assert len(one.detail) <= MAX_DETAIL
            assert one.latency_ms is None or 0 <= one.latency_ms < float("inf")
    if kept.plan is not None and plan_problem(kept.plan) is None:
        assert kept.plan.made <= NOW + MAX_AHEAD
        assert all(one.weights.keys() <= {"a", "b"} for one in kept.plan.classes.values())
        assert kept.plan.prices.keys() <= {"a", "b"}
        assert all(map(isfinite, kept.plan.prices.values()))
    if kept.leases is not None:
        names = {*kept.leases.used, *kept.leases.denied, *(lease.quota for lease in kept.leases.held)}
        assert names <= {"spill_in:a", "spill_in:b"}


def test_what_is_dropped_is_counted_and_loses_nothing_else() -> None:
    """A report with much that nobody knows counts for all the rest."""
    up = EndpointHealth(HealthStatus.UP)
    report = EdgeReport(
        "1",
        1,
        1,
        {"a": {URL: up, "http://x/": up}, "ghost": {f"http://{n}/": up for n in range(1000)}},
        leases=LeaseUse(
            "i", 1, used={"spill_in:a": 2, "ghost": 1}, held=(Lease("ghost", 1.0), Lease("spill_in:a", 2.0))
        ),
        plan=Plan(
            NOW,
            {"known": ClassPlan({"a": 1.0}), "unknown": ClassPlan({"ghost": 1.0})},
            {"a": 1.0, "ghost": 2.0},
        ),
        corrections={"a\tb": 3.0, "\tb": 1.0, "ghost\ta": 1.0, "a\t": 2.0, "a": 1.0},
    )
    dropped: Counter[str] = Counter()
    kept = ReportIntake(SNAPSHOT, dropped).read(report, NOW)
    assert kept.health == {"a": {URL: up}}
    assert kept.leases == LeaseUse("i", 1, used={"spill_in:a": 2}, held=(Lease("spill_in:a", 2.0),))
    assert kept.plan == Plan(NOW, {"known": ClassPlan({"a": 1.0})}, {"a": 1.0})
    assert kept.corrections == {"a\tb": 3.0, "\tb": 1.0}
    assert dropped == {"health": 1001, "leases": 2, "plan": 1, "corrections": 3}


def test_a_plan_from_the_future_is_nobodys() -> None:
    """The latest plan of all edges is taken over: a wrong clock, or a lie, must not win by its date."""
    report = EdgeReport("1", 1, 1, {}, plan=Plan(NOW + MAX_AHEAD + 1, {"c": ClassPlan({"a": 1.0})}))
    assert ReportIntake(SNAPSHOT, Counter()).read(report, NOW).plan is None


def test_demand_of_unknown_services_and_regions_is_dropped() -> None:
    """Rows of what the policy does not name are not kept; the others count."""
    dropped: Counter[str] = Counter()
    intake = ReportIntake(SNAPSHOT, dropped)
    known = Row("chat", "a", "served", "dns", "class", "cell")
    rows = [
        known,
        Row("ghost", "a", "served", "dns", "class", "cell"),
        Row("chat", "ghost", "served", "dns", "c", "c"),
    ]
    book = DemandBook()
    book.take("edge", {row.text: 5.0 for row in rows}, 1.0, 0.0, intake.wanted)
    assert set(book.reported(0.0).rates()) == {known}
    assert dropped["demand"] == 2


def test_demand_of_one_edge_is_bounded() -> None:
    """However many rows an edge sends, report after report, the largest are kept, and no more."""
    book = DemandBook()
    text = "chat\ta\tserved\tdns\tclass\t{}"
    for turn in range(3):
        counts = {text.format(f"{turn}-{number}"): 1e6 + number for number in range(MAX_ROWS)}
        book.take("edge", counts, 1.0, float(turn))
    assert len(book.reported(3.0).rates()) == MAX_ROWS
    long = {text.format(f"{number}" + "x" * 1900): 1.0 for number in range(12_000)}
    book.take("other", long, 1.0, 3.0)
    assert sum(1 for row in book.reported(3.0).rates() if len(row.cell) > 1000) < 9_000


def test_one_tokens_samples_leave_room_for_others() -> None:
    """What waits for the next latency table is shared out between tokens."""
    book = LatencyBook(Database("postgresql://nobody@127.0.0.1:1/none"), lambda: NOW)
    delta = Delta(Level.COUNTRY, "DE", "a", True, 1.0, 1, 1.0, 1.0, NOW)
    for _ in range(10):
        book.take([delta] * (MAX_SHARE // 2), "greedy")
    book.take([delta] * 100, "modest")
    assert {name: len(deltas) for name, deltas in book.waiting.items()} == {
        "greedy": MAX_SHARE,
        "modest": 100,
    }


def test_votes_are_a_token_s_and_not_its_name_s() -> None:
    """A rotation hands them on; of a token that is revoked nobody inherits them, least of all one that is made anew with its name."""
    votes = []
    for successors in ({"old": "old"}, {"old": "new", "new": "new"}, {"new": "new"}):
        book = LatencyBook(Database("postgresql://nobody@127.0.0.1:1/none"), lambda: NOW)
        book.start()
        book.take((), "old", [Witness("192.0.2.0/24", "US|40,-74", "a", "reporter", 9, 0, 1.0, NOW)])
        book.turn(SNAPSHOT.policy, NO_ASSESSMENT, Teachers(successors, NO_AUTHORS))
        votes.append([sorted(one.edges) for one in book.disputed])
    assert votes == [[["old"]], [["new"]], []]


def test_no_part_of_a_report_grows_beyond_the_policy() -> None:
    """Quotas before a policy is loaded, classes and tenants of a plan, and regions that an edge overrules are bounded."""
    many = {f"quota-{number}": 1 for number in range(MAX_LEASES + 1)}
    dropped: Counter[str] = Counter()
    unread = ReportIntake(None, dropped).read(
        EdgeReport("1", 1, 1, {}, leases=LeaseUse("i", 1, used=many)), NOW
    )
    assert unread.leases is not None
    assert (len(unread.leases.used), dropped["leases"]) == (MAX_LEASES, 1)
    one = ClassPlan({"a": 1.0})
    plans = (
        Plan(NOW, {str(number): one for number in range(MAX_CLASSES + 1)}),
        Plan(NOW, {"known": one, "strange": ClassPlan({"a": 1.0}, tenants={"x": 0.5, "": 0.5})}),
    )
    large, strange = (
        ReportIntake(SNAPSHOT, dropped).read(EdgeReport("1", 1, 1, {}, plan=plan), NOW).plan for plan in plans
    )
    assert large is None
    assert strange is not None
    assert strange.classes.keys() == {"known"}
    report = EdgeReport("1", 1, 1, {}, overruled=("a", "ghost"))
    assert ReportIntake(SNAPSHOT, dropped).read(report, NOW).overruled == ("a",)


def test_certificates_keep_no_more_than_a_probe_does() -> None:
    """However much is told of one: the last thousands are remembered, so that many edges share what they see."""
    fat = Certificate("0" * 64, 0.0, 1.0, "s" * 1000, "i" * 1000, ("n" * 1000,) * 100)
    intake = ReportIntake(SNAPSHOT, Counter())
    report = EdgeReport("1", 1, 1, {}, certificates=(ShownCertificate("a", URL, fat),))
    (kept,) = intake.read(report, NOW).certificates or ()
    texts = (kept.certificate.subject, kept.certificate.issuer, *kept.certificate.names)
    assert sum(map(len, texts)) == 22 * 200, "of 102,000 characters"
