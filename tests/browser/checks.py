"""What every page is held to: no accessibility violation (axe-core), no sideways scrolling, and pictures to look at."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page as it is shown: each rule with the elements that break it."""
    page.evaluate(_axe())
    found: list[dict[str, Any]] = page.evaluate(
        "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}}).then(found => found.violations)",
        TAGS,
    )
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found
    ]


def overflow(page: Page) -> int:
    """CSS pixels by which a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def assert_good(page: Page) -> None:
    """All of it."""
    assert violations(page) == []
    assert overflow(page) <= 0


def picture(page: Page, where: Path, name: str) -> None:
    """Take one of the whole page."""
    page.screenshot(path=where / f"{name}.png", full_page=True)
