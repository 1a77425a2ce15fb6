"""Asking in a browser: the form makes a link, and the map shows the fence that the table tells."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.checks import assert_good
from tests.browser.conftest import NARROW, WIDE, Open
from tests.system.harness import System

BERLIN = "/ask?service=chat&from=Berlin"


def test_a_form_makes_a_link(demo: System, visit: Open) -> None:
    """What was left empty is not in it, and whoever follows it sees the same."""
    page = visit("/ask")
    page.locator("select[name=service]").select_option("chat")
    page.get_by_label("Client").fill("91.198.174.192")
    page.get_by_label("Asks over").select_option("dns")
    page.get_by_role("button", name="Ask").click()
    expect(page).to_have_url(f"{demo.control}/ask?service=chat&from=91.198.174.192&over=dns")
    expect(page.get_by_role("status").first).to_contain_text("Served in eu-")
    expect(page.locator(".sent")).to_contain_text("client subnet 91.198.174.0/24")


def test_the_fence_is_on_the_map(demo: System, visit: Open) -> None:
    """Regions by what they are to the request, countries with regions outside hatched, and ways by the odds."""
    page = visit(BERLIN)
    expect(page.locator("a.region[data-region=us-east]")).to_have_class("region outside")
    expect(page.locator("a.region[data-region=eu-west]")).to_have_class("region inside")
    expect(page.locator("a.region.chosen")).to_have_count(1)
    expect(page.locator("path.fenced.out").first).to_be_attached()
    expect(page.locator("path.fenced.in").first).to_be_attached()
    expect(page.locator("path.way").first).to_be_attached()
    page.locator("a.region[data-region=us-east]").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{demo.control}{BERLIN}#region-us-east")


def test_a_wrong_field_is_told(demo: System, visit: Open) -> None:
    """Beside it, for those who do not see it, too."""
    page = visit("/ask?service=chat&from=Atlantis&at=1066-10-14T00:00", expects_errors=True)
    expect(page.locator("#from-wrong")).to_contain_text("the city `Atlantis` is not known here")
    expect(page.locator("#at-wrong")).to_contain_text("from 2018-05-25 on")
    assert_good(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_it_is_good_to_all(demo: System, visit: Open, scheme: str, viewport: dict[str, int]) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit(BERLIN, viewport=viewport, color_scheme=scheme)
    expect(page.locator("path.fenced").first).to_be_attached()
    assert_good(page)


def test_without_scripts_the_table_says_it(demo: System, visit: Open) -> None:
    """What the map draws, as text; no empty map stands there."""
    page = visit(BERLIN, java_script_enabled=False)
    expect(page.locator("#region-us-east")).to_contain_text("outside the fence")
    expect(page.locator("#map")).to_be_hidden()
