"""Parts put into a whole policy, and three versions of one document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.core.model.policy import Tenant
from gtm.documents.folders import check_references, read_text
from gtm.documents.merging import WHOLE, FieldVersions, merge, versions
from gtm.documents.parts import DraftDocument
from gtm.documents.referrers import Reference, referrers
from gtm.documents.schema import PolicyDocument
from tests.worlds.control import WORLD

POLICY = replace(WORLD, tenants=(Tenant("clinic"), Tenant("bank")))


def referring(kind: str, name: str) -> tuple[Reference, ...]:
    """What refers to a resource."""
    return tuple(referrers(POLICY).get((kind, name), ()))


def test_a_part_leaves_the_rest() -> None:
    """What it holds replaces what is there or is new; what is deleted goes, what is named twice stays so."""
    part = DraftDocument.model_validate(
        {
            "policy": {"tenants": [{"name": "clinic", "weight": 2}, {"name": "new"}]},
            "partial": True,
            "delete": [{"kind": "tenants", "name": "bank"}],
        }
    )
    made = part.within(POLICY)
    assert {one.name: one.weight for one in made.tenants} == {"clinic": 2, "new": 1}
    assert made.services == POLICY.services
    whole = DraftDocument.model_validate({"policy": {"tenants": [{"name": "new"}]}})
    assert whole.within(POLICY).services == ()
    twice = DraftDocument.model_validate(
        {"policy": {"tenants": [{"name": "new"}, {"name": "new"}]}, "partial": True}
    )
    assert [one.name for one in twice.within(POLICY).tenants] == ["clinic", "bank", "new", "new"]


def test_who_refers_to_whom() -> None:
    """Each field that names a resource."""
    found = referring("regions", "eu-west")
    assert found == (Reference("services", "chat", "members[1].region"),)
    assert referring("services", "chat") == (Reference("residency_rules", "gdpr", "match.services[0]"),)
    assert [one.path for one in referring("jurisdictions", "EEA")] == [
        "match.client_jurisdictions[0]",
        "allow.jurisdictions[0]",
    ]
    assert referring("tenants", "clinic") == ()


def test_a_text_is_read_with_lines() -> None:
    """Problems of structure, and of names, are where they are in the text."""
    folder = read_text("tenants:\n- name: a\n  wait: 1\n", "draft")
    assert [one.path for one in folder.problems] == ["draft:3: tenants.a.wait"]
    folder = read_text("spillover_rules:\n- name: a\n  from_region: x\n  to_regions: [eu-west]\n", "draft")
    problems, snapshot = check_references(
        folder, lambda part: DraftDocument(policy=PolicyDocument.of(part), partial=True).within(POLICY)
    )
    assert [one.path.partition(": ")[0] for one in problems] == ["draft:3"]
    assert snapshot is None


WAS = {"name": "a", "ttl": 30, "match": {"services": ["chat"]}}


@pytest.mark.parametrize(
    ("theirs", "yours", "paths", "conflicts", "made"),
    [
        ({**WAS, "ttl": 5}, {**WAS, "x": 1}, ["ttl", "x"], [], {**WAS, "ttl": 5, "x": 1}),
        ({**WAS, "ttl": 5}, {**WAS, "ttl": 6}, ["ttl"], ["ttl"], {**WAS, "ttl": 6}),
        ({**WAS, "ttl": 5}, {**WAS, "ttl": 5}, [], [], {**WAS, "ttl": 5}),
        ({"name": "a", "ttl": 30}, WAS, ["match"], [], {"name": "a", "ttl": 30}),
        (
            {**WAS, "match": {"services": ["web"]}},
            {**WAS, "match": {"services": []}},
            ["match.services"],
            ["match.services"],
            {**WAS, "match": {"services": []}},
        ),
        (None, {**WAS, "ttl": 5}, [WHOLE], [WHOLE], {**WAS, "ttl": 5}),
        (None, WAS, [WHOLE], [], None),
        ({**WAS, "ttl": 5}, None, [WHOLE], [WHOLE], None),
        (WAS, None, [WHOLE], [], None),
    ],
)
def test_three_versions(
    theirs: dict[str, object] | None,
    yours: dict[str, object] | None,
    paths: list[str],
    conflicts: list[str],
    made: dict[str, object] | None,
) -> None:
    """Nobody's change is lost without being asked about."""
    found = versions(WAS, theirs, yours)
    assert [one.path for one in found] == paths
    assert [one.path for one in found if one.conflict] == conflicts
    assert merge(WAS, theirs, yours) == made
    assert merge(WAS, theirs, yours, conflicts) == (theirs if conflicts else made)


def test_both_created_the_same() -> None:
    """What both wrote alike is no conflict."""
    found = versions(None, {"name": "a", "ttl": 1}, {"name": "a", "ttl": 2})
    assert found == (FieldVersions("ttl", None, 1, 2, conflict=True),)
