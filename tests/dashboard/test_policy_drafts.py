"""Drafts of the policy: read as they are typed, compared, judged, applied; by two people at once; as YAML and as forms."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx
import pytest

from gtm.core.model.access import Role
from tests.api.conftest import CHAT, GDPR, POLICY, TOKENS, Api, Server
from tests.dashboard.conftest import People, Person, assert_inert, sign_in

HOSTILE = "<script>alert('1')</script>\"'&</textarea><b>"


def carried(text: str) -> dict[str, str]:
    """What a page's form carries of a draft."""
    found = re.search(r'name="draft" value="([^"]*)"', text)
    assert found, text
    written = re.search(r'<textarea[^>]*name="text"[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
    return {"draft": unescape(found[1]), "text": unescape(written[1]) if written else ""}


def begun(person: Person, path: str) -> dict[str, str]:
    """A draft that has begun."""
    text = person.page(path)
    assert_inert(text)
    return carried(text)


def plain(text: str) -> str:
    """What a page says, without its tags."""
    return unescape(re.sub(r"<[^>]+>", "", text))


def go(person: Person, draft: dict[str, str], do: str = "preview", **fields: str) -> httpx.Response:
    """Press a button."""
    answer = person.post("/policy/draft", {**draft, "do": do, **fields})
    assert_inert(answer.text)
    return answer


def rule(api: Api) -> dict[str, Any]:
    """The rule in force."""
    found: dict[str, Any] = api.viewer.get("/v1/residency-rules/gdpr").json()
    return found


def test_a_resource_is_edited_as_yaml(world: Api, people: People) -> None:
    """Shown, compared, applied with a reason."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/services/chat/edit?as=yaml")
    assert "name: chat" in draft["text"]
    draft["text"] = draft["text"].replace("hostnames:", "ttl: 77\n  hostnames:")
    seen = go(operator, draft)
    assert seen.status_code == 200
    assert "<code>ttl</code>" in seen.text
    assert "Apply</button>" in seen.text
    assert go(operator, draft, "apply", reason=" ").status_code == 422
    done = go(operator, draft, "apply", reason=f"longer {HOSTILE}")
    assert done.url.path.startswith("/policy/revisions/")
    assert "longer &lt;script&gt;" in done.text
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 77
    assert "Nothing would change" in go(operator, begun(operator, "/policy/services/chat/edit?as=yaml")).text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "services:\n- name: chat\n  members:\n  - region: nowhere\n",
            ("Line 4", "there is no region nowhere"),
        ),
        ("services:\n- name: chat\n  membrs: []\n", ("Line 3", "did you mean members?")),
        ("services: [\n", ("Line 2",)),
        ("a: b: c\n", ("Line 1",)),
        ("nothing:\n- {}\n", ("Line 1", "unknown kind")),
        (f"services:\n- name: '{HOSTILE.replace(chr(39), '')}'\n", ("</textarea><b>",)),
        ("- " * 5000, ("nested deeper",)),
        ("x: \ud83d\u202e\n".encode("utf-16", "surrogatepass").decode("utf-16", "replace"), ()),
        ("\x00", ()),
        ("a: &a [*a]\n", ()),
    ],
)
@pytest.mark.reads
def test_problems_have_lines(world: Api, people: People, text: str, words: tuple[str, ...]) -> None:
    """As one types, and when one asks what it changes; whatever is typed."""
    operator = people(Role.OPERATOR)
    draft = {**begun(operator, "/policy/services/chat/edit?as=yaml"), "text": text}
    typed = operator.post("/policy/draft/problems", draft, **{"HX-Request": "true"})
    assert typed.status_code == 200
    assert_inert(typed.text)
    shown = go(operator, draft)
    assert shown.status_code == 422
    for word in words:
        assert word in plain(typed.text)
        assert word in plain(shown.text)
    assert rule(world)["allow"] == {"jurisdictions": ["EEA"], "regions": [], "operator_jurisdictions": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"draft": "", "text": ""},
        {"draft": "{}", "text": ""},
        {"draft": '{"text": "", "revision": -1}', "text": ""},
        {"draft": '{"text": "", "revision": 1, "delete": ["nothing/x"]}', "text": ""},
        {"draft": '{"text": "", "revision": 1, "delete": ["regions/a/../b?"]}', "text": ""},
        {"draft": '{"text": "", "revision": 1, "tags": {"regions/eu-west": "x"}}', "text": "a: 1"},
    ],
)
@pytest.mark.reads
def test_forms_that_are_not_ours(world: Api, people: People, fields: dict[str, str]) -> None:
    """A clear problem, and nothing done."""
    for do in ("preview", "apply", "yaml", "form", "merge", "share", "approve", HOSTILE):
        answer = people(Role.OPERATOR).post("/policy/draft", {**fields, "do": do, "reason": "x"})
        assert answer.status_code in (200, 400, 404, 409, 422), (do, answer.text)
        assert_inert(answer.text)


@pytest.mark.parametrize("packed", ["", "x", "eJw=", "🙂", "A" * 30_000])
@pytest.mark.reads
def test_links_that_are_not_ours(world: Api, people: People, packed: str) -> None:
    """Likewise."""
    answer = people(Role.VIEWER).get(f"/policy/draft?d={packed}")
    assert answer.status_code == 400
    assert "begin again" in answer.text


def test_the_whole_policy_is_edited(world: Api, people: People) -> None:
    """What the text does not hold is deleted; what somebody else changed elsewhere stays."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/edit")
    assert "residency_rules:" in draft["text"]
    draft["text"] = draft["text"].replace("- name: clinic\n", "- name: hospital\n")
    world.must_put("/v1/services/chat", {**CHAT, "ttl": 33})
    seen = go(operator, draft)
    assert seen.status_code == 200
    assert "Somebody else has changed <bdi>chat</bdi>" in seen.text
    assert "<code>ttl</code>" not in seen.text
    assert "deleted" in seen.text
    done = go(operator, carried(seen.text), "apply", reason="a new name")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 33
    assert world.viewer.get("/v1/tenants/clinic").status_code == 404
    assert world.viewer.get("/v1/tenants/hospital").status_code == 200


def test_two_editors_lose_nothing(world: Api, people: People) -> None:
    """The later one sees what it was, theirs and yours, chooses, and only then applies."""
    first, second = people(Role.OPERATOR), people(Role.ADMIN)
    path = "/policy/residency-rules/gdpr/edit?as=yaml"
    one, two = begun(first, path), begun(second, path)
    one["text"] = one["text"].replace("Chapter V", f"Chapter V, Art. 44 {HOSTILE.replace(chr(34), '')}")
    one["text"] = re.sub(r"legal_basis: (.*)", lambda found: f"legal_basis: >-\n    {found[1]}", one["text"])
    two["text"] = two["text"].replace("Chapter V", "Art. 46") + "  mode: monitor\n  on_anonymous: trust\n"
    two["text"] = two["text"].replace("  mode: monitor\n", "")
    assert go(first, one, "apply", reason="the article").url.path.startswith("/policy/revisions/")
    for do in ("preview", "apply"):
        shown = go(second, two, do, reason="mine")
        assert shown.status_code == 409
        assert "Theirs, in force now" in shown.text
        assert "both changed it" in shown.text
    seen = unescape(re.search(r'name="seen" value="([^"]*)"', shown.text)[1])  # type: ignore[index]
    kept = {**carried(shown.text), "seen": seen, "take/residency_rules/gdpr/legal_basis": "theirs"}
    late = {**kept, "seen": "{}"}
    assert go(second, late, "merge").status_code == 409
    together = go(second, kept, "merge")
    assert together.status_code == 200, together.text
    assert "<code>on_anonymous</code>" in together.text
    assert "<code>legal_basis</code>" not in together.text
    done = go(second, carried(together.text), "apply", reason="both", force_reason="the board wants it")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    assert "Art. 44" in rule(world)["legal_basis"]
    assert rule(world)["on_anonymous"] == "trust"


def test_other_fields_are_put_together(world: Api, people: People) -> None:
    """Nobody has to choose where nobody disagrees; but the later one looks again before it is applied."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/services/chat/edit?as=yaml")
    draft["text"] += "  ttl: 44\n"
    world.must_put("/v1/services/chat", {**CHAT, "min_ttl": 3})
    shown = go(operator, draft, "apply", reason="x")
    assert shown.status_code == 409
    assert "Both changes are in the draft now" in shown.text
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 30
    go(operator, carried(shown.text), "apply", reason="x")
    found = world.viewer.get("/v1/services/chat").json()
    assert (found["ttl"], found["min_ttl"]) == (44, 3)


def test_a_resource_that_was_deleted_meanwhile(world: Api, people: People) -> None:
    """The editor of what is gone has to say whether it is to be there again."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/tenants/clinic/edit")
    draft["text"] += "  weight: 2\n"
    assert world.operator.delete("/v1/tenants/clinic").status_code == 200
    shown = go(operator, draft)
    assert shown.status_code == 409
    assert "there is none" in shown.text
    seen = unescape(re.search(r'name="seen" value="([^"]*)"', shown.text)[1])  # type: ignore[index]
    again = go(operator, {**draft, "seen": seen, "take/tenants/clinic/": "yours"}, "merge")
    assert "created" in again.text
    gone = go(operator, {**draft, "seen": seen, "take/tenants/clinic/": "theirs"}, "merge")
    assert "Nothing would change" in gone.text


def test_a_resource_is_deleted(world: Api, people: People) -> None:
    """After a look at what that does; what is referred to is not."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/tenants/clinic/delete")
    assert go(operator, draft, "apply", reason="left").url.path.startswith("/policy/revisions/")
    assert world.viewer.get("/v1/tenants/clinic").status_code == 404
    needed = operator.get("/policy/regions/eu-west/delete")
    assert needed.status_code == 422
    assert "there is no region eu-west" in plain(needed.text)
    assert operator.get("/policy/tenants/clinic/delete").status_code == 404
    assert operator.get("/policy/jurisdictions/EEA/edit").status_code == 404


def test_the_gdpr_rule_is_written_in_the_form(world: Api, people: People) -> None:
    """What it says goes into the text and back; what is wrong is told in the form; it is applied."""
    world.operator.delete("/v1/residency-rules/gdpr", params={})
    operator = people(Role.FENCE_ADMIN)
    draft = begun(operator, "/policy/residency-rules/new")
    fields = {
        "kind": "residency_rules",
        "f:name": "eea-chat",
        "f:match.services": "chat",
        "f:match.client_jurisdictions": "EEA",
        "f:match.client_countries": "",
        "f:allow.jurisdictions": "EEA, CH",
        "f:mode": "enforce",
        "f:effective_from": "soon",
        "f:legal_basis": HOSTILE,
    }
    wrong = go(operator, draft, "preview", **fields)
    assert wrong.status_code == 422
    assert "must be a date and time" in wrong.text
    assert 'value="eea-chat"' in wrong.text
    fields["f:effective_from"] = ""
    as_yaml = go(operator, draft, "yaml", **fields)
    assert "name: eea-chat" in carried(as_yaml.text)["text"]
    seen = go(operator, draft, "preview", **fields)
    assert seen.status_code == 200, seen.text
    assert "created" in seen.text
    done = go(operator, carried(seen.text), "apply", reason="the law")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    found = world.viewer.get("/v1/residency-rules/eea-chat").json()
    assert found["allow"]["jurisdictions"] == ["EEA", "CH"]
    assert found["legal_basis"] == HOSTILE


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("services/chat", {"member:0:region": "eu-west", "member:0:weight": "2"}, "members"),
        ("services/chat", {"f:ttl": "x" * 100}, "`ttl`"),
        ("regions/eu-west", {"f:capacity.outstanding": "12"}, "capacity.outstanding"),
        ("regions/eu-west", {"f:lat": HOSTILE}, "lat"),
        ("regions/eu-west", {"f:lat": "nan"}, "lat"),
        ("regions/eu-west", {"f:country": "UK"}, "United Kingdom"),
    ],
)
@pytest.mark.reads
def test_forms_of_other_kinds(
    world: Api, people: People, path: str, fields: dict[str, str], words: str
) -> None:
    """They show what there is, and change what they are told to."""
    operator = people(Role.OPERATOR)
    text = operator.page(f"/policy/{path}/edit")
    assert_inert(text)
    answer = go(operator, carried(text), "preview", kind=path.partition("/")[0], **fields)
    assert answer.status_code in (200, 422)
    assert words.strip("`") in unescape(answer.text)


@pytest.mark.reads
def test_viewers_edit_nothing(world: Api, people: People) -> None:
    """They are offered nothing, and refused by hand."""
    viewer = people(Role.VIEWER)
    for path in ("/policy", "/policy/services/chat", "/policy?kind=regions"):
        text = viewer.page(path)
        assert "/edit" not in text
        assert "/new" not in text
        assert "/delete" not in text
    for path in (
        "/policy/edit",
        "/policy/regions/new",
        "/policy/services/chat/edit",
        "/policy/tenants/clinic/delete",
    ):
        assert viewer.get(path).status_code == 403
    draft = begun(people(Role.OPERATOR), "/policy/tenants/clinic/delete")
    assert viewer.post("/policy/draft", {**draft, "do": "apply", "reason": "x"}).status_code == 403
    assert world.viewer.get("/v1/tenants/clinic").status_code == 200


def test_a_fence_is_not_opened_unasked(world: Api, people: People) -> None:
    """An operator is refused; a fence admin says why."""
    draft = begun(people(Role.OPERATOR), "/policy/residency-rules/gdpr/edit?as=yaml")
    draft["text"] = draft["text"].replace(
        "  allow:\n    jurisdictions:\n    - EEA\n", "  allow:\n    jurisdictions:\n    - EEA\n    - US\n"
    )
    seen = go(people(Role.OPERATOR), draft)
    assert "<b>fence</b>" in seen.text
    assert "Your role may not overrule" in seen.text
    assert go(people(Role.OPERATOR), draft, "apply", reason="x").status_code == 409
    shared = go(people(Role.OPERATOR), draft, "share")
    assert shared.url.path == "/policy/draft"
    admin = people(Role.FENCE_ADMIN)
    opened = admin.page(f"{shared.url.path}?{shared.url.query.decode()}")
    assert "<b>fence</b>" in opened
    assert go(admin, carried(opened), "apply", reason="x").status_code == 409
    done = go(admin, carried(opened), "apply", reason="x", force_reason="the board decided")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    assert rule(world)["allow"]["jurisdictions"] == ["EEA", "US"]


@pytest.mark.reads
def test_the_effect_is_told_in_numbers(world: Api, people: People) -> None:
    """Or why there are none."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/residency-rules/gdpr/edit?as=yaml")
    for traffic in ("current", "recorded", HOSTILE):
        answer = operator.post(
            "/policy/draft/effect", {**draft, "traffic": traffic}, **{"HX-Request": "true"}
        )
        assert answer.status_code == 200
        assert_inert(answer.text)
        assert "no " in answer.text


def test_what_was_read_must_stand(world: Api) -> None:
    """The API's part: a partial policy, what it deletes, and what it was read from."""
    tag = world.viewer.get("/v1/tenants/clinic").headers["etag"]
    held = [{"kind": "tenants", "name": "clinic", "tag": tag}]
    part = {"policy": {"tenants": [{"name": "clinic", "weight": 2}]}, "partial": True}
    assert world.operator.post("/v1/policy:apply", json={**part, "unless_changed": held}).status_code == 200
    assert world.operator.post("/v1/policy:apply", json={**part, "unless_changed": held}).status_code == 412
    gone = {"policy": {}, "partial": True, "delete": [{"kind": "tenants", "name": "clinic"}]}
    done = world.operator.post("/v1/policy:apply", json=gone).json()
    assert [one["action"] for one in done["changes"]] == ["deleted"]
    assert rule(world)["legal_basis"] == GDPR["legal_basis"]


def test_a_second_person_approves(prepared_url: str) -> None:
    """By the draft's link: with a reason, of that change alone; their own approval counts for nothing."""
    with Server(prepared_url, fence_approvals=1) as server:
        admin, other = sign_in(server.url, TOKENS[Role.ADMIN]), sign_in(server.url, TOKENS[Role.FENCE_ADMIN])
        with httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}, trust_env=False
        ) as api:
            assert api.post("/v1/policy:apply", json={"policy": POLICY}).status_code == 200
        draft = begun(admin, "/policy/residency-rules/gdpr/delete")
        forced = {"reason": "it ended", "force_reason": "the contract ended"}
        refused = go(admin, draft, "apply", **forced)
        assert refused.status_code == 409
        assert "somebody else has to approve" in refused.text
        link = go(admin, draft, "share").url
        for person, counts in ((admin, False), (other, True)):
            text = person.page(f"{link.path}?{link.query.decode()}")
            shown = re.search(r'name="fingerprint" value="([0-9a-f]+)"', text)
            assert shown
            given = {"fingerprint": shown[1], "approval": HOSTILE}
            approved = go(person, carried(text), "approve", **given)
            assert "approved" in plain(approved.text)
            done = go(admin, carried(text), "apply", **forced)
            assert done.url.path.startswith("/policy/revisions/") is counts
        assert "approved by fence-admin-one" in plain(done.text)
        for one in (admin, other):
            one.client.close()
