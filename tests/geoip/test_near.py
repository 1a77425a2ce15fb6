"""What is open only because it is asked over loopback is asked by a name of this machine (DNS rebinding)."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.wire import SnapshotMessage
from gtm.geoip.near import foreign, own_names
from tests.system.balancers import policy

SNAPSHOT = SnapshotMessage.of(1, 1.0, policy({"fra": 1, "iad": 2}), shipped_jurisdictions()).compiled()
KNOWN = own_names("127.0.0.1", "192.0.2.5", "2001:db8::5", "https://gtm.example.com:8443/dashboard", None)
PEERS = ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("port", ["", ":8080"])
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1.2.3", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"),
        *("localhost", "localhost.", "LOCALHOST", "a.localhost"),
        *("192.0.2.5", "[2001:db8::5]", "[2001:DB8:0::5]", "gtm.example.com", "GTM.example.com."),
        *(socket.gethostname(), "chat.demo.test"),
    ],
)
def test_names_of_this_machine_are_meant_for_it(peer: str, host: str, port: str) -> None:
    """Loopback by any notation, and what configuration or policy knows, with a port or without."""
    assert foreign(peer, f"{host}{port}".encode(), KNOWN, SNAPSHOT) == ""
    assert foreign(peer, b"", KNOWN, SNAPSHOT) == "", "no browser leaves it out"


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "evil-localhost",
        ),
        *(
            "127.0.0.1:80@evil.example",
            "[::1",
            "[::1].evil.example",
            "192.0.2.6",
            "0.0.0.0",
            "[::]",
            "x.chat.demo.test",
        ),
        *("gtm.example.com.evil.example", "\xff", "evil.example#localhost"),
    ],
)
def test_others_are_told_what_to_do(peer: str, host: str) -> None:
    """The words name the host, and how to ask."""
    words = foreign(peer, host.encode("latin-1"), KNOWN, SNAPSHOT)
    assert "127.0.0.1, [::1] or localhost, or show a token" in words


@given(
    st.binary(max_size=300), st.sampled_from([None, "192.0.2.9", "10.0.0.1", "fe80::1%eth0", "testclient"])
)
def test_who_comes_otherwise_is_not_looked_at(host: bytes, peer: str | None) -> None:
    """From elsewhere nothing is open for being near."""
    assert foreign(peer, host, KNOWN, SNAPSHOT) == ""


@given(
    st.from_regex(
        r"[a-z0-9-]{1,20}(\.[a-z0-9-]{1,20}){0,3}\.(example|com|internal)\.?(:[0-9]{0,5})?", fullmatch=True
    )
)
def test_no_name_that_somebody_else_can_have_passes(host: str) -> None:
    """Whatever is registered under public or private suffixes."""
    assert foreign("127.0.0.1", host.encode(), own_names("127.0.0.1") - {socket.gethostname().lower()}, None)
