"""Response rate limiting: what floods get, and what real clients do."""

from __future__ import annotations

from ipaddress import ip_network

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.dns.io import limiter
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.protocol import wire
from gtm.dns.protocol.cookies import ServerCookies
from tests.dns.world import answerer, query
from tests.memory import held

SOURCE = "203.0.113.9"
ORDINARY = query("chat.demo.test", subnet="10.2.0.0/24")
LARGE = query("half.demo.test", edns=True)
SERVER = answerer()


def limited(
    counts: dict[str, float] | None = None, cookies: ServerCookies | None = None, **limits: object
) -> Limiter:
    """A Limiter with these limits, and nobody exempt."""
    return Limiter(RateLimits(**{"exempt": (), **limits}), cookies, {} if counts is None else counts)  # type: ignore[arg-type]


def whole(packet: bytes) -> bytes:
    """The whole reply to a packet over UDP."""
    reply = SERVER.answer(packet, "10.2.0.1", tcp=False, draw=0.5)
    assert reply is not None
    return reply


@st.composite
def floods(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Queries, each with a reply of any length."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(12, 1232)), max_size=200))
    kinds = [ORDINARY, LARGE, query("x.example"), query("half.demo.test", edns=True, want_dnssec=True)]
    return [(kinds[kind], bytes(size)) for kind, size in sizes]


@pytest.mark.rfc(
    "7873", "1", "without cookies, what is sent to forged addresses hardly exceeds what was received"
)
@given(floods(), st.integers(0, 2000), st.integers(0, 100), st.integers(0, 3), st.booleans())
def test_no_flood_is_amplified(
    flood: list[tuple[bytes, bytes]], excess: int, replies: int, slip: int, cookies: bool
) -> None:
    """What a prefix receives in one window is at most twice what was sent in its name, and the budget of excess."""
    subject = limited(
        cookies=ServerCookies(bytes(16)) if cookies else None, excess=excess, replies=replies, slip=slip
    )
    asked = sent = 0
    for number, (packet, reply) in enumerate(flood):
        asked += len(packet)
        out = subject.passes(f"203.0.113.{number % 256}", packet, reply)
        sent += 0 if out is None else len(out)
    assert sent <= 2 * asked + excess


def test_a_flood_over_one_window() -> None:
    """A flood of queries for a large answer gets its budget of excess once, and then less than it sends."""
    counts: dict[str, float] = {}
    subject = limited(counts)
    reply = whole(LARGE)
    assert len(reply) > 10 * len(LARGE)
    outs = [subject.passes(f"203.0.113.{number % 256}", LARGE, reply) for number in range(20_000)]
    spent = next(number for number, out in enumerate(outs) if out != reply)
    assert spent == RateLimits().excess // (len(reply) - 2 * len(LARGE))
    assert sum(len(out or b"") for out in outs[spent:]) < sum(len(LARGE) for _ in outs[spent:])
    slipped, dropped = counts["gtm_dns_limited_total\tslipped"], counts["gtm_dns_limited_total\tdropped"]
    assert slipped + dropped == len(outs) - spent
    assert abs(slipped - dropped) <= 1


def test_a_large_resolver_is_left_alone() -> None:
    """Thousands of ordinary queries a second from one resolver are all answered, by default, among floods too."""
    subject = limited()
    reply = whole(ORDINARY)
    for _ in range(3):  # windows
        for number in range(9_000):
            assert subject.passes(SOURCE, ORDINARY, reply) is reply
            subject.passes(f"198.51.{number % 256}.1", LARGE, whole(LARGE) if number < 2 else bytes(900))
        subject.turn()


def test_ordinary_answers_pass_when_the_excess_is_spent() -> None:
    """Who forges a resolver's address to get large answers doesn't keep it from ordinary ones."""
    subject = limited(excess=0, slip=0)
    assert subject.passes(SOURCE, LARGE, whole(LARGE)) is None
    assert subject.passes(SOURCE, ORDINARY, whole(ORDINARY)) == whole(ORDINARY)


@pytest.mark.rfc(
    "2181", "9", "a reply without its records is marked as truncated, so that the client asks over TCP"
)
def test_slipped_replies() -> None:
    """A slipped reply is the question with TC, no longer than the query."""
    subject = limited(excess=0, slip=1)
    out = subject.passes(SOURCE, LARGE, whole(LARGE))
    assert out is not None
    message = dns.message.from_wire(out)
    assert message.flags & dns.flags.TC
    assert message.question == dns.message.from_wire(LARGE).question
    assert message.id == dns.message.from_wire(LARGE).id
    assert not message.answer
    assert message.edns == 0
    assert len(out) <= len(LARGE)
    plain = query("half.demo.test")
    out = subject.passes(SOURCE, plain, whole(LARGE))
    assert out is not None
    assert dns.message.from_wire(out).edns == -1


def test_the_budget_of_replies() -> None:
    """Past it even small replies are limited; errors slip as they are."""
    subject = limited(replies=10, slip=2)
    error = query("example.org")
    outs = [subject.passes(SOURCE, error, whole(error)) for _ in range(20)]
    assert outs[:10] == [whole(error)] * 10
    assert outs[10:] == [None, whole(error)] * 5
    malformed = error[:-1]
    assert [subject.passes(SOURCE, malformed, whole(malformed)) for _ in range(2)] == [None, whole(malformed)]


@pytest.mark.rfc(
    "7873", "5.2.3", "under load, a client cookie without a good server cookie is answered with BADCOOKIE"
)
@pytest.mark.rfc("7873", "5.2.5", "a client with a good server cookie is answered in full")
def test_cookies_prove_clients() -> None:
    """A client cookie slips as BADCOOKIE with a server cookie, with which the whole reply comes."""
    subject = limited(excess=0, slip=1, cookies=ServerCookies(bytes(16)))

    def asked(cookie: bytes) -> bytes:
        option = dns.edns.CookieOption(cookie[:8], cookie[8:])
        return dns.message.make_query("half.demo.test", "A", use_edns=0, options=[option]).to_wire()

    reply = whole(LARGE)
    out = subject.passes(SOURCE, asked(bytes(8)), reply)
    assert out is not None
    message = dns.message.from_wire(out)
    assert message.rcode() == dns.rcode.BADCOOKIE
    assert not message.answer
    cookie = message.options[0].to_wire()
    assert cookie is not None
    assert len(out) == len(asked(bytes(8))) + 16
    assert subject.passes(SOURCE, asked(cookie), reply) is reply
    assert subject.passes("203.0.113.10", asked(cookie), reply) is not reply  # not its address
    assert subject.passes(SOURCE, asked(bytes(8) + bytes(16)), reply) is not reply


@pytest.mark.parametrize(
    ("source", "neighbour", "stranger"),
    [
        ("203.0.113.9", "203.0.113.255", "203.0.112.9"),
        ("2001:db8:1:100::1", "2001:db8:1:1ff:ffff::1", "2001:db8:1:200::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80:0:0:100::1%eth0"),
    ],
)
def test_prefixes(source: str, neighbour: str, stranger: str) -> None:
    """Addresses of one /24 or /56 share a budget, others don't."""
    subject = limited(replies=1, slip=0)
    assert subject.passes(source, ORDINARY, b"") is not None
    assert subject.passes(neighbour, ORDINARY, b"") is None
    assert subject.passes(stranger, ORDINARY, b"") is not None


def test_exempt_networks() -> None:
    """Exempt addresses are not limited, their neighbours are; by default they are the loopback's."""
    subject = limited(replies=1, slip=0, exempt=(ip_network("203.0.113.8/29"), ip_network("2001:db8::/32")))
    for source, passing in [("203.0.113.9", 5), ("203.0.113.7", 1), ("2001:db8:9::1", 5), ("2001:db9::1", 1)]:
        outs = [subject.passes(source, ORDINARY, b"") for _ in range(5)]
        assert sum(out is not None for out in outs) == passing
    by_default = Limiter(RateLimits(replies=1, slip=0), None, {})
    assert all(by_default.passes(source, ORDINARY, b"") == b"" for source in ("127.0.0.1", "::1") * 3)


def test_windows() -> None:
    """Each window has its budgets anew, and tells which prefixes received the most."""
    subject = limited(replies=5)
    for _ in range(9):
        subject.passes("203.0.113.9", ORDINARY, b"")
    subject.passes("2001:db8:1:1ff::1", ORDINARY, b"")
    for number in range(20):
        subject.passes(f"198.51.{number}.1", ORDINARY, b"")
    top = subject.turn()
    assert top[0] == ("203.0.113.0/24", 9)
    assert len(top) == 10
    assert ("2001:db8:1:100::/56", 1) in top
    assert subject.passes("203.0.113.9", ORDINARY, b"") == b""
    assert subject.turn() == [("203.0.113.0/24", 1)]
    assert subject.turn() == []


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floods from everywhere share budgets beyond the prefixes remembered, and stay limited."""
    monkeypatch.setattr(limiter, "LIMIT", 100)
    subject = limited(replies=10, slip=0)
    passed = 0

    def flood() -> None:
        nonlocal passed
        for number in range(20_000):
            source = f"10.{number >> 8 & 255}.{number & 255}.1"
            passed += subject.passes(source, ORDINARY, b"") is not None

    assert held(flood) < 200_000  # 20,000 budgets would take megabytes
    assert passed <= 100 + 10 * 256


@given(st.binary(min_size=12, max_size=100), st.binary(min_size=12, max_size=300))
def test_any_packet_is_limited(packet: bytes, reply: bytes) -> None:
    """Whatever the query, limiting it doesn't raise and makes nothing longer."""
    subject = limited(replies=0, excess=0, slip=1, cookies=ServerCookies(bytes(16)))
    out = subject.passes(SOURCE, packet, reply) or b""
    assert len(out) <= max(len(packet) + 16, min(len(reply), 2 * len(packet)))


@given(st.binary(max_size=300))
def test_options_are_read_or_malformed(data: bytes) -> None:
    """Options are read whole, or are malformed."""
    try:
        found = list(wire.options(data))
    except wire.MalformedError:
        return
    assert b"".join(wire.option(code, item) for code, item in found) == data
    assert len(found) <= wire.MAX_OPTIONS
