"""What `gtm check` says of records that mail servers and certificate authorities read."""

from __future__ import annotations

import pytest

from tests.dns.zone.test_findings import codes, found, zone

_OTHER = ("_dmarc", "TXT", '"v=DMARC1; p=none"')


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((("@", "TXT", '"v=spf1 mx ~all"'), ("@", "TXT", '"v=spf1 a:a.example.net ~all"')), "two_spf"),
        ((_OTHER, ("_dmarc", "TXT", '"v=DMARC1; p=reject"')), "two_texts"),
        ((("k._domainkey", "TXT", '"k=rsa; p=A"'), ("k._domainkey", "TXT", '"v=DKIM1; p=B"')), "two_texts"),
        ((("_mta-sts", "TXT", '"v=STSv1; id=1"'), ("_mta-sts", "TXT", '"v=STSv1; id=2"')), "two_texts"),
        (
            (
                ("_smtp._tls", "TXT", '"v=TLSRPTv1; rua=mailto:a@x.test"'),
                ("_smtp._tls", "TXT", '"v = TLSRPTv1;rua=mailto:b@x.test"'),
            ),
            "two_texts",
        ),
    ],
)
def test_two_of_a_kind(records: tuple[tuple[str, str, str], ...], expected: str) -> None:
    """internetstandards/Internet.nl#199 (two SPF records, no error) and cisagov/trustymail#49 (two DMARC records, of which none counts)."""
    records = (*records, ("@", "MX", "10 m.example.net."))
    assert codes(zone(*records)) == [("records[1]", expected)]
    apart = (records[0], ("other", *records[1][1:]), records[2]) if expected == "two_spf" else records[:1]
    assert expected not in {code for _, code in codes(zone(*apart))}


def test_names_and_types_apart() -> None:
    """Of two names each has its own SPF record, however they are written, and a record of the obsolete type SPF beside one is none."""
    records = (
        ("@", "TXT", '"v=spf1 -all"'),
        ("x.test.", "SPF", '"v=spf1 -all"'),
        ("a", "TXT", '"v=spf1 -all"'),
        ("A.X.test.", "TXT", '"v=spf1 ?all"'),
    )
    (one,) = found(zone(*records))
    assert (one.path, one.code) == ("zones.x.test.records[3]", "two_spf")
    assert "`a.x.test`" in one.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"\\"v=spf1 include:_spf.google.com a ~all\\""', "quotation marks"),
        ('"v=spf1; mx -all"', "begins with `v=spf1 `"),
        ('"v=SPF1,mx"', "begins with `v=spf1 `"),
        ('" v=spf1 -all"', "begins with `v=spf1 `"),
        ('"v=dmarc1; p=none"', "begins with `v=DMARC1;`"),
        ('"v=DKIM1\\\\; k=rsa\\\\; p=AB"', "backslashes"),
        ('"v=STS1; id=1"', "begins with `v=STSv1;`"),
    ],
)
def test_texts_that_nobody_reads(text: str, words: str) -> None:
    """barnybug/cli53#138 (quotation marks in the text), octodns/octodns#275 (backslashes in it), msimerson/mail-dmarc#39 (`v=dmarc1`)."""
    (one,) = found(zone(("_x", "TXT", text)))
    assert (one.path, one.code) == ("zones.x.test.records[0]", "unread")
    assert words in one.message


@pytest.mark.parametrize(
    ("records", "place"),
    [
        ((("@", "TXT", '"v=DMARC1; p=none"'),), "_dmarc.x.test"),
        ((("dmarc", "TXT", '"v=DMARC1; p=none"'),), "_dmarc.dmarc.x.test"),
        ((("@", "TXT", '"v=DMARC1; p=none"'), ("_dmarc", "TXT", "x")), "_dmarc.x.test"),
        ((("k1", "TXT", '"v=DKIM1; p=AB"'),), "SELECTOR._domainkey.k1.x.test"),
        ((("mta-sts", "TXT", '"v=STSv1; id=1"'),), "_mta-sts.mta-sts.x.test"),
        ((("_tls", "TXT", '"v=TLSRPTv1; rua=x"'),), "_smtp._tls._tls.x.test"),
    ],
)
def test_texts_where_nobody_looks(records: tuple[tuple[str, str, str], ...], place: str) -> None:
    """domainaware/checkdmarc#24 (a DMARC record at the domain's own name) and MicrosoftDocs/microsoft-365-docs#13368 (no underscore)."""
    (one,) = found(zone(*records))
    assert one.code == "misplaced"
    assert f"`{place}`" in one.message


def test_texts_that_are_found() -> None:
    """By an alias, a wildcard, for reports of another domain (RFC 7489 §7.1), or beside the one that counts."""
    records = (
        ("@", "TXT", '"v=DMARC1; p=none"'),
        _OTHER,
        ("_dmarc.shop", "CNAME", "shared"),
        ("shared", "TXT", '"v=DMARC1; p=none"'),
        ("k.dkim", "TXT", '"v=DKIM1; p=AB"'),
        ("*.w", "TXT", '"v=DMARC1; p=none"'),
        ("example.org._report._dmarc", "TXT", '"v=DMARC1"'),
        ("k._domainkey", "TXT", '"p="'),
        ("l._domainkey.shop", "TXT", '"v=DKIM1 ; p=AB"'),
        ("t", "TXT", '"spf2.0/pra -all"'),
        ("t", "TXT", '"v=spf10"'),
        ("t", "TXT", '"v=verification; p=1"'),
    )
    assert found(zone(*records)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v=DMARC1; p=jerect; sp=reject", ["`p=jerect` is no policy"]),
        ("v=DMARC1; p=none; sp=all", ["`sp=all` is no policy"]),
        ("v=DMARC1; rua=mailto:a@example.net", ["no tag `p`"]),
        (
            "v=DMARC1; p=none; rua=mailto:a@example.net, b@example.net!10m",
            ["write `mailto:b@example.net!10m`"],
        ),
        ("v=DMARC1; p=none rua=mailto:a@example.net", ["`p=none rua=mailto:a@example.net` is no policy"]),
        ("v=DMARC1; p=None ; fo=1;; ", []),
        ("v=DMARC1; p=none; pct 50", ["`pct 50` is no tag"]),
        ("v=DMARC1; p=none; p=reject", ["`p` stands there twice"]),
        ("v=DMARC1; p=Quarantine; rua=mailto:a@example.net,https://b.example.net/;", []),
    ],
)
def test_tags(text: str, words: list[str]) -> None:
    """domainaware/checkdmarc#207 (`sp` with a value that is none was valid) and #57 (a policy without `p`)."""
    told = [one.message for one in found(zone(("_dmarc", "TXT", f'"{text}"'))) if one.code == "tag"]
    assert len(told) == len(words)
    assert all(word in one for word, one in zip(words, told, strict=True))
    (key,) = found(zone(("k._domainkey", "TXT", '"v=DKIM1; k=rsa"')))
    assert key.code == "tag"


_INCLUDED = (
    ("_spf", "TXT", '"v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"'),
    ("to-spf", "CNAME", "_spf"),
    ("*.s", "TXT", '"v=spf1 -all"'),
    ("away", "CNAME", "_spf.example.net."),
    ("lab", "NS", "ns.example.net."),
    ("h", "A", "192.0.2.1"),
    ("@", "MX", "10 h"),
    ("t", "TXT", "x"),
)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ("include:_spf.x.test include:to-spf.x.test. include:any.s.x.test -all", ""),
        ("include:_spf.example.net include:away.x.test redirect=in.lab.x.test", ""),
        ("a:h.x.test/24//64 mx +mx:x.test ?exists:%{i}.x.test ip4:192.0.2.1 ~all exp=gone.x.test", ""),
        ("include:%{d}.x.test ptr unknown=modifier  ALL", ""),
        ("include:gone.x.test -all", "`gone.x.test` has no SPF record"),
        ("include:t.x.test -all", "`t.x.test` has no SPF record"),
        ("redirect=gone.x.test", "RFC 7208 §5.2, §6.1"),
        ("a:gone.x.test -all", "`gone.x.test` has no address"),
        ("a -all", "`x.test` has no address"),
        ("mx:h.x.test -all", "`h.x.test` has no MX records"),
        ("include:_spf -all", "write `_spf.x.test`"),
        ("include.spf.protection.outlook.com -all", "no mechanism `include.spf.protection.outlook.com`"),
        ("include -all", "needs a colon"),
        ("ip4:192.0.2.256 -all", "`192.0.2.256` is no IPv4"),
        ("ip4:2001:db8::1 -all", "is no IPv4"),
        ("ip6:192.0.2.1 -all", "is no IPv6"),
        ("mx, -all", "no term"),
        ("-all mx", "nothing behind `-all` counts"),
    ],
)
def test_terms_of_spf_records(terms: str, words: str) -> None:
    """Terms that are none, or lead to a name that has not what they ask for.

    hardenize/hardenize-public#19 (an include without a policy was valid), domainaware/checkdmarc#6 (`mx` of a name without MX),
    ValiMail/coppertone#57 (`include.` for `include:`), domainaware/checkdmarc#73 (terms behind `all`).
    """
    told = found(zone(("@", "TXT", f'"v=spf1 {terms}"'), *_INCLUDED))
    assert [one.code for one in told] == (["spf_term"] if words else [])
    assert not words or words in told[0].message


@pytest.mark.parametrize("count", [9, 10])
def test_more_names_than_receivers_look_up(count: int) -> None:
    """internetstandards/Internet.nl#1336 and mlocati/spf-lib#16: 13 look-ups were fine, those of included records not counted."""
    inner = " ".join(f"a:{number}.example.net" for number in range(count - 2))
    records = (
        ("@", "TXT", '"v=spf1 include:_spf.x.test include:_spf.x.test ip4:192.0.2.1 exp=e.example.net ~all"'),
        ("_spf", "TXT", f'"v=spf1 {inner} redirect=_spf.x.test"'),
    )
    expected = [("records[0]", "spf_lookups")] if count == 10 else []
    assert codes(zone(*records)) == expected


@pytest.mark.parametrize(("text", "code"), [("v=spf1", "spf_term"), ("v=DMARC1; p=none;", "tag")])
def test_long_texts_are_told_in_short(text: str, code: str) -> None:
    """As many wrong terms as a record holds are ten findings, none of which has all of it."""
    written = " ".join(f'"{part}"' for part in (f"{text} ", *[f"{'x' * 20} ; y; " * 8] * 200))
    told = [one for one in found(zone(("_dmarc", "TXT", written))) if one.code == code]
    assert len(told) == 10
    assert max(len(one.message) for one in told) < 800


def test_includes_of_includes_end() -> None:
    """A chain of thousands, in a circle: what is counted is bounded."""
    chain = [
        (f"s{number}", "TXT", f'"v=spf1 include:s{(number + 1) % 2000}.x.test -all"')
        for number in range(2000)
    ]
    assert {code for _, code in codes(zone(*chain))} == {"spf_lookups"}


@pytest.mark.parametrize(
    ("rdtype", "texts", "expected"),
    [
        ("MX", ("0 .", "10 m.example.net."), "null_mx"),
        ("MX", ("0 .",), None),
        ("MX", ("0 m.example.net.", "10 n.example.net."), None),
        ("CAA", ('0 issue "https://letsencrypt.org"',), "caa"),
        ("CAA", ('0 issuewilds "letsencrypt.org"',), "caa"),
        ("CAA", ("0 issue letsencrypt.org", '0 issuewild ";"', '0 iodef "mailto:a@x.test"'), None),
        ("CAA", ('0 issue "letsencrypt.org; validationmethods=dns-01"',), None),
        ("SPF", ('"v=spf1 -all"',), "unread"),
    ],
)
def test_records_that_say_something_else(rdtype: str, texts: tuple[str, ...], expected: str | None) -> None:
    """hmailserver/hmailserver#372 (a null MX beside others); an authority's address for its name in CAA; SPF records of type SPF."""
    told = codes(zone(*(("r", rdtype, text) for text in texts)))
    assert told == ([("records[0]", expected)] if expected else [])
