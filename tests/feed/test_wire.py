"""The feed's wire format: what is sent arrives, damage is found, and what is newer than this is skipped."""

from __future__ import annotations

import json
from dataclasses import make_dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import PublicKey, PublicKeys
from gtm.core.health.history import Probed
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.certificates import Certificate, ShownCertificate
from gtm.core.model.policy import Jurisdiction, Match, OnUnknownLocation, Places, Policy, ResidencyRule, Term
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.signing.keys import Keys, SignedSet, ZoneKeys, dnskey_rdata
from gtm.feed import wire
from gtm.feed.reports import DnsLimits, EdgeReport
from gtm.feed.wire import (
    FORMAT,
    AccessMessage,
    FeedError,
    HandoffKeysMessage,
    HeartbeatMessage,
    KeysMessage,
    Message,
    SealedKeysMessage,
    SnapshotMessage,
    StateMessage,
    decode,
    encode,
)
from tests import worlds as usual
from tests.core.strategies import SHIPPED, World, policies, quick, worlds

KEYS = Keys(
    7,
    (
        ZoneKeys(
            "demo.test",
            (SignedSet(48, 3600, (b"\0\1",), (b"\xff",)),),
            9,
            dnskey_rdata(256, bytes(64)),
            b"\1" * 32,
        ),
    ),
)
OTHERS: list[Message] = [
    StateMessage(State(3, "edge-1", {"r": {"u": EndpointHealth(HealthStatus.DOWN, 1.5, "refused", 2.5)}})),
    AccessMessage(Access((TokenGrant("aa", Role.VIEWER), TokenGrant("bb", Role.ADMIN, 9.5)))),
    KeysMessage(KEYS),
    SealedKeysMessage(b"\0\xff" * 40),
    HandoffKeysMessage(PublicKeys((PublicKey("fra-1", "x" * 43), PublicKey("b", "y", Issuer.BALANCER)), 3)),
    HeartbeatMessage(1.5),
]


@quick(120)
@given(worlds())
def test_snapshots_and_states_arrive_as_sent(world: World) -> None:
    """One line there, the same value here, and it compiles to the same snapshot."""
    message = SnapshotMessage.of(7, 1.5, world.policy, SHIPPED)
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    received = decode(line)
    assert received == message
    assert isinstance(received, SnapshotMessage)
    assert received.compiled() == world.view.snapshot
    assert decode(encode(StateMessage(world.state)).rstrip()) == StateMessage(world.state)


@pytest.mark.parametrize("message", OTHERS, ids=lambda message: type(message).__name__)
def test_other_messages_arrive_as_sent(message: Message) -> None:
    """Every kind of message survives the line."""
    assert decode(encode(message)) == message


def _snapshot(policy: Policy) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode(SnapshotMessage.of(7, 1.5, policy, SHIPPED)))
    return document


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


@quick(40)
@given(policies(), st.sampled_from(["sha256", "policy", "jurisdictions"]))
def test_damage_is_found(policy: Policy, where: str) -> None:
    """A snapshot whose content or checksum changed on the way does not compile."""
    document = _snapshot(policy)
    body = document["body"]
    if where == "sha256":
        body["sha256"] = body["sha256"][:-1] + ("0" if body["sha256"][-1] != "0" else "1")
    elif where == "policy":
        body["policy"]["regions"][0]["country"] = "JP"
    else:
        body["jurisdictions"][0]["members"].append("US")
    received = decode(_line(document))
    assert isinstance(received, SnapshotMessage)
    with pytest.raises(FeedError, match="revision 7 is damaged"):
        received.compiled()


@quick(40)
@given(policies())
def test_a_newer_control_can_feed_an_older_edge(policy: Policy) -> None:
    """Fields unknown here are ignored, though the sender's checksum covers them, and the snapshot travels on."""
    document = _snapshot(policy)
    body = document["body"]
    body["signed_by"] = "someone"
    body["policy"]["regions"][0]["altitude_m"] = 112
    body["policy"]["novelties"] = [{"name": "x"}]
    content = {key: msgspec.Raw(msgspec.json.encode(body[key])) for key in ("policy", "jurisdictions")}
    body |= content | {"sha256": sha256(b"[%b,%b]" % tuple(content.values())).hexdigest()}
    received = decode(msgspec.json.encode(document))
    assert isinstance(received, SnapshotMessage)
    assert received.policy == policy
    assert received.compiled().revision == 7
    assert decode(encode(received)) == received


def test_a_report_is_read_by_controls_of_before_and_after() -> None:
    """One that knows nothing of what a later edge tells reads all else; one of now takes what an edge of before leaves out as not told."""
    later = ("dns", "dns_limits", "probed", "certificates")
    before = make_dataclass("EdgeReportOfBefore", [("version", str), ("health", dict[str, Any])])
    told = EdgeReport(
        "2.0",
        7,
        9,
        {"eu": {"https://a": EndpointHealth(HealthStatus.UP, 1.0)}},
        dns={"limited\tslipped": 1.0},
        dns_limits=DnsLimits(1, 2, 3),
        probed=(Probed("eu", "https://a", 1.5, 200, ""),),
        certificates=(ShownCertificate("eu", "https://a", Certificate("ab" * 32, 1.0, 2.0)),),
    )
    sent = msgspec.json.encode(told)
    old = msgspec.json.decode(sent, type=before)
    assert old.version == "2.0"
    assert old.health["eu"]["https://a"]["status"] == "up"
    assert msgspec.json.decode(sent, type=EdgeReport) == told
    bare = {name: value for name, value in json.loads(sent).items() if name not in later}
    found = msgspec.json.decode(msgspec.json.encode(bare), type=EdgeReport)
    assert [getattr(found, name) for name in later] == [None] * 4
    assert found.health == told.health


def test_unknown_types_are_skipped() -> None:
    """A message of a type unknown here is None, whatever it holds."""
    assert decode(b'{"type":"weather","body":[1,2,3],"more":true}') is None


def test_whole_numbers_do_not_change_the_checksum() -> None:
    """A policy written with an integer where a float belongs arrives as it was checksummed."""
    whole = usual.region("de", lat=50, lon=8)
    received = decode(encode(SnapshotMessage.of(7, 1.5, usual.policy(whole), SHIPPED)))
    assert isinstance(received, SnapshotMessage)
    assert received.compiled().regions == (whole,)


@quick(300)
@given(st.binary(max_size=60) | st.text('{}[]",:0123456789typebodsnah', max_size=60).map(str.encode))
def test_random_bytes_are_malformed(line: bytes) -> None:
    """Nothing but a FeedError comes of bytes that are no message."""
    with pytest.raises(FeedError, match="malformed feed message"):
        decode(line)


@quick(300)
@given(st.sampled_from(OTHERS), st.data())
def test_damaged_lines_raise_nothing_else(message: Message, data: st.DataObject) -> None:
    """A line with any byte changed, or cut anywhere, is a message, is skipped, or is a FeedError."""
    line = bytearray(encode(message))
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(line[: data.draw(st.integers(0, len(line)))]))
    except FeedError as error:
        assert str(error).startswith("malformed feed message")  # noqa: PT017 - most damage raises, some does not


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"heartbeat","body":{}}',
        b'{"type":"heartbeat","body":{"now":"noon"}}',
        b'{"type":"heartbeat","body":{"now":1e999}}',
        b'{"type":"state","body":{"state":{"health":{"r":{"u":{"status":"fine"}}}}}}',
        b'{"type":"snapshot","body":{"revision":1}}',
        b'{"type":"heartbeat"}',
        b"[" * 100_000,
        b"",
    ],
)
def test_messages_of_the_wrong_shape_are_malformed(line: bytes) -> None:
    """A known type with missing, wrong or infinite values, and nesting without end, are FeedErrors."""
    with pytest.raises(FeedError):
        decode(line)


def test_a_line_has_a_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than the limit is refused before it is parsed."""
    monkeypatch.setattr(wire, "MAX_LINE", 20)
    with pytest.raises(FeedError, match="the most accepted is 20"):
        decode(encode(HeartbeatMessage(1.0)))


def test_an_edge_that_does_not_know_the_restrictions_refuses_them() -> None:
    """Operators, readings of locations and terms arrive whole, under a format that edges before them refuse."""
    rule = ResidencyRule(
        "r", Match(client_countries=("DE",)), Places(operator_jurisdictions=("FR",)), max_accuracy_km=50.0
    )
    terms = (Term("FR", effective_until=datetime(2030, 1, 1, tzinfo=UTC)),)
    policy = usual.policy(
        usual.region("de", operator_country="FR"),
        replace(rule, on_unknown_location=OnUnknownLocation.IGNORE),
        Jurisdiction("MINE", members=("FR",), terms=terms),
    )
    message = SnapshotMessage.of(3, 0.0, policy, SHIPPED)
    assert message.needs == FORMAT >= 2
    received = decode(encode(message))
    assert isinstance(received, SnapshotMessage)
    assert received.compiled().policy == policy
    assert json.loads(encode(message))["body"]["needs"] >= 2


def test_a_snapshot_that_needs_a_newer_gtm_is_refused() -> None:
    """An edge that would not understand a restriction must not answer without it."""
    message = replace(SnapshotMessage.of(3, 0.0, Policy(), ()), needs=FORMAT + 1)
    with pytest.raises(FeedError, match="newer gtm"):
        message.compiled()
