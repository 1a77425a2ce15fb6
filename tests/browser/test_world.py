"""The map before a live world: what happens is seen, without looking again."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.browser.checks import assert_good
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE, Open
from tests.system.harness import System


def flows(page: Page) -> dict[str, float]:
    """Requests per second that the map draws, by region."""
    found: dict[str, float] = json.loads(page.locator("#map").get_attribute("data-flows") or "{}")
    return found


def until_flows(page: Page, holds: str) -> None:
    """Wait until something holds of the map's flows, `f`, without loading the page again."""
    script = f"() => {{ const f = JSON.parse(document.getElementById('map').dataset.flows || '{{}}'); return {holds}; }}"
    try:
        page.wait_for_function(script, timeout=PATIENCE_MS)
    except PlaywrightTimeout as error:
        said = page.locator(".side").inner_text()
        raise AssertionError(f"never {holds}; at last {flows(page)}; beside the map: {said}") from error


def test_a_region_that_fails_is_seen(traffic: System, visit: Open) -> None:
    """Frankfurt fails: its flows move to Dublin on the map, its place is marked, and a sentence says so; and back again."""
    page = visit("/")
    until_flows(page, "f['eu-central'] > 1")
    frankfurt = page.locator("a.region[data-region=eu-central]")
    expect(frankfurt).to_have_class("region up")
    traffic.demo("fail", "eu-central")
    try:
        until_flows(page, "!(f['eu-central'] > 0.5) && f['eu-west'] > 0.2")
        expect(frankfurt).to_have_class("region down")
        expect(page.locator(".side")).to_contain_text("Region eu-central is down")
        expect(page.locator("#served-eu-central")).to_contain_text("down")
    finally:
        traffic.demo("restore", "eu-central")
    until_flows(page, "f['eu-central'] > 1")
    expect(page.locator(".side")).not_to_contain_text("Region eu-central is down")


def test_what_is_shown_can_be_narrowed(traffic: System, visit: Open) -> None:
    """By service and by the clients' country; the address says how, and can be shared."""
    page = visit("/")
    until_flows(page, "Object.keys(f).length > 2")
    page.get_by_label("Service").select_option("chat")
    expect(page).to_have_url(f"{traffic.control}/?service=chat")
    page.get_by_role("link", name="Show all").click()
    expect(page).to_have_url(f"{traffic.control}/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_it_is_good_to_all(traffic: System, visit: Open, scheme: str, viewport: dict[str, int]) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/", viewport=viewport, color_scheme=scheme)
    until_flows(page, "Object.keys(f).length > 2")
    assert_good(page)


def test_without_scripts_the_table_says_it(traffic: System, visit: Open) -> None:
    """What the map draws, as text."""
    page = visit("/", java_script_enabled=False)
    expect(page.locator("#served-eu-central")).to_contain_text("eu-central")
    expect(page.locator(".tiles")).to_contain_text("requests")
