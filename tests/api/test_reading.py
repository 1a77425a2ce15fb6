"""Where texts of drafts are read."""

from __future__ import annotations

from typing import Any

import pytest

from gtm.api.routes.policy import reading as route
from gtm.control.policy.drafts import DraftText
from tests.api.conftest import Api


@pytest.mark.usefixtures("processes")
def test_long_texts_are_read_apart(world: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control's own process, which serves feeds, reads short ones alone."""

    def never(_: DraftText) -> dict[str, Any]:
        raise AssertionError("read in control's own process")

    monkeypatch.setattr(route.drafts, "read", never)
    anchors = "tenants:\n- &one {name: clinic, weight: 0}\n"
    found = world.viewer.post("/v1/policy:read", json={"text": anchors, "partial": True})
    assert [one["path"] for one in found.json()["problems"]] == ["tenants.clinic.weight"]
    long = "#" * route.SHORT + "\ntenants:\n- name: clinic\n  weight: 0\n"
    found = world.viewer.post("/v1/policy:read", json={"text": long, "partial": True})
    assert found.status_code == 200, found.text
    assert [(one["line"], one["path"]) for one in found.json()["problems"]] == [(4, "tenants.clinic.weight")]
    assert found.json()["revision"] == world.viewer.get("/v1/status").json()["sync"]["revision"]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("count", [500, 10_000])
def test_what_anchors_repeat_is_read_like_all_else(world: Api, count: int) -> None:
    """One tenant under one name ten thousand times is a problem of the text, and no mistake of control's."""
    text = "tenants:\n- &a {name: a}\n" + "- *a\n" * count
    found = world.viewer.post("/v1/policy:read", json={"text": text, "partial": True})
    assert found.status_code == 200, found.text
    assert found.json()["problems"]
    assert found.json()["policy"] is None
