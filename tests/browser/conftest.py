"""Debian's Chromium, driven by Playwright, before a running `gtm serve --demo`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gtm.core.model.access import Role
from tests.effort import ALL
from tests.system.harness import Process, System, system
from tests.tools import tool

PATIENCE_MS = 90_000
"""Longest wait for what a page is to show, in milliseconds: the machine may be busy."""
expect.set_options(timeout=PATIENCE_MS)
_ALL_LOOKS = ALL or "PICTURES" in os.environ
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 360, "height": 780}


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of pages. It ends with them: while Playwright runs, no other test of the process can start an event loop."""
    path = tool("chromium-headless-shell")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They start whole processes, and need Chromium. Of the four looks of each page `make drills` takes the one that fails most, narrow and dark; `make test-all` all, and pictures."""
    for item in list(items):
        if item.path.parent != Path(__file__).parent:
            continue
        item.add_marker(pytest.mark.system)
        item.add_marker(pytest.mark.drill)
        look = getattr(getattr(item, "callspec", None), "params", {})
        if "scheme" in look:
            item.add_marker(pytest.mark.endurance)
            if not _ALL_LOOKS and (look["scheme"], look.get("viewport")) != ("dark", NARROW):
                items.remove(item)


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The demo world, for all tests in a browser, which leave it as they found it (tests/conftest.py has one process run them)."""
    with system(tmp_path_factory.mktemp("browser") / "data", "--demo") as running:
        yield running


@pytest.fixture(scope="package")
def traffic(demo: System) -> Iterator[System]:
    """The same with clients all over the world."""
    log = demo.data_dir.with_suffix(".traffic.log")
    clients = Process(["demo", "traffic", "--rps", "20", "--data-dir", str(demo.data_dir)], log)
    yield demo
    clients.stop()


Open = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, demo: System) -> Iterator[Open]:
    """Opens a page of the demo world's in a browser of its own, signed in with a token of a role.

    What such a page writes to the console as an error, or loads from elsewhere, fails the test.
    """
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def opened(
        path: str = "/", *, role: Role = Role.ADMIN, expects_errors: bool = False, **options: Any
    ) -> Page:
        # Nothing moves by itself: painting sixty times a second without a graphics card would take the machine from the other tests.
        still = {"viewport": WIDE, "reduced_motion": "reduce"}
        context = browser.new_context(**{**still, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        if not expects_errors:
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda asked: None if _own(demo, asked.url) else wrong.append(f"asked {asked.url}")
        )
        page.goto(control_url(demo) + _link(demo, role))
        page.get_by_role("button", name="Sign in as").click()
        page.wait_for_url(lambda url: "/sign-in/" not in url)
        if path != "/":
            page.goto(control_url(demo) + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def control_url(demo: System) -> str:
    """Where control of a demo world is."""
    return str(demo.control)


def _own(demo: System, url: str) -> bool:
    return url.startswith((control_url(demo) + "/", "data:"))


_tokens: dict[Role, str] = {}


def token_of(demo: System, role: Role) -> str:
    """Somebody's of a role; made once."""
    if role is Role.ADMIN:
        return demo.token
    if role not in _tokens:
        made = demo.api("POST", "/v1/tokens", json={"name": f"browser-{role.value}", "role": role.value})
        _tokens[role] = made.json()["token"]
    return _tokens[role]


def _link(demo: System, role: Role) -> str:
    """A link that signs in as somebody of a role."""
    headers = {"Authorization": f"Bearer {token_of(demo, role)}"}
    answer = httpx.post(f"{control_url(demo)}/v1/sign-in-links", headers=headers, trust_env=False)
    return str(answer.json()["path"])


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests put pictures of pages."""
    return tmp_path_factory.mktemp("pictures")
