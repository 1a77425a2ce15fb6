"""A session that ends while somebody types: the text outlives it, in a real browser with its cookies, origins and tabs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from gtm.core.model.access import Role
from tests.browser.conftest import Open, control_url, token_of
from tests.system.harness import System


@pytest.mark.parametrize("scripts", [True, False])
def test_what_was_typed_outlives_the_session(demo: System, visit: Open, *, scripts: bool) -> None:
    """Signed in again in another tab, the first sends what it kept, and its owner goes on where they were."""
    page = visit(
        "/policy/residency-rules/new",
        role=Role.OPERATOR,
        expects_errors=True,
        java_script_enabled=scripts,
    )
    page.get_by_label("Name", exact=True).fill("typed-for-long")
    page.get_by_label("Legal basis").fill("two lines\nof law")
    page.context.clear_cookies()
    page.get_by_role("button", name="What it changes").click()
    expect(page.get_by_role("heading", name="Nothing is lost")).to_be_visible()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in in another tab").click()
    other = opened.value
    other.get_by_label("Token").fill(token_of(demo, Role.OPERATOR))
    other.get_by_role("button", name="Sign in", exact=True).click()
    other.wait_for_url(f"{control_url(demo)}/")
    page.get_by_role("button", name="Send it again").click()
    expect(page.get_by_role("alert")).to_contain_text("browser-operator")
    page.get_by_role("button", name="Send it again").click()
    expect(page.get_by_role("heading", name="What the draft of typed-for-long changes")).to_be_visible()
    expect(page.locator(".change pre")).to_contain_text("two lines")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_file_of_traffic_is_simulated(visit: Open, tmp_path: Path, *, scripts: bool) -> None:
    """Chosen, sent and shown; what is wrong with another has its line."""
    good, wrong = tmp_path / "traffic.csv", tmp_path / "wrong.csv"
    good.write_text("service,country,count\nchat,DE,3000\nweb,US,1000\n")
    wrong.write_text("service,country,count\nchat,DE,many\n")
    page = visit("/simulate", role=Role.VIEWER, java_script_enabled=scripts)
    page.get_by_label("Region 1", exact=True).select_option("eu-central")
    page.get_by_label("Or those of a file").set_input_files(wrong)
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("line 2, column count")
    page.get_by_label("Or those of a file").set_input_files(good)
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.locator(".lead")).to_contain_text("75% of all requests would go elsewhere")
