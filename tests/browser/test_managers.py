"""What a tool manages, in a browser: marked, and changed with a tick alone, by keyboard too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.checks import assert_good, picture
from tests.browser.conftest import NARROW, WIDE, Open
from tests.system.harness import System

PROD = "terraform/prod-network"
PAGES = {
    "list": "/policy",
    "resource": "/policy/services/chat",
    "form": "/policy/services/chat/edit",
    "yaml": "/policy/services/chat/edit?as=yaml",
    "whole": "/policy/edit",
    "delete": "/policy/tenants/acme/delete",
    "regions": "/regions",
    "region": "/regions/eu-west",
}


@pytest.fixture(autouse=True)
def _claimed(demo: System) -> Iterator[dict[str, Any]]:
    """Some resources belong to a workspace; afterwards the demo world is as it was found."""
    before: dict[str, Any] = demo.api("GET", "/v1/policy").json()["policy"]
    for path in ("services/chat", "regions/eu-west", "tenants/acme", "residency-rules/gdpr-chat"):
        headers = {"Authorization": f"Bearer {demo.token}", "GTM-Managed-By": PROD}
        document = demo.api("GET", f"/v1/{path}").json()
        done = httpx.put(
            f"{demo.control}/v1/{path}", json=document, headers=headers, trust_env=False, timeout=60
        )
        assert done.status_code == 200, done.text
    yield before
    demo.api("POST", "/v1/managers:reassign", json={"manager": PROD, "reason": "the test is over"})
    query = {"force": "true", "force_reason": "the test is over"}
    demo.api("POST", "/v1/policy:apply", json={"policy": before}, params=query)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_marks_are_good_to_read(visit: Open, tmp_path: Path, viewport: dict[str, int], scheme: str) -> None:
    """On every page that has one: the words, no accessibility violation, nothing wider than the window."""
    page = visit("/policy", viewport=viewport, color_scheme=scheme)
    where = Path(os.environ.get("MANAGED_PICTURES", tmp_path))
    for name, path in PAGES.items():
        page.goto(page.url.split("/policy")[0].split("/regions")[0] + path)
        expect(page.locator(".managed").first).to_contain_text("Terraform prod-network")
        assert_good(page)
        picture(page, where, f"{name}-{viewport['width']}-{scheme}")


def test_a_draft_needs_the_tick(demo: System, visit: Open) -> None:
    """The browser itself asks for it; with it the change is made, and the tool's mark stays."""
    page = visit("/policy/services/chat/edit")
    expect(page.locator(".note.managing")).to_contain_text("next run will undo unless its code changes too")
    page.get_by_label("Shown as").fill("Chat, by hand")
    page.get_by_role("button", name="What it changes").click()
    box = page.get_by_role("checkbox", name="Change it here on purpose")
    expect(box).not_to_be_checked()
    page.get_by_label("Why: it is kept with the revision").fill("incident 42")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("What the draft")
    assert demo.api("GET", "/v1/services/chat").json()["display_name"] != "Chat, by hand"
    box.focus()
    page.keyboard.press("Space")
    expect(box).to_be_checked()
    assert_good(page)
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Revision")
    expect(page.locator(".facts")).to_contain_text("overrides terraform/prod-network: incident 42")
    answer = demo.api("GET", "/v1/services/chat")
    assert (answer.json()["display_name"], answer.headers["GTM-Managed-By"]) == ("Chat, by hand", PROD)


def test_a_resource_is_released(demo: System, visit: Open) -> None:
    """With a reason; the mark is gone."""
    page = visit("/policy/tenants/acme")
    page.get_by_text("Let nobody manage it…").click()
    page.get_by_label("Why: it is kept in the audit log").fill("workspace is gone")
    assert_good(page)
    page.get_by_role("button", name="Release it").click()
    expect(page.locator(".managed")).to_have_count(0)
    assert "GTM-Managed-By" not in demo.api("GET", "/v1/tenants/acme").headers
