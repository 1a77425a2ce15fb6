"""The policy's pages: what there is, what it says, what refers to it, what it was, and the way back."""

from __future__ import annotations

import pytest

from gtm.core.model.access import Role
from tests.api.conftest import CHAT, GDPR, Api, region
from tests.dashboard.conftest import People, assert_inert

HOSTILE = "<script>alert('1')</script>\"'&\u202eabc"


@pytest.mark.parametrize("number", ["0", "9" * 18, "9" * 19, "9" * 5000, "\u0661", "-1", "1.0", "x"])
@pytest.mark.reads
def test_numbers_that_no_revision_has(people: People, number: str) -> None:
    """Are no errors of ours, however long they are."""
    for path in (f"/policy/revisions/{number}", f"/policy/revisions/{number}/roll-back"):
        assert people(Role.OPERATOR).get(path).status_code == 404


def test_the_overview_shows_every_kind_and_finds_words(world: Api, people: People) -> None:
    """By kind with counts; words anywhere in a document find it."""
    world.must_put("/v1/tenants/bank", {"display_name": HOSTILE})
    text = people(Role.VIEWER).page("/policy")
    assert_inert(text)
    for name in ("eu-central", "demo.test", "chat", "gdpr", "bank"):
        assert f'/{name}"><bdi>{name}</bdi>' in text
    assert "Clients in EEA, of service chat: only in EEA." in text
    assert "Served in eu-central, eu-west, us-east, as chat.demo.test." in text
    assert "&lt;script&gt;" in text
    found = people(Role.VIEWER).page("/policy?search=chapter+2016")
    assert ">gdpr<" in found
    assert ">eu-central<" not in found
    only = people(Role.VIEWER).page("/policy?kind=regions")
    assert ">us-east<" in only
    assert ">gdpr<" not in only
    assert "holds all of these words" in people(Role.VIEWER).page("/policy?search=%3Cscript%3E+nowhere")


def test_the_overview_is_paged(world: Api, people: People) -> None:
    """A hundred at a time, each resource once."""
    policy = world.viewer.get("/v1/policy").json()["policy"]
    policy["tenants"] = [{"name": f"tenant-{number:03}"} for number in range(250)]
    world.operator.post("/v1/policy:apply", json={"policy": policy})
    path, seen = "/policy?kind=tenants", 0
    for _ in range(3):
        text = people(Role.VIEWER).page(path)
        seen += text.count("<bdi>tenant-")
        path = text.partition('class="button" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert seen == 250
    assert path == ""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/policy?kind=nothing", 404),
        ("/policy?after=nothing", 400),
        ("/policy?search=" + "x" * 10_000, 200),
        ("/policy/regions/nowhere", 404),
        ("/policy/regions/%3Cscript%3E", 422),
        ("/policy/nothing/chat", 404),
        ("/policy/revisions/0", 404),
        ("/policy/revisions/99", 404),
        ("/policy/revisions/99999999999999999999999", 404),
        ("/policy/revisions?after=nothing", 400),
    ],
)
@pytest.mark.reads
def test_what_is_not_there_is_told(world: Api, people: People, path: str, status: int) -> None:
    """A page that says so, never an error of our own."""
    answer = people(Role.VIEWER).get(path)
    assert answer.status_code == status
    assert_inert(answer.text)


def test_a_resource_shows_its_yaml_and_what_refers_to_it(world: Api, people: People) -> None:
    """The YAML is what an export holds of it."""
    exported = world.viewer.get("/v1/policy", headers={"Accept": "application/yaml"}).text
    text = people(Role.VIEWER).page("/policy/regions/eu-central")
    assert_inert(text)
    yaml = text.partition('class="yaml" tabindex="0">')[2].partition("</pre>")[0]
    assert yaml.removeprefix("regions:\n") in exported
    assert "lat: 50.1109" in yaml
    assert "members[0].region" in text
    assert "from which" not in text
    assert "match.services[0]" in people(Role.VIEWER).page("/policy/services/chat")
    assert "Nothing." in people(Role.VIEWER).page("/policy/tenants/clinic")
    assert "comes with gtm" in people(Role.VIEWER).page("/policy/jurisdictions/EEA")
    world.must_put("/v1/jurisdictions/DACH", {"members": ["DE", "AT", "CH"], "display_name": HOSTILE})
    own = people(Role.VIEWER).page("/policy/jurisdictions/DACH")
    assert_inert(own)
    assert "comes with gtm" not in own
    for path in ("/policy/zones/demo.test", "/policy/residency-rules/gdpr"):
        assert_inert(people(Role.VIEWER).page(path))


def test_the_timeline_says_who_and_why(world: Api, people: People) -> None:
    """Newest first, with what each changed; what was forced is marked."""
    changed = {**GDPR, "legal_basis": HOSTILE, "allow": {"jurisdictions": ["EEA", "GB"]}}
    params = {"force": "true", "force_reason": HOSTILE.replace("\u202e", "")}
    answer = world.fence_admin.put("/v1/residency-rules/gdpr", json=changed, params=params)
    assert answer.status_code == 200, answer.text
    number = answer.json()["revision"]
    viewer = people(Role.VIEWER)
    text = viewer.page("/policy/revisions")
    assert_inert(text)
    assert "fence-admin-one" in text
    assert "forced" in text
    assert "in force" in text
    one = viewer.page(f"/policy/revisions/{number}")
    assert_inert(one)
    assert "legal_basis" in one
    assert "<bdi>GB</bdi>" in one
    assert "Roll back" not in one
    first = viewer.page("/policy/revisions/1")
    assert "Roll back" not in first
    assert "Roll back" in people(Role.OPERATOR).page("/policy/revisions/1")


def test_rolling_back_asks_why_and_shows_what_it_does(world: Api, people: People) -> None:
    """A viewer may not; an operator has to give a reason."""
    before = world.viewer.get("/v1/policy").json()["revision"]
    world.must_put("/v1/services/chat", {**CHAT, "ttl": 77})
    path = f"/policy/revisions/{before}/roll-back"
    assert people(Role.VIEWER).get(path).status_code == 403
    assert people(Role.VIEWER).post(path, {"reason": "x", "revision": str(before + 1)}).status_code == 403
    operator = people(Role.OPERATOR)
    text = operator.page(path)
    assert_inert(text)
    assert "<code>ttl</code>" in text
    assert operator.post(path, {"reason": " ", "revision": str(before + 1)}).status_code == 422
    late = operator.post(path, {"reason": "x", "revision": str(before)})
    assert late.status_code == 412
    assert "read the policy again" in late.text
    done = operator.post(path, {"reason": HOSTILE.replace("\u202e", ""), "revision": str(before + 1)})
    assert done.status_code == 200
    assert done.url.path == f"/policy/revisions/{before + 2}"
    assert_inert(done.text)
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 30
    assert "Nothing would change" in operator.page(f"/policy/revisions/{before + 2}/roll-back")


def test_rolling_back_does_not_open_a_fence_unasked(world: Api, people: People) -> None:
    """The refusal names the rule; an operator may not overrule it, a fence admin may with a reason."""
    before = world.viewer.get("/v1/policy").json()["revision"]
    tight = {**GDPR, "allow": {"jurisdictions": ["DE"]}}
    assert world.put("/v1/residency-rules/gdpr", tight).status_code == 200
    path = f"/policy/revisions/{before}/roll-back"
    operator = people(Role.OPERATOR)
    assert "The safety rules say no" in operator.page(path)
    fields = {"reason": "too tight", "revision": str(before + 1)}
    refused = operator.post(path, fields)
    assert refused.status_code == 409
    assert "<b>fence</b>" in refused.text
    assert operator.post(path, {**fields, "force_reason": "because"}).status_code == 403
    done = people(Role.FENCE_ADMIN).post(path, {**fields, "force_reason": "the board decided"})
    assert done.status_code == 200, done.text
    assert "the board decided" in done.text
    assert "forced" in done.text


def test_a_roll_back_leaves_drains_alone(world: Api, people: People) -> None:
    """What it shows is what it does."""
    before = world.viewer.get("/v1/policy").json()["revision"]
    assert world.operator.post("/v1/regions/us-east:drain").status_code == 200
    assert "Nothing would change" in people(Role.OPERATOR).page(f"/policy/revisions/{before}/roll-back")
    world.must_put("/v1/regions/us-east", region("us-east", reserve=0.3))
    text = people(Role.OPERATOR).page(f"/policy/revisions/{before}/roll-back")
    assert "<code>reserve</code>" in text
    assert "admin_state" not in text
