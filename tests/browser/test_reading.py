"""Pages that are read: residency, the plan, edges, latency. Good to all, in their sizes and schemes; what moves goes on moving."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.checks import assert_good
from tests.browser.conftest import NARROW, WIDE, Open
from tests.system.harness import System

PAGES = (
    *("/residency", "/residency?client=GB", "/plan", "/edges", "/edges/local", "/latency?country=DE"),
    "/regions/eu-central?history=day",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_they_are_good_to_all(traffic: System, visit: Open, scheme: str, viewport: dict[str, int]) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/", viewport=viewport, color_scheme=scheme)
    for path in PAGES:
        page.goto(f"{traffic.control}{path}")
        expect(page.locator("h1")).to_be_visible()
        assert_good(page)


def test_the_plan_moves(traffic: System, visit: Open) -> None:
    """Flows appear without loading the page again, and one can be told from the others by keyboard and table."""
    page = visit("/plan")
    expect(page.locator(".sankey path").first).to_be_attached()
    expect(page.locator("#regions")).to_have_text("Regions")
    page.locator(".tile b").first.evaluate("one => one.textContent = 'old'")
    expect(page.locator(".tile b").first).not_to_have_text("old")


def test_they_read_without_scripts(traffic: System, visit: Open) -> None:
    """All of them; strips of time are drawn by the server."""
    page = visit("/residency", java_script_enabled=False)
    expect(page.locator("table.matrix")).to_contain_text("gdpr-chat")
    expect(page.locator(".calendar")).to_contain_text("GDPR-ADEQUATE")
    for path, words in (
        ("/plan", "From homes to regions"),
        ("/edges", "local"),
        ("/latency?country=DE", "eu-central"),
        ("/edges/local", "Not limited"),
        ("/regions/eu-central", "Verdicts that changed"),
    ):
        page.goto(f"{traffic.control}{path}")
        expect(page.locator("main")).to_contain_text(words)
    expect(page.locator("svg.strip rect").first).to_be_attached()
