"""Signing in by an identity provider, in a browser: with cookies as browsers keep them."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.checks import assert_good
from tests.browser.conftest import PATIENCE_MS
from tests.dashboard.identity_provider import with_identity


def test_people_sign_in_by_their_provider(browser: Browser, prepared_url: str) -> None:
    """There and back; signed out, and refused without a role."""
    with with_identity(prepared_url) as (server, issuer):
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(f"{server.url}/access")
        assert_good(page)
        page.get_by_role("link", name="Sign in by").click()
        page.wait_for_url(f"{issuer}/**")
        page.locator("input[name=login]").fill("ann")
        page.locator("input[name=password]").fill("x")
        page.locator("button[type=submit]").click()
        page.locator("button[type=submit]").click()
        page.wait_for_url(f"{server.url}/access")
        expect(page.locator("main")).to_contain_text("You are ann@example.com, role admin")
        page.get_by_role("button", name="Sign out", exact=True).first.click()
        page.wait_for_url(f"{server.url}/sign-in?out=provider")
        page.get_by_role("link", name="sign out there, too").click()
        page.wait_for_url(f"{issuer}/session/end?**")
        page.goto(f"{server.url}/access")
        expect(page.get_by_role("link", name="Sign in by")).to_be_visible()
        context.clear_cookies()
        page.goto(f"{server.url}/sign-in/oidc")
        page.locator("input[name=login]").fill("nobody")
        page.locator("input[name=password]").fill("x")
        page.locator("button[type=submit]").click()
        page.locator("button[type=submit]").click()
        expect(page.get_by_role("alert")).to_contain_text("you are nobody@example.com")
        assert_good(page)
        context.close()
