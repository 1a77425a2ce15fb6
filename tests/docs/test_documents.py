"""What the documents state of gtm, held against gtm itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from pydantic.fields import FieldInfo

from gtm.cli.app import app
from gtm.core.capacity.load import FIELDS, NAMED_METRICS
from gtm.core.decision.decide import decide
from gtm.core.decision.explain import answer
from gtm.core.decision.view import Window, view_of
from gtm.core.findings.report import CODES
from gtm.core.model.outcomes import Reason
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import UNKNOWN_LOCATION, Request
from gtm.core.model.services import PLANNED, Member, Service, Steering
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.dns.protocol import wire
from gtm.documents import yamls
from gtm.documents.check import Expectation, check_folder
from gtm.documents.resources import Document
from gtm.documents.schema import DOCUMENTS, KINDS, PolicyDocument
from gtm.http import problems
from tests.docs.blocks import ROOT
from tests.release.client_code import control_document

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("deploy/terraform/**/README.md")),
]
API = (ROOT / "docs/api.md").read_text()
CONCEPTS = (ROOT / "docs/concepts.md").read_text()
POLICY = (ROOT / "docs/policy.md").read_text()
TOUR = (ROOT / "docs/tour.md").read_text()

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _slug(heading: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file, or to a heading in it."""
    text = page.read_text()
    broken = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        found = file.exists()
        if found and anchor:
            found = anchor in {_slug(heading) for heading in _HEADING.findall(file.read_text())}
        if not found:
            broken.append(target)
    assert not broken


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    else:
        for name, child in children.items():
            yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_settings_are_the_ones_there_are() -> None:
    """The table of settings lists exactly the variables that commands read."""
    read = {param.envvar for command in COMMANDS.values() for param in command.params if param.envvar}
    read |= {"GTM_TOKEN_FILE"}  # no option of its own: each command that takes a token reads it
    section = (ROOT / "docs/operations.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `GTM_")]
    listed = [name for row in rows for name in re.findall(r"`(GTM_\w+)`", row)]
    assert sorted(listed) == sorted(read)


def test_settings_are_of_the_servers_that_read_them() -> None:
    """The table says of each variable which servers read it."""
    servers = ("control", "edge", "balancer", "serve")
    read = {one: {param.envvar for param in COMMANDS[(one,)].params} for one in servers}
    for one in servers:
        read[one] |= {"GTM_TOKEN_FILE"} & {f"{name}_FILE" for name in read[one]}
    section = (ROOT / "docs/operations.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    for _, names, of, *_ in (line.split("|") for line in section.splitlines() if line.startswith("| `GTM_")):
        there = {one for one in servers for name in re.findall(r"`(GTM_\w+)`", names) if name in read[one]}
        assert there == (set(servers) if "all" in of else {*re.findall(r"\w+", of)} & {*servers}), names


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_are_described(path: tuple[str, ...]) -> None:
    """The command line's page names every command, those of a group at least beside another of its group."""
    text = (ROOT / "docs/cli.md").read_text()
    *group, name = path
    full = re.compile(rf"\bgtm {' '.join(path)}\b")
    beside = re.compile(rf"\bgtm {' '.join(group)}\b.*`{name}\b", re.DOTALL)
    assert full.search(text) or (group and any(map(beside.search, text.split("\n\n"))))


def test_operations_of_control_are_described() -> None:
    """The API's page names every operation of the control API and no path that is none."""
    paths = control_document()["paths"]
    slugs = {kind.replace("_", "-") for kind in KINDS}
    for path in paths:
        collection = path.split("/")[2] if path.startswith("/v1/") else ""
        if collection in slugs and path in (f"/v1/{collection}", f"/v1/{collection}/{{name}}"):
            path = f"/v1/{collection}"  # noqa: PLW2901 - every kind has the same operations, described once
        verb = re.fullmatch(r"/v1/regions/\{name\}(:\w+)", path)
        assert f"`{verb[1]}`" in API or f"{verb[0]}`" in API if verb else path in API, path


def test_problems_of_the_edge_are_described() -> None:
    """The table of errors lists exactly the problems that an edge answers, with their statuses."""
    section = API.partition("\n### Errors\n")[2].partition("\n### ")[0]
    rows = [line.split("|") for line in section.splitlines() if re.match(r"\| \d", line)]
    listed = {code: int(row[1]) for row in rows for code in re.findall(r"`(\w+)`", row[2])}
    assert listed == {code: status for code, (status, _) in problems.CODES.items()}


def test_fields_of_load_reports_are_described() -> None:
    """The tables of load reports name every field, every field of ORCA's, and every metric that is understood."""
    section = API.partition("\n### Load reports\n")[2].partition("\n### ")[0]
    rows = "".join(line for line in section.splitlines() if line.startswith("| "))
    listed = set(re.findall(r"`(\w+)`", rows))
    assert listed >= FIELDS | set(NAMED_METRICS)


def test_candidates_are_described() -> None:
    """The API's page names everything that an explanation says of a region."""
    region = Region("r", 0.0, 0.0, "DE", (Endpoint("https://r.test"),))
    policy = Policy(regions=(region,), services=(Service("s", (Member("r"),)),))
    view, request = view_of(compile_policy(policy, ()), State(), Window(0.0, 0.0)), Request("s")
    told = answer(view, request, decide(view, request, 0.0), client=None, endpoint=None, full=True)
    section = API.partition("\n### `explain=1`\n")[2].partition("\n### ")[0]
    assert [key for candidate in told["candidates"] for key in candidate if f"`{key}`" not in section] == []


def test_edns_options_are_described() -> None:
    """The table of EDNS options has a row for each that gtm knows, and one for all others."""
    known = [name for name in vars(wire) if name.startswith("OPTION_")]
    section = (ROOT / "docs/dns.md").read_text().partition("\n## EDNS options\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)
    assert (rows[0], len(rows[1:-1]), rows[-1]) == ("option", len(known), "any other")


def test_bodies_are_documents() -> None:
    """The example body of every kind of resource is one that its document accepts."""
    section = API.partition("\n### Resources\n")[2].partition("\n### The whole policy\n")[0]
    parts = re.findall(r"^#### ([^\n]+)\n\n```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    kinds = {title.lower().replace(" ", "_"): json.loads(body) for title, body in parts}
    kinds["tenants"] = kinds["data_classes"] = kinds.pop("tenants_and_data_classes")
    assert set(kinds) == set(KINDS)
    PolicyDocument.model_validate({kind: [{"name": "one", **body}] for kind, body in kinds.items()})


def _documents(annotation: Any) -> Iterator[type[Document]]:
    """The classes of documents that a field's type holds."""
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    for argument in get_args(annotation):
        yield from _documents(argument)


def _tables(kind: str, document: type[Document]) -> Iterator[tuple[str, str | None, type[Document]]]:
    """Every class of documents in a kind, and the headings of its table: of the kind, and of the field it is in."""
    yield kind, None, document
    for name, field in document.model_fields.items():
        for inner in _documents(field.annotation):
            yield from ((kind, part or name, deeper) for _, part, deeper in _tables(kind, inner))


TABLES = [
    table
    for kind, document in {**DOCUMENTS, "expectations": Expectation}.items()
    for table in _tables(kind, document)
]


def _section(text: str, marks: str, name: str) -> str:
    """What stands below the heading that has a name in backticks, down to the next of its rank."""
    parts = re.split(rf"^{marks} (.*)$", text, flags=re.MULTILINE)
    (found,) = (body for title, body in zip(parts[1::2], parts[2::2], strict=True) if f"`{name}`" in title)
    return found


def _default(field: FieldInfo) -> str | None:
    """What a table gives as a field's default; None where that is for words to say (nothing, or a mapping)."""
    if field.is_required():
        return "required"
    value = field.default
    if value in (None, (), "") or isinstance(value, Document):
        return None
    plain = str(value) if isinstance(value, StrEnum) else list(value) if isinstance(value, tuple) else value
    return f"`{plain}`" if isinstance(plain, str) else f"`{json.dumps(plain)}`"


def _values(annotation: Any) -> list[str]:
    """The values of the enumeration that a field's type is, if it is one."""
    kinds = (annotation, *get_args(annotation))
    return [value for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum) for value in kind]


@pytest.mark.parametrize(("kind", "part", "document"), TABLES)
def test_fields_are_described(kind: str, part: str | None, document: type[Document]) -> None:
    """The policy's page lists exactly the fields of every document, each with its default."""
    section = _section(re.sub(r"^```.*?^```$", "", POLICY, flags=re.MULTILINE | re.DOTALL), "##", kind)
    section = section.partition("\n### ")[0] if part is None else _section(section, "###", part)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == [f"`{name}`" for name in document.model_fields]
    for (name, values, default, _), field in zip(rows, document.model_fields.values(), strict=True):
        wanted = _default(field)
        assert default == wanted if wanted is not None else default and default != "required", name
        listed = values if "`" in values else section  # a long list stands below the table
        assert [value for value in _values(field.annotation) if f"`{value}`" not in listed] == [], name


def test_policy_of_the_page_is_sound(tmp_path: Path) -> None:
    """The examples of the policy's page are one policy of every kind, without warnings, that decides as expected."""
    kinds = set()
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", POLICY, re.MULTILINE | re.DOTALL)):
        ((kind, *others),) = yamls.load(text)
        assert not others
        kinds.add(kind)
        (tmp_path / ("expect.yaml" if kind == "expectations" else f"{number}.yaml")).write_text(text)
    assert kinds == {*KINDS, "expectations"}
    report = check_folder(tmp_path, lambda _: UNKNOWN_LOCATION, now=1_800_000_000.0)
    assert (report.problems, report.warnings) == ((), ())
    assert report.results
    assert [result for result in report.results if not result.passed] == []


def _examples(what: str) -> list[tuple[str, str]]:
    """The rows of a table of what `gtm check` finds: code and example."""
    section = re.split(r"^##", POLICY.partition(f"finds in {what}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `(\w+)` \| (`.*?`) \| ", section, re.MULTILINE)


FINDINGS = _examples("names and texts")
"""The code of each finding about names and texts, and its example."""


@pytest.mark.parametrize(("code", "example"), FINDINGS, ids=[code for code, _ in FINDINGS])
def test_findings_of_names_and_texts(code: str, example: str, tmp_path: Path) -> None:
    """In the world that the page describes, each example is found, and nothing else about names and texts."""
    written: list[Any] = [yamls.load(f"{text}\n")[0] for text in re.findall(r"`(.*?)`", example)]
    fields = {name: value for one in written if "type" not in one for name, value in one.items()}
    ends = {
        "url": "https://192.0.2.2",
        **({"cname": fields["cname"]} if "cname" in fields else {"ipv4": ["192.0.2.2"]}),
    }
    place, refusal = {"lat": 50.11, "lon": 8.68}, {"ipv4": ["192.0.2.9"], "ipv6": ["2001:db8::9"]}
    named = {"zone": "example.com", "refusal": refusal}
    us = {"url": "https://192.0.2.3", "ipv4": ["192.0.2.3"]}
    policy = {
        "regions": [
            {"name": "de", "country": "DE", **place, "endpoints": [ends]},
            {"name": "us", "country": "US", "lat": 39.04, "lon": -77.49, "endpoints": [us]},
        ],
        "zones": [
            {
                "name": "example.com",
                "primary_ns": fields.get("primary_ns", "ns1.example.net"),
                "hostmaster": "hostmaster.example.com",
                "records": [one for one in written if "type" in one],
            }
        ],
        "services": [
            {
                "name": "chat",
                "members": [{"region": "de"}],
                "hostnames": fields.get("hostnames", ["chat.example.com"]),
                **named,
            },
            {"name": "web", "members": [{"region": "us"}], "hostnames": ["web.example.com"], **named},
        ],
        "residency_rules": [
            {"name": "de-only", "match": {"services": ["chat"]}, "allow": {"jurisdictions": ["DE"]}}
        ],
    }
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    report = check_folder(tmp_path, lambda _: UNKNOWN_LOCATION, now=1_800_000_000.0)
    found = {one.code for one in (*report.problems, *report.findings)} - {"no_rule", "drain_empties"}
    assert found == {code}


OF_ADDRESSES = _examples("addresses")
"""Likewise of each finding about addresses."""


@pytest.mark.parametrize(("code", "example"), OF_ADDRESSES, ids=[code for code, _ in OF_ADDRESSES])
def test_findings_of_addresses(code: str, example: str, tmp_path: Path) -> None:
    """Each example is found in a service of its two regions, and nothing else about them; at the field that it is about."""
    written: dict[str, Any] = {}
    for text in re.findall(r"`(.*?)`", example):
        written |= yamls.load(text)[0]
    places = {"de": ("DE", 50.11, 8.68), "us": ("US", 39.04, -77.49)}
    regions = []
    for name, (country, lat, lon) in places.items():
        ends = {"url": f"https://{name}.example.net", **written[name]}
        probe = ends.pop("probe", {})
        regions.append(
            {"name": name, "country": country, "lat": lat, "lon": lon, "endpoints": [ends], "probe": probe}
        )
    zone = {"name": "example.com", "primary_ns": "ns1.example.net", "hostmaster": "hostmaster.example.net"}
    service = {
        "name": "chat",
        "members": [{"region": name} for name in places],
        "hostnames": ["chat.example.com"],
        "zone": "example.com",
        "refusal": {"ipv4": ["192.0.2.9"], "ipv6": ["2001:db8::9"]},
    }
    policy = {"regions": regions, "zones": [zone], "services": [service]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    report = check_folder(tmp_path, lambda _: UNKNOWN_LOCATION, now=1_800_000_000.0)
    assert report.problems == ()
    assert {one.code for one in report.findings} == {code}
    assert [one.code for one in report.errors] == [code] * ("**An error**" in _row(code))
    assert code != "without_effect" or {one.path for one in report.findings} == {"regions.de.probe.addresses"}


def _row(code: str) -> str:
    [found] = re.findall(rf"^\| `{code}` \|.*$", POLICY, re.MULTILINE)
    return str(found)


def test_all_findings_of_addresses_have_an_example() -> None:
    """Each code of that kind, and the setting that decides nothing."""
    assert [code for code, _ in OF_ADDRESSES] == [*CODES.values(), "without_effect"]


def test_all_findings_of_names_and_texts_have_an_example() -> None:
    """Each code that the modules which find them give has a row."""
    sources = [ROOT / "gtm/dns/zone" / f"{name}.py" for name in ("findings", "mail")]
    given = {
        code
        for file in sources
        for code in re.findall(r'Problem\([^"]*(?:f"[^"]*"[^"]*)?"(\w+)"', file.read_text())
    }
    assert {code for code, _ in FINDINGS} == given | {"led_out"}


def test_reasons_are_described() -> None:
    """Every reason is named where people look for it: what an expectation may ask for, what answers say, what each means."""
    (answers,) = re.findall(r"^\| `reason` \|.*$", API, re.MULTILINE)
    meanings = CONCEPTS.partition("\n### Reasons\n")[2].partition("\n## ")[0]
    for section in (_section(POLICY, "##", "expectations"), answers, meanings):
        assert [reason for reason in Reason if f"`{reason.value}`" not in section] == []


def test_steering_is_described() -> None:
    """The table of steering has a row for each; whether the planner moves it is said below; the API's page lists them."""
    section = CONCEPTS.partition("\n## Steering\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == ["steering", *Steering]
    (planned, own) = re.findall(r"steering is (.*?); (.*?) are your own word", CONCEPTS)[0]
    assert set(re.findall(r"`(\w+)`", planned)) == PLANNED
    assert set(re.findall(r"`(\w+)`", own)) == set(Steering) - PLANNED
    (listed,) = re.findall(r"`steering`: ([^.]*)\.", API)
    assert re.findall(r"`(\w+)`", listed) == list(Steering)


def test_files_of_the_walks_exist() -> None:
    """Where docs/architecture.md and docs/tour.md send a newcomer, there is a file, and every room of the package is named."""
    paths = re.findall(r"`((?:gtm|tests|docs|migrations|policies|deploy)/[\w/.-]+|[A-Z]+\.md)`", TOUR)
    assert len(set(paths)) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
    text = (ROOT / "docs" / "architecture.md").read_text()
    walks = text[text.index("## Six walks") : text.index("## From a request")]
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", walks)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / "gtm" / name).is_file()] == []
    rooms = text[text.index("## Rooms") : text.index("## Six walks")]
    packages = {path.parent.name for path in (ROOT / "gtm").glob("*/__init__.py")}
    packages |= {path.parent.name for path in (ROOT / "gtm" / "core").glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\b{name}\b", rooms)} == set()
