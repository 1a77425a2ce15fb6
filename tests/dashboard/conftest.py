"""Pages over real HTTP: the control tier as it runs, on a database of each test's own, and people who sign in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser

import httpx
import pytest

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api, Shared, api, shared, world  # noqa: F401 - fixtures

HTML = {"Accept": "text/html"}


@dataclass
class Person:
    """Somebody's browser: it keeps cookies, follows redirects, and sends the token of forms."""

    client: httpx.Client
    csrf: str = ""

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Open a page."""
        answer = self.client.get(path, headers=HTML | headers)
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', answer.text)
        if found:
            self.csrf = found[1]
        return answer

    def page(self, path: str) -> str:
        """A page that has to open."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        """Send a form, as a page of ours does."""
        if not self.csrf:
            self.get("/")
        return self.client.post(path, data={"csrf": self.csrf, **(fields or {})}, headers=HTML | headers)


People = Callable[[Role], Person]


def sign_in(url: str, token: str) -> Person:
    """A browser that signs in with a token."""
    person = Person(httpx.Client(base_url=url, trust_env=False, timeout=60, follow_redirects=True))
    answer = person.client.post("/sign-in", data={"token": token}, headers=HTML)
    assert answer.status_code == 200, answer.text
    return person


def follow(client: httpx.Client, path: str) -> httpx.Response:
    """Open a link that signs in, and press its button if there is one; redirects are not followed."""
    shown = client.get(path, headers=HTML)
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', shown.text)
    if shown.status_code != 200 or not found:
        return shown
    return client.post(path, data={"csrf": found[1]}, headers=HTML)


class _Everybody(dict[Role, Person]):
    """Somebody of each role, who signs in when they are first asked for."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def __missing__(self, role: Role) -> Person:
        self[role] = person = sign_in(self._url, TOKENS[role])
        return person


@contextmanager
def _everybody(url: str) -> Iterator[_Everybody]:
    found = _Everybody(url)
    yield found
    for one in found.values():
        one.client.close()


@pytest.fixture
def people(request: pytest.FixtureRequest, world: Api, shared: Shared) -> Iterator[People]:  # noqa: F811 - the fixtures
    """Somebody of each role, in the world of three regions; the same for the same role, and among tests marked `reads`."""
    if request.node.get_closest_marker("reads") is None:
        with _everybody(world.url) as own:
            yield own.__getitem__
        return
    if world.url not in shared.kept:
        shared.kept[world.url] = shared.enter_context(_everybody(world.url))
    yield shared.kept[world.url].__getitem__


class Markup(HTMLParser):
    """What of a page could run or be loaded: tags with their attributes, and text by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))


def assert_inert(text: str) -> None:
    """Nothing in a page runs or is loaded but our own files: no inline script or style, no handler, no address elsewhere."""
    for tag, attrs in Markup(text).tags:
        assert tag not in ("style", "iframe", "object", "embed", "base"), tag
        if tag == "script":
            assert attrs.get("src", "").startswith("/static/") or attrs.get("type") == "application/json", (
                attrs
            )
        for name, value in attrs.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", (tag, value)
            if name in (
                "href",
                "src",
                "action",
                "formaction",
                "hx-get",
                "hx-post",
                "data-stream",
                "data-land",
            ):
                assert value.startswith(("/", "#", "?")), (tag, name, value)
                assert not value.startswith("//"), (tag, name, value)
