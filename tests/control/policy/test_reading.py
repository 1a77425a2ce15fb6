"""Texts of drafts, whoever wrote them: what is told of them is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from gtm.control.policy.drafts import MOST_PROBLEMS, DraftText, read
from gtm.core.model.policy import Policy

HOSTILE = {
    "kinds": "".join(f"k{number}: 1\n" for number in range(5000)),
    "documents": "--- 1\n" * 5000,
    "items": "regions:\n" + "- {name: a}\n" * 5000,
    "fields": "tenants:\n- name: a\n" + "".join(f"  k{number}: 1\n" for number in range(5000)),
    "records": "zones:\n- name: z.test\n  primary_ns: a\n  hostmaster: b\n  records:\n"
    + "  - {name: a, type: A, data: []}\n" * 5000,
    "references": "services:\n"
    + "".join(f"- {{name: s{number}, members: [{{region: r{number}}}]}}\n" for number in range(5000)),
}


def problems(text: str) -> list[dict[str, Any]]:
    """What is wrong with a text."""
    found: list[dict[str, Any]] = read(DraftText(text, False, frozenset(), Policy(), 1))["problems"]
    return found


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_told_is_bounded(text: str) -> None:
    """The first of thousands of problems, that there are more, and at which lines."""
    found = problems(text)
    assert len(found) == MOST_PROBLEMS + 1
    assert {one["code"] for one in found[-1:]} == {"too_many"}
    lines = [one["line"] or 0 for one in found[:-1]]
    assert lines == sorted(lines)


def test_lines_are_found_in_wide_mappings() -> None:
    """At whatever place of a mapping a value stands, and in another of the same keys."""
    text = "tenants:\n- name: a\n  weight: x\n- weight: y\n  name: b\n"
    assert [(one["line"], one["path"]) for one in problems(text)] == [
        (3, "tenants.a.weight"),
        (4, "tenants.b.weight"),
    ]
