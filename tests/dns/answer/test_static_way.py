"""Answers for everyone, without dnspython: the same as with it, and nothing left over from a flood of names."""

from __future__ import annotations

import dns.message
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests.dns.world import both, locate, query, router
from tests.dns.zone.signing import KEYS, NOW, SIGNED
from tests.effort import examples

FULL_WAY = "gtm_dns_full_way_total\tudp"
NAMES = st.one_of(
    st.from_regex(r"[a-z0-9-]{1,20}(\.[a-z]{1,5})?\.(demo|apex|sub\.demo)\.test", fullmatch=True),
    st.sampled_from(
        ["demo.test", "apex.test", "mail.demo.test", "x.wild.demo.test", "example.org", ".", "test"]
    ),
)
TYPES = st.sampled_from(
    ["A", "AAAA", "MX", "TXT", "NS", "SOA", "CNAME", "DS", "ANY", "AXFR", "NSEC", "TYPE999"]
)

EDNS = st.sampled_from([{}, {"edns": True}, {"want_dnssec": True}])


def server(counts: Counts, *, signed: bool) -> Answerer:
    """An Answerer of the world with records of each kind."""
    signer = ZoneSigner(KEYS, lambda: NOW) if signed else None
    return Answerer(router(policy=SIGNED), locate, counts, signer=signer)


SERVERS = [server(Counts(), signed=signed) for signed in (False, True)]


@settings(max_examples=examples(300), deadline=None)
@given(NAMES, TYPES, st.sampled_from(SERVERS), EDNS, st.booleans())
def test_both_ways_agree(name: str, rdtype: str, subject: Answerer, edns: dict[str, bool], tcp: bool) -> None:
    """Whatever is asked of zones, the reply is what dnspython makes of the same content."""
    both(subject, query(name, rdtype, **edns), tcp=tcp)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", ["made-up.demo.test", "a.b.c.apex.test", "demo.test", "example.org"])
@pytest.mark.parametrize("subnet", [None, "10.1.2.0/24"])
def test_floods_of_names_take_the_short_way(name: str, signed: bool, subnet: str | None) -> None:
    """Names that are not there, refusals and what zones say of themselves never take the full way."""
    counts = Counts()
    reply = server(counts, signed=signed).udp(query(name, "A", subnet=subnet), "10.1.0.1")
    assert reply is not None
    assert dns.message.from_wire(reply).question
    assert FULL_WAY not in counts


def test_nothing_is_remembered_of_names() -> None:
    """A thousand made-up names leave one counter."""
    counts = Counts()
    subject = server(counts, signed=False)
    for number in range(1000):
        subject.udp(query(f"n{number}.demo.test"), "10.1.0.1")
    assert counts == {"gtm_dns_queries_total\tdemo.test\tA\tNXDOMAIN\tudp": 1000}
