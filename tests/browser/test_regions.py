"""Regions before a live world: what fails is seen with its evidence, and a drain is shown before it is made."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from gtm.core.model.access import Role
from tests.browser.checks import assert_good, picture
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE, Open, Path, control_url
from tests.system.harness import System, eventually

DRAINED = "us-west"
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def left_active(traffic: System) -> Iterator[System]:
    """Whatever comes of a test, the region takes clients again."""
    yield traffic
    asked = {"force": "true", "force_reason": "the test is over"}
    traffic.api("POST", f"/v1/regions/{DRAINED}:activate", params=asked)


def test_a_drain_is_previewed_made_and_undone(left_active: System, visit: Open) -> None:
    """An operator sees where its clients would go, gives a reason, and sees it happen; the table of another browser shows it."""
    table = visit("/regions", role=Role.VIEWER)
    row = table.locator(f"#region-{DRAINED}")
    expect(row).to_contain_text("active")
    page = visit(f"/regions/{DRAINED}", role=Role.OPERATOR)
    page.get_by_role("link", name="Drain…").click()
    expect(page.get_by_role("heading", name="What it would do")).to_be_visible()
    expect(page.locator(".lead")).to_contain_text("Nobody more would be refused")
    expect(page.locator("#preview")).to_contain_text("No safety rule stands against it")
    places = page.get_by_role("group", name="Where requests would go").get_by_role("row")
    expect(places.filter(has_text=DRAINED).get_by_role("cell").nth(1)).to_have_text("0%")
    page.get_by_label("Why").fill("cooling is out")
    page.get_by_role("button", name=f"Drain {DRAINED}").click()
    expect(page).to_have_url(f"{control_url(left_active)}/regions/{DRAINED}")
    expect(page.locator(".badges")).to_contain_text("draining")
    expect(page.locator("#sync")).to_have_attribute("data-state", "IN_SYNC")
    expect(page.locator(".tile", has_text="planned")).to_contain_text("0/s")
    expect(row).to_contain_text("draining")
    newest = left_active.api("GET", "/v1/revisions", params={"limit": 1}).json()["items"][0]
    assert newest["comment"] == f"set region {DRAINED} draining: cooling is out"
    assert newest["author"] == "browser-operator"
    page.get_by_role("link", name="Activate…").click()
    page.get_by_label("Why").fill("cooling works again")
    page.get_by_role("button", name=f"Activate {DRAINED}").click()
    expect(page.locator(".badges")).to_contain_text("active")
    expect(page.locator("#sync")).to_have_attribute("data-state", "IN_SYNC")
    expect(row).not_to_contain_text("draining")


def test_a_region_that_fails_shows_why(traffic: System, visit: Open) -> None:
    """The open page turns, without being loaded again, and says what the edge has met."""
    page = visit("/regions/sa-east", role=Role.VIEWER)
    expect(page.locator(".badges")).to_contain_text("up")
    page.locator("#probes details.command").last.locator("summary").click()
    traffic.demo("fail", "sa-east")
    try:
        expect(page.locator(".badges")).to_contain_text("down")
        expect(page.locator(".health")).to_contain_text(re.compile("refused|timed out|50[0-9]|closed"))
        expect(page.locator("#probes rect.bad").first).to_be_attached()
        expect(page.locator("#probes .changes")).to_contain_text("down")
        expect(page.locator("#probes details.command").last).to_have_attribute("open", "")
    finally:
        traffic.demo("restore", "sa-east")
    expect(page.locator(".badges")).to_contain_text("up")


def test_a_viewer_can_change_nothing(demo: System, visit: Open) -> None:
    """No button; and by hand 403, with and without the form's own token."""
    page = visit("/regions/us-east", role=Role.VIEWER, expects_errors=True)
    expect(page.locator(".badges")).to_contain_text("active")
    expect(page.get_by_role("link", name="Drain…")).to_have_count(0)
    path = f"{control_url(demo)}/regions/us-east/drain"
    assert page.request.get(path).status == 403
    token = page.locator("input[name=csrf]").first.get_attribute("value") or ""
    for fields in ({"reason": "x"}, {"reason": "x", "csrf": token}):
        answer = page.request.post(path, form=fields, headers={"Origin": control_url(demo)})
        assert answer.status == 403
    assert demo.api("GET", "/v1/regions/us-east").json()["admin_state"] == "active"


def test_without_scripts_it_reads_too(traffic: System, visit: Open) -> None:
    """The table, the evidence, and the preview, which then takes a click more."""
    page = visit("/regions/us-east/drain", java_script_enabled=False)
    page.get_by_role("link", name="Show what it would do").click()
    expect(page.get_by_role("heading", name="Where requests would go")).to_be_visible()
    expect(page.get_by_label("Why")).to_be_visible()
    page.goto(f"{control_url(traffic)}/regions/us-east")
    expect(page.locator(".health")).to_contain_text("all together")
    page.goto(f"{control_url(traffic)}/regions?find=us-")
    expect(page.locator("#region-us-east")).to_be_visible()
    expect(page.locator("#region-eu-west")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_they_are_good_to_all(
    traffic: System, visit: Open, pictures: Path, scheme: str, viewport: dict[str, int]
) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/regions", viewport=viewport, color_scheme=scheme)
    size = "wide" if viewport is WIDE else "narrow"
    for name, path, shown in (
        ("regions", "/regions", "#region-eu-west"),
        ("region", "/regions/eu-central", ".health"),
        ("drain", "/regions/eu-central/drain?traffic=now", "#preview"),
        ("hurry", "/regions/eu-central/drain?preview=skip", "#preview"),
    ):
        page.goto(control_url(traffic) + path)
        expect(page.locator(shown)).to_be_visible()
        assert_good(page)
        picture(page, pictures, f"{name}-{size}-{scheme}")


def test_a_region_s_inside_is_there_and_its_past_is_drawn(traffic: System, visit: Open) -> None:
    """Model servers and tenants as the region's own balancer shows them; curves of what was recorded, of the time that is chosen, with what happened; what its requests took."""
    page = visit("/regions/eu-central", role=Role.VIEWER)
    servers = page.get_by_role("group", name="Model servers").get_by_role("row")
    expect(servers.filter(has_text="up").first).to_contain_text("demo")
    expect(page.get_by_role("group", name="Tenants").get_by_role("row").nth(1)).to_contain_text("none stated")

    def recorded() -> bool:
        page.reload()
        return page.locator("#charts figure", has_text=title).count() > 0

    title = "To the end, p99"
    eventually(recorded, "what requests took is recorded", patience=180, every=2)
    took = page.get_by_role("group", name="What requests took over all of the time").get_by_role("row")
    expect(took.nth(1)).to_contain_text(re.compile(r"\d ms"))
    expect(page.locator("#charts canvas").first).to_be_visible()
    page.get_by_role("link", name="The last 24 hours").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#charts b[aria-current]")).to_have_text("The last 24 hours")
    expect(page.locator("#charts canvas").first).to_be_visible()
    expect(page.locator(".marks li").first).to_contain_text("revision 1")
    assert_good(page)
    page.get_by_role("link", name="All that happened").click()
    page.wait_for_url(re.compile("/happened"))  # loaded, scripts too: a choice before these would go unheard
    page.locator("select[name=kind]").select_option("verdict")
    expect(page).to_have_url(re.compile("kind=verdict"))
    expect(page.get_by_role("row").nth(1)).to_contain_text("all edges together")
    assert_good(page)
    page.goto(f"{control_url(traffic)}/services/chat/answers")
    eventually(recorded, "what requests took is recorded", patience=180, every=2)
    expect(page.locator("#charts canvas").nth(6)).to_be_attached()
    expect(page.locator("#charts figure").first).to_contain_text("By outcome")
    assert_good(page)
