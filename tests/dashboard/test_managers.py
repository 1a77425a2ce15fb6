"""What tools manage, on pages: marked where it stands, edited only on purpose, let go of."""

from __future__ import annotations

import re
from typing import Any

from gtm.core.model.access import Role
from tests.api.conftest import Api
from tests.api.test_managers import CI, PROD, manager, put
from tests.dashboard.conftest import People, assert_inert
from tests.dashboard.test_policy_drafts import begun, go, plain

MARK = re.compile(r'<span class="managed">.*?</span></span>|<span class="managed">.*?</span>', re.DOTALL)


def words(text: str) -> str:
    """What a page says, in one line."""
    return re.sub(r"\s+", " ", plain(text))


def test_it_is_marked_wherever_it_stands(world: Api, people: People) -> None:
    """In lists, on its page, in the editor and the form, on the regions' pages; and found by it."""
    for path in (
        "/v1/tenants/clinic",
        "/v1/services/chat",
        "/v1/regions/eu-west",
        "/v1/residency-rules/gdpr",
    ):
        put(world, path, world.viewer.get(path).json(), PROD)
    viewer, operator = people(Role.VIEWER), people(Role.OPERATOR)
    for path in (
        "/policy",
        "/policy/tenants/clinic",
        "/policy/services/chat",
        "/regions",
        "/regions/eu-west",
    ):
        text = viewer.page(path)
        assert_inert(text)
        assert "Terraform <bdi>prod</bdi>" in text, path
    assert "Release it" not in viewer.page("/policy/services/chat")
    for path in (
        "/policy/services/chat/edit",
        "/policy/services/chat/edit?as=yaml",
        "/policy/residency-rules/gdpr/edit",
        "/policy/edit",
    ):
        text = operator.page(path)
        assert_inert(text)
        assert "Terraform’s next run will undo unless its code changes too" in words(text), path
    assert "Terraform" not in operator.page("/policy/zones/demo.test/edit")
    narrowed = viewer.page(f"/policy?managed_by={PROD}")
    assert "gdpr" in narrowed
    assert ">eu-central<" not in narrowed
    assert "Nothing in the policy is managed so" in viewer.page(f"/policy?managed_by={CI}")


def test_a_draft_is_applied_on_purpose_alone(world: Api, people: People) -> None:
    """The preview shows what another manages and a box; without it nothing is done, with it the manager stays."""
    put(world, "/v1/services/chat", world.viewer.get("/v1/services/chat").json(), PROD)
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/services/chat/edit?as=yaml")
    draft["text"] = draft["text"].replace("hostnames:", "ttl: 77\n  hostnames:")
    seen = go(operator, draft)
    assert "1 of these resources is managed by Terraform" in words(seen.text)
    assert (
        "Change it here on purpose. Terraform will undo this at the next run, unless its code changes too."
        in words(seen.text)
    )
    assert "--on-managed override" in seen.text
    refused = go(operator, draft, "apply", reason="incident 42")
    assert refused.status_code == 409
    assert "Managed by another" in words(refused.text)
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 30
    done = go(operator, draft, "apply", reason="incident 42", on_managed="override")
    assert done.url.path.startswith("/policy/revisions/"), done.text
    assert "overrides terraform/prod: incident 42" in words(done.text)
    assert world.viewer.get("/v1/services/chat").json()["ttl"] == 77
    assert manager(world, "/v1/services/chat") == PROD


def test_deleting_and_rolling_back_likewise(world: Api, people: People) -> None:
    """Whatever the page, the box."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    put(world, "/v1/tenants/clinic", {"weight": 2}, PROD)
    operator = people(Role.OPERATOR)
    page = "/policy/revisions/2/roll-back"
    seen = operator.page(page)
    assert 'name="on_managed"' in seen
    assert "Terraform <bdi>prod</bdi>" in seen
    fields = {"reason": "back", "revision": "3"}
    assert operator.post(page, fields).status_code == 409
    assert operator.post(page, {**fields, "on_managed": "override"}).url.path == "/policy/revisions/4"
    deleting = begun(operator, "/policy/tenants/clinic/delete")
    assert go(operator, deleting, "apply", reason="gone").status_code == 409
    assert go(operator, deleting, "apply", reason="gone", on_managed="override").status_code == 200
    assert world.viewer.get("/v1/tenants/clinic").status_code == 404


def test_nothing_is_asked_where_nobody_manages(world: Api, people: People) -> None:
    """No box, no mark."""
    operator = people(Role.OPERATOR)
    deleting = begun(operator, "/policy/tenants/clinic/delete")
    assert "on_managed" not in go(operator, deleting).text
    assert MARK.search(operator.page("/policy")) is None
    assert "Managed by" not in operator.page("/policy/tenants/clinic")


def test_releasing(world: Api, people: People) -> None:
    """With a reason, from whom the page said; a viewer may not."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    operator = people(Role.OPERATOR)
    path = "/policy/tenants/clinic/release"

    def release(by: Any = operator, **fields: str) -> Any:
        return by.post(path, {"manager": PROD, "reason": "gone", **fields})

    assert release(people(Role.VIEWER)).status_code == 403
    assert release(reason=" ").status_code == 422
    assert release(manager=CI).status_code == 404
    assert release(manager="<script>").status_code == 422
    assert manager(world, "/v1/tenants/clinic") == PROD
    assert release().url.path == "/policy/tenants/clinic"
    assert manager(world, "/v1/tenants/clinic") is None
    assert release().status_code == 404


def test_draining_asks_nothing(world: Api, people: People) -> None:
    """A region's state is operators', whoever manages the region."""
    path = "/v1/regions/eu-west"
    put(world, path, world.viewer.get(path).json(), PROD)
    operator = people(Role.OPERATOR)
    done = operator.post("/regions/eu-west/drain", {"reason": "smoke", "force": "yes"})
    assert done.status_code == 200
    assert world.viewer.get(path).json()["admin_state"] == "draining"
