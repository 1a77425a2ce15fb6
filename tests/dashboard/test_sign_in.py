"""Who gets in, how, and for how long: what docs/dashboard.md says of signing in."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

import gtm
from gtm.control.live.sessions import LINK_LASTS, Person, SignInLinks
from gtm.core.model.access import Role
from gtm.dashboard.security import Attempts, cookie, is_same_origin
from tests.api.conftest import TOKENS, Api
from tests.dashboard.conftest import HTML, People, assert_inert, follow, sign_in
from tests.effort import examples
from tests.memory import held


def _client(api: Api) -> httpx.Client:
    return httpx.Client(base_url=api.url, trust_env=False, timeout=60)


@pytest.mark.reads
def test_without_a_session_every_page_asks_who_it_is(world: Api) -> None:
    """A page leads to the sign-in and back again, a part of one tells the browser to; a form does nothing."""
    with _client(world) as client:
        answer = client.get("/?service=chat", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2F%3Fservice%3Dchat")
        answer = client.get("/live/world", headers={"HX-Request": "true"})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/sign-in?next=%2Flive%2Fworld")
        assert client.post("/sign-out").status_code == 303
        assert client.get("/nothing", headers=HTML).status_code == 404
        page = client.get("/sign-in", headers=HTML)
        assert page.status_code == 200
        assert_inert(page.text)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.FENCE_ADMIN, Role.ADMIN])
@pytest.mark.reads
def test_a_token_signs_in(world: Api, role: Role) -> None:
    """The cookie is for this host and for no script; what it holds is no token."""
    with _client(world) as client:
        answer = client.post(
            "/sign-in", data={"token": f" {TOKENS[role]} ", "next": "/?service=chat"}, headers=HTML
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/?service=chat")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert TOKENS[role] not in cookie
        page = client.get("/", headers=HTML)
        assert page.status_code == 200
        assert f"{role.value}-one" in page.text
        assert page.headers["cache-control"] == "no-store"
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert_inert(page.text)


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        ("", 401, "not known"),
        ("gtm_0000000000_nothing", 401, "not known"),
        ("x" * 5000, 401, "not known"),
        ("\x00\ud7ff<script>", 401, "not known"),
        (TOKENS[Role.EDGE], 403, "for programs"),
        (TOKENS[Role.BALANCER], 403, "for programs"),
    ],
)
@pytest.mark.reads
def test_what_signs_nobody_in(world: Api, token: str, status: int, words: str) -> None:
    """It says why, and sets no cookie."""
    with _client(world) as client:
        answer = client.post("/sign-in", data={"token": token}, headers=HTML)
        assert answer.status_code == status
        assert words in answer.text
        assert "set-cookie" not in answer.headers
        assert_inert(answer.text)


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\n/evil"],
)
@pytest.mark.reads
def test_nobody_is_sent_elsewhere(world: Api, elsewhere: str) -> None:
    """After signing in, one is here."""
    with _client(world) as client:
        answer = client.post("/sign-in", data={"token": TOKENS[Role.VIEWER], "next": elsewhere}, headers=HTML)
        assert answer.headers["location"] == "/"


@pytest.mark.reads
def test_a_link_works_once(world: Api) -> None:
    """For whoever's token made it; then it is nobody's."""
    made = world.operator.post("/v1/sign-in-links").json()
    with _client(world) as one, _client(world) as two:
        answer = follow(one, made["path"])
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "operator-one" in one.get("/", headers=HTML).text
        again = two.get(made["path"], headers=HTML)
        assert again.status_code == 403
        assert "has been used, or has expired" in again.text
    assert world.edge.post("/v1/sign-in-links").status_code == 403
    assert world.anonymous.post("/v1/sign-in-links").status_code == 401


@pytest.mark.reads
def test_to_look_at_a_link_signs_nobody_in(world: Api) -> None:
    """However often, by whatever program: it says as whom its button would, sets no session, and is as good as it was."""
    path = world.operator.post("/v1/sign-in-links").json()["path"]
    with _client(world) as client, _client(world) as preview:
        for _ in range(12):
            shown = preview.get(path, headers=HTML)
            assert shown.status_code == 200
            assert preview.head(path).status_code == 200
        assert_inert(shown.text)
        assert "role <b>operator</b>" in shown.text
        assert "Sign in as operator-one</button>" in shown.text
        assert shown.headers["cache-control"] == "no-store"
        assert preview.get("/", headers=HTML).status_code == 303
        [cookie] = {one.split(";")[0].split("=")[0] for one in shown.headers.get_list("set-cookie")}
        assert cookie == "gtm-link"
        assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(shown.headers["set-cookie"].split("; "))
        assert follow(client, path).status_code == 303


def test_only_the_page_of_this_browser_signs_in(world: Api) -> None:
    """An attacker's page that sends the form with the attacker's link, with what the attacker's browser was shown: nobody is signed in as the attacker."""
    path = world.operator.post("/v1/sign-in-links").json()["path"]
    with _client(world) as attacker, _client(world) as victim:
        page = attacker.get(path, headers=HTML).text
        theirs = page.split('name="csrf" value="', 1)[1].split('"', 1)[0]
        tries: list[tuple[dict[str, str], dict[str, str]]] = [
            ({"csrf": theirs}, {}),
            ({"csrf": ""}, {}),
            ({"csrf": "\u00e9"}, {}),
            ({"csrf": theirs}, {"Origin": "https://evil.example"}),
            ({"csrf": theirs}, {"Origin": "null"}),
            ({"csrf": theirs}, {"Sec-Fetch-Site": "cross-site"}),
            ({"csrf": theirs}, {"Sec-Fetch-Site": "same-site"}),
        ]
        for looked in (False, True):
            if looked:
                victim.get(path, headers=HTML)
            for fields, headers in tries:
                answer = victim.post(path, data=fields, headers=HTML | headers)
                assert answer.status_code == 403, (looked, fields, headers)
                assert "gtm" not in victim.cookies
                assert_inert(answer.text)
        own = victim.get(path, headers=HTML).text.split('name="csrf" value="', 1)[1].split('"', 1)[0]
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = victim.post(path, data={"csrf": own}, headers=HTML | headers)
            assert (answer.status_code, "another site" in answer.text) == (403, True)
        assert victim.post(path, content=b"x", headers=HTML).status_code == 415
        assert victim.post(path, data={"csrf": own}, headers=HTML | {"Origin": world.url}).status_code == 303
        assert "gtm-link" not in victim.cookies
        assert attacker.post(path, data={"csrf": theirs}, headers=HTML).status_code == 403, "used up"


def test_who_is_signed_in_is_told_before_becoming_another(people: People, world: Api) -> None:
    """Also when the link comes from another site, and so without the cookie at first."""
    viewer = people(Role.VIEWER)
    path = world.operator.post("/v1/sign-in-links").json()["path"]
    page = viewer.page(path)
    assert_inert(page)
    assert "You are signed in as <bdi>viewer-one</bdi>, role viewer." in page
    assert "Stay viewer-one" in page
    first = viewer.client.get(path, headers=HTML | {"Sec-Fetch-Site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0">' in first.text
    assert "set-cookie" not in first.headers
    assert "viewer-one" in viewer.page("/access"), "looking changes nothing"
    own = world.viewer.post("/v1/sign-in-links").json()["path"]
    assert "You are signed in as <bdi>viewer-one</bdi> already" in viewer.page(own)
    follow(viewer.client, path)
    assert "You are <b>operator-one</b>" in viewer.page("/access")


def test_a_link_ends_with_its_token(world: Api) -> None:
    """Of a token that is revoked none signs in any more."""
    made = world.admin.post("/v1/tokens", json={"name": "guest", "role": "viewer"}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    path = world.anonymous.post("/v1/sign-in-links", headers=headers).json()["path"]
    with _client(world) as client:
        page = client.get(path, headers=HTML).text
        assert world.admin.delete("/v1/tokens/guest").status_code == 200
        csrf = page.split('name="csrf" value="', 1)[1].split('"', 1)[0]
        assert client.post(path, data={"csrf": csrf}, headers=HTML).status_code == 403
        assert client.get(path, headers=HTML).status_code == 403
        assert "gtm" not in client.cookies


def test_links_expire_and_are_bounded() -> None:
    """A link that nobody follows is forgotten."""
    now = 0.0
    links = SignInLinks(lambda: now)
    who = Person("a", Role.VIEWER)
    first = links.make(who)
    now = LINK_LASTS - 1
    second = links.make(who)
    now = LINK_LASTS
    assert (links.look(first), links.follow(first)) == (None, None)
    assert (links.look(second), links.look(second)) == (who, who)
    assert links.follow(second) == who
    assert links.look(second) is None
    assert links.follow(second) is None


def test_attempts_are_bounded() -> None:
    """By address; time brings them back, nobody keeps others out, and what is remembered is bounded."""
    now = 0.0
    attempts = Attempts(lambda: now, most=1_000)
    assert [attempts.take("a") for _ in range(12)] == [True] * 10 + [False] * 2
    assert attempts.take("b")
    now = 6.0
    assert [attempts.take("a") for _ in range(2)] == [True, False]
    assert all(attempts.take(f"c{number}") for number in range(1000))

    def work() -> None:
        nonlocal now
        for number in range(5_000):
            now += 1.0
            attempts.take(f"d{number}")

    assert held(work) < 800_000  # two generations of 1,000 networks; all would take 1 MB
    assert len(attempts) <= 2_000


def test_who_is_many_gains_nothing_by_it() -> None:
    """A /48 of IPv6 has ten times what an address has, however many of its networks it comes from; and makes nobody forgotten."""
    attempts = Attempts(lambda: 0.0)
    assert [attempts.take("192.0.2.1") for _ in range(11)] == [True] * 10 + [False]
    came = [attempts.take(f"2001:db8:1:{number:x}::1") for number in range(5_000)]
    assert sum(came) == 100
    assert not attempts.take("192.0.2.1"), "it was forgotten"
    assert len(attempts) == 1 + 100 + 1
    assert attempts.take("2001:db8:2::1"), "another's"
    attempts.give_back("2001:db8:1::1")
    assert attempts.take("2001:db8:1:1000::1"), "what was not in vain does not count"


def test_to_be_forgotten_takes_a_generation_of_others() -> None:
    """And these have attempts of their own, so that it gains nothing; what is asked for again is kept."""
    attempts = Attempts(lambda: 0.0, most=10)
    assert [attempts.take("192.0.2.1") for _ in range(11)] == [True] * 10 + [False]
    for number in range(10):
        attempts.take(f"198.51.100.{number}")
        assert not attempts.take("192.0.2.1")


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=200))
def test_nobody_is_kept_out_by_others(steps: list[tuple[int, int]]) -> None:
    """However few are remembered, each may try as often as alone; and no more are remembered than two generations."""
    now = 0.0
    attempts = Attempts(lambda: now, most=4)
    own = {number: Attempts(lambda: now) for number in range(41)}
    for number, seconds in steps:
        now += seconds
        may, would = attempts.take(f"192.0.2.{number}"), own[number].take(f"192.0.2.{number}")
        assert may or not would, "one was kept out by others"
        assert len(attempts) <= 8


def test_too_many_attempts_are_told(world: Api) -> None:
    """429, with what to do; whoever has a token that counts, or a link, gets in all the same."""
    with _client(world) as client:
        found = [
            client.post("/sign-in", data={"token": "wrong"}, headers=HTML).status_code for _ in range(11)
        ]
        assert found == [401] * 10 + [429]
        answer = client.post("/sign-in", data={"token": "another"}, headers=HTML)
        assert "wait a minute" in answer.text
        assert client.get("/sign-in/nothing", headers=HTML).status_code == 429
        assert client.post("/sign-in", data={"token": TOKENS[Role.ADMIN]}, headers=HTML).status_code == 303
        made = world.operator.post("/v1/sign-in-links").json()
        assert follow(client, made["path"]).status_code == 303


def test_forms_of_others_do_nothing(people: People, world: Api) -> None:
    """From another site, without the token of the session, with another's."""
    person, other = people(Role.OPERATOR), people(Role.VIEWER)
    person.page("/")
    other.page("/")
    for fields, headers in (
        ({"csrf": ""}, {}),
        ({"csrf": other.csrf}, {}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Origin": "null"}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Sec-Fetch-Site": "same-site"}),
    ):
        answer = person.post("/sign-out", fields, **headers)
        assert answer.status_code == 403, (fields, headers)
        assert "oad the page again" in answer.text
    assert person.get("/").status_code == 200
    with _client(world) as client:
        answer = client.post(
            "/sign-in", data={"token": TOKENS[Role.ADMIN]}, headers=HTML | {"Origin": "https://evil.example"}
        )
        assert answer.status_code == 403
    assert person.post("/sign-out", {}, Origin=world.url).url.path == "/sign-in"


@pytest.mark.reads
def test_a_link_from_elsewhere_finds_the_session(people: People) -> None:
    """The cookie does not come with what another site leads to: the page asks for itself once more."""
    with httpx.Client(base_url=people(Role.VIEWER).client.base_url, trust_env=False) as client:
        answer = client.get("/", headers=HTML | {"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 200
        assert '<meta http-equiv="refresh" content="0">' in answer.text


def test_a_session_ends_with_its_token(world: Api) -> None:
    """Revoked, it opens no page any more, at once; what it may do is what its token may."""
    made = world.admin.post("/v1/tokens", json={"name": "guest", "role": "viewer"}).json()
    person = sign_in(world.url, made["token"])
    assert person.get("/").status_code == 200
    assert world.admin.delete("/v1/tokens/guest").status_code == 200
    assert person.get("/").url.path == "/sign-in"


def test_sessions_are_listed_and_ended(people: People, world: Api) -> None:
    """One's own by everybody, all by an admin; signing out ends one at once."""
    viewer, operator = people(Role.VIEWER), people(Role.OPERATOR)
    second = sign_in(world.url, TOKENS[Role.VIEWER])
    names = [one["name"] for one in world.viewer.get("/v1/sessions").json()["items"]]
    assert names == ["viewer-one", "viewer-one"]
    every = world.admin.get("/v1/sessions").json()["items"]
    assert sorted(one["name"] for one in every) == ["operator-one", "viewer-one", "viewer-one"]
    theirs = next(one["id"] for one in every if one["name"] == "operator-one")
    assert world.viewer.delete(f"/v1/sessions/{theirs}").status_code == 403
    assert world.admin.delete(f"/v1/sessions/{theirs}").status_code == 204
    assert operator.get("/").url.path == "/sign-in"
    assert world.admin.delete(f"/v1/sessions/{theirs}").status_code == 404
    assert viewer.post("/sign-out").url.path == "/sign-in"
    assert viewer.get("/").url.path == "/sign-in"
    assert second.get("/").status_code == 200
    assert world.viewer.delete("/v1/people/viewer-one/sessions").status_code == 403
    assert world.admin.delete("/v1/people/viewer-one/sessions").json() == {"ended": 1}
    assert second.get("/").url.path == "/sign-in"


@pytest.mark.reads
def test_programs_are_told_what_this_is(world: Api) -> None:
    """At `/` only browsers get a page; and a session opens no endpoint of the API."""
    assert world.anonymous.get("/").json()["service"] == "gtm control"
    person = sign_in(world.url, TOKENS[Role.ADMIN])
    assert person.client.get("/v1/top").status_code == 401


@pytest.mark.parametrize(
    ("origin", "host", "url", "ours"),
    [
        ("https://gtm.example.com", "10.0.0.7:8080", "https://gtm.example.com", True),
        ("https://GTM.example.com", "gtm.example.com", "https://gtm.example.com/", True),
        ("http://gtm.example.com", "gtm.example.com", "https://gtm.example.com", False),
        ("https://evil.example", "10.0.0.7:8080", "https://gtm.example.com", False),
        ("https://gtm.example.com.evil.example", "10.0.0.7:8080", "https://gtm.example.com", False),
        ("https://gtm.example.com:444", "10.0.0.7:8080", "https://gtm.example.com", False),
        ("http://10.0.0.7:8080", "10.0.0.7:8080", "https://gtm.example.com", True),
        ("http://10.0.0.7:8080", "10.0.0.7:8080", None, True),
        ("http://10.0.0.7:8081", "10.0.0.7:8080", None, False),
        ("null", "10.0.0.7:8080", "https://gtm.example.com", False),
        ("null", "10.0.0.7:8080", None, False),
        ("http://[", "10.0.0.7:8080", None, False),
    ],
)
def test_where_forms_come_from(origin: str, host: str, url: str | None, ours: bool) -> None:
    """From the address that was asked, or from where people find us although a proxy asks by another name."""
    headers = [(b"origin", origin.encode()), (b"host", host.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    assert is_same_origin(Request(scope), url) is ours


def test_attempts_from_one_network_are_one() -> None:
    """Whoever has an address of IPv6 has all of its /64; one of IPv4 is itself, however it is written."""
    attempts = Attempts(lambda: 0.0)
    assert [attempts.take(f"2001:db8::{number:x}") for number in range(11)] == [True] * 10 + [False]
    assert attempts.take("2001:db8:0:1::1")
    assert [attempts.take("192.0.2.1") for _ in range(10)] == [True] * 10
    assert not attempts.take("::ffff:192.0.2.1")
    assert attempts.take("no address")


def test_only_admins_end_sessions_that_this_control_has_not_seen(world: Api) -> None:
    """Whose a session is, the database says: what this process remembers may be older than that."""
    person = sign_in(world.url, TOKENS[Role.OPERATOR])
    [session] = world.admin.get("/v1/sessions").json()["items"]
    replica = world.server.app.state.context.replica
    world.server.do(lambda: replica.current.become(replica.now.with_sessions([])))
    answer = world.viewer.delete(f"/v1/sessions/{session['id']}")
    assert answer.status_code in (403, 404), answer.text
    world.admin.delete("/v1/people/nobody/sessions")
    assert person.get("/access").url.path == "/access"
    person.client.close()


def test_cookies_are_read_as_they_are_written() -> None:
    """The last of a name counts, among whatever others there are; those of Starlette, which undo quotes in the square of their length, nobody asks for."""
    lines = [
        b'a="' + b'\\"' * 16_000 + b'"; gtm=first;gtm-oidc=x',
        b" gtm = second ;b=gtm=third; gtmx=fourth",
    ]
    request = Request({"type": "http", "headers": [(b"cookie", line) for line in lines]})
    assert cookie(request, "gtm") == "second"
    assert cookie(request, "gtm-oidc") == "x"
    assert cookie(request, "__Host-gtm") is None
    assert cookie(Request({"type": "http", "headers": []}), "gtm") is None
    sources = Path(gtm.__file__).parent.rglob("*.py")
    assert [path for path in sources if "request.cookies" in path.read_text(encoding="utf-8")] == []
