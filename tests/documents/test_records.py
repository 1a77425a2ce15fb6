"""Records as operators write them."""

from __future__ import annotations

from typing import Any

import dns.rdatatype
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from gtm.core.model.policy import Policy
from gtm.core.model.services import Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.zone.zones import build_names, wire_name
from gtm.documents.records import RecordError, read_data, record_type
from gtm.documents.resources import ZoneDocument
from tests.core.strategies import quick

ZONE: dict[str, Any] = {"name": "x.test", "primary_ns": "ns.example.net", "hostmaster": "h.example.net"}


def _zone(*records: dict[str, Any]) -> ZoneDocument:
    return ZoneDocument.model_validate({**ZONE, "records": records})


def _wrong(*records: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        _zone(*records)
    return "; ".join(str(error["loc"]) + " " + error["msg"] for error in caught.value.errors())


@pytest.mark.rfc("3597", "5", "any type and data can be written as numbers and octets")
@pytest.mark.parametrize(
    ("rdtype", "data", "wire"),
    [
        ("A", "192.0.2.1", b"\xc0\0\2\1"),
        ("type1", "\\# 4 c0000201", b"\xc0\0\2\1"),
        ("TYPE65280", "\\# 3 0a0b0c", b"\x0a\x0b\x0c"),
        ("mx", "10 mail", b"\0\x0a\4mail\1x\4test\0"),
        ("CNAME", "@", b"\1x\4test\0"),
        ("NS", "NS.example.net.", b"\2ns\7example\3net\0"),
        ("TXT", '"a;b" c', b"\3a;b\1c"),
        ("CAA", '0 issue "ca.example.net"', b"\0\5issueca.example.net"),
        ("HTTPS", "1 . alpn=h2 port=8443", b"\0\1\0\0\1\0\3\2h2\0\3\0\2\x20\xfb"),
    ],
)
def test_data_is_read(rdtype: str, data: str, wire: bytes) -> None:
    """Mnemonics, TYPE and a number, and data in presentation form or as octets."""
    (found,) = _zone({"name": "www", "type": rdtype, "data": [data]}).records
    assert read_data(found.type, data, "x.test") == wire


@pytest.mark.parametrize(
    ("rdtype", "data", "words"),
    [
        ("A", "2001:db8::1", "no data of A records"),
        ("A", "192.0.2.1 192.0.2.2", "no data of A records"),
        ("A", "", "no data of A records"),
        ("MX", "mail", "no data of MX records"),
        ("CNAME", "a..b", "no data of CNAME records"),
        ("CNAME", "a" * 64, "no data of CNAME records"),
        ("TXT", "v=DKIM1; p=abc", "semicolon"),
        ("TXT", '"' + "a" * 256 + '"', "no data of TXT records"),
        ("TYPE65280", "\\# 3 0a0b", "no data of TYPE65280 records"),
        ("TYPE65280", "anything", "no data of TYPE65280 records"),
        ("TXT", '"line\nbreak"', "match pattern"),
        ("SOA", "a b 1 2 3 4 5", "made from its fields"),
        ("RRSIG", "x", "made by gtm"),
        ("CDS", "0 0 0 00", "made by gtm"),
        ("DNAME", "a.example.", "DNAME is not served"),
        ("ANY", "x", "questions and messages"),
        ("TYPE250", "x", "questions and messages"),
        ("TYPE65536", "x", "no record type"),
        ("NONSENSE", "x", "no record type"),
        ("\u212a", "x", "match"),
    ],
)
def test_what_cannot_stand_in_a_zone(rdtype: str, data: str, words: str) -> None:
    """Each error is at its record, and says what is wrong."""
    message = _wrong({"name": "www", "type": rdtype, "data": [data]})
    assert words in message
    assert "'records', 0" in message


@pytest.mark.parametrize("name", ["", "a..b", "a b", "é", "x.*", "a*.b", "*a", ".", "a\\.b", "b" * 64])
def test_names_that_are_none(name: str) -> None:
    """Labels are letters, digits, hyphens, underscores and slashes; a wildcard is the whole first label."""
    assert "'name'" in _wrong({"name": name, "type": "A", "data": ["192.0.2.1"]})


def test_records_are_given_once() -> None:
    """The same record twice is an error, however it is written."""
    message = _wrong(
        {"name": "www", "type": "MX", "data": ["10 mail"]},
        {"name": "WWW.x.test.", "type": "TYPE15", "data": ["20 mail", "10 MAIL.x.test."]},
    )
    assert "records[1]" in message
    assert "the same as `10 mail`" in message


def test_sets_fit_into_a_message() -> None:
    """A set of records that no message could carry is an error."""
    big = [" ".join(f'"{number:03}{"a" * 250}"' for _ in range(4)) for number in range(65)]
    assert "fit into no answer" in _wrong({"name": "www", "type": "TXT", "data": big})


def test_names_too_long_with_their_zone() -> None:
    """A name in data that is only too long inside its zone is found too."""
    name = ".".join(["a" * 60] * 4) + ".bbbbbb"
    assert "records[0]" in _wrong({"name": "www", "type": "CNAME", "data": [name]})


TYPES = sorted(
    {rdtype.name for rdtype in dns.rdatatype.RdataType if 0 < rdtype < 65535} | {"TYPE65280", "TYPE0"}
)
WORDS = st.sampled_from(
    ["10", "mail", ".", "@", '"a b"', "192.0.2.1", "2001:db8::1", "\\#", "4", "c0000201", "(", ")", ";", "0",
     "20260101000000", "alpn=h2", "key65535=x", "ABCD", "/", "+", "-", "1.5m", "\\000", "é", "\\"]
)  # fmt: skip


@given(st.sampled_from(TYPES), st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40))
@quick(1500)
@example("LOC", "90 0 0 N 180 0 0 E 0m")
@example("NAPTR", '1 1 "u" "s" "!^.*$!x!" .')
@example("SVCB", "0 . alpn=h2")
@example("APL", "1:192.0.2.0/33")
def test_any_text_is_data_or_an_error(rdtype: str, text: str) -> None:
    """Whatever is written is read, so that edges can serve it, or a `RecordError` in words."""
    try:
        known = record_type(rdtype)
        read_data(known, text, "x.test")
    except RecordError:
        return
    record = {"name": "www", "type": known, "data": (text,)}
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        return
    zone = _zone(record).to_core(Zone)
    names = build_names(compile_policy(Policy(zones=(zone,)), ())) if known not in ("NS", "DS") else None
    if names is not None and names.records.get(wire_name("www.x.test")):
        (rdatas,) = names.records[wire_name("www.x.test")].values()
        assert len(rdatas.data) == 1
