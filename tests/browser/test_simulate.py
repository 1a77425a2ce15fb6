"""Simulations before a live world: asked in the form, drawn on the map, shared by the address; and the plan's history as curves."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.dashboard.report_file import report
from tests.browser.checks import assert_good, picture
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE, Open, control_url
from tests.browser.test_world import until_flows
from tests.dashboard.test_report_file import simulated
from tests.system.harness import System

FAILS = "/simulate?traffic=now&down=eu-central&down=eu-west"
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def asking(traffic: System, visit: Open) -> System:
    """There are clients, whose demand is known."""
    until_flows(visit("/"), "Object.keys(f).length > 3")
    return traffic


def drawn(page: Page) -> None:
    """The map has its land and its regions."""
    expect(page.locator("figure.effect .region")).to_have_count(7)
    expect(page.locator("figure.effect .land")).to_have_attribute("d", re.compile("^M"))


def test_a_failure_is_asked_for_and_shared(asking: System, visit: Open) -> None:
    """The form leads to an address; there, whoever opens it sees who gains, what moves and who is refused."""
    page = visit("/simulate", role=Role.VIEWER)
    page.get_by_label("With the requests").select_option("now")
    page.get_by_label("Region 1", exact=True).select_option("eu-central")
    page.get_by_label("Region 2", exact=True).select_option("eu-west")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("heading", name="What it comes to")).to_be_visible()
    assert page.url == control_url(asking) + FAILS
    expect(page.locator(".lead")).to_contain_text("more would be refused")
    drawn(page)
    for name in ("eu-central", "eu-west"):
        region = page.locator(f"figure.effect [data-region={name}]")
        expect(region).to_have_class(re.compile("loses"))
        expect(region.locator(".mark")).to_have_text("−")
        assert "0/s after" in (region.get_attribute("aria-label") or "")
    expect(page.locator("figure.effect .way.refused").first).to_be_attached()
    expect(page.locator("figure.effect .way-label.refused").first).to_contain_text("✕")
    moves = page.get_by_role("group", name="What would go elsewhere")
    expect(moves).to_contain_text("refused")
    other = visit(FAILS, role=Role.VIEWER)
    expect(other.get_by_label("Region 2", exact=True)).to_have_value("eu-west")
    expect(other.locator(".lead")).to_contain_text("more would be refused")


def test_a_draft_shows_its_effect_on_the_map(asking: System, visit: Open) -> None:
    """On the page of what it changes; and from there it goes on to the Simulate page."""
    page = visit("/policy/services/chat/edit?as=yaml", role=Role.OPERATOR)
    text = page.locator("#text")
    text.fill(
        re.sub(
            r"members:\n(?:.*- .*\n(?: {6}.*\n)*)+",
            "members:\n    - region: us-east\n    - region: eu-west\n",
            text.input_value(),
        )
    )
    page.get_by_role("button", name="What it changes").click()
    drawn(page)
    expect(page.locator("figure.effect .region.gains").first).to_be_attached()
    page.get_by_role("button", name="Simulate it").click()
    expect(page.get_by_text("With the draft of")).to_contain_text("chat")


def test_the_plan_has_a_past(asking: System, visit: Open) -> None:
    """The minutes that are over, as curves and as a table; another measure is a choice away."""
    page = visit("/plan", role=Role.VIEWER)
    asked = {"since": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}
    while not asking.api("GET", "/v1/plan/history", params=asked).json()["times"]:
        page.wait_for_timeout(1000)
    page.goto(f"{control_url(asking)}/plan")
    expect(page.locator("#history canvas")).to_be_visible()
    expect(page.locator("#history .u-legend")).to_contain_text("eu-central")
    page.locator("#history").get_by_label("What").select_option("demand")
    expect(page.locator("#history figure")).to_have_attribute("aria-label", re.compile("^Home demand"))
    expect(page.locator("#history canvas")).to_be_visible()
    plain = visit("/plan", java_script_enabled=False)
    plain.get_by_role("link", name="Show it").click()
    expect(plain.get_by_role("group", name="Regions over all of the time")).to_contain_text("eu-central")


def test_without_scripts_it_reads_too(asking: System, visit: Open) -> None:
    """The form, and the report by a link."""
    page = visit("/simulate", java_script_enabled=False)
    page.get_by_label("With the requests").select_option("now")
    page.get_by_label("Region 1", exact=True).select_option("eu-central")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_role("link", name="Show the report").click()
    expect(page.get_by_role("heading", name="Where requests would go")).to_be_visible()
    expect(page.locator("figure.effect")).to_be_hidden()


def test_the_file_draws_its_map_alone(visit: Open, demo: System, tmp_path: Path) -> None:
    """By its own policy of contents, from the disk, with nothing on the console."""
    file = tmp_path / "report.html"
    file.write_text(report(as_answered(simulated()), before="revision 7", after="draft"))
    page = visit("/simulate").context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    expect(page.locator("figure.effect .region")).to_have_count(3)
    expect(page.locator("figure.effect .land")).to_have_attribute("d", re.compile("^M"))
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_they_are_good_to_all(
    asking: System, visit: Open, pictures: Path, scheme: str, viewport: dict[str, int]
) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/simulate", viewport=viewport, color_scheme=scheme)
    size = "wide" if viewport is WIDE else "narrow"
    assert_good(page)
    for name, path, shown in (
        ("simulate", f"{FAILS}&demand=2", "#report .lead"),
        ("history", "/plan/history", "#history table"),
    ):
        page.goto(control_url(asking) + path)
        expect(page.locator(shown).first).to_be_attached()
        assert_good(page)
        picture(page, pictures, f"{name}-{size}-{scheme}")
