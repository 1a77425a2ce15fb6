"""Access before a live world: a token made, used and revoked by hand and keyboard; the log of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.checks import assert_good, picture
from tests.browser.conftest import NARROW, WIDE, Open
from tests.system.harness import System


def test_a_token_comes_and_goes(demo: System, visit: Open) -> None:
    """Made in the form, its text shown once; revoked, and all of it in the log."""
    page = visit("/access")
    page.get_by_label("Name", exact=True).fill("by-hand")
    page.locator("select[name=role]").select_option("operator")
    page.get_by_role("button", name="Make it").press("Enter")
    expect(page.get_by_role("status").filter(has_text="by-hand")).to_contain_text("Copy it now")
    assert page.locator(".secret").inner_text().startswith("gtm_")
    assert_good(page)
    page.get_by_role("link", name="by-hand").click()
    assert_good(page)
    page.get_by_role("button", name="Revoke by-hand").click()
    expect(page).to_have_url(f"{demo.control}/access")
    expect(page.get_by_role("link", name="by-hand")).to_have_count(0)
    page.get_by_role("link", name="Audit log").click()
    page.get_by_label("What it was done to").fill("token by-hand")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".log tbody tr")).to_have_count(2)
    expect(page.locator(".log")).to_contain_text("at the dashboard")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
@pytest.mark.parametrize("path", ["/access", "/access/audit", "/access/tokens/admin"])
def test_it_is_good_to_all(
    visit: Open, pictures: Path, path: str, scheme: str, viewport: dict[str, int]
) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit(path, viewport=viewport, color_scheme=scheme)
    assert_good(page)
    picture(page, pictures, f"{path[1:].replace('/', '-')}-{scheme}-{viewport['width']}")


def test_without_scripts_it_works(visit: Open) -> None:
    """Forms and links need none."""
    page = visit("/access/audit", java_script_enabled=False)
    page.get_by_label("Action, or kind of action").fill("policy")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".log")).to_contain_text("policy.apply")
