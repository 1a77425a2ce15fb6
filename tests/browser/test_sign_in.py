"""Signing in by a link, in a browser: what is asked, how it looks, and what other people's pages cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gtm.control.live.sessions import Person
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Server
from tests.browser.checks import assert_good, picture
from tests.browser.conftest import NARROW, PATIENCE_MS, WIDE

Open = Callable[..., BrowserContext]


@pytest.fixture
def server(prepared_url: str) -> Iterator[Server]:
    """Control alone."""
    with Server(prepared_url) as running:
        yield running


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Browsers of different people."""
    contexts: list[BrowserContext] = []

    def new(**options: Any) -> BrowserContext:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        return context

    yield new
    for one in contexts:
        one.close()


def link(server: Server, role: Role) -> str:
    """The address of a new link."""
    links, present = server.app.state.context.links, server.app.state.context.present
    held = next((sha256, token) for sha256, token in present.tokens.items() if token.role is role)
    return f"{server.url}/sign-in/{links.make(Person(held[1].name, role, held[0]))}"


def sign_in(page: Page, server: Server, role: Role) -> None:
    """With a token, by the form."""
    page.goto(f"{server.url}/sign-in")
    page.get_by_label("Token").fill(TOKENS[role])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{server.url}/")


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_asks(
    server: Server, opened: Open, pictures: Path, scheme: str, viewport: dict[str, int]
) -> None:
    """It looks as it should, to nobody and to somebody else who is signed in."""
    page = opened(viewport=viewport, color_scheme=scheme).new_page()
    page.goto(link(server, Role.ADMIN))
    assert_good(page)
    picture(page, pictures, f"sign-in-link-{scheme}-{viewport['width']}")
    sign_in(page, server, Role.VIEWER)
    page.goto(link(server, Role.ADMIN))
    expect(page.locator("main")).to_contain_text("You are signed in as viewer-one, role viewer.")
    assert_good(page)
    picture(page, pictures, f"sign-in-link-other-{scheme}-{viewport['width']}")


def test_one_click_signs_in(server: Server, opened: Open) -> None:
    """Without scripts; a link that was used says so."""
    page = opened(java_script_enabled=False).new_page()
    address = link(server, Role.OPERATOR)
    page.goto(address)
    page.get_by_role("button", name="Sign in as operator-one").click()
    page.wait_for_url(f"{server.url}/")
    expect(page.locator("header")).to_contain_text("operator-one")
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("has been used, or has expired")


def test_pages_of_others_sign_nobody_in(server: Server, opened: Open) -> None:
    """An attacker's page leads to the attacker's link: it asks, and says as whom one is signed in. One that sends the form itself is refused."""
    context = opened()
    address = link(server, Role.ADMIN)
    forged = f'<form method="post" action="{address}"><input name="csrf" value="{"0" * 64}"><button>go</button></form>'
    text = f'<!doctype html><title>x</title><a href="{address}">cats</a>{forged}'
    context.route("http://evil.test/", lambda route: route.fulfill(body=text, content_type="text/html"))
    page = context.new_page()
    sign_in(page, server, Role.VIEWER)
    page.goto("http://evil.test/")
    page.get_by_role("link", name="cats").click()
    expect(page.get_by_role("heading")).to_have_text("Sign in as admin-one?")
    expect(page.locator("main")).to_contain_text("You are signed in as viewer-one, role viewer.")
    page.goto("http://evil.test/")
    page.get_by_role("button", name="go").click()
    expect(page.get_by_role("alert")).to_contain_text("sent from another site")
    page.goto(f"{server.url}/access")
    expect(page.locator("header")).to_contain_text("viewer-one")
    page.goto(address)
    page.get_by_role("link", name="Stay viewer-one").click()
    page.wait_for_url(f"{server.url}/")
    expect(page.locator("header")).to_contain_text("viewer-one")
