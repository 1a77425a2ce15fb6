"""No answer about a service outlives the moment at which what the law says of it changes (docs/residency.md)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.decision.decide import decide
from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, bound_within, build_view, view_of
from gtm.core.model.policy import Jurisdiction, Match, Places, Policy, ResidencyRule, RuleMode, Term
from gtm.core.model.requests import Request
from gtm.core.policy.compile import compile_policy
from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests import worlds
from tests.core.strategies import quick
from tests.dns.world import POLICY, both, locate, query, router
from tests.dns.zone.signing import keys

DE, US = "10.1.2.0/24", "10.2.3.0/24"

BEGINS = 1_800_000_000.0
NAMES = {
    "web": ("A", "AAAA", "TXT", "ANY", "MX", "CNAME"),
    "alias": ("A", "CNAME"),
    "tls": ("HTTPS", "A"),
    "v4": ("A", "AAAA"),
}
"""Services with addresses, an alias, an HTTPS record, and refusals; types that are there and that are not."""


def policy(rule: ResidencyRule) -> Policy:
    """The world under one rule."""
    services = tuple(replace(one, ttl=86_400, min_ttl=86_400) for one in POLICY.services)
    return replace(POLICY, services=services, residency_rules=(rule,))


def rule(**changes: object) -> ResidencyRule:
    """A rule for everyone that begins at BEGINS."""
    made = worlds.rule("eu", "DE", effective_from=datetime.fromtimestamp(BEGINS, UTC))
    return replace(made, acknowledge_empty_fence=True, **changes)  # type: ignore[arg-type]


def at(left: float, rules: ResidencyRule) -> Router:
    """A Router so many seconds before BEGINS, with everything up."""
    return Router(worlds.view(policy(rules), router().view.state, BEGINS - left, shipped=()))


def ttls(server: Answerer, name: str, rdtype: str, **options: object) -> list[int]:
    """The TTLs of all records of an answer but those of the zone itself."""
    reply = both(server, query(f"{name}.demo.test", rdtype, **options))  # type: ignore[arg-type]
    assert reply.answer or reply.authority
    return [rrset.ttl for rrset in (*reply.answer, *reply.authority)]


@pytest.mark.parametrize("left", [0.5, 1.0, 1.5, 59.0, 86_400.0])
@pytest.mark.parametrize("signed", [False, True])
def test_answers_of_every_kind_end_before_a_rule_begins(left: float, signed: bool) -> None:
    """Addresses, aliases, HTTPS, explanations, refusals, negative answers and their proofs and signatures; look-ups too."""
    made = at(left, rule())
    signer = ZoneSigner(keys(), lambda: BEGINS) if signed else None
    server = Answerer(made, locate, Counts(), signer=signer)
    for name, types in NAMES.items():
        for rdtype in types:
            for subnet in (DE, US):
                found = ttls(server, name, rdtype, subnet=subnet, want_dnssec=signed)
                assert max(found) <= left, (name, rdtype, found)
    assert decide(made.view, Request("web", locate("10.2.0.1")), 0.5).ttl <= left


def test_only_services_that_it_concerns_are_asked_again_more_often() -> None:
    """Rules about other services, in monitor mode, or without dates bound nothing."""
    assert (
        max(ttls(Answerer(at(9, rule(match=Match(services=("chat",)))), locate, Counts()), "web", "A"))
        == 86_400
    )
    assert max(ttls(Answerer(at(9, rule(mode=RuleMode.MONITOR)), locate, Counts()), "web", "A")) == 86_400
    assert max(ttls(Answerer(at(9, rule(effective_from=None)), locate, Counts()), "web", "A")) == 86_400
    assert max(ttls(Answerer(at(inf, rule()), locate, Counts()), "web", "A")) == 86_400
    assert max(ttls(Answerer(at(9, rule()), locate, Counts()), "web", "A")) == 8


def test_the_end_of_a_rule_bounds_answers_too() -> None:
    """What was refused or sent elsewhere under a rule comes back when it ends."""
    ending = rule(effective_from=None, effective_until=datetime.fromtimestamp(BEGINS, UTC))
    assert max(ttls(Answerer(at(9, ending), locate, Counts()), "web", "A", subnet=DE)) == 8


@pytest.mark.parametrize("dated", ["effective_from", "effective_until"])
def test_a_membership_that_begins_or_ends_bounds_answers_too(dated: str) -> None:
    """A rule without dates of its own changes when an adequacy decision lapses, or comes into force."""
    term = Term("US", **{dated: datetime.fromtimestamp(BEGINS, UTC)})
    friends = Jurisdiction("FRIENDS", members=("DE", "US"), terms=(term,))
    rules = rule(effective_from=None, allow=Places(("FRIENDS",)))
    snapshot = compile_policy(replace(policy(rules), jurisdictions=(friends,)), ())
    view = view_of(snapshot, router().view.state, Window(BEGINS - 9, BEGINS - 9))
    assert view.ttl_of(snapshot.services["web"]) == 8
    assert max(ttls(Answerer(Router(view), locate, Counts()), "web", "A", subnet=US)) == 8


def test_a_day_of_ttl_costs_17_views() -> None:
    """However many services there are, and whatever their TTLs: each View says until when it holds."""
    snapshot = compile_policy(policy(rule()), (), revision=7)
    state = router().view.state
    now, views, kept = BEGINS - 40 * 86_400, 0, []
    basis = view_of(snapshot, state, Window(now, now)).basis
    while now < BEGINS:
        view = build_view(basis, state, Window(now, now))
        kept.append(view.ttl_of(snapshot.services["web"]))
        now, views = now + view.left(view.window), views + 1
        assert view.lasts(Window(now - 1e-6, now - 1e-6))
        assert not view.lasts(Window(now, now))
        assert view.ttl_of(snapshot.services["web"]) <= BEGINS - now + 1e-6
    assert views == 19  # a day or more, one for each power of two below, 0
    assert kept == [86_400, *(1 << power for power in range(16, -1, -1)), 0]


@quick(200)
@given(st.floats(0, 1e9))
def test_a_bound_is_a_power_of_two_that_is_less(left: float) -> None:
    """And at least half of what is left."""
    bound = bound_within(left)
    assert bound in {0, *(1 << power for power in range(31))}
    assert bound < left or left == bound == 0
    assert bound >= left / 2 or (bound == 0 and left <= 1)


def test_aliases_of_zones_lead_to_bounded_answers() -> None:
    """A zone's own records keep their TTL: they lead to a name, and the name's answer ends in time."""
    reply = both(Answerer(at(9, rule()), locate, Counts()), query("to-drawn.demo.test"))
    assert [(rrset.ttl, rrset.rdtype) for rrset in reply.answer] == [
        (3600, dns.rdatatype.CNAME),
        (8, dns.rdatatype.A),
    ]
