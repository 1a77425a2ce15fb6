"""The policy's pages with scripts: the GDPR rule written in the form, two sessions that edit the same, problems as one types."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import assert_good
from tests.browser.conftest import NARROW, WIDE, Open
from tests.system.harness import System


@pytest.fixture(autouse=True)
def _unchanged(demo: System) -> Iterator[None]:
    """The demo world is left as it was found."""
    before = demo.api("GET", "/v1/policy").json()["policy"]
    yield
    demo.api(
        "POST",
        "/v1/policy:apply",
        json={"policy": before},
        params={"force": "true", "force_reason": "the test is over"},
    )


def apply(page: Page, reason: str) -> None:
    """Apply what a page shows."""
    page.get_by_label("Why: it is kept with the revision").fill(reason)
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Revision")


def test_the_gdpr_rule_in_the_form(demo: System, visit: Open) -> None:
    """Written, looked at, applied, rolled back."""
    page = visit("/policy?kind=residency-rules")
    page.get_by_role("link", name="New…").click()
    page.get_by_label("Name").fill("gdpr-web")
    page.get_by_label("Of services").fill("web")
    page.get_by_label("Clients in jurisdictions").fill("EEA")
    page.get_by_label("May be served in").fill("EEA")
    page.get_by_label("Legal basis").fill("Regulation (EU) 2016/679, Chapter V")
    page.get_by_role("button", name="What it changes").click()
    expect(page.locator(".change")).to_contain_text("gdpr-web")
    expect(page.locator("#effect")).not_to_be_empty()
    assert demo.api("GET", "/v1/residency-rules/gdpr-web").status_code == 404
    apply(page, "the law")
    assert demo.api("GET", "/v1/residency-rules/gdpr-web").json()["allow"]["jurisdictions"] == ["EEA"]
    page.get_by_role("link", name=re.compile("← Revision")).click()
    page.get_by_role("link", name="Roll back to it…").click()
    expect(page.locator(".problem")).to_contain_text("fence")
    page.get_by_label("Why: it is kept with the revision").fill("it was a test")
    page.get_by_label("Why it has to be made").fill("it was a test")
    page.get_by_role("button", name="Roll back").click()
    expect(page.locator(".facts")).to_contain_text("it was a test")
    assert demo.api("GET", "/v1/residency-rules/gdpr-web").status_code == 404


def test_problems_as_one_types(visit: Open) -> None:
    """With their lines, which are marked, and led to."""
    page = visit("/policy/services/chat/edit?as=yaml")
    expect(page.locator("#problems")).to_contain_text("No problem")
    text = page.locator("#text")
    written = text.input_value()
    text.fill(written.replace("region: eu-west", "region: eu-wets"))
    expect(page.locator("#problems")).to_contain_text("did you mean eu-west?")
    expect(page.locator("#gutter .bad")).to_have_count(1)
    page.locator("#problems a").click()
    chosen = "() => { const t = document.getElementById('text'); return t.value.slice(t.selectionStart, t.selectionEnd); }"
    assert page.evaluate(chosen).strip() == "- region: eu-wets"
    text.fill(written)
    expect(page.locator("#problems")).to_contain_text("No problem")


def test_two_sessions(demo: System, visit: Open) -> None:
    """The later one sees three versions, chooses, and loses nothing."""
    one, two = visit("/policy/services/chat/edit"), visit("/policy/services/chat/edit", expects_errors=True)
    one.get_by_label("Answers may be kept").fill("41")
    one.get_by_label("Shown as").fill("Chat of the one")
    two.get_by_label("Answers may be kept").fill("42")
    two.get_by_label("The same while traffic moves").fill("4")
    two.get_by_role("button", name="What it changes").click()
    one.get_by_role("button", name="What it changes").click()
    apply(one, "one")
    two.get_by_label("Why: it is kept with the revision").fill("two")
    two.get_by_role("button", name="Apply").click()
    expect(two.get_by_role("heading", level=1)).to_contain_text("Somebody else has changed the same")
    assert_good(two)
    two.get_by_label("Keep yours").check()
    two.get_by_role("button", name="Put both together").click()
    apply(two, "both")
    found = demo.api("GET", "/v1/services/chat").json()
    assert (found["ttl"], found["min_ttl"], found["display_name"]) == (42, 4, "Chat of the one")


PAGES = (
    "/policy",
    "/policy/residency-rules/gdpr-chat",
    "/policy/revisions",
    "/policy/revisions/1",
    "/policy/residency-rules/gdpr-chat/edit",
    "/policy/services/chat/edit",
    "/policy/services/chat/edit?as=yaml",
    "/policy/tenants/acme/delete",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW])
def test_it_is_good_to_all(visit: Open, scheme: str, viewport: dict[str, int]) -> None:
    """No violation of accessibility, nothing wider than the window."""
    page = visit("/policy", viewport=viewport, color_scheme=scheme, expects_errors=True)
    for path in PAGES:
        page.goto(page.url.partition("/policy")[0] + path)
        assert_good(page)


def test_without_scripts(visit: Open) -> None:
    """A draft goes all the way."""
    page = visit("/policy/tenants/acme/edit", java_script_enabled=False)
    text = page.locator("#text")
    text.fill(text.input_value() + "  weight: 2\n")
    page.get_by_role("button", name="What it changes").click()
    expect(page.locator(".change")).to_contain_text("weight")
    apply(page, "without scripts")
