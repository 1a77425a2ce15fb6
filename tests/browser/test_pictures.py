"""Pictures of every page of the menu, as docs/dashboard.md shows them: `make pictures` takes them anew, light and dark, wide and narrow.

In `make test` each page is taken once, wide and light, and thrown away: that every page of the menu opens, moves in and fits is looked at all the same.
"""

from __future__ import annotations

import os
from base64 import b64decode
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import overflow
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE, Open
from tests.browser.test_world import until_flows
from tests.system.harness import System

PAGES = {
    "world": "/",
    "country": "/countries/DE",
    "ask": "/ask?service=chat&from=Berlin&over=http",
    "regions": "/regions",
    "region": "/regions/eu-central",
    "drain": "/regions/us-east/drain",
    "policy": "/policy",
    "simulate": "/simulate?traffic=now&down=eu-central",
    "rule": "/policy/residency-rules/gdpr-chat",
    "residency": "/residency",
    "plan": "/plan",
    "edges": "/edges",
    "edge": "/edges/local",
    "latency": "/latency?client=81.2.69.142",
    "history": "/happened",
    "answers": "/services/chat/answers?over=1h",
    "access": "/access",
}
"""By the name of its picture."""
HOME = os.environ.get("PICTURES")
SHAPES = {"wide": WIDE, "narrow": NARROW} if HOME else {"wide": WIDE}
SCHEMES = ("light", "dark") if HOME else ("light",)


def _ask_dns(world: System) -> None:
    """Some questions, for there to be rates."""
    for _ in range(20):
        for name, kind in (("chat", "A"), ("chat", "AAAA"), ("chat", "HTTPS"), ("web", "A"), ("nobody", "A")):
            world.resolve(f"{name}.demo.test", kind=kind)


def _take(page: Page, path: Path) -> None:
    """A WebP of the whole page, a fifth of a PNG."""
    size = page.evaluate(
        "({width: innerWidth, height: Math.min(2400, document.documentElement.scrollHeight)})"
    )
    asked = {
        "format": "webp",
        "quality": 65,
        "captureBeyondViewport": True,
        "clip": {"x": 0, "y": 0, "scale": 1, **size},
    }
    found = page.context.new_cdp_session(page).send("Page.captureScreenshot", asked)
    path.write_bytes(b64decode(found["data"]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_page_has_its_picture(
    traffic: System, visit: Open, tmp_path: Path, shape: str, scheme: str
) -> None:
    """All of the menu, and some that lead further; none wider than its window."""
    page = visit("/", viewport=SHAPES[shape], color_scheme=scheme)
    until_flows(page, "Object.keys(f).length > 3")
    home = Path(HOME or tmp_path)
    home.mkdir(parents=True, exist_ok=True)
    menu = page.locator("header nav a").evaluate_all("links => links.map(one => one.getAttribute('href'))")
    assert set(menu) - {"/docs"} <= {path.partition("?")[0] for path in PAGES.values()}
    for name, path in PAGES.items():
        if name == "edge":
            _ask_dns(traffic)
        answer = page.goto(traffic.control + path)
        assert answer is not None
        assert answer.status == 200, path
        expect(page.locator("h1").first).to_be_attached()
        page.wait_for_load_state("load")
        page.wait_for_timeout(700)  # what comes as a stream
        page.wait_for_function("() => !document.querySelector('.htmx-request')", timeout=PATIENCE_MS)
        assert overflow(page) <= 0, path
        _take(page, home / f"{name}-{shape}-{scheme}.webp")
