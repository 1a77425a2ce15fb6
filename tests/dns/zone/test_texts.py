"""Texts of mail, against a model of what receivers read: all strings of a record, one after the other, without spaces between them."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gtm.core.model.services import RecordSet, Zone
from gtm.dns.zone.mail import read, text_findings
from tests.core.strategies import quick


def told(*texts: str, name: str = "@", rdtype: str = "TXT") -> list[tuple[str, str]]:
    """The place and the code of what is said of some records of a name."""
    records = tuple(RecordSet(name, rdtype, (text,)) for text in texts)
    return [
        (one.path, one.code)
        for one in text_findings(Zone("x.test", "ns.example.net", "h.example.net", records=records))
    ]


def joined(text: str) -> bool:
    """Whether one is said to be joined otherwise than it was meant."""
    return told(text) == [("zones.x.test.records[0]", "joined")]


_TERMS = (
    "mx",
    "a",
    "-all",
    "~all",
    "include:_spf.example.net",
    "ip4:192.0.2.0/24",
    "ip6:2001:db8::/32",
    "a:b.example",
)
_SPF = st.lists(st.sampled_from(_TERMS), min_size=1, max_size=5).map(lambda terms: ["v=spf1", *terms])
_DKIM = st.sampled_from(
    [["v=DKIM1", "k=rsa", "p=MIGfMA0G"], ["k=ed25519", "p=11qYAYKxCrfVS"], ["some", "words"]]
)


def _quoted(string: str) -> str:
    return f'"{string}"'


@given(_SPF | _DKIM, st.data())
@quick(200)
def test_words_that_are_written_apart(words: list[str], data: st.DataObject) -> None:
    """Words in strings of their own, in quotes or not, are read as one (RFC 7208 §3.3, RFC 6376 §3.6.2.2): that is told, but where quotes say it is meant."""
    quotes = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    text = " ".join(_quoted(word) if quote else word for word, quote in zip(words, quotes, strict=True))
    strings = read(text)
    assert strings == list(zip(words, quotes, strict=True))
    event(f"all in quotes: {all(quotes)}")
    meant = all(quotes) and words[0] != "v=spf1"
    assert joined(text) != meant
    assert not joined(_quoted(" ".join(words)))


@given(_SPF, st.data())
@quick(200)
def test_long_texts_that_are_cut(words: list[str], data: st.DataObject) -> None:
    """Strings in quotes that hold all characters are what was meant, wherever they are cut; but for a cut that leaves out a space."""
    whole = " ".join(words)
    at = data.draw(st.integers(1, len(whole) - 1))
    # What is written as `example.` and `a` could be two terms as well.
    assume(
        whole[at - 1] == " "
        or not re.match(r"[-~+?]?(all|mx|a)([ :/]|$)|[-~+?]?(include|ip[46]):", whole[at:])
    )
    assert not joined(f"{_quoted(whole[:at])} {_quoted(whole[at:])}")
    gaps = [place for place, character in enumerate(whole) if character == " "]
    gap = data.draw(st.sampled_from(gaps))
    assert joined(f"{_quoted(whole[:gap])} {_quoted(whole[gap + 1 :])}")
    assert not joined(f"{_quoted(whole[: gap + 1])} {_quoted(whole[gap + 1 :])}")


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        (('"v=spf1 mx " "~all"', '"v=spf10 a"', '"v=spf1;a"', '"verification v=spf1 "'), []),
        (("v=spf1 mx", '"v=spf1 -all"'), ["joined"]),
        (('"v=DKIM1; k=rsa; p=AB" "CD"',), []),
        (("v=DKIM1\\; k=rsa\\; p=AB",), ["joined"]),
        (("one", '"two words"', '"\\"" "x"', "\\# 4 03616263", "a\\032b", "\\300"), []),
        (('"a" b',), ["joined"]),
    ],
)
def test_texts(texts: tuple[str, ...], codes: list[str]) -> None:
    """Strings as a zone file has them. One report: FuseCP/FuseCP#52 (a text without quotes becomes several)."""
    assert [code for _, code in told(*texts)] == codes


def test_what_is_said() -> None:
    """What receivers read, and what to write."""
    zone = Zone(
        "x.test",
        "ns.example.net",
        "h.example.net",
        records=(
            RecordSet("@", "TXT", ("v=spf1 mx -all",)),
            RecordSet("k._domainkey", "TXT", ('v=DKIM1\\; n="a b" p=AB',)),
        ),
    )
    first, second = text_findings(zone)
    assert "(RFC 7208 §3.3): `v=spf1mx-all`" in first.message
    assert 'in one pair of double quotes: `"v=spf1 mx -all"`' in first.message
    assert "RFC 6376" in second.message
