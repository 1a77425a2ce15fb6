"""Somebody who has nothing yet, and whose names are not those of any example: every page says what to do next, every form opens."""

from __future__ import annotations

import re
from html import unescape

import pytest

from gtm.core.model.access import Role
from gtm.core.model.kinds import KINDS
from gtm.dashboard.drafts import Draft
from gtm.dashboard.pages.policy.words import SLUGS
from tests.api.conftest import TOKENS, Api
from tests.dashboard.conftest import People, assert_inert, sign_in
from tests.dashboard.test_policy_drafts import begun, go

FORMS = ("services", "residency-rules", "spillover-rules")


@pytest.mark.parametrize("path", ["/", "/ask", "/regions", "/policy", "/simulate", "/residency"])
@pytest.mark.reads
def test_an_empty_world_says_what_to_do(api: Api, path: str) -> None:
    """And does not claim that all is well."""
    text = sign_in(api.url, TOKENS[Role.ADMIN]).page(path)
    assert_inert(text)
    assert "gtm init my-policy" in text
    assert '<a href="/policy">Policy</a>' in text
    assert "Nothing is wrong" not in text
    assert "All regions are up" not in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.reads
def test_everything_can_be_begun(api: Api, kind: str) -> None:
    """Also where nothing is that an example names."""
    person = sign_in(api.url, TOKENS[Role.ADMIN])
    assert f'href="/policy/{SLUGS[kind]}/new"' in person.page("/policy")
    assert_inert(person.page(f"/policy/{SLUGS[kind]}/new"))


@pytest.mark.parametrize("slug", FORMS)
@pytest.mark.reads
def test_a_new_form_names_what_there_is(world: Api, people: People, slug: str) -> None:
    """It carries nothing that it does not show, and what it shows is sound."""
    draft = begun(people(Role.OPERATOR), f"/policy/{slug}/new")
    assert "example.com" not in draft["text"]
    seen = go(people(Role.OPERATOR), draft)
    assert "+ created" in seen.text, seen.text


@pytest.mark.reads
def test_a_region_begins_as_yaml(world: Api, people: People) -> None:
    """Its form does not show the endpoints that it would have."""
    text = people(Role.OPERATOR).page("/policy/regions/new")
    assert "https://fra.example.com" in text
    assert 'id="gutter"' in text


def test_what_is_new_is_shown_whole(world: Api, people: People) -> None:
    """In the preview, which links to no page that there is not yet, and at its revision for good."""
    person = people(Role.ADMIN)
    draft = begun(person, "/policy/residency-rules/new")
    seen = go(person, draft)
    assert "legal_basis: Regulation" in seen.text
    assert 'href="/policy/residency-rules/new-residency-rule"' not in seen.text
    done = go(person, draft, "apply", reason="a new rule")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    assert "legal_basis: Regulation" in done.text
    assert (
        world.admin.delete("/v1/residency-rules/new-residency-rule?force=true&force_reason=x").status_code
        == 200
    )
    assert "legal_basis: Regulation" in person.page(done.url.path)
    assert "legal_basis: Regulation" in person.page(f"{done.url.path}/roll-back")


@pytest.mark.reads
def test_fields_say_what_is_wrong_with_them(world: Api, people: People) -> None:
    """Each beside itself, for eyes and for ears."""
    person = people(Role.OPERATOR)
    page = person.page("/policy/residency-rules/new")
    draft = {name: unescape(value) for name, value in re.findall(r'name="(draft)" value="([^"]*)"', page)}
    wrong = {
        "kind": "residency_rules",
        "f:name": "Of Mine",
        "f:effective_from": "<b>tomorrow",
        "f:legal_basis": "x",
    }
    shown = person.post("/policy/draft", {**draft, "text": "", **wrong, "do": "preview"})
    assert shown.status_code == 422
    assert_inert(shown.text)
    for field in ("name", "effective_from"):
        assert f'id="f-{field}-wrong"' in shown.text
        assert re.search(
            rf'<input id="f-{field}"[^>]* aria-invalid="true" aria-describedby="f-{field}-wrong', shown.text
        )
    assert "f-legal_basis-wrong" not in shown.text


@pytest.mark.reads
def test_a_viewer_opens_a_draft(world: Api, people: People) -> None:
    """A link leads whoever may change nothing to what it would do to traffic."""
    packed = Draft("services:\n- name: chat\n", 2).packed
    answer = people(Role.VIEWER).get(f"/policy/draft?d={packed}")
    assert answer.status_code == 200
    assert answer.url.path == "/simulate"
    assert answer.url.params["d"] == packed


def test_nothing_is_read_in_another_order_than_it_is_written(world: Api, people: People) -> None:
    """What turns text around is visible wherever somebody judges a change; in the editor it stays what it is."""
    person = people(Role.ADMIN)
    draft = begun(person, "/policy/residency-rules/new")
    draft["text"] = draft["text"].replace("Regulation", "\u202enoitalugeR\u2066")
    seen = go(person, draft)
    assert "U+202E</mark>noitalugeR<mark" in seen.text
    done = go(person, draft, "apply", reason="why\u202enot")
    assert "why<mark" in done.text
    changed = {**begun(person, "/policy/residency-rules/new-residency-rule/edit?as=yaml")}
    assert "\u202e" in changed["text"]
    changed["text"] = changed["text"].replace("\u202e", "\u202d")
    assert "U+202D</mark>noitalugeR" in go(person, changed).text
    for path in ("/policy/revisions", "/access/audit"):
        assert "why<mark" in person.page(path), path
