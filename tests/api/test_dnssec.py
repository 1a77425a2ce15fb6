"""DNSSEC keys over the API, from the policy that signs a zone to edges that follow."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from typing import Any

import httpx
import psycopg
import pytest

from gtm.core.signing.keys import CDS
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import SEALING_KEY, KeysMessage, SealedKeysMessage, SnapshotMessage, StateMessage, decode
from tests.api.conftest import ZONE, Api
from tests.api.test_feed import follow, until
from tests.system.harness import eventually

PATH = "/v1/dnssec/demo.test"
KEY = SealingKey(b"\7" * 32)


@pytest.fixture
def signed(world: Api) -> Api:
    """A control tier with a signed zone."""
    world.must_put("/v1/zones/demo.test", {**ZONE, "dnssec": True})
    return world


def status(api: Api) -> dict[str, Any]:
    """The state of the zone's keys."""
    found = api.viewer.get(PATH)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


def age(api: Api) -> None:
    """Let the keys have been in their states for two days already."""
    with psycopg.connect(api.database_url, autocommit=True) as session:
        session.execute("UPDATE dnssec_keys SET since = since - interval '2 days'")


def test_a_signed_zone_gets_keys_and_edges_get_them(signed: Api) -> None:
    """Switching DNSSEC on makes keys, tells the DS record, and sends edges what they sign with."""
    found = status(signed)
    assert [(key["role"], key["state"]) for key in found["keys"]] == [("ksk", "published"), ("zsk", "active")]
    (ds,) = found["ds"]
    assert re.fullmatch(rf"demo\.test\. 3600 IN DS {found['keys'][0]['tag']} 13 2 [0-9A-F]{{64}}", ds)
    assert found["ds_from"] == found["keys"][0]["next_at"]
    assert (found["signed"], found["withdrawing"], found["waits_for"]) == (True, False, "")
    assert signed.viewer.get("/v1/dnssec").json() == {"items": [found], "problem": ""}
    with follow(signed, key=KEY) as messages:
        keys = until(messages, lambda m: isinstance(m, KeysMessage))
    assert isinstance(keys, KeysMessage)
    assert [zone.key_tag for zone in keys.keys.zones] == [found["keys"][1]["tag"]]


def recorded(api: Api, **headers: str) -> bytes:
    """What the feed sends until it has sent everything, as whoever sits between would record it."""
    found = b""
    params = {"edge": "edge-one"}
    with api.edge.stream("GET", "/v1/feed", params=params, headers=headers, timeout=30) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            found += line.encode() + b"\n"
            if isinstance(decode(line.encode()), StateMessage):
                return found
    raise AssertionError("the feed ended")


def test_no_private_key_is_on_the_wire(signed: Api) -> None:
    """Whatever key an edge tells, or none: no private key, in any coding, is among the bytes that it is sent."""
    (zone,) = signed.server.app.state.context.replica.dnssec.keys.zones
    secret = zone.private
    for headers, sealed in (({}, 0), ({SEALING_KEY: KEY.public}, 1)):
        text = recorded(signed, **headers)
        messages = [decode(line) for line in text.splitlines()]
        assert sum(isinstance(message, SealedKeysMessage) for message in messages) == sealed
        assert not any(isinstance(message, KeysMessage) for message in messages)
        assert any(isinstance(message, SnapshotMessage) for message in messages)
        haystacks = [
            text,
            *(message.sealed for message in messages if isinstance(message, SealedKeysMessage)),
        ]
        for needle in (
            secret,
            secret.hex().encode(),
            b64encode(secret),
            b64encode(secret)[:20],
            b'"private"',
        ):
            assert not any(needle in haystack for haystack in haystacks)


@pytest.mark.parametrize("key", ["x", "A" * 43 + "=", b64encode(b"\1" + bytes(31)).decode()])
def test_a_header_that_is_no_key(signed: Api, key: str) -> None:
    """What control cannot seal to is refused, with the header's name."""
    refused = signed.edge.get("/v1/feed", params={"edge": "edge-one"}, headers={SEALING_KEY: key})
    assert (refused.status_code, SEALING_KEY.lower() in refused.text.lower()) == (422, True)


def test_who_is_sent_keys_is_said(signed: Api, caplog: pytest.LogCaptureFixture) -> None:
    """An edge without a key of its own, and one with several at once, are warned of for as long as they follow."""

    def about(edge: str) -> list[str]:
        warnings: list[str] = signed.viewer.get("/v1/status").json()["warnings"]
        return [text for text in warnings if f"edge {edge} follows with" in text]

    with follow(signed, "old") as messages:
        until(messages, lambda m: isinstance(m, StateMessage))
        (warning,) = about("old")
        assert "without a key of its own and is sent no zone-signing keys" in warning
        signed.server.do(signed.server.app.state.context.replica.current.wake)
    with follow(signed, "two", key=KEY) as messages:
        until(messages, lambda m: isinstance(m, StateMessage))
        with follow(signed, "two", key=KEY) as same:
            until(same, lambda m: isinstance(m, StateMessage))
            assert about("two") == []
        with follow(signed, "two", key=SealingKey()) as others:
            until(others, lambda m: isinstance(m, StateMessage))
            (warning,) = about("two")
            assert "several keys" in warning
    for edge, text in (("old", "without a key"), ("two", "several keys")):
        eventually(lambda edge=edge: not about(edge), "no warning is left")
        logged = [item for item in caplog.messages if f"edge {edge} follows with" in item]
        assert len(logged) == 1
        assert text in logged[0]


def test_a_key_is_rolled(signed: Api) -> None:
    """A roll is begun once, told to connected edges at once, and made urgent on demand."""
    with follow(signed, key=KEY) as messages:
        until(messages, lambda m: isinstance(m, KeysMessage))
        rolled = signed.operator.post(f"{PATH}/roll", json={"role": "zsk"})
        assert rolled.status_code == 200, rolled.text
        assert rolled.json() == status(signed)
        keys = until(messages, lambda m: isinstance(m, KeysMessage))
    assert isinstance(keys, KeysMessage)
    assert len(keys.keys.zones[0].sets[0].rdatas) == 3
    again = signed.operator.post(f"{PATH}/roll", json={"role": "zsk"})
    assert (again.status_code, "is being replaced already" in again.json()["detail"]) == (409, True)
    urgent = signed.operator.post(f"{PATH}/roll", json={"role": "zsk", "urgent": True})
    assert urgent.json()["keys"][-1]["urgent"] is True


def test_the_ds_record_is_confirmed(signed: Api) -> None:
    """A key-signing key waits for its DS record once it is old enough; then it can be confirmed, once."""
    early = signed.operator.post(f"{PATH}/ds-seen")
    assert (early.status_code, "waits for its DS record" in early.json()["detail"]) == (409, True)
    age(signed)
    done = signed.operator.post(f"{PATH}/ds-seen")
    assert done.status_code == 200, done.text
    assert (done.json()["keys"][0]["state"], done.json()["ds_from"]) == ("active", None)
    assert signed.operator.post(f"{PATH}/ds-seen").status_code == 409


def test_a_zone_is_withdrawn(signed: Api) -> None:
    """Withdrawing publishes CDS records that ask for it, and says what comes next; it can be taken back."""
    with follow(signed, key=KEY) as messages:
        done = signed.operator.post(f"{PATH}/withdraw", json={})
        assert (done.json()["withdrawing"], done.json()["ds"]) == (True, [])
        keys = until(messages, lambda m: isinstance(m, KeysMessage) and len(m.keys.zones[0].sets) == 3)
    assert isinstance(keys, KeysMessage)
    assert keys.keys.zones[0].sets[1].rdtype == CDS
    back = signed.operator.post(f"{PATH}/withdraw", json={"withdrawing": False})
    assert (back.json()["withdrawing"], len(back.json()["ds"])) == (False, 1)


def test_signatures_are_not_lost_under_a_ds_record(signed: Api) -> None:
    """Once the parent may have the DS record, DNSSEC is switched off by force only, or after withdrawing."""
    url = "/v1/zones/demo.test"
    age(signed)
    assert signed.operator.post(f"{PATH}/ds-seen").status_code == 200
    refused = signed.put(url, ZONE)
    assert (refused.status_code, refused.json()["breaches"][0]["rule"]) == (409, "dnssec")
    assert "gtm dnssec withdraw demo.test" in refused.json()["errors"][0]["message"]
    assert signed.operator.post(f"{PATH}/withdraw", json={}).status_code == 200
    signed.must_put(url, ZONE)
    found = status(signed)
    assert (found["signed"], found["ds"]) == (False, [])


def test_watching(signed: Api) -> None:
    """Metrics tell when signatures end, and when keys cannot be made; the status warns of that."""
    text = signed.anonymous.get("/metrics").text
    until = re.search(r"^gtm_control_dnssec_expiry_timestamp_seconds (\S+)", text, re.MULTILINE)
    assert until is not None
    assert float(until[1]) == pytest.approx(time.time() + 30 * 86400, abs=600)
    assert "gtm_control_dnssec_problem 0.0" in text
    # A file that is really damaged: whoever looks at the keys meanwhile finds the same.
    signed.server.app.state.context.replica.dnssec.settings.key_file.write_bytes(b"no key")
    refused = signed.operator.post(f"{PATH}/roll", json={"role": "zsk"})
    problem = refused.json()["detail"]
    assert (refused.status_code, "dnssec-key" in problem) == (503, True)
    eventually(  # gauges rest after a look, for longer the slower it was
        lambda: "gtm_control_dnssec_problem 1.0" in signed.anonymous.get("/metrics").text, "the metrics tell"
    )
    assert status(signed)["problem"] == problem
    assert f"dnssec: {problem}" in signed.viewer.get("/v1/status").json()["warnings"]


def test_unsigned_zones_have_no_keys(world: Api) -> None:
    """What is asked of zones that were never signed is 404; keys of one that is no longer signed are kept."""
    for answer in (
        world.viewer.get(PATH),
        world.operator.post(f"{PATH}/roll", json={"role": "ksk"}),
        world.operator.post(f"{PATH}/ds-seen"),
        world.operator.post(f"{PATH}/withdraw", json={}),
    ):
        assert (answer.status_code, "set `dnssec: true`" in answer.json()["detail"]) == (404, True)
    assert world.viewer.get("/v1/dnssec").json() == {"items": [], "problem": ""}
    world.must_put("/v1/zones/demo.test", {**ZONE, "dnssec": True})
    before = status(world)
    world.must_put("/v1/zones/demo.test", ZONE)
    world.must_put("/v1/zones/demo.test", {**ZONE, "dnssec": True})
    assert [key["tag"] for key in status(world)["keys"]] == [key["tag"] for key in before["keys"]]


def test_roles(signed: Api) -> None:
    """Viewers read, operators roll; nobody else gets in, and no private key gets out."""

    def codes(client: httpx.Client) -> tuple[int, int]:
        return client.get(PATH).status_code, client.post(f"{PATH}/withdraw", json={}).status_code

    assert [codes(client) for client in (signed.anonymous, signed.edge, signed.viewer, signed.operator)] == [
        (401, 401),
        (403, 403),
        (200, 403),
        (200, 200),
    ]
    assert "private" not in signed.viewer.get(PATH).text
    assert "sealed" not in signed.viewer.get(PATH).text


def test_bad_requests(signed: Api) -> None:
    """Unknown roles, fields and names are told from each other."""
    for body in ({}, {"role": "csk"}, {"role": "zsk", "now": True}, {"role": "zsk", "urgent": "yes"}):
        assert signed.operator.post(f"{PATH}/roll", json=body).status_code == 422
    assert signed.viewer.get("/v1/dnssec/no_host!").status_code == 422
    assert signed.viewer.get("/v1/dnssec/DEMO.test.").status_code == 200
