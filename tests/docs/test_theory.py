"""The worked examples in modules' own pages: what they show is what the code says."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.docs.blocks import ROOT

PAGES = (
    "gtm.core.decision.choice",
    "gtm.core.latency.estimator",
    "gtm.core.plan.lp",
    "gtm.core.quota.ledger",
    "gtm.dns.answer.fast",
)
"""The dense algorithms: each opens with its theory, its invariants, an example and its sources."""


def _modules() -> list[str]:
    """Every module with an example, and the pages even if theirs is gone."""
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "gtm").rglob("*.py")
        if "\n>>> " in path.read_text()
    }
    return sorted(found.union(PAGES))


@pytest.mark.parametrize("name", _modules())
def test_worked_examples_hold(name: str) -> None:
    """Every line of an example gives what the page shows."""
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", PAGES)
def test_dense_algorithms_have_their_page(name: str) -> None:
    """The page says why it is right, what always holds, one case in numbers, and where it is from."""
    page = importlib.import_module(name).__doc__ or ""
    for part in ("Theory.", "Laws:", "Example.", "Sources:"):
        assert part in page, f"{name} does not say `{part}`"
