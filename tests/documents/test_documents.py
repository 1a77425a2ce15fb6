"""Documents, YAML and the shipped jurisdictions."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gtm import yaml_nodes
from gtm.core.model.cors import Cors
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.services import HttpsRecord, Member, NameServer, RecordSet
from gtm.core.policy.jurisdictions import countries_at, resolve
from gtm.documents import resources as documents
from gtm.documents import yamls
from gtm.documents.diff import diff_policies
from gtm.documents.folders import check_references, load_folder, read_folder
from gtm.documents.jurisdictions import adequacy_decisions, law_notes, past_memberships, shipped_jurisdictions
from gtm.documents.schema import DOCUMENTS, PolicyDocument, concise_policy, export_policy
from gtm.documents.structure import problems_of

DEMO = Path(__file__).parents[2] / "policies" / "demo"


KEPT = {"admin_state", "challenges"}
"""What stays as it is where a document has none."""


def _parity(value: Any, document: type[BaseModel]) -> None:
    """Field names are the same, and defaults too, all the way down."""
    own = {field.name: field for field in dataclasses.fields(value)}
    assert set(own) == set(document.model_fields), document.__name__
    for name, field in own.items():
        given = document.model_fields[name]
        if isinstance(given.default, BaseModel):
            _parity(field.default, type(given.default))
        elif field.default is not dataclasses.MISSING and not given.is_required() and name not in KEPT:
            assert given.default == field.default, f"{document.__name__}.{name}"


PARTS = [
    (Endpoint, documents.EndpointDocument),
    (Member, documents.MemberDocument),
    (NameServer, documents.NameServerDocument),
    (RecordSet, documents.RecordSetDocument),
    (HttpsRecord, documents.HttpsRecordDocument),
    (Cors, documents.CorsDocument),
]


@pytest.mark.parametrize(("value", "document"), PARTS)
def test_parts_in_lists_have_the_fields_of_their_values(value: Any, document: type[BaseModel]) -> None:
    """The same holds for what documents hold lists of."""
    _parity(value, document)


@pytest.mark.parametrize("kind", KINDS)
def test_documents_have_the_fields_of_their_values(kind: str) -> None:
    """Each kind's document has exactly the fields and defaults of its core value."""
    _parity(KINDS[kind], DOCUMENTS[kind])


def test_a_policy_survives_documents_and_yaml() -> None:
    """Policy → document → YAML → document → policy changes nothing, whether or not defaults are written."""
    policy = load_folder(DEMO)
    for document in (export_policy(policy), concise_policy(policy)):
        (read,) = yamls.load(yamls.dump(document))
        assert PolicyDocument.model_validate(read).to_core() == policy
    assert diff_policies(policy, policy) == ()
    assert PolicyDocument.of(policy).to_core() == policy


REGION = {"name": "a", "lat": 1, "lon": 2, "country": "DE", "endpoints": [{"url": "http://a.test"}]}
SERVICE = {"name": "a", "members": [{"region": "b"}]}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("regions", {**REGION, "lat": float("nan")}, "regions.a.lat: must be a finite number, not `nan`"),
    ("regions", {**REGION, "lon": float("inf")}, "regions.a.lon: must be a finite number"),
    ("regions", {**REGION, "lat": 90.5}, "regions.a.lat: must be less than or equal to 90, not `90.5`"),
    ("regions", {**REGION, "lon": -181}, "regions.a.lon: must be greater than or equal to -180"),
    (
        "regions",
        {**REGION, "lat": "1"},
        "regions.a.lat: must be a number, and `1` in quotes is text: remove the quotes",
    ),
    (
        "regions",
        {**REGION, "probe": {"interval": "500ms"}},
        "must be a number without a unit, not `500ms`: times are in seconds unless the field's name says otherwise, so write `0.5`",
    ),
    (
        "regions",
        {**REGION, "probe": [{"interval": 1}]},
        "regions.a.probe: must be an object (`field: value`), not a list",
    ),
    (
        "regions",
        {**REGION, "capacity": {"outstanding": -1}},
        "regions.a.capacity.outstanding: must be greater",
    ),
    ("regions", {**REGION, "country": "UK"}, "the United Kingdom's code is `GB`"),
    ("regions", {**REGION, "country": "de"}, "did you mean `DE`?"),
    ("regions", {**REGION, "nam": "x"}, "regions.a.nam: unknown field"),
    ("regions", {**REGION, "name": "A_"}, "must be lower-case letters, digits and inner hyphens"),
    ("regions", {**REGION, "display_name": "a\0b"}, "must not contain control characters"),
    ("regions", {**REGION, "display_name": "\ud800"}, "must be valid Unicode text"),
    ("regions", {**REGION, "endpoints": []}, "regions.a.endpoints: needs at least 1 item"),
    ("regions", {**REGION, "endpoints": [{"url": "ftp://a"}]}, "must be an http or https URL"),
    ("regions", {**REGION, "endpoints": [{"url": "http://u:p@a"}]}, "without user, query or fragment"),
    ("regions", {**REGION, "endpoints": [{"url": "http://a:99999"}]}, "is not a URL"),
    *(
        ("regions", {**REGION, "endpoints": [{"url": f"http://{host}"}]}, "is not an IPv4 address")
        for host in ("3221225986", "0xC0000202", "192.0.514", "192.0.2.0x2", "0300.0.2.2", "a.0x2.", "a.2")
    ),
    (
        "regions",
        {**REGION, "endpoints": [{"url": "http://a", "ipv4": ["::1"]}]},
        "`::1` is not an IPv4 address",
    ),
    ("regions", {**REGION, "endpoints": [{"url": "http://a", "ipv6": ["fe80::1%eth0"]}]}, "zone index"),
    (
        "regions",
        {**REGION, "probe": {"body_regex": "(a+)\\1"}},
        "is not an RE2 pattern: invalid escape sequence",
    ),
    ("regions", {**REGION, "probe": {"body_regex": "(?=a)"}}, "is not an RE2 pattern"),
    ("regions", {**REGION, "probe": {"interval": 0.5}}, "probe.interval: must be greater than or equal to 1"),
    ("regions", {**REGION, "probe": {"json_field": "a.b"}}, "`json_field` and `json_value` need each other"),
    ("services", {**SERVICE, "ttl": 0}, "services.a.ttl: must be greater than or equal to 1, not `0`"),
    ("services", {**SERVICE, "ttl": 86401}, "services.a.ttl: must be less than or equal to 86400"),
    ("services", {**SERVICE, "ttl": True}, "services.a.ttl: must be a valid integer, not `true`"),
    ("services", {**SERVICE, "hostnames": ["-a.test"]}, "`-a.test` is not a host name"),
    ("services", {**SERVICE, "hostnames": [".".join(["a" * 60] * 5)]}, "services.a.hostnames[0]:"),
    ("services", {**SERVICE, "steering": "random"}, "services.a.steering: must be 'latency'"),
    ("residency_rules", {"name": "a", "effective_from": "2026-01-01T00:00:00"}, "needs a time zone"),
    ("residency_rules", {"name": "a", "effective_from": 5}, "must be a date and time such as"),
    (
        "residency_rules",
        {"name": "a", "match": {"client_countries": ["EU"]}},
        "list it under the jurisdictions",
    ),
    (
        "spillover_rules",
        {"name": "a", "from_region": "b", "to_regions": ["c"], "max_share": 1.1},
        "max_share: must",
    ),
]


@pytest.mark.parametrize(
    ("kind", "document", "message"), BAD, ids=[f"{i}-{m[2][:40]}" for i, m in enumerate(BAD)]
)
def test_bad_fields_are_named(kind: str, document: dict[str, Any], message: str) -> None:
    """Every limit on single fields is held, with an error that says where and what."""
    whole = {kind: [document]}
    with pytest.raises(ValidationError) as caught:
        PolicyDocument.model_validate(whole)
    assert message in "\n".join(str(problem) for problem in problems_of(caught.value, whole))


def test_names_are_normalised() -> None:
    """Host names lose case and final dot, URLs their final slash, addresses get their canonical text."""
    endpoint = {"url": "HTTP://Ex.Test:80/a/", "ipv6": ["2001:DB8:0::1"], "cname": "Ex.TEST."}
    document = PolicyDocument.model_validate({"regions": [{**REGION, "endpoints": [endpoint]}]})
    found = document.to_core().regions[0].endpoints[0]
    assert (found.url, found.ipv6, found.cname) == ("http://ex.test:80/a", ("2001:db8::1",), "ex.test")


def test_line_ends_of_windows_are_line_ends() -> None:
    """Text of several lines is the same from whatever system; a carriage return that ends no line is a mistake."""
    law = {"name": "r", "match": {}, "allow": {"jurisdictions": ["EEA"]}}
    read = PolicyDocument.model_validate({"residency_rules": [{**law, "legal_basis": "Art. 44\r\nto 46\n"}]})
    assert read.to_core().residency_rules[0].legal_basis == "Art. 44\nto 46\n"
    with pytest.raises(ValidationError) as caught:
        PolicyDocument.model_validate({"residency_rules": [{**law, "legal_basis": "Art. 44\rto 46"}]})
    (problem,) = problems_of(caught.value)
    assert "carriage return" in problem.message


def test_yaml_reads_norway() -> None:
    """Country codes, times and dates stay text; only true and false are booleans."""
    assert yamls.load("[NO, on, 12:30, 2026-01-01, 010, true, 1e3, ~]") == [
        ["NO", "on", "12:30", "2026-01-01", 10, True, 1000.0, None]
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "line 2, column 1: `a` is given twice"),
        ("a: &a [*a]", "an anchor contains itself"),
        ("[" * 3000, "line"),
        ("- " * 101 + "1", "line 1, column 201: nested deeper than 100"),
        ("[" * 100_000, "line 1, column 101: nested deeper than 100"),
        # Anchors are where they are used.
        (f"a: &a {'[' * 60}{']' * 60}\nb: {'[' * 60}*a{']' * 60}", "nested deeper than 100"),
        ("".join(" " * level + "a:\n" for level in range(3000)), "nested deeper than 100"),
        ("a: !!python/object:os.x {}", "could not determine a constructor"),
        ("a: \0", "not YAML in UTF-8"),
        # Without a place people look for them for long: elastic/filebeat#151, adrienverge/yamllint#218.
        (
            b"# 1\n# r\xe9gles\n",
            "line 2: not YAML in UTF-8: byte 0xe9: save the file as UTF-8, not as Windows-1252",
        ),
        ("# 1\n\n# \x1b[31m", "line 3: not YAML in UTF-8: the control character U+001B: take it out"),
        (
            "a: 1".encode("utf-16-le"),
            "line 1: not YAML in UTF-8: the control character U+0000: save the file as UTF-8, not as UTF-16",
        ),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{n}: &{n} [{','.join([f'*{b}'] * 10)}]\n" for b, n in zip("abcdefg", "bcdefgh", strict=True)
            ),
            "anchors make more of it than 10 times what is written",
        ),
        # Merge keys make mappings of what they name.
        (
            "a: &a {" + ", ".join(f"k{n}: 1" for n in range(1000)) + "}\nb:\n" + "  - {<<: *a}\n" * 480,
            "line 3, column 3: anchors make more of it than 10 times what is written",
        ),
        # A long text is long wherever it is used.
        ("a: &a " + "x" * 40_000 + "\nb: [" + "*a, " * 20 + "]", "anchors make more of it than 10 times"),
        # Several documents grow together.
        (
            ("--- [&a " + "x" * 9_000 + ", " + "*a, " * 16 + "]\n") * 20,
            "anchors make more of it than 10 times",
        ),
    ],
)
def test_bad_yaml_is_refused(text: str, message: str) -> None:
    """YAML that is ambiguous, dangerous or endless is refused with the place."""
    with pytest.raises(yamls.YamlError, match=re.escape(message)):
        yamls.load(text)


def test_yaml_of_too_many_values_is_refused() -> None:
    """A million are what a policy may have (docs/limits.md); a bound of a thousand is met in a thousandth of the time."""
    with patch.object(yaml_nodes, "MAX_NODES", 1000):
        (document,) = yamls.load("[" + "1," * 999 + "]")
        assert len(document) == 999  # and the list itself
        with pytest.raises(yamls.YamlError, match="more than 1000 values"):
            yamls.load("[" + "1," * 1000 + "]")


def test_a_policy_has_so_many_resources(tmp_path: Path) -> None:
    """More of a kind than a policy may have is a problem of the file, and nothing follows from it."""
    (tmp_path / "a.yaml").write_text("tenants:\n" + "".join(f"- name: t{n}\n" for n in range(6_000)))
    (tmp_path / "b.yaml").write_text(
        "tenants:\n" + "".join(f"- name: u{n}\n" for n in range(4_001)) + "residency_rules:\n"
        "- {name: r, match: {tenants: [u7]}, allow: {jurisdictions: [EEA]}}\n"
    )
    with pytest.raises(PolicyError) as caught:
        load_folder(tmp_path)
    assert [str(one) for one in caught.value.problems] == [
        f"{tmp_path}/b.yaml:1: tenants: a policy has at most 10000 of them"
    ]


def test_anchors_may_do_what_they_are_for() -> None:
    """A thousand regions that merge what they have in common are read, also where a short text becomes a long one."""
    common = "common: &common {" + ", ".join(f"setting-{n}: {n}" for n in range(20)) + "}\n"
    ((document, _),) = yamls.load_marked(
        common
        + "regions:\n"
        + "".join(f"  - {{<<: *common, name: region-number-{n}}}\n" for n in range(1000))
    )
    assert document["regions"][999] == {
        **{f"setting-{n}": n for n in range(20)},
        "name": "region-number-999",
    }


_PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=60,
)


@given(value=_PLAIN, flow=st.booleans())
def test_texts_without_anchors_grow_by_less_than_two(value: object, flow: bool) -> None:
    """So the bound on growth refuses nothing that is written out."""
    text = yaml.safe_dump(value, default_flow_style=flow, width=10**6, allow_unicode=True)
    with patch.multiple(yaml_nodes, FREE_GROWTH=0, MAX_GROWTH=2):
        yamls.load(text)


def test_folders_list_every_problem_with_its_file(tmp_path: Path) -> None:
    """Problems of structure and of meaning, in several files, are all listed; what follows from others is not."""
    (tmp_path / "a.yaml").write_text(
        "regions: [{name: a, lat: 99, lon: 0, country: DE, endpoints: [{url: 'http://a'}]}]"
    )
    (tmp_path / "b.yaml").write_text(
        "services: [{name: s, members: [{region: a}, {region: zz}]}]\nregion: []\ntenants: 5"
    )
    (tmp_path / "c.yaml").write_text("a: 1\na: 2")
    with pytest.raises(PolicyError) as caught:
        load_folder(tmp_path)
    found = "\n".join(str(problem) for problem in caught.value.problems)
    assert f"{tmp_path}/a.yaml:1: regions.a.lat: must be less than or equal to 90" in found
    assert f"{tmp_path}/b.yaml:2: region: unknown kind; did you mean `regions`?" in found
    assert f"{tmp_path}/b.yaml:3: tenants: must be a list" in found
    assert f"{tmp_path}/b.yaml:1: services.s.members[1].region: there is no region `zz`" in found
    assert f"{tmp_path}/c.yaml: line 2, column 1: `a` is given twice" in found
    assert "`a`" not in found.replace("`a` is given twice", "")


def test_problems_name_their_lines(tmp_path: Path) -> None:
    """Of the very value where it is there, else of what it should be in; also for what is found by compiling."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "# A comment.\n"
        "regions:\n"
        "  - name: a\n"
        "    country: XX\n"
        "    lat: 50\n"
        "    lon: 8\n"
        "    endpoints:\n"
        "      - url: http://a.test\n"
        "services:\n"
        "  - name: s\n"
        "    members:\n"
        "      - {region: a}\n"
        "      - region: a\n"
        "---\n"
        "tenants:\n"
        "  - display_name: Nobody\n"
        "    wieght: 2\n"
    )

    def found() -> list[str]:
        with pytest.raises(PolicyError) as caught:
            load_folder(tmp_path)
        return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]

    assert [text.split(": ")[:2] for text in found()] == [
        ["4", "regions.a.country"],
        ["16", "tenants[0].name"],
        ["17", "tenants[0].wieght"],
    ]
    assert "did you mean `weight`?" in found()[2]
    file.write_text(file.read_text().partition("---")[0].replace("XX", "DE"))
    assert [text.split(": ")[:2] for text in found()] == [["13", "services.s.members[1].region"]]


@given(st.lists(st.sampled_from(["name", "members", "x", 0, 1, 7]), max_size=5))
def test_every_place_has_a_line(path: list[str | int]) -> None:
    """Whatever path a problem has: the line of what is there of it."""
    ((_, marks),) = yamls.load_marked("name: a\nmembers:\n  - x: 1\n  - [1,\n     2]\n")
    assert 1 <= marks.line(path) <= 5


def test_shipped_jurisdictions_resolve() -> None:
    """They compile, name real countries only, and each adequate country has its decision."""
    membership, problems = resolve(shipped_jurisdictions(), ())
    assert problems == []
    today = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    members = {name: countries_at(periods, today) for name, periods in membership.items()}
    assert len(members["EU"] - {"AX", "GF", "GP", "MF", "MQ", "RE", "YT"}) == 27
    assert members["EEA"] - members["EU"] == {"IS", "LI", "NO"}
    for name in ("GDPR-ADEQUATE", "GDPR-ADEQUATE-PARTIAL"):
        assert {decision.country for decision in adequacy_decisions()[name]} == members[name]
    assert not members["GDPR-ADEQUATE"] & members["EEA"]
    assert set(law_notes()) <= COUNTRIES
    assert all(item.source for item in shipped_jurisdictions())


def test_an_adequacy_decision_lapses_with_the_membership() -> None:
    """On the day a decision ends the country is out, of what is built on it too, and decisions name their ground."""
    membership, _ = resolve(shipped_jurisdictions(), ())
    lapse = datetime(2031, 12, 27, tzinfo=UTC).timestamp()
    for name in ("GDPR-ADEQUATE", "EEA-OR-ADEQUATE"):
        before, after = countries_at(membership[name], lapse - 1), countries_at(membership[name], lapse)
        assert before - after == {"GB"}
    decisions = [decision for items in adequacy_decisions().values() for decision in items]
    assert all("Art. 45" in decision.article and decision.act and decision.date for decision in decisions)
    assert all("95/46" in item.article for item in decisions if item.date < "2018-05-25")


@pytest.mark.parametrize(
    ("day", "union", "area", "adequate", "partly", "either"),
    [
        ("2018-06-01", "GB", "GB", "", "CA US", "GB"),
        ("2019-06-01", "GB", "GB", "JP", "CA US", "GB JP"),
        ("2020-06-01", "", "GB", "JP", "CA US", "GB JP"),
        ("2020-08-01", "", "GB", "JP", "CA", "GB JP"),
        ("2021-03-01", "", "", "JP", "CA", "GB JP"),
        ("2021-08-01", "", "", "GB JP", "CA", "GB JP"),
        ("2023-08-01", "", "", "GB JP KR", "CA US", "GB JP KR"),
        ("2026-11-01", "", "", "BR GB JP KR", "CA US", "BR GB JP KR"),
        ("2032-01-01", "", "", "BR JP KR", "CA US", "BR JP KR"),
    ],
)
def test_a_past_day_has_its_law(  # noqa: PLR0917 - a row of a table
    day: str, union: str, area: str, adequate: str, partly: str, either: str
) -> None:
    """Of those that joined or left since the GDPR applies, each jurisdiction has whom it had on a day."""
    membership, problems = resolve(shipped_jurisdictions(history=True), ())
    assert problems == []
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    names = ("EU", "EEA", "GDPR-ADEQUATE", "GDPR-ADEQUATE-PARTIAL", "EEA-OR-ADEQUATE")
    moved = {"BR", "CA", "GB", "JP", "KR", "US"}
    found = [" ".join(sorted(countries_at(membership[name], moment) & moved)) for name in names]
    assert found == [union, area, adequate, partly, either]


def test_what_is_known_of_decisions_says_where_it_was_checked() -> None:
    """Nothing claims more than was compared: each decision and past membership names a place and time, or `unverified`."""
    decisions = [decision for items in adequacy_decisions().values() for decision in items]
    past = [one for items in past_memberships().values() for one in items]
    for item in (*decisions, *past):
        assert "unverified" in item.checked or item.checked.endswith("2026-11"), item
    assert all(decision.status for decision in decisions)
    assert all(one.source for one in past)


DRAINING = {"admin_state": "draining"}
NOON = datetime(2027, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
LATER, GIVEN = NOON + timedelta(hours=1), datetime(2026, 12, 31, tzinfo=UTC)


def _region(before: Region | None, now: datetime | None, **changes: Any) -> Region:
    return DOCUMENTS["regions"].model_validate({**REGION, **changes}).to_core(Region, before, now)


def test_a_drain_has_a_beginning() -> None:
    """A region drains from when its state first says so, or as its document says, to when its state says otherwise."""
    noon = NOON.replace(microsecond=0)
    drained = _region(None, NOON, **DRAINING)
    assert drained.draining_since == noon
    assert _region(drained, LATER, **DRAINING).draining_since == noon
    assert _region(drained, LATER).draining_since == noon
    assert _region(drained, LATER, **DRAINING, draining_since=GIVEN.isoformat()).draining_since == GIVEN
    for state in ("active", "disabled"):
        stopped = _region(drained, LATER, admin_state=state, draining_since=GIVEN.isoformat())
        assert stopped.draining_since is None
        assert _region(stopped, LATER, draining_since=GIVEN.isoformat()).draining_since is None
        assert _region(stopped, LATER, **DRAINING).draining_since == noon + timedelta(hours=1)
    assert _region(None, None, **DRAINING).draining_since is None
    of_old = dataclasses.replace(drained, draining_since=None)
    assert _region(of_old, LATER).draining_since == noon + timedelta(hours=1)


def test_policies_compare_by_field() -> None:
    """A diff names what was created, updated (with the fields) and deleted."""
    before = PolicyDocument.model_validate({"regions": [REGION], "tenants": [{"name": "x"}]}).to_core()
    after = PolicyDocument.model_validate(
        {
            "regions": [{**REGION, "lat": 5}],
            "zones": [{"name": "z.test", "primary_ns": "n", "hostmaster": "h"}],
        }
    ).to_core()
    changes = [
        (c.kind, c.name, c.action.value, [f.path for f in c.fields]) for c in diff_policies(before, after)
    ]
    assert changes == [
        ("regions", "a", "updated", ["lat"]),
        ("zones", "z.test", "created", []),
        ("tenants", "x", "deleted", []),
    ]
    assert diff_policies(Policy(), Policy()) == ()


def test_problems_name_the_file_of_the_zone_they_are_about(tmp_path: Path) -> None:
    """A zone whose name begins with another's is not taken for that one."""
    zone = "zones:\n  - name: {}\n    primary_ns: ns.example.net\n    hostmaster: hostmaster.example.net\n"
    server = "    name_servers: [{name: ns.example.net, ipv4: [192.0.2.1]}]\n"
    (tmp_path / "a.yaml").write_text(zone.format("demo.test") + server)
    (tmp_path / "b.yaml").write_text(zone.format("demo"))
    problems, _ = check_references(read_folder(tmp_path))
    assert [problem.path for problem in problems] == [
        f"{tmp_path / 'a.yaml'}:5: zones.demo.test.name_servers[0]"
    ]
