"""A page whose control is gone: it says so, keeps what it knew, and goes on by itself. And ways to sign in, in a browser."""

from __future__ import annotations

import os
import signal

import httpx
from playwright.sync_api import Browser, expect

from gtm.core.model.access import Role
from tests.browser.checks import assert_good
from tests.browser.conftest import PATIENCE_MS, Open, token_of
from tests.system.harness import System, eventually


def _control(demo: System) -> int | None:
    """The process that serves the page, if there is one."""
    return next(iter(demo.processes("gtm.runtime.serve.control")), None)


def _in_sync(demo: System) -> bool:
    """Whether control is asked, and its edge has what it has."""
    try:
        return bool(demo.api("GET", "/v1/status").json()["sync"]["state"] == "IN_SYNC")
    except (httpx.HTTPError, KeyError):
        return False


def test_control_hangs_and_dies_under_an_open_page(traffic: System, visit: Open) -> None:
    """While it hangs the page says since when, and shows what it knew; killed and begun anew, the page goes on without being loaded again."""
    page = visit("/", expects_errors=True)
    expect(page.locator("#connection")).to_be_hidden()
    page.evaluate("window.loadedOnce = true")
    pid = _control(traffic)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        expect(page.locator("#connection")).to_contain_text(
            "Control has not answered for", timeout=PATIENCE_MS
        )
        expect(page.locator("#served-eu-central")).to_be_visible()
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(page.locator("#connection")).to_be_hidden(timeout=PATIENCE_MS)
    os.kill(pid, signal.SIGKILL)
    expect(page.locator("#connection")).to_contain_text("goes on by itself", timeout=PATIENCE_MS)
    eventually(lambda: _control(traffic) not in (pid, None), "control runs again")
    expect(page.locator("#connection")).to_be_hidden(timeout=2 * PATIENCE_MS)
    assert page.evaluate("window.loadedOnce") is True
    eventually(lambda: _in_sync(traffic), "the edge follows again", 60.0)


def test_a_token_signs_in(demo: System, browser: Browser) -> None:
    """Typed in; with a wrong one the page says why. By keyboard alone."""
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(f"{demo.control}/?service=chat")
        expect(page).to_have_title("Sign in · gtm")
        assert_good(page)
        page.keyboard.type("gtm_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not known")
        assert_good(page)
        page.get_by_label("Token").fill(token_of(demo, Role.VIEWER))
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{demo.control}/?service=chat")
        expect(page.locator(".who")).to_contain_text("viewer")
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(f"{demo.control}/sign-in")
    finally:
        context.close()


def test_an_open_page_of_a_session_that_ended_asks_who_it_is(demo: System, visit: Open) -> None:
    """Ended elsewhere, by an admin: the page does not stay as it was."""
    page = visit("/", role=Role.OPERATOR, expects_errors=True)
    expect(page.locator(".who")).to_contain_text("operator")
    assert demo.api("DELETE", "/v1/people/browser-operator/sessions").json()["ended"] >= 1
    expect(page).to_have_title("Sign in · gtm", timeout=PATIENCE_MS)
