"""`gtm check`: a policy and its expected decisions, offline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from gtm.cli.common.exits import Exit
from tests.cli.conftest import DEMO, Done, Gtm
from tests.misspelling import wrong_documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the demo policy to spoil."""
    return Path(shutil.copytree(DEMO, tmp_path / "policy"))


def test_demo(bare: Gtm) -> None:
    """The demo policy is sound, and every expectation beside it holds."""
    done = bare.ok("check", DEMO)
    assert "the policy is sound: 7 regions" in done.out
    assert bare.ok("check", DEMO, "--json").json["ok"] is True


def test_one_of_a_kind(bare: Gtm, tmp_path: Path) -> None:
    """A policy with one region is said to have one region."""
    (tmp_path / "a.yaml").write_text(
        "regions: [{name: a, lat: 1, lon: 2, country: DE, endpoints: [{url: 'http://a.test'}]}]\n"
        "services: [{name: a, members: [{region: a}]}, {name: b, members: [{region: a}]}]\n"
    )
    assert "the policy is sound: 1 region, 2 services, 0 rules" in bare("check", tmp_path).out


def test_a_folder_that_nobody_named(bare: Gtm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set (`gtm apply "$POLICY"`) is no order to take whatever is here (pypa/installer#188)."""
    (tmp_path / "x.yaml").write_text("services: []\n")
    monkeypatch.chdir(tmp_path)
    for command in ("check", "plan", "apply"):
        refused = bare(command, "")
        assert (refused.code, refused.out) == (Exit.BAD_INPUT, "")
        assert "it is empty" in refused.err
    assert bare("check", ".").code == 0


def test_failed_expectation(bare: Gtm, folder: Path) -> None:
    """An expectation that fails is explained region by region, and the exit code is 1."""
    (folder / "expect.yaml").write_text(
        "expectations:\n- {name: wrong on purpose, country: FR, lat: 48.9, lon: 2.4, service: chat, region: us-east}\n"
    )
    done = bare("check", folder)
    assert done.code == 1
    assert "FAILED wrong on purpose" in done.out
    assert "expected: us-east" in done.out
    assert "got:      eu-" in done.out
    assert "us-east: excluded by residency rule" in done.out
    assert "0 of 1 expectations hold" in done.out
    told = bare("check", folder, "--json")
    assert told.code == 1
    (result,) = told.json["expectations"]
    assert (told.json["ok"], result["passed"], result["label"]) == (False, False, "wrong on purpose")


def test_an_answer_without_addresses_is_an_error(bare: Gtm, tmp_path: Path) -> None:
    """Where A can be empty though another region could answer it, the exit code is 1; with a pool for each family it is 0."""
    text = """
    regions:
    - {name: a, lat: 1, lon: 2, country: DE, endpoints: [{url: 'http://a.test', ipv4: [192.0.2.1]}]}
    - {name: b, lat: 1, lon: 2, country: DE, endpoints: [{url: 'http://b.test', ipv6: ['2001:db8::1']}]}
    zones: [{name: x.test, primary_ns: ns.y.test, hostmaster: h.y.test}]
    services:
    - {name: s, hostnames: [s.x.test], zone: x.test, members: [{region: a}, {region: b}], FAMILIES
       refusal: {ipv4: [192.0.2.9], ipv6: ['2001:db8::9']}}
    """
    (tmp_path / "a.yaml").write_text(text.replace("FAMILIES", ""))
    done = bare("check", tmp_path)
    assert done.code == 1
    assert "a.yaml:7: services.s.members: A is empty where the region chosen is b" in done.out
    assert "1 error above" in done.out
    assert bare("check", tmp_path, "--json").json["ok"] is False
    (tmp_path / "a.yaml").write_text(text.replace("FAMILIES", "families: separate,"))
    assert "the policy is sound" in bare.ok("check", tmp_path).out


POOLS = """
regions:
- {name: v4, lat: 50, lon: 10, country: DE, endpoints: [{url: 'http://v4.test', ipv4: [192.0.2.1]}]}
- {name: v6, lat: 51, lon: 10, country: DE, endpoints: [{url: 'http://v6.test', ipv6: ['2001:db8::1']}]}
- {name: both, lat: 48, lon: 9, country: DE, endpoints: [{url: 'http://b.test', ipv4: [192.0.2.2], ipv6: ['2001:db8::2']}]}
- {name: alias, lat: 48, lon: 9, country: DE, endpoints: [{url: 'http://c.test', cname: c.test}]}
zones: [{name: x.test, primary_ns: ns.y.test, hostmaster: h.y.test}]
data_classes: [{name: health}]
services:
- {name: apart, hostnames: [apart.x.test], zone: x.test, families: separate, steering: failover,
   members: [{region: v4}, {region: v6}, {region: both}], refusal: &no {ipv4: [192.0.2.9], ipv6: ['2001:db8::9']}}
- {name: one, hostnames: [one.x.test, {name: h.x.test, data_class: health}], zone: x.test, steering: failover,
   members: [{region: v4}, {region: both}], refusal: *no}
- {name: led, hostnames: [led.x.test], zone: x.test, members: [{region: alias}], refusal: *no}
- {name: unnamed, members: [{region: v4}]}
"""


def _expected(bare: Gtm, folder: Path, item: str) -> Done:
    (folder / "a.yaml").write_text(POOLS)
    (folder / "expect.yaml").write_text(f"expectations: [{{{item}}}]\n")
    return bare("check", folder)


@pytest.mark.parametrize(
    ("item", "got"),
    [
        ("service: apart, family: ipv4, region: v4", None),
        ("service: apart, family: ipv6, region: v6", None),
        ("host: apart.x.test, family: ipv6, down: [v6], region: both, reason: failover_order", None),
        ("service: apart, family: ipv6, down: [v6, both], refused: unavailable", None),
        ("service: apart, down: [v6, both], region: v4", None),
        ("host: h.x.test, family: ipv4, region: v4", None),
        ("service: one, family: ipv6, down: [v4], region: both", None),
        ("service: led, family: ipv6, region: alias", None),
        ("service: apart, family: ipv6, region: v4", "got:      v6"),
        ("service: one, family: ipv6, region: v4", "AAAA is empty where the region chosen is v4"),
        ("service: unnamed, family: ipv4, region: v4", "no host name, so that nobody asks DNS for it"),
    ],
)
def test_addresses_of_a_family_are_expected(bare: Gtm, tmp_path: Path, item: str, got: str | None) -> None:
    """testssl/testssl.sh#1927: addresses of both families were shown, and those of IPv4 alone were tested.

    Each family is decided as DNS decides it, and a region that has no such address is not what was expected.
    """
    done = _expected(bare, tmp_path, item)
    assert ("1 of 1 expectations hold" in done.out) is (got is None), done.out
    assert (got or "") in done.out


@pytest.mark.parametrize(
    "stated", ["model: m", "data_class: health", "tenant: t", "tenant: t, data_class: health"]
)
def test_what_nobody_states_over_dns_is_not_expected_of_a_family(
    bare: Gtm, tmp_path: Path, stated: str
) -> None:
    """The problem names the fields; a host name may state what it states."""
    done = _expected(bare, tmp_path, f"service: one, family: ipv4, region: v4, {stated}")
    assert done.code == 1
    assert "asks over DNS, where nobody can state" in done.out
    assert stated.partition(":")[0] in done.out


def test_every_problem_is_listed(bare: Gtm, folder: Path) -> None:
    """Problems of several files are told together, each with its file and path."""
    (folder / "a.yaml").write_text(
        "services:\n- {name: x, ttl: 0, members: [{region: eu-west}]}\n- {name: y, members: [{region: atlantis}]}\n"
    )
    (folder / "b.yaml").write_text("regions: [{name: here, lat: .nan, lon: 0, country: DE, endpoints: []}]\n")
    (folder / "c.yaml").write_text("regions: [\n")
    done = bare("check", folder)
    assert done.code == 1
    for part in ("a.yaml:2: services.x.ttl", "b.yaml:1: regions.here.lat", "c.yaml", "atlantis"):
        assert part in done.out
    problems = bare("check", folder, "--json").json["problems"]
    assert {"path", "code", "message"} == set(problems[0])
    assert len(problems) >= 4


def test_every_field_misspelt(bare: Gtm, tmp_path: Path) -> None:
    """Whatever field of whatever object is written wrong in YAML, it is told, with the one that was meant."""
    wanted = {}
    for number, (kind, document, wrong) in enumerate(wrong_documents()):
        named = {"name": f"n{number}", **document}
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump({kind: [named]}))
        wanted |= {f"{kind}.n{number}.{path}": f"; did you mean `{meant}`?" for path, meant in wrong}
    assert len(wanted) > 200
    problems = bare("check", tmp_path, "--json").json["problems"]
    told = {item["path"].rpartition(": ")[2]: item["message"] for item in problems}
    assert not {
        path: (told.get(path), meant) for path, meant in wanted.items() if meant not in told.get(path, "")
    }


def test_misspelt_fields(bare: Gtm, folder: Path) -> None:
    """An unknown field is told with the field of the same object that it resembles, if there is one."""
    (folder / "a.yaml").write_text("services: [{name: x, members: [{region: eu-west, wieght: 2, zzz: 1}]}]\n")
    (folder / "expect.yaml").write_text("expectations: [{servce: chat, region: eu-west}]\n")
    told = {
        item["path"].rpartition(".")[2]: item for item in bare("check", folder, "--json").json["problems"]
    }
    assert told["wieght"]["message"].endswith("; did you mean `weight`?")
    assert told["servce"]["message"].endswith("; did you mean `service`?")
    assert told["zzz"]["message"].endswith("spelling; known are region, weight, share, capacity")
    assert {told[name]["code"] for name in ("wieght", "servce", "zzz")} == {"unknown_field"}


def test_a_field_of_few_is_told_with_the_others(bare: Gtm, folder: Path) -> None:
    """Where none is like it, the object's fields are listed."""
    (folder / "a.yaml").write_text("residency_rules: [{name: x, match: {}, allow: {countries: [DE]}}]\n")
    (told,) = bare("check", folder, "--json").json["problems"]
    assert told["message"].endswith("; known are jurisdictions, regions, operator_jurisdictions")


def test_a_file_that_is_no_yaml(bare: Gtm, folder: Path) -> None:
    """What refers to names that may be in it is told so; a tab is called one."""
    (folder / "a.yaml").write_text("services: [{name: x, members: [{region: there}]}]\n")
    (folder / "b.yaml").write_text("regions:\n\t- name: there\n")
    told, reference = bare("check", folder, "--json").json["problems"]
    assert told["code"] == "invalid_yaml"
    assert "no region `there`" in reference["message"]
    assert reference["message"].endswith("b.yaml` has it, which cannot be read")
    assert "line 2, column 1" in told["message"]
    assert told["message"].endswith("YAML is indented by spaces, never by tabs")


def test_warnings_and_no_expectations(bare: Gtm, folder: Path) -> None:
    """A policy without expectations passes, and says how to add some."""
    (folder / "expect.yaml").unlink()
    assert "no expectations" in bare.ok("check", folder).out


def test_findings(bare: Gtm, folder: Path) -> None:
    """What is probably not meant is a warning for people, has path and code for scripts, and fails nothing."""
    (folder / "more.yaml").write_text(
        "residency_rules:\n"
        "- {name: old, allow: {jurisdictions: [EEA]}, match: {services: [web]}, effective_until: 2020-01-01T00:00:00Z}\n"
        "- {name: twice, allow: {jurisdictions: [EEA]}, match: {services: [chat], client_countries: [DE]}}\n"
    )
    (folder / "expect.yaml").unlink()
    done = bare.ok("check", folder)
    assert "more.yaml:2: residency_rules.old.effective_until: was in force until then" in done.out
    assert "more.yaml:3: residency_rules.twice: adds nothing: `gdpr-chat` concerns everyone" in done.out
    told = bare.ok("check", folder, "--json").json
    assert [(item["path"], item["code"]) for item in told["findings"]] == [
        ("residency_rules.old.effective_until", "rule_over"),
        ("residency_rules.twice", "shadowed"),
        ("services.web", "no_rule"),
        ("regions.eu-central", "drain_empties"),
        ("services.records.hostnames", "dns_pinned"),
        ("services.records.answer", "carried_nowhere"),
        ("regions", "carried_in_clear"),
    ]


def test_every_warning_has_its_place(bare: Gtm, tmp_path: Path) -> None:
    """mondoohq/cnspec#2005: what was found in a large policy was said to be on line 1.

    Of findings and of what compiling warns of, in YAML and in JSON, at names with dots, and in a folder below. What stands in no file has none.
    """
    (tmp_path / "below").mkdir()
    (tmp_path / "regions.yaml").write_text(
        "regions:\n- name: a\n  lat: 1\n  lon: 2\n  country: DE\n  endpoints: [{url: 'http://a.test', ipv4: [192.0.2.1]}]\n"
    )
    records = [{"name": "ok", "type": "A", "data": ["192.0.2.7"]}, {"name": "mx", "type": "MX"}]
    records[1]["data"] = ["10 gone"]
    zones = [
        {"name": "y.test", "primary_ns": "ns.z.test", "hostmaster": "h.z.test", "records": []},
        {"name": "x.y.test", "primary_ns": "ns.x.y.test", "hostmaster": "h.z.test", "records": records},
    ]
    written = json.dumps({"zones": zones}, indent=1)
    (tmp_path / "below" / "zones.json").write_text(written)
    (tmp_path / "services.yml").write_text(
        "services:\n- name: s\n  members: [{region: a}]\n- {name: t, members: [{region: a}],\n   push: redirect}\n"
    )

    def line(of: str) -> int:
        return 1 + written[: written.index(of)].count("\n")

    mx, second = line('"name": "mx"') - 1, line('"name": "x.y.test"') - 1
    told = bare("check", tmp_path, "--json").json
    places = {(one["path"], one["code"]): one["place"] for one in told["findings"]}
    assert all(place is None or (Path(place.rpartition(":")[0]).is_file()) for place in places.values())
    assert places["zones.x.y.test.records[1]", "dangling"] == f"{tmp_path}/below/zones.json:{mx}"
    assert places["regions.a.lat", "place"] == f"{tmp_path}/regions.yaml:3"
    assert places["services", "redirect_loses_keys"] is None
    assert f"warning: {tmp_path}/below/zones.json:{second}: zones.x.y.test: `ns.x.y.test` stands" in (
        bare("check", tmp_path).out
    )


def test_anonymous_clients(bare: Gtm, folder: Path) -> None:
    """An expectation may state that its client hides; an address is located, and states nothing beside."""
    (folder / "expect.yaml").write_text(
        "expectations:\n"
        "- {service: chat, country: US, anonymous: true, region: [eu-west, eu-central], rules: [gdpr-chat]}\n"
        "- {service: chat, country: US, accuracy_km: 5000, region: [us-east, us-west], rules: []}\n"
    )
    assert "2 of 2 expectations hold" in bare.ok("check", folder).out
    (folder / "expect.yaml").write_text(
        "expectations: [{service: chat, client: 192.0.2.1, anonymous: true, region: eu-west}]\n"
    )
    assert "give either `client` or `country`" in bare("check", folder).out


def test_unreadable(bare: Gtm, folder: Path, tmp_path: Path) -> None:
    """A folder or a GeoIP database that cannot be read ends with 2."""
    missing = bare("check", tmp_path / "nowhere")
    assert (missing.code, missing.out) == (2, "")
    assert "no such file or directory" in missing.err
    (tmp_path / "broken.mmdb").write_bytes(b"no database")
    broken = bare("check", folder, "--geoip-db", tmp_path / "broken.mmdb")
    assert broken.code == 2
    assert "broken.mmdb" in broken.err
    unknown = bare("check", folder, "--geoip-anonymous-db", tmp_path / "none.mmdb")
    assert unknown.code == 2
    assert "none.mmdb" in unknown.err


def test_operators_own_locations(bare: Gtm, folder: Path, tmp_path: Path) -> None:
    """Expectations about addresses use the overrides given."""
    (folder / "expect.yaml").write_text(
        "expectations: [{client: 10.1.2.3, service: web, region: ap-northeast}]\n"
    )
    assert bare("check", folder).code == 1
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text("overrides:\n- {network: 10.0.0.0/8, country: JP, lat: 35.7, lon: 139.7}\n")
    assert bare.ok("check", folder, "--geoip-overrides", overrides)


def test_escape_codes_are_shown_not_obeyed(bare: Gtm, folder: Path) -> None:
    """What a file holds can neither colour nor move the terminal."""
    (folder / "bad.yaml").write_text('"\\e[31m[red]x": []\n')
    done = bare("check", folder)
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "[red]x" in done.out


def test_expectations_by_host_name(bare: Gtm, folder: Path) -> None:
    """An expectation may ask by a host name, with what that states; it must be some service's, and not contradict."""
    (folder / "expect.yaml").unlink()
    services = (folder / "services.yaml").read_text()
    stating = (
        "hostnames: [records.demo.test, {name: acme.records.demo.test, tenant: acme, data_class: public}]"
    )
    (folder / "services.yaml").write_text(services.replace("hostnames: [records.demo.test]", stating))
    expected = (
        "{host: records.demo.test, country: US, region: eu-central}",
        "{host: acme.records.demo.test, country: US, lat: 40.7, lon: -74.0, region: us-east, rules: []}",
        "{host: acme.records.demo.test, tenant: acme, country: DE, region: eu-central}",
    )
    (folder / "expect.yaml").write_text("expectations:\n" + "".join(f"- {one}\n" for one in expected))
    assert "3 of 3 expectations hold" in bare.ok("check", folder).out
    for wrong, said in (
        ("{host: acme.records.demo.test, tenant: clinic, region: eu-central}", "is for the tenant `acme`"),
        ("{host: nope.demo.test, region: eu-central}", "there is no host name `nope.demo.test`"),
        (
            "{host: records.demo.test, service: records, region: eu-central}",
            "needs either `service` or `host`",
        ),
    ):
        (folder / "expect.yaml").write_text(f"expectations:\n- {wrong}\n")
        done = bare("check", folder)
        assert done.code != 0
        assert said in done.out + done.err


ALIASES = """
regions:
- {name: us, country: US, lat: 39.04, lon: -77.49, endpoints: [{url: "http://192.0.2.20", ipv4: [192.0.2.20]}]}
- {name: de, country: DE, lat: 50.11, lon: 8.68, endpoints: [{url: "http://192.0.2.21", cname: web.example.com}]}
- {name: loop, country: DE, lat: 50.11, lon: 8.68, endpoints: [{url: "http://192.0.2.22", cname: self.example.com}]}
zones:
- {name: example.com, primary_ns: ns1.example.net, hostmaster: hostmaster.example.com}
services:
- {name: web, members: [{region: us}], hostnames: [web.example.com], zone: example.com, refusal: &r {ipv4: [192.0.2.250], ipv6: ["2001:db8::250"]}}
- {name: records, members: [{region: de}], hostnames: [records.example.com], zone: example.com, refusal: *r}
- {name: self, members: [{region: loop}], hostnames: [self.example.com], zone: example.com, refusal: *r}
residency_rules:
- {name: germany-only, match: {services: [records]}, allow: {jurisdictions: [DE]}}
"""


def test_aliases_of_regions(bare: Gtm, tmp_path: Path) -> None:
    """One that leads to itself is an error, with its file and line; one that leads out of a fence is a finding beside it."""
    (tmp_path / "a.yaml").write_text(ALIASES)
    done = bare("check", tmp_path)
    assert done.code == 1
    assert "a.yaml:5: regions.loop.endpoints[0].cname: `self.example.com`" in done.out
    assert (
        "regions.de.endpoints[0].cname: alias `web.example.com` leads to `us`, by service `web`" in done.out
    )
    told = bare("check", tmp_path, "--json").json
    assert [one["code"] for one in told["problems"]] == ["alias_loop"]
    assert "led_out" in {one["code"] for one in told["findings"]}
    assert "alias_loop" not in {one["code"] for one in told["findings"]}
