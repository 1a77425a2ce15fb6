"""Policies as Terraform's configuration: read back they are the same, `terraform fmt` leaves them, and any order of their references holds.

What gtm's provider makes of them is tried in tests/terraform.
"""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtm.core.model.kinds import KINDS
from gtm.core.model.names import absolute, closest
from gtm.core.model.policy import Policy
from gtm.core.policy.compile import compile_policy
from gtm.documents.folders import load_document
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.referrers import referrers
from gtm.documents.schema import PolicyDocument
from gtm.documents.terraform import export, hcl
from tests.core.strategies import quick
from tests.documents import policy_worlds as worlds
from tests.documents.hcl_reader import Block, Reference, read, unquoted
from tests.tools import tool

DEMO = Path(__file__).parents[2] / "policies" / "demo"
KIND = {of: kind for kind, of in export.TYPES.items()}


def _normal(value: Any) -> Any:
    """A JSON value with its texts in NFC, which is what Terraform makes of them."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return {key: _normal(item) for key, item in value.items()} if isinstance(value, dict) else value


def _resources(blocks: list[Block]) -> dict[str, Block]:
    """Address → resource; no two have the same."""
    found = {".".join(block.labels): block for block in blocks if block.head == "resource"}
    assert len(found) == sum(block.head == "resource" for block in blocks)
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Reference):
        yield ".".join(value.text.split(".")[:2])
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _references(item)


def _document(blocks: list[Block]) -> dict[str, Any]:
    """The policy that a configuration says, by nothing but its own text."""
    resources = _resources(blocks)

    def plain(value: Any) -> Any:
        if isinstance(value, Reference):
            kind, label, field = value.text.split(".")
            return resources[f"{kind}.{label}"].body[field]
        if isinstance(value, list):
            return [plain(item) for item in value]
        return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value

    document: dict[str, Any] = {}
    for block in resources.values():
        body = {key: plain(item) for key, item in block.body.items() if key != "depends_on"}
        document.setdefault(KIND[block.labels[0]], []).append(body)
    return document


def _written(policy: PolicyDocument, *, imports: bool = False) -> str:
    return export.joined(export.files(policy, imports=imports))


@quick(150)
@given(worlds.documents())
def test_read_back_it_is_the_same_policy(policy: PolicyDocument) -> None:
    """Law 1, by an independent reader: nothing is lost, nothing invented, and what is the default is not written."""
    text = _written(policy)
    document = _document(read(text))
    expected = PolicyDocument.model_validate(_normal(policy.model_dump(mode="json")))
    assert PolicyDocument.model_validate(document).to_core() == expected.to_core()
    assert text == _written(policy), "the same text each time"
    concise = policy.model_dump(mode="json", exclude_defaults=True)
    for kind, items in document.items():
        assert [list(item) for item in items] == [list(item) for item in concise[kind]]
    changed = {f"{kind}.{one['name']}" for kind in concise for one in concise[kind] if one != _normal(one)}
    assert set(export.not_normal(policy)) == changed


@quick(150)
@given(worlds.documents())
def test_every_name_of_another_resource_is_a_reference(policy: PolicyDocument) -> None:
    """As many as the dashboard knows of; jurisdictions' terms refer as well, and what is shipped is a plain name."""
    blocks = read(_written(policy))
    written = sorted(
        (KIND[block.labels[0]], block.body["name"], target)
        for block in _resources(blocks).values()
        for target in set(_references({**block.body, "depends_on": []}))
    )
    known = {(kind, one.name) for kind in KINDS for one in getattr(policy, kind)}
    expected = sorted(
        {
            (one.kind, one.name, f"{export.TYPES[kind]}.{export.label(kind, name)}")
            for (kind, name), found in referrers(policy.to_core()).items()
            for one in found
            if (kind, name) in known
        }
    )
    left_out = [one for one in expected if one not in written]
    assert [one for one in written if one not in expected] == []
    around = _around(policy)
    for kind, name, target in left_out:
        address = f"{export.TYPES[kind]}.{export.label(kind, name)}"
        assert address in _reached(around, target), "only what comes back to itself is left out"


def _around(policy: PolicyDocument) -> dict[str, set[str]]:
    """All that may need each other: each service its zone, and each zone the zones and services that its records are about."""

    def zone_of(host: str) -> set[str]:
        found = closest([zone.name for zone in policy.zones], host)
        return set() if found is None else {f"gtm_zone.{export.label('zones', found)}"}

    owners: dict[str, str] = {}
    found: dict[str, set[str]] = {}
    for service in policy.services:
        address = f"gtm_service.{export.label('services', service.name)}"
        owners |= {one if isinstance(one, str) else one.name: address for one in service.hostnames}
        found[address] = zone_of(service.zone or "")
    for zone in policy.zones:
        address = f"gtm_zone.{export.label('zones', zone.name)}"
        hosts = [one.name for one in zone.name_servers]
        hosts += [absolute(one.name, zone.name) for one in zone.records if one.type == "DS"]
        found[address] = set().union(
            *map(zone_of, hosts), {owners[one] for one in hosts if one in owners}
        ) - {address}
    return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached, ahead = set(), [start]
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.add(one)
            ahead += graph.get(one, ())
    return reached


@quick(150)
@given(worlds.documents(), st.randoms(use_true_random=False))
def test_any_order_of_the_references_can_be_applied(policy: PolicyDocument, random: Random) -> None:
    """Terraform makes resources one by one, in any order that their references leave: each part of the policy compiles."""
    resources = _resources(read(_written(policy)))
    core = policy.to_core()
    graph = {address: set(_references(block.body)) for address, block in resources.items()}
    sorter = TopologicalSorter(graph)
    sorter.prepare()  # no circles
    part = Policy()
    ready: list[str] = []
    around = _around(policy)
    straight = not any(one in _reached(around, other) for one in around for other in around[one])
    while sorter.is_active():
        ready += sorter.get_ready()
        address = ready.pop(random.randrange(len(ready)))
        sorter.done(address)
        kind, name = KIND[resources[address].labels[0]], resources[address].body["name"]
        one = next(item for item in getattr(core, kind) if item.name == name)
        part = replace(part, **{kind: (*getattr(part, kind), one)})
        if straight:
            compile_policy(part, shipped_jurisdictions())
    assert {kind: {one.name for one in getattr(part, kind)} for kind in KINDS} == {
        kind: {one.name for one in getattr(core, kind)} for kind in KINDS
    }


TEXTS = st.lists(
    st.text(
        st.one_of(
            st.characters(codec="utf-8"), st.sampled_from('$%{}\\"~ne\u0301\u0338<\n\t\r\0\u202e\ufeff')
        )
    ),
    min_size=20,
    max_size=40,
)


@pytest.mark.drill
@quick(60)
@given(TEXTS)
@example(
    [
        "$${",
        "$$${",
        "%%%{a",
        "${",
        "\\${",
        "$",
        "%",
        "$%{",
        "\u0301",
        "\n\u0301",
        "<\u0338",
        "\\u0041",
        "a$",
        "{",
        "~}",
    ]
)
def test_terraform_reads_texts_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """Whatever is in them, but for the normal form; and to its formatter there is nothing to do."""
    values = {f"v{index}": text for index, text in enumerate(texts)}
    made = "".join(hcl.block(f'output "{name}"', {"value": text}) + "\n" for name, text in values.items())
    assert _evaluated(tmp_path_factory, made) == _normal(values)
    assert {name: unquoted(hcl.quoted(text)) for name, text in values.items()} == _normal(values)
    assert all(char.isprintable() or char == "\n" for char in made)


@pytest.mark.drill
@quick(30)
@given(
    st.lists(
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)), min_size=40
    )
)
@example([0.0, -0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 0.1, -6.26, 2**53, 100, 1.0, -1])
def test_terraform_reads_numbers_exactly(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    """To the last bit."""
    made = hcl.block('output "all"', {"value": numbers})
    assert [float(one) for one in _evaluated(tmp_path_factory, made)["all"]] == numbers


def _terraform(*arguments: str | Path, folder: Path, given: str = "", codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [tool("terraform"), *map(str, arguments)],
        input=given,
        cwd=folder,
        env={"HOME": str(folder), "CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in codes, (done.stdout, done.stderr)
    return done.stdout


def _evaluated(factory: pytest.TempPathFactory, text: str) -> dict[str, Any]:
    """What Terraform makes of outputs."""
    folder = factory.mktemp("terraform")
    (folder / "main.tf").write_text(text, encoding="utf-8")
    _terraform("plan", "-out=planned", folder=folder)
    planned = json.loads(_terraform("show", "-json", "planned", folder=folder))
    assert _terraform("fmt", "-check", "-diff", "main.tf", folder=folder) == ""
    return {name: one["value"] for name, one in planned["planned_values"]["outputs"].items()}


@pytest.mark.drill
@quick(60)
@given(worlds.documents(), st.booleans())
def test_the_formatter_has_nothing_to_do(
    tmp_path_factory: pytest.TempPathFactory, policy: PolicyDocument, imports: bool
) -> None:
    """Of any policy, in one text or in files."""
    folder = tmp_path_factory.mktemp("formatted")
    files = export.files(policy, imports=imports)
    assert set(files) <= set(export.FILES)
    (folder / "whole.tf").write_text(export.joined(files), encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert _terraform("fmt", "-check", "-diff", folder=folder, codes=(0, 3)) == ""


def test_the_demo_reads_well() -> None:
    """Lines that fit stand on one line, and those that do not are broken."""
    text = _written(load_document(DEMO), imports=True)
    longest = [line for line in text.splitlines() if len(line) > hcl.WIDTH and '"' not in line]
    assert longest == []
    assert 'records = [\n    { name = "www", type = "CNAME", data = ["chat"] },\n' in text
    assert "    { region = gtm_region.eu_central.name },\n" in text
    assert "refusal         = { ipv4 = [" in text
    assert "admin_state" not in text
    blocks = read(text)
    assert blocks[0].body["required_version"] == ">= 1.8"
    assert blocks[0].body["required_providers"] == {"gtm": {"source": "gtm/gtm"}}
    imported = {block.body["to"].text: block.body["id"] for block in blocks if block.head == "import"}
    assert imported == {address: block.body["name"] for address, block in _resources(blocks).items()}


@quick(300)
@given(
    st.sampled_from([*KINDS]),
    st.lists(st.one_of(worlds.names, st.sampled_from(["a-b", "a--b", "a"])), unique=True),
)
def test_labels_are_identifiers_of_one_name_each(kind: str, names: list[str]) -> None:
    """Law 2."""
    if kind == "zones":
        names = sorted({*names, *(f"{one}.{other}" for one in names for other in names[:3])})
    labels = [export.label(kind, name) for name in names]
    assert len(set(labels)) == len(names)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", label) for label in labels)


def _needs(
    *documents: dict[str, Any], services: tuple[dict[str, Any], ...] = ()
) -> dict[str, tuple[list[str], Any]]:
    """Zone and service → what it depends on, and its zone, of a policy with a region."""
    region = {
        "name": "r",
        "lat": 1,
        "lon": 1,
        "country": "DE",
        "endpoints": [{"url": "https://r.test", "ipv4": [worlds.V4]}],
    }
    zones = [{"primary_ns": "ns.example.net", "hostmaster": "h.example.net", **one} for one in documents]
    refusal = {"ipv4": [worlds.V4]}
    made = [{"members": [{"region": "r"}], "refusal": refusal, **one} for one in services]
    policy = PolicyDocument.model_validate(
        {"regions": [region, {**region, "name": "q"}], "zones": zones, "services": made}
    )
    compile_policy(policy.to_core(), shipped_jurisdictions())
    return {
        block.body["name"]: ([one.text for one in block.body.get("depends_on", [])], block.body.get("zone"))
        for block in read(_written(policy))
        if block.labels[:1] in (("gtm_zone",), ("gtm_service",))
    }


def test_zones_wait_for_what_their_name_servers_are_in() -> None:
    """Control takes no addresses of name servers that are in no zone of its own, and wants those of the ones that are."""
    given = {"name": "ns.a.test", "ipv4": [worlds.V4]}
    inner = {"name": "ns.b.a.test", "ipv4": [worlds.V4]}
    assert _needs(
        {"name": "a.test", "name_servers": [given, inner]}, {"name": "b.a.test", "name_servers": [inner]}
    ) == {
        "a.test": ([], None),
        "b.a.test": ([], None),
    }
    assert _needs(
        {"name": "a.test", "name_servers": [given]}, {"name": "d.test", "name_servers": [given]}
    ) == {
        "a.test": ([], None),
        "d.test": (["gtm_zone.a_test"], None),
    }
    glue = {"name": "b.a.test", "records": [{"name": "ns", "type": "A", "data": [worlds.V4]}]}
    assert _needs({"name": "a.test", "name_servers": [{"name": "ns.b.a.test"}]}, glue)["a.test"] == (
        ["gtm_zone.b_a_test"],
        None,
    )
    elsewhere = [{"name": "ns.example.net"}]
    assert _needs({"name": "a.test", "name_servers": elsewhere}) == {"a.test": ([], None)}


def test_zones_wait_for_services_and_zones_below() -> None:
    """A service's host name as a name server, and DS records of another zone of the policy."""
    service = {"name": "s", "hostnames": ["ns.a.test"], "zone": "a.test"}
    found = _needs(
        {"name": "a.test"}, {"name": "d.test", "name_servers": [{"name": "ns.a.test"}]}, services=(service,)
    )
    assert found["d.test"] == (["gtm_service.s"], None)
    assert found["s"] == ([], Reference("gtm_zone.a_test.name"))
    delegation = {"name": "b", "type": "DS", "data": [f"1 13 2 {'ab' * 32}"]}
    found = _needs({"name": "a.test", "records": [delegation]}, {"name": "b.a.test"})
    assert found == {"a.test": (["gtm_zone.b_a_test"], None), "b.a.test": ([], None)}


def test_what_needs_each_other_names_itself_plainly() -> None:
    """Terraform refuses circles: a zone whose name server is a service in it, a signed zone whose name servers are in its parent's.

    All of a circle wait for what one of them waits for, and so are begun together.
    """
    service = {"name": "s", "hostnames": ["ns.a.test"], "zone": "a.test"}
    other = {"name": "t", "hostnames": ["t.a.test"], "zone": "a.test"}
    second = {"name": "u", "hostnames": ["ns2.a.test"], "zone": "a.test", "members": [{"region": "q"}]}
    servers = [{"name": "ns.a.test"}, {"name": "ns2.a.test"}]
    found = _needs({"name": "a.test", "name_servers": servers}, services=(service, second, other))
    assert found == {
        "a.test": (["gtm_region.q", "gtm_region.r"], None),
        "s": (["gtm_region.q"], "a.test"),
        "u": (["gtm_region.r"], "a.test"),
        "t": ([], Reference("gtm_zone.a_test.name")),
    }
    delegation = {"name": "b", "type": "DS", "data": [f"1 13 2 {'ab' * 32}"]}
    given = {"name": "ns.a.test", "ipv4": [worlds.V4]}
    found = _needs(
        {"name": "a.test", "records": [delegation], "name_servers": [given]},
        {"name": "b.a.test", "name_servers": [given]},
    )
    assert found == {"a.test": ([], None), "b.a.test": ([], None)}


def test_admin_states_are_left_out_and_terms_refer() -> None:
    """As in YAML: no plan undoes a drain. A term's member is written as the member is."""
    region = {"name": "r", "lat": 1, "lon": 1, "country": "DE", "endpoints": [{"url": "https://r.test"}]}
    drained = {**region, "admin_state": "draining", "draining_since": "2026-01-01T00:00:00Z"}
    laws = [
        {
            "name": "ours",
            "members": ["theirs", "DE"],
            "terms": [{"member": "theirs", "effective_from": "2026-01-01T00:00:00+01:00"}],
        },
        {"name": "theirs", "members": ["EU"]},
    ]
    text = _written(PolicyDocument.model_validate({"regions": [drained], "jurisdictions": laws}))
    assert text == _written(PolicyDocument.model_validate({"regions": [region], "jurisdictions": laws}))
    law = _resources(read(text))["gtm_jurisdiction.ours"].body
    assert law["members"] == [Reference("gtm_jurisdiction.theirs.name"), "DE"]
    assert law["terms"] == [{"member": law["members"][0], "effective_from": "2026-01-01T00:00:00+01:00"}]
