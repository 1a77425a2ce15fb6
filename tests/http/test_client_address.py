"""Who is asking: sockets, trusted proxies and their headers."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.geoip import client as reading
from gtm.geoip.client import ClientFinder
from tests.http.world import Edge

FINDER = ClientFinder([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])
GERMAN = "81.2.69.142"


def find(
    x_forwarded_for: str | None = None, forwarded: str | None = None, peer: str | None = "10.0.0.1"
) -> str | None:
    """The client as text, seen from a trusted proxy."""
    headers = [None if text is None else text.encode("latin-1") for text in (x_forwarded_for, forwarded)]
    address = FINDER.find(peer, *headers)
    return None if address is None else str(address)


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("198.51.100.1, 192.0.2.1, 10.0.0.2, 10.9.9.9", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8::1]:4711,10.0.0.2", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, fd00::2", "192.0.2.1"),
        ("10.0.0.7, 10.0.0.2", None),
        ("nonsense, 192.0.2.1", "192.0.2.1"),
        (" , 192.0.2.1 ,, ", "192.0.2.1"),
        ("", None),
        (" , ,", None),
        ("192.0.2.1, nonsense", None),
        ("192.0.2.1, unknown", None),
        ("192.0.2.1, nonsense, 10.0.0.2", None),
        ("unknown", None),
        ("192.0.2.256", None),
        ("fe80::1%eth0", None),
        ("192.0.2.1, " * 2000, None),
    ],
)
def test_x_forwarded_for_is_walked_from_the_right(header: str, client: str | None) -> None:
    """The first address that is no trusted proxy's is the client; what cannot be read on the way makes it unknown."""
    assert find(header) == client


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("for=192.0.2.1", "192.0.2.1"),
        ('For="192.0.2.1:80";proto=https;by=10.0.0.2', "192.0.2.1"),
        ('for="[2001:db8::1]:4711", for=10.0.0.2', "2001:db8::1"),
        ('for=192.0.2.1;host="a,b;c=\\"d"', "192.0.2.1"),
        ("for=198.51.100.1, for=192.0.2.1 , for=10.0.0.3", "192.0.2.1"),
        ('for="\\192.0.2.1"', "192.0.2.1"),
        (", for=192.0.2.1,,", "192.0.2.1"),
        ("", None),
        (",,", None),
        ("for=_hidden", None),
        ('for="_hidden:4711"', None),
        ('for="unknown:80", for=10.0.0.2', None),
        ("for=_hidden, for=192.0.2.1", "192.0.2.1"),
        ("for=192.0.2.1, for=_hidden", None),
        ("for=10.0.0.7, for=10.0.0.2", None),
        ("for=unknown, for=10.0.0.2", None),
        ("proto=https", None),
        ("for=192.0.2.1;for=192.0.2.2", None),
        ("for=[2001:db8::1]", None),
        ('for="192.0.2.1', None),
        ("for=192.0.2.1 for=192.0.2.2", None),
        (";for=192.0.2.1", None),
        ("for = 192.0.2.1", None),
        ("for=192.0.2.1," * 2000, None),
    ],
)
def test_forwarded_is_read_as_rfc_7239_says(header: str, client: str | None) -> None:
    """Quoted strings, ports and obfuscated names; a header that does not parse makes the client unknown."""
    assert find(None, header) == client


def test_spaces_are_passed_over_at_once() -> None:
    """8,000 of them took 0.3 s, each being looked at again for each before it."""
    asked = 0

    class _Counting:
        def match(self, text: str, at: int) -> object:
            nonlocal asked
            asked += 1
            return pair.match(text, at)

    pair = reading._PAIR  # noqa: SLF001 - how often it is asked is what counts
    with patch.object(reading, "_PAIR", _Counting()):
        for header in (
            b" " * 8000 + b"!",
            b"for=192.0.2.1;" + b" \t" * 4000 + b"!",
            b"," + b" " * 8000 + b",",
        ):
            FINDER.find("10.0.0.1", None, header)
    assert asked < 12


def test_both_headers_must_agree() -> None:
    """A client can slip in the header that a proxy does not write; contradiction makes it unknown, never someone else."""
    assert find("192.0.2.1", "for=192.0.2.1") == "192.0.2.1"
    assert find("192.0.2.1", "for=192.0.2.2") is None
    assert find("192.0.2.1", "garbage") is None
    assert find("192.0.2.1", "") is None


def test_a_trusted_proxy_is_never_the_client() -> None:
    """One that sends no header hides its clients, wherever it stands itself; a stranger is its own client."""
    assert find() is None
    assert find(peer="fd00::9") is None
    assert find("10.0.0.9", "for=10.0.0.8") is None
    assert find(peer="192.0.2.1") == "192.0.2.1"


def test_strangers_are_not_trusted() -> None:
    """Only the operator's own networks are proxies; a socket without an address is nobody's."""
    assert FINDER.trusts("10.1.2.3")
    assert FINDER.trusts("::ffff:10.1.2.3")
    assert not FINDER.trusts("192.0.2.1")
    assert not FINDER.trusts(None)
    assert not FINDER.trusts("/run/gtm.sock")
    assert not ClientFinder(()).trusts("10.1.2.3")
    assert find(peer=None) is None
    assert find(peer="fe80::1%eth0") == "fe80::1"


@given(st.text(st.characters(max_codepoint=255)) | st.text('for=",;\\:[].1a \t'))
def test_no_header_breaks_the_finder(text: str) -> None:
    """Any bytes give an address or none, and the client never poses as the proxy in front of it."""
    for client in (find(text), find(None, text), find(text, text)):
        assert client is None or ip_address(client) not in ip_network("10.0.0.0/8")
    assert find(f"{text},192.0.2.1") in ("192.0.2.1", None)


def test_headers_count_from_trusted_proxies_only(run_edge: Callable[..., Edge]) -> None:
    """Over real sockets: a trusted peer's header places the client; a stranger's changes nothing."""
    header = {"x-forwarded-for": GERMAN}
    trusting = run_edge(trusted_proxies=(ip_network("127.0.0.0/8"),))
    plain = run_edge()
    with trusting.client() as client:
        for _ in range(2):
            answer = client.get("/v1/route?service=web", headers=header).json()
            assert (answer["client"]["ip"], answer["region"]) == (GERMAN, "eu-central")
            assert client.get("/v1/route?service=web").json()["client"]["ip"] is None
        assert client.get("/r/web/", headers=header).headers["x-gtm-region"] == "eu-central"
        assert client.get(f"/v1/route?service=web&client_ip={GERMAN}", headers=header).status_code == 200
        assert client.get("/v1/route?service=web&client_ip=127.0.0.1", headers=header).status_code == 401
        lines = [("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", f"{GERMAN}, 127.0.0.9")]
        assert client.get("/v1/route?service=web", headers=lines).json()["client"]["ip"] == GERMAN
    assert plain.get("/v1/route?service=web", headers=header).json()["client"]["ip"] == "127.0.0.1"


@pytest.mark.parametrize(
    "headers", [{"x-forwarded-for": "garbage"}, {"forwarded": "for=unknown"}, {"x-forwarded-for": ""}, {}]
)
def test_a_proxy_that_names_no_client_gets_the_strictest_fence(
    run_edge: Callable[..., Edge], headers: dict[str, str]
) -> None:
    """An unknown client is held to every rule that looks at where clients are, wherever the proxy stands."""
    edge = run_edge(trusted_proxies=(ip_network("127.0.0.0/8"),))
    answer = edge.get("/v1/route?service=chat&explain=1", headers=headers).json()
    assert answer["client"] == {"ip": None, "country": None, "network": None, "source": "none"}
    assert answer["region"] == "eu-central"
    assert answer["rules"][0]["because"] == ["client country unknown"]
    located = edge.get("/v1/route?service=chat", headers={"x-forwarded-for": "198.51.100.9"})
    assert located.json()["region"] == "us-east"
