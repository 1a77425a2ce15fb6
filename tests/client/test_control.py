"""A real control, asked by programs."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from gtm.client import (
    NEVER,
    AsyncControl,
    Conflict,
    Control,
    Forbidden,
    Invalid,
    NotFound,
    Options,
    PreconditionFailed,
    Unauthenticated,
    UsageError,
    calls,
)
from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api


def test_reading_and_writing(control: Control) -> None:
    """A dict goes back as it came, changed."""
    region = control.get_regions("eu-west")
    done = control.put_regions("eu-west", {**region, "reserve": 0.25}, comment="more room")  # type: ignore[typeddict-item]  # what is read can be put
    assert (done["outcome"], done["resource"]["reserve"]) == ("updated", 0.25)
    assert next(iter(control.list_revisions()))["comment"].endswith("more room")
    assert control.delete_tenants("clinic")["revision"] == done["revision"] + 1


@pytest.mark.drill
def test_lists_go_on_to_their_end(control: Control) -> None:
    """Page after page, whatever the size of pages; a page is asked for when it is wanted."""
    for number in range(25):
        control.put_tenants(f"t{number:02}", {})
    names = [f"t{number:02}" for number in range(25)]
    assert [one["name"] for one in control.list_tenants()][1:] == names
    assert [one["name"] for one in control.items(calls.list_tenants(limit=4))][1:] == names
    pages = list(control.pages(calls.list_tenants(limit=10)))
    assert [len(page["items"]) for page in pages] == [10, 10, 6]


def test_an_answer_that_is_known(control: Control) -> None:
    """An entity tag saves the reading of what has not changed, and the writing over what has."""
    first = control.send(calls.get_regions("eu-west"))
    assert (first.status, bool(first.etag)) == (200, True)
    assert control.send(calls.get_regions("eu-west"), known=first) is first
    control.put_regions("eu-west", {**first.value, "reserve": 0.3})  # type: ignore[typeddict-item]
    second = control.send(calls.get_regions("eu-west"), known=first)
    assert second.value["reserve"] == 0.3
    with pytest.raises(PreconditionFailed, match="revision 3"):
        control.put_regions("eu-west", {**first.value, "reserve": 0.4}, if_match=first.etag)  # type: ignore[typeddict-item]


def test_an_update_loses_nothing(control: Control) -> None:
    """Somebody writes between reading and writing: the change is made to what they wrote."""
    names = iter(f"Dublin {number}" for number in count())
    others = 1

    def change(region: dict[str, Any]) -> dict[str, Any]:
        nonlocal others
        if others:
            others -= 1
            control.put_regions("eu-west", {**region, "display_name": next(names)})  # type: ignore[typeddict-item]
        return {**region, "reserve": region["reserve"] + 0.1}

    done = control.update("regions", "eu-west", change, comment="ten more")
    assert (done.value["resource"]["display_name"], done.value["resource"]["reserve"]) == ("Dublin 0", 0.2)
    others = 100
    with pytest.raises(PreconditionFailed):
        control.update("regions", "eu-west", change)
    assert others == 95
    with pytest.raises(NotFound):
        control.update("regions", "nowhere", dict)
    with pytest.raises(UsageError, match="no kind of resource"):
        control.update("tokens", "x", dict)


def test_many_updates_at_once_are_all_made(world: Api) -> None:
    """As many writers as rounds, each adding its own: none is lost."""

    async def work() -> list[str]:
        async with AsyncControl(world.url, TOKENS[Role.OPERATOR]) as control:

            async def add(name: str) -> None:
                await control.update(
                    "regions", "eu-west", lambda region: {**region, "models": [*region["models"], name]}
                )

            await asyncio.gather(*(add(f"m{number}") for number in range(4)))
            return (await control.get_regions("eu-west"))["models"]

    assert sorted(asyncio.run(work())) == ["m0", "m1", "m2", "m3"]


def test_problems_are_exceptions(control: Control, world: Api) -> None:
    """By status, with all that is wrong."""
    with pytest.raises(NotFound) as gone:
        control.get_regions("nowhere")
    assert (gone.value.status, gone.value.code) == (404, "not_found")
    with pytest.raises(Invalid) as wrong:
        control.put_regions("x", {"lat": 91, "lon": 0, "country": "XX", "endpoints": []})
    assert {one.path for one in wrong.value.faults} >= {"regions.x.lat", "regions.x.endpoints"}
    assert all(str(one) in str(wrong.value) for one in wrong.value.faults)
    with pytest.raises(Conflict):
        control.delete_regions("eu-west")
    with (
        Control(world.url, TOKENS[Role.VIEWER], Options(retries=NEVER)) as viewer,
        pytest.raises(Forbidden),
    ):
        viewer.put_tenants("x", {})
    with Control(world.url, "gtm_no_token") as nobody, pytest.raises(Unauthenticated):
        nobody.get_status()


def test_lines_and_texts(control: Control) -> None:
    """The audit log comes line by line; metrics are text; what has no content is None."""
    control.put_tenants("acme", {})
    written = list(control.export_audit(action="tenant.put"))
    assert [entry["target"] for entry in written] == ["tenant acme"]
    assert "gtm_" in control.metrics()
    with pytest.raises(NotFound):
        control.forget_edge("nobody")


def test_a_tool_manages_what_it_writes(control: Control, world: Api) -> None:
    """`Options.managed_by` is said with each change."""
    options = Options(managed_by="terraform/prod")
    with Control(world.url, TOKENS[Role.ADMIN], options) as tool:
        tool.put_tenants("acme", {})
        assert tool.send(calls.get_tenants("acme")).managed_by == "terraform/prod"
    with pytest.raises(Conflict) as stands:
        control.put_tenants("acme", {"weight": 2})
    assert stands.value.code == "managed_by_another"


def test_asyncio(world: Api) -> None:
    """The same, for asyncio."""

    async def work() -> None:
        async with AsyncControl(world.url, TOKENS[Role.ADMIN]) as control:
            names = [one["name"] async for one in control.list_regions()]
            assert names == ["eu-central", "eu-west", "us-east"]
            first = await control.send(calls.get_regions("eu-west"))
            assert await control.send(calls.get_regions("eu-west"), known=first) is first
            with pytest.raises(NotFound):
                await control.get_regions("nowhere")
            assert [entry async for entry in control.export_audit()]
            assert "gtm_" in await control.metrics()

    asyncio.run(work())


def test_from_the_environment(world: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As commands find control."""
    monkeypatch.setenv("GTM_CONTROL_URL", world.url)
    monkeypatch.setenv("GTM_TOKEN", TOKENS[Role.VIEWER])
    with Control.from_environment() as control:
        assert control.get_status()["sync"]["revision"] == 2
