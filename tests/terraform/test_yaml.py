"""The provider's YAML reader and gtm's read the same: both are held against one list of texts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from gtm.documents import yamls

CASES = Path(__file__).parents[2] / "deploy/terraform/provider/internal/provider/testdata/yaml.json"


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(one) for one in value.values())
    if isinstance(value, list):
        return all(_finite(one) for one in value)
    return not isinstance(value, float) or math.isfinite(value)


def read(text: str) -> dict[str, list[Any]] | None:
    """What gtm makes of a text: all of its documents, by kind; None: nothing that a policy may be."""
    found: dict[str, list[Any]] = {}
    try:
        documents = yamls.load(text)
    except yamls.YamlError:
        return None
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not _finite(document):
            return None
        for kind, resources in document.items():
            if kind != "tenants" or not isinstance(resources, list | None):
                return None
            found[kind] = found.get(kind, []) + (resources or [])
    return found


def test_the_list_is_what_gtm_reads() -> None:
    """`internal/provider/documents_test.go` holds the provider's reader against the same list."""
    cases = json.loads(CASES.read_text())
    assert len(cases) > 50
    for case in cases:
        assert read(case["yaml"]) == case["read"], case["yaml"]
