"""A session that ends while a form is open: nothing is done, and nothing that was typed is lost."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from html import unescape

import httpx
import pytest

from gtm.core.model.access import Role
from gtm.dashboard.visits import STRANGERS
from tests.api.conftest import TOKENS, Api
from tests.dashboard.conftest import HTML, People, Person, assert_inert

TYPED = "line one\nline two <script>alert(1)</script> \"'&"
DRAIN = {"reason": TYPED}
PATH = "/regions/eu-west/drain"


def signed_out(person: Person) -> None:
    """Their sessions end, as an admin, or time, ends them."""
    assert person.post("/sign-out").url.path == "/sign-in"


def kept(text: str) -> dict[str, str]:
    """What a page keeps to be sent again."""
    found = re.findall(r'<textarea name="([^"]+)" hidden[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
    return {name: unescape(value) for name, value in found}


def state(world: Api) -> str:
    """Of the region that the form is about."""
    return str(world.viewer.get("/v1/regions/eu-west").json()["admin_state"])


def test_what_was_typed_is_kept_and_sent_again(world: Api, people: People) -> None:
    """Signed out, it is kept on the page; signed in anew, that page sends it; and only then is it done."""
    person = people(Role.ADMIN)
    person.page("/regions/eu-west")
    signed_out(person)
    lost = person.post(PATH, DRAIN, Origin=world.url)
    assert lost.status_code == 401
    assert lost.headers["cache-control"] == "no-store"
    assert_inert(lost.text)
    assert kept(lost.text) == DRAIN
    assert f'action="{PATH}"' in lost.text
    assert 'target="_blank" rel="noopener"' in lost.text
    assert person.client.post("/sign-in", data={"token": TOKENS[Role.ADMIN]}, headers=HTML).status_code == 200
    earlier = person.post(PATH, kept(lost.text), Origin=world.url)
    assert earlier.status_code == 403
    assert kept(earlier.text) == DRAIN
    assert "role admin" in earlier.text
    assert state(world) == "active"
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', earlier.text)
    assert found is not None
    person.csrf = found[1]
    assert not kept(person.post(PATH, {"reason": "too hot"}, Origin=world.url).text)


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_nobody_else_puts_words_into_it(world: Api, people: People, headers: dict[str, str]) -> None:
    """A form that may be another site's is not shown to be sent again, signed in or not."""
    person = people(Role.ADMIN)
    person.page("/")
    person.csrf = "0" * 64
    refused = person.post(PATH, DRAIN, **headers)
    assert refused.status_code == 403
    assert not kept(refused.text)
    person.client.cookies.clear()
    assert person.post(PATH, DRAIN, **headers).url.path == "/sign-in"
    assert state(world) == "active"


def test_typing_goes_on(world: Api, people: People) -> None:
    """What the editor asks as one types sends nobody away from what they type; what only shows something does."""
    person = people(Role.OPERATOR)
    person.page("/policy/edit")
    signed_out(person)
    part = {"HX-Request": "true", "Origin": world.url}
    typed = person.post("/policy/draft/problems", {"text": "x", "draft": "{}"}, **part)
    assert typed.status_code == 401
    assert "hx-redirect" not in typed.headers
    assert "what you typed is still here" in typed.text
    assert_inert(typed.text)
    shown = person.get("/simulate?traffic=now", **{"HX-Request": "true"})
    assert shown.headers["hx-redirect"].startswith("/sign-in?next=")


def test_signing_out_twice_asks_nothing(world: Api, people: People) -> None:
    """Who is out is out."""
    person = people(Role.VIEWER)
    person.page("/")
    signed_out(person)
    assert person.post("/sign-out", Origin=world.url).url.path == "/sign-in"


def test_strangers_have_little_kept(world: Api) -> None:
    """So many forms of those who are not signed in are read at once; with one more nobody's is kept, and then again."""
    at, body = httpx.URL(world.url), b"reason=" + b"x" * 1000
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {at.host}:{at.port}\r\nOrigin: {world.url}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()

    def status() -> int:
        answer = httpx.post(
            world.url + PATH, data=DRAIN, headers=HTML | {"Origin": world.url}, trust_env=False
        )
        return answer.status_code

    assert status() == 401
    with ExitStack() as slow:
        for _ in range(STRANGERS):
            one = slow.enter_context(socket.create_connection((at.host, at.port or 80), timeout=30))
            one.sendall(head + body[:-1])
        assert 303 in (status() for _ in range(1000))
    assert 401 in (status() for _ in range(1000))
